"""What a training leaves behind: `result.json` when it is done, `failure.json` when a retry cannot help."""

from dataclasses import asdict, dataclass

import pipelines.errors
from pipelines.errors import ObjectNotFoundError, TracksideError, TrainingLostError
from pipelines.storage import delete_object, join, read_json, write_json

RESULT = "result.json"
FAILURE = "failure.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """A finished training."""

    run_key: str
    steps: int
    train_loss: float
    """Of the last step."""

    validation_loss: float
    """Of the best checkpoint."""

    checkpoint: str
    """Location of the best checkpoint."""

    workers: int
    attempts: int
    """Worker groups that it took, over all jobs; 1 if nothing died."""

    goodput: dict[str, float]
    mlflow_run_id: str
    """Empty where nothing was tracked."""

    def save(self, run: str) -> str:
        """Store the outcome in the folder of the run; return where."""
        return write_json(join(run, RESULT), asdict(self))


def read_outcome(run: str) -> Outcome:
    """The outcome of the training whose folder is `run`.

    Raises:
        TracksideError: The error that a failed training left behind.
        TrainingLostError: There is neither a result nor a verdict.
    """
    try:
        return Outcome(**read_json(join(run, RESULT)))
    except ObjectNotFoundError:
        pass
    raise read_failure(run) or TrainingLostError(
        f"{run}: the training ended without a result and without a verdict; submitting it again resumes it"
    )


def read_failure(run: str) -> TracksideError | None:
    """The error that a training left behind, if it did."""
    try:
        failure = read_json(join(run, FAILURE))
    except ObjectNotFoundError:
        return None
    error_type: type[TracksideError] = getattr(pipelines.errors, failure["error"])
    return error_type(failure["message"])


def save_failure(run: str, error: TracksideError) -> str:
    """Leave an error behind that a retry would only repeat."""
    return write_json(join(run, FAILURE), {"error": type(error).__name__, "message": str(error)})


def clear_failure(run: str) -> None:
    """Forget the verdict of an earlier job, because a new one begins."""
    delete_object(join(run, FAILURE))
