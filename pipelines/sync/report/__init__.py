"""The report of a synchronised recording that a person reads: one HTML file, with nothing in it to fetch or to run."""

from pipelines.sync.report.page import page

__all__ = ["page"]
