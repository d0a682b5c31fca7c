"""The report of a synchronised recording that a person reads: HTML with nothing in it to fetch or to run."""

from pipelines.sync.report.overview import overview
from pipelines.sync.report.page import page

__all__ = ["overview", "page"]
