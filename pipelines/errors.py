"""The few errors of the project, each saying whether a retry can help."""


class TracksideError(Exception):
    """Base of all errors that a user or an orchestrator is meant to see."""

    retryable = False
    """Whether the same call may succeed later without anybody changing anything."""


class ConfigError(TracksideError):
    """A recipe or a setting is wrong; nothing was started."""


class RecordingError(TracksideError):
    """A recording, or one sensor of it, cannot be read as what it claims to be."""


class IncompleteRecordingError(RecordingError):
    """A recording is still landing: its manifest, or a file that the manifest lists, is not there yet."""

    retryable = True


class SuiteError(TracksideError):
    """An expectation suite would not check what it says."""


class DataQualityError(TracksideError):
    """A batch failed its suite and must not be trained on."""


class StoreError(TracksideError):
    """The object store did not answer, or answered that it is busy."""

    retryable = True


class StoreAccessError(TracksideError):
    """The object store refused the credentials or the operation."""


class ObjectNotFoundError(TracksideError):
    """Nothing is stored under this location."""


class ConflictError(TracksideError):
    """Somebody else wrote first; the conditional write was not carried out."""

    retryable = True


class LedgerError(TracksideError):
    """The promotion ledger is broken, or must not be written to now."""


class TrackingError(TracksideError):
    """The MLflow server did not answer."""

    retryable = True


class TrackingAccessError(TracksideError):
    """The MLflow server refused the credentials."""


class CheckpointError(TracksideError):
    """A checkpoint is torn, altered, or belongs to another recipe."""


class NonFiniteLossError(TracksideError):
    """The loss became NaN or infinite; training stopped before the optimiser saw it."""


class TrainingLostError(TracksideError):
    """The training job died without a verdict (node loss, kill); it resumes from its newest checkpoint."""

    retryable = True


class CapacityError(TracksideError):
    """The cluster has too little room now; wait rather than fail."""

    retryable = True


class FetchError(TracksideError):
    """A download broke off or is not the published file."""

    retryable = True


class ServiceError(TracksideError):
    """A local service could not be started, or died."""
