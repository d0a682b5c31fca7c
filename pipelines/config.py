"""What a run is made of: frozen recipes, read from strict TOML.

A recipe decides the result of a run. It is versioned, stored in every checkpoint and in MLflow; where things are is
decided by the environment, never by a recipe. Unknown keys, missing keys and values of another type are errors before
any work starts.
"""

import hashlib
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipelines.errors import ConfigError

RECIPES = Path(__file__).parent / "recipes"


class _Part(BaseModel):
    """A frozen table of a recipe; unknown keys and wrong types are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class WindowConfig(_Part):
    """How an aligned recording is cut into training examples."""

    length_s: float = Field(gt=0)
    """Duration of one window, in seconds."""

    stride_s: float = Field(gt=0)
    """Time between the starts of neighbouring windows, in seconds."""

    rate_hz: float = Field(gt=0)
    """Rate of the samples inside a window, in hertz; the aligned table has the same."""

    channels: tuple[str, ...] = Field(min_length=1)
    """Columns of the aligned table that the model sees, in this order."""

    targets: tuple[str, ...] = Field(min_length=1)
    """Columns whose error is the anomaly score; a subset of `channels`."""

    min_valid_share: float = Field(default=0.9, ge=0, le=1)
    """Windows with a smaller share of valid readings in any channel are left out."""

    @model_validator(mode="after")
    def _check(self) -> "WindowConfig":
        if self.stride_s > self.length_s:
            raise ValueError(
                f"stride_s is {self.stride_s:g} s, but must lie in (0, length_s = {self.length_s:g}]: "
                "a longer stride leaves samples that no window covers"
            )
        if unknown := sorted(set(self.targets) - set(self.channels)):
            raise ValueError(f"target {unknown[0]!r} is not among channels {list(self.channels)}")
        return self

    @property
    def length(self) -> int:
        """Samples in one window."""
        return round(self.length_s * self.rate_hz)

    @property
    def stride(self) -> int:
        """Samples between the starts of neighbouring windows."""
        return max(1, round(self.stride_s * self.rate_hz))


class SplitConfig(_Part):
    """Which data the model never sees while it trains."""

    train_until: str = Field(default="", pattern=r"^(\d{4}-\d{2}-\d{2})?$")
    """First service day (`YYYY-MM-DD`) that is NOT trained on; empty, or all days on one side of it: `train_share`
    decides."""

    train_share: float = Field(default=0.5, gt=0, lt=1)
    """Share of the service days, oldest first, that may be trained on when `train_until` does not divide them."""

    validation_share: float = Field(default=0.2, gt=0, lt=1)
    """Share of what may be trained on that chooses the checkpoint and the alarm threshold instead: its newest whole
    recordings (of a single recording, its newest windows), or the last groups of a labelled table."""

    group: str = ""
    """Column of a labelled table whose values are never divided between parts (for example `fold`)."""


class ModelConfig(_Part):
    """The network."""

    kind: Literal["transformer_forecaster", "table_classifier"]
    """`transformer_forecaster` predicts `targets` from what came before; `table_classifier` labels rows."""

    width: int = Field(default=32, gt=0)
    """Features inside the network."""

    layers: int = Field(default=2, gt=0)
    """Encoder layers, or hidden layers of the classifier."""

    heads: int = Field(default=4, gt=0)
    """Attention heads of an encoder layer; divides `width`."""

    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the features dropped while training."""

    members: int = Field(default=1, gt=0)
    """Independently initialised networks whose outputs are averaged (classifier only)."""

    @model_validator(mode="after")
    def _check(self) -> "ModelConfig":
        if self.kind == "transformer_forecaster" and self.width % self.heads:
            raise ValueError(f"width is {self.width}, but must be a multiple of heads = {self.heads}")
        if self.kind == "transformer_forecaster" and self.members > 1:
            raise ValueError(f"members is {self.members}, but must be 1: only the table_classifier is an ensemble")
        return self


