"""KempnerForge's configuration of data: the `[data]` table of its TOML files, and `--data.key=value` over it."""

from __future__ import annotations

import ast
import dataclasses
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from fastpack.io import PathLike, as_path, read_start

MAX_BYTES, MAX_PARTS, MAX_BITS = 1 << 18, 100, 4096  # of a file, a dotted key, a whole number
_DEEP_KEY = re.compile(
    rb"""(?<![A-Za-z0-9_-])(?:(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){%d}""" % MAX_PARTS
)
T = TypeVar("T")


@dataclass
class DatasetSource:
    """One source of a mixture: a folder of shards (`path`) or a Hugging Face dataset (`hf_name`), and its weight."""

    path: str = ""
    hf_name: str | None = None
    hf_config: str | None = None
    weight: float = 1.0
    name: str = ""

    def __post_init__(self) -> None:
        if not self.path and not self.hf_name:
            raise ValueError(f"DatasetSource '{self.name}' must have either path or hf_name")
        _require(self.weight > 0, "Dataset weight must be positive", self.weight)

    @property
    def label(self) -> str:
        """What phases call it: its name, else its path, else its hf_name."""
        return self.name or self.path or self.hf_name or ""


@dataclass
class TrainingPhase:
    """From the optimizer step `start_step` on: these weights (of sources by label), learning rate times `lr_scale`."""

    start_step: int
    dataset_weights: dict[str, float] = field(default_factory=dict)
    lr_scale: float = 1.0

    def __post_init__(self) -> None:
        _require(self.start_step >= 0, "TrainingPhase.start_step must be non-negative", self.start_step)
        _require(self.lr_scale > 0, "TrainingPhase.lr_scale must be positive", self.lr_scale)
        _require_weights("TrainingPhase.dataset_weights", self.dataset_weights)


@dataclass
class TrainSeeds:
    """What of the `[train]` table decides the order of samples."""

    seed: int = 42
    data_seed: int | None = None


@dataclass
class DataConfig:
    """KempnerForge's `[data]`, with its defaults. Raises ValueError for values out of range.

    Beside the keys: `train` (the seeds of `[train]`), `sampler_seed`, `source`, `schedule()`, and `data`, the object
    itself, where KempnerForge's code says `config.data`.
    """

    dataset_path: str = ""
    file_pattern: str = "*.npy"
    tokenizer_path: str = ""
    num_workers: int = 4
    pin_memory: bool = True
    prefetch_factor: int = 2
    hf_dataset_name: str | None = None
    hf_dataset_config: str | None = None
    hf_dataset_split: str = "train"
    hf_dataset_text_field: str = "text"
    hf_dataset_image_field: str = "image"
    hf_dataset_prompt_field: str = ""
    hf_image_size: int = 224
    hf_streaming: bool = False
    pack_sequences: bool = False
    datasets: list[DatasetSource] = field(default_factory=list)
    mix_temperature: float = 1.0
    phases: list[TrainingPhase] = field(default_factory=list)
    anneal_start_step: int = 0
    anneal_weights: dict[str, float] = field(default_factory=dict)
    train: TrainSeeds = field(default_factory=TrainSeeds, init=False)

    def __post_init__(self) -> None:
        _require(self.num_workers >= 0, "num_workers must be non-negative", self.num_workers)
        _require(self.prefetch_factor >= 1, "prefetch_factor must be >= 1", self.prefetch_factor)
        _require(self.hf_image_size >= 1, "hf_image_size must be >= 1", self.hf_image_size)
        _require(self.mix_temperature > 0, "mix_temperature must be positive", self.mix_temperature)
        steps = [phase.start_step for phase in self.phases]
        increasing = all(earlier < later for earlier, later in pairwise(steps))
        _require(increasing, "data.phases start_steps must be strictly monotonically increasing", steps)
        _require(self.anneal_start_step >= 0, "anneal_start_step must be non-negative", self.anneal_start_step)
        _require_weights("anneal_weights", self.anneal_weights)
        if self.phases and (self.anneal_start_step > 0 or self.anneal_weights):
            raise ValueError(
                "Cannot use both data.phases and data.anneal_start_step — use phases for multi-phase scheduling"
            )

    @property
    def data(self) -> DataConfig:
        """This object."""
        return self

    @property
    def sampler_seed(self) -> int:
        """The seed of the samplers: train.data_seed where it is given, else train.seed."""
        return self.train.seed if self.train.data_seed is None else self.train.data_seed

    @property
    def source(self) -> str:
        """Which key says where the data are: the first that is set of "datasets", "dataset_path" and "hf_dataset_name";
        "" when none is. Whether images are read with the text is the model's setting, not the data's.
        """
        keys = ("datasets", "dataset_path", "hf_dataset_name")
        return next((key for key in keys if getattr(self, key)), "")

    def schedule(self) -> list[TrainingPhase]:
        """The phases in order; annealing is one phase that leaves the learning rate alone."""
        if self.anneal_start_step > 0 and self.anneal_weights:
            return [TrainingPhase(self.anneal_start_step, self.anneal_weights)]
        return list(self.phases)


