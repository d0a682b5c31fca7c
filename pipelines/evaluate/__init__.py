"""How good scores are: beside naive baselines, and beside the champion.

- `rows`       scores of rows or windows against their labels
- `events`     alarms over time against events: found, missed, how early, how many false ones a month
- `baselines`  what a score without a network would have been
- `bootstrap`  whether the difference of two models is more than luck
- `report`     all of it in one document
- `plots`      figures for MLflow
"""

from pipelines.evaluate.report import Report, Scored, beats

__all__ = ["Report", "Scored", "beats"]