class TrainConfig(_Part):
    """How the network is fitted."""

    workers: int = Field(default=2, ge=1)
    """Processes that train together, unless the trigger asks for another number."""

    epochs: int = Field(default=5, ge=1)
    """Passes over the training windows."""

    batch_per_worker: int = Field(default=64, ge=1)
    """Examples that one worker takes in one step; the global batch is this times the number of workers."""

    learning_rate: float = Field(default=1e-3, gt=0)
    """Peak learning rate for `reference_batch`."""

    reference_batch: int = Field(default=128, ge=1)
    """Global batch that `learning_rate` was chosen for."""

    lr_scaling: Literal["linear", "none"] = "linear"
    """`linear`: multiply by global batch / `reference_batch`, reached after the warm-up (Goyal et al. 2017)."""

    warmup_steps: int = Field(default=20, ge=0)
    """Steps over which the learning rate grows from zero."""

    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay of AdamW."""

    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """How far hard labels are moved towards one half (classifier only)."""

    positive_weight: float = Field(default=1.0, gt=0)
    """Weight of a positive example in the loss (classifier only)."""

    checkpoint_every_steps: int = Field(default=50, ge=1)
    """Steps between checkpoints; the end of an epoch always makes one."""

    keep_last: int = Field(default=2, ge=1)
    """Newest checkpoints that are kept."""

    keep_best: int = Field(default=1, ge=1)
    """Best checkpoints by validation loss that are kept."""

    max_failures: int = Field(default=3, ge=0)
    """Times the engine may restart lost workers inside one job."""


class GateConfig(_Part):
    """What a candidate must show before the alias `champion` moves to it."""

    metric: Literal["f1", "precision", "recall", "pr_auc", "event_recall"]
    """Score of the report that decides; larger is better."""

    minimum: float
    """Smallest score that passes."""

    margin_over_champion: float = 0.0
    """The candidate must be better than the champion, on the same held-out data, by more than this."""

    beat_baselines: bool = True
    """Whether every naive baseline must be beaten."""


class Recipe(_Part):
    """Everything that decides the outcome of a run; saved next to the model it made."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    """Name of the recipe, of the registered model and of the MLflow experiment."""

    source: Literal["bundle", "metropt3", "metropt3_windows"]
    """Source whose table is trained on."""

    events: str = ""
    """Kind of labelled event that the scores are judged against; empty: none."""

    seed: int = 0
    """Seed of initialisation and sample order."""

    window: WindowConfig | None = None
    """Present for recordings, absent for labelled tables."""

    label: str = ""
    """Label column of a labelled table; empty for recordings."""

    split: SplitConfig = SplitConfig()
    model: ModelConfig
    train: TrainConfig = TrainConfig()
    gate: GateConfig

    @model_validator(mode="after")
    def _check(self) -> "Recipe":
        if (self.window is None) == (self.label == ""):
            raise ValueError("exactly one of [window] (recordings) and label (labelled tables) must be given")
        fitting = "table_classifier" if self.label else "transformer_forecaster"
        if self.model.kind != fitting:
            raise ValueError(f"model.kind is {self.model.kind!r}, but must be {fitting!r} for this kind of table")
        if self.split.group and not self.label:
            raise ValueError(f"split.group is {self.split.group!r}, but recordings are divided by time")
        return self

    @property
    def digest(self) -> str:
        """Hash of all that the recipe says; two recipes with the same digest are the same."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    def override(self, **train: Any) -> "Recipe":
        """Return the recipe with values of its `[train]` table replaced (`None` keeps one), checked anew."""
        chosen = {key: value for key, value in train.items() if value is not None}
        return parse_recipe({**self.model_dump(), "train": {**self.train.model_dump(), **chosen}}, where=self.name)


def load_recipe(name: str) -> Recipe:
    """Read the recipe called `name`, or the one in the file `name` if it ends in `.toml`."""
    path = Path(name) if name.endswith(".toml") else RECIPES / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(recipe_names())
        raise ConfigError(f"no recipe {name!r}: expected one of {known}, or the path of a .toml file")
    try:
        table = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as err:
        raise ConfigError(f"{path.name}: not valid TOML: {err}") from err
    return parse_recipe(table, where=path.name)


def parse_recipe(table: dict[str, Any], *, where: str) -> Recipe:
    """Check a recipe that was read from `where` and return it."""
    try:
        return Recipe.model_validate(_lists_to_tuples(table))
    except ValidationError as err:
        faults = [_describe(error) for error in err.errors()[:10]]
        raise ConfigError(f"{where}: " + "; ".join(faults)) from err


def recipe_names() -> list[str]:
    """Names of the recipes that come with the project."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def _lists_to_tuples(value: Any) -> Any:
    """TOML has lists where a frozen recipe has tuples."""
    if isinstance(value, dict):
        return {key: _lists_to_tuples(item) for key, item in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _describe(error: Any) -> str:
    """One fault of a recipe: the key, the value found, what would be right."""
    key = ".".join(str(part) for part in error["loc"]) or "recipe"
    if error["type"] == "extra_forbidden":
        return f"no such key {key!r}"
    if error["type"] == "missing":
        return f"key {key!r} is missing"
    return f"{key} is {error['input']!r}: {error['msg']}"