def load_config(path: PathLike, cli_args: Iterable[str] = ()) -> DataConfig:
    """The `[data]` table of a TOML file as KempnerForge reads it, `--data.key=value` arguments over it.

    A value is a Python literal where it can be read as one, else text; `--data.key` alone means true. Other tables are
    other people's, but for the seeds of `[train]`. Raises FileNotFoundError, and ValueError for a file that is no TOML,
    keys that there are not, and values of another type or out of range.
    """
    tables = _tables(path)
    data, train = dict(_table(tables, "data")), dict(_table(tables, "train"))
    for argument in cli_args:
        section, key, value = _parse(argument)
        if section in ("data", "train"):
            (data if section == "data" else train)[key] = value
    config = _build(DataConfig, data)
    config.train = _build(TrainSeeds, {key: train[key] for key in ("seed", "data_seed") if key in train})
    return config


def _tables(path: PathLike) -> dict[str, Any]:
    if not as_path(path).exists():
        raise FileNotFoundError(f"Config file not found: {path}")  # KempnerForge's text
    text = read_start(path, MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise ValueError(f"{path}: found more than {MAX_BYTES:,} bytes, expected a configuration of at most that")
    if _DEEP_KEY.search(text):  # tomllib's time grows with the square of the parts
        raise ValueError(f"{path}: found a key of more than {MAX_PARTS} parts, expected a configuration")
    try:
        return tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:  # also a date or a number that there is not, and brackets in brackets
        raise ValueError(f"{path}: no TOML: {error}") from error


class _Text(str):
    """A value of the command line, not yet read: whether `7` is a number depends on what it is for."""

    __slots__ = ()


def _parse(argument: str) -> tuple[str, str, Any]:
    """Section, key and value of `--section.key=value`."""
    name, equals, value = argument.partition("=")
    section, dot, key = name.removeprefix("--").partition(".")
    if not (name.startswith("--") and section and dot and key):
        raise ValueError(f"{argument!r} is no override: write --data.key=value")
    return section, key.replace("-", "_"), _Text(value) if equals else True


def _table(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, Mapping):
        raise ValueError(f"[{name}] is {table!r}, a table is needed")
    return table


def _build(kind: type[T], values: Mapping[str, Any]) -> T:
    """A dataclass of `kind` from a table; ValueError for unknown and missing keys and wrong types."""
    fields = {one.name: one for one in dataclasses.fields(kind) if one.init}  # type: ignore[arg-type]
    unknown = sorted(set(values) - set(fields))
    if unknown:
        raise ValueError(f"Unknown config keys in {kind.__name__}: {unknown}. Valid keys: {sorted(fields)}")
    hints = typing.get_type_hints(kind)
    needed = [name for name, one in fields.items() if _has_no_default(one) and name not in values]
    if needed:
        raise ValueError(f"{kind.__name__} needs {', '.join(needed)}")
    return kind(**{name: _convert(name, value, hints[name]) for name, value in values.items()})


def _has_no_default(one: dataclasses.Field[Any]) -> bool:
    return one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING


def _convert(name: str, value: Any, wanted: Any) -> Any:
    """`value` as the type `wanted`; ValueError when it is of another."""
    choices = typing.get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,)
    if isinstance(value, _Text):
        value = _literal(value, str in choices)
    if value is None and type(None) in choices:
        return None
    if type(value) is int and value.bit_length() > MAX_BITS:  # Python refuses to print such numbers
        raise ValueError(f"{name} is a number of {value.bit_length()} bits, at most {MAX_BITS} are taken")
    kind, inner = typing.get_origin(choices[0]) or choices[0], typing.get_args(choices[0])
    if kind is list and isinstance(value, (list, tuple)):
        return [_build(inner[0], _table({name: one}, name)) for one in value]
    if kind is dict and isinstance(value, Mapping):
        return {str(key): _convert(f"{name}.{key}", one, inner[1]) for key, one in value.items()}
    if kind is float and type(value) is int and abs(value) < 1 << 1023:  # others are no float
        return float(value)
    if type(value) is kind:
        return value
    raise ValueError(f"{name} is {value!r}, {kind.__name__} is needed")


def _literal(text: str, may_be_text: bool) -> Any:
    """A Python literal, else the text; where text is wanted, a literal only if it is text or None."""
    if text in ("true", "false"):
        return str(text) if may_be_text else text == "true"
    try:
        value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):  # the last two for many brackets or signs
        return str(text)
    return str(text) if may_be_text and not isinstance(value, (str, types.NoneType)) else value


def _require(good: bool, needed: str, found: object) -> None:
    """ValueError that begins with the words of KempnerForge's, which its users match on."""
    if not good:
        raise ValueError(f"{needed}, got {found}")


def _require_weights(name: str, weights: Mapping[str, float]) -> None:
    for source, weight in weights.items():
        _require(weight >= 0, f"{name}['{source}'] must be non-negative", weight)
