"""Checkpoints in the store: written whole or not at all, verified before they are used.

One folder each, `<prefix>/step-00000120-<attempt>/`, whose `manifest.json` is written last and lists the SHA-256 of
the other objects. A folder without a manifest is torn and counts for nothing. The name carries the attempt, so an
attempt that repeats steps never writes into the folder of the one that died. What the objects hold is the business of
`snapshot`.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass

from pipelines import storage
from pipelines.errors import CheckpointError, ObjectNotFoundError
from pipelines.storage import join, name_of
from pipelines.tracking import Point

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
CURVES = "curves.json"
"""All points of the training curves up to this step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A complete checkpoint, as its manifest describes it."""

    location: str
    step: int
    validation_loss: float
    recipe_digest: str
    objects: dict[str, str]
    """SHA-256 of each object, by its name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointStore:
    """The checkpoints of one training."""

    prefix: str
    recipe_digest: str
    """Checkpoints of another recipe are refused."""

    attempt: str = ""
    """Name of the attempt that writes."""

    keep_last: int = 2
    keep_best: int = 1

    def save(self, objects: Mapping[str, bytes], *, step: int, validation_loss: float) -> Checkpoint:
        """Write a checkpoint, then delete those that need not be kept."""
        location = join(self.prefix, f"step-{step:08d}-{self.attempt}")
        for name, data in objects.items():
            storage.write_bytes(join(location, name), data)
        checkpoint = Checkpoint(
            location=location,
            step=step,
            validation_loss=validation_loss,
            recipe_digest=self.recipe_digest,
            objects={name: hashlib.sha256(data).hexdigest() for name, data in objects.items()},
        )
        manifest = asdict(checkpoint)
        del manifest["location"]
        storage.write_json(join(location, MANIFEST), manifest)
        self._retire()
        return checkpoint

    def latest(self) -> Checkpoint | None:
        """The newest good checkpoint; `None` where nothing was saved yet.

        Raises:
            CheckpointError: A checkpoint belongs to another recipe, or there are some and all are damaged.
        """
        complete = self.kept()
        return _first_good(reversed(complete)) if complete else None

    def best(self) -> Checkpoint:
        """The good checkpoint with the smallest validation loss; of equals, the earliest.

        Raises:
            CheckpointError: There is none.
        """
        complete = self.kept()
        if not complete:
            raise CheckpointError(f"{self.prefix}: no complete checkpoint")
        return _first_good(sorted(complete, key=_by_loss))

    def kept(self) -> list[Checkpoint]:
        """All complete checkpoints, oldest step first."""
        manifests = [location for location in storage.list_objects(self.prefix) if name_of(location) == MANIFEST]
        found = [self._read(location.removesuffix(f"/{MANIFEST}")) for location in manifests]
        return sorted((c for c in found if c is not None), key=lambda c: (c.step, c.location))

    def _read(self, location: str) -> Checkpoint | None:
        """Describe one checkpoint; `None` if it was deleted since it was listed, or its manifest is damaged."""
        try:
            checkpoint = read_checkpoint(location)
        except ObjectNotFoundError:
            return None
        except CheckpointError as err:
            log.warning("checkpoint passed over: %s", err)
            return None
        if checkpoint.recipe_digest != self.recipe_digest:
            raise CheckpointError(
                f"{location}: made by recipe {checkpoint.recipe_digest}, but this training has recipe "
                f"{self.recipe_digest}; a changed recipe needs a run key of its own"
            )
        return checkpoint

    def _retire(self) -> None:
        """Delete what is neither among the newest nor among the best: the manifest first, then the rest."""
        complete = self.kept()
        keep = {c.location for c in complete[-self.keep_last :] + sorted(complete, key=_by_loss)[: self.keep_best]}
        for checkpoint in complete:
            if checkpoint.location not in keep:
                storage.delete_object(join(checkpoint.location, MANIFEST))
                storage.delete_objects(checkpoint.location)


def read_checkpoint(location: str) -> Checkpoint:
    """Describe the checkpoint at `location` from its manifest."""
    try:
        return Checkpoint(location=location, **storage.read_json(join(location, MANIFEST)))
    except (TypeError, ValueError) as err:
        raise CheckpointError(f"{location}/{MANIFEST}: not a checkpoint's manifest: {err}") from err


def read_object(checkpoint: Checkpoint, name: str) -> bytes:
    """The object `name` of a checkpoint, if it is what was written."""
    location = join(checkpoint.location, name)
    try:
        data = storage.read_bytes(location)
    except ObjectNotFoundError as err:
        raise CheckpointError(f"{location}: part of the checkpoint, but not there") from err
    found, expected = hashlib.sha256(data).hexdigest(), checkpoint.objects.get(name, "that it is no part of it")
    if found != expected:
        raise CheckpointError(f"{location}: SHA-256 is {found}, but the manifest says {expected}")
    return data


def pack_curves(points: list[Point]) -> bytes:
    """The curves as a checkpoint keeps them."""
    return json.dumps([astuple(point) for point in points], allow_nan=False).encode()


def read_curves(checkpoint: Checkpoint) -> list[Point]:
    """Read and verify the training curves up to a checkpoint."""
    return [Point(*row) for row in json.loads(read_object(checkpoint, CURVES))]


def _first_good(checkpoints: Iterable[Checkpoint]) -> Checkpoint:
    """The first whose checksums hold. A damaged one is passed over with a log line: the next is still good."""
    for checkpoint in checkpoints:
        try:
            for name in checkpoint.objects:
                read_object(checkpoint, name)
        except CheckpointError as err:
            log.warning("checkpoint passed over: %s", err)
        else:
            return checkpoint
    raise CheckpointError(f"{checkpoint.location} and all others are damaged; delete them to start anew")


def _by_loss(checkpoint: Checkpoint) -> tuple[float, int]:
    return checkpoint.validation_loss, checkpoint.step
