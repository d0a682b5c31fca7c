"""Where a person goes from a task, and where the task's work points back to."""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperator, BaseOperatorLink, Context, conf

from pipelines import steps

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey


class TimeAndPlaceLink(BaseOperatorLink):
    """From a synchronisation to its charts of clocks, sensors and places, which our page serves out of the lake."""

    name = "Time and place"

    def get_link(self, operator: BaseOperator, *, ti_key: "TaskInstanceKey") -> str:
        """Address of the page; Airflow asks in the task process, after the task has ended. None if nothing was read."""
        staged = _attribute(operator, "staged")
        return _document_url(steps.document_path(staged, "sync.html")) if staged else ""


class DataDocsLink(BaseOperatorLink):
    """From a validation to its browsable report, which our page serves out of the lake."""

    name = "Data Docs"

    def get_link(self, operator: BaseOperator, *, ti_key: "TaskInstanceKey") -> str:
        """Address of the report; Airflow asks in the task process, after the task has ended, failed or not."""
        return _document_url(steps.document_path(_attribute(operator, "staged")))


class MlflowRunLink(BaseOperatorLink):
    """From a training to its MLflow run, from the moment that the job is submitted."""

    name = "MLflow run"

    def get_link(self, operator: BaseOperator, *, ti_key: "TaskInstanceKey") -> str:
        """Address of the run; Airflow asks in the task process, when the task defers and when it ends."""
        return steps.mlflow_run_url(_attribute(operator, "plan"))


def links_to(context: Context) -> dict[str, str]:
    """Addresses of the DAG run, the task that `context` belongs to, and our documents, for MLflow to point back."""
    ti = context["ti"]
    return {
        "airflow_run": f"{_base_url()}/dags/{ti.dag_id}/runs/{quote(ti.run_id)}",
        "airflow_task": ti.log_url,
        "airflow_documents": _document_url(""),
    }


def _document_url(path: str) -> str:
    """Address of a document of the lake's `docs` area, or of all of them."""
    return f"{_base_url()}/trackside/docs/{quote(path)}"


def _base_url() -> str:
    return str(conf.get("api", "base_url", fallback="http://localhost:8080")).rstrip("/")


def _attribute(operator: BaseOperator, name: str) -> Any:
    """A rendered template field; the link's signature knows only the base class."""
    return getattr(operator, name)
