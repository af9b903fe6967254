"""KempnerForge's data configuration: the `[data]` table of its TOML files, and `--data.key=value` overrides."""

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
from fastpack.loading.phases import TrainingPhase, require, require_weights

MAX_BYTES = 1 << 18  # of a file
MAX_KEYS = 100  # in a dotted key
MAX_BITS = 4096  # of an integer
_DEEP_KEY = re.compile(
    rb"""(?<![A-Za-z0-9_-])(?:(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){%d}""" % MAX_KEYS
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
        require(self.weight > 0, "Dataset weight must be positive", self.weight)

    @property
    def label(self) -> str:
        """The name that phases use: `name`, else `path`, else `hf_name`."""
        return self.name or self.path or self.hf_name or ""


@dataclass
class TrainSeeds:
    """The keys of the `[train]` table that determine the order of samples."""

    seed: int = 42
    data_seed: int | None = None


@dataclass
class DataConfig:
    """KempnerForge's `[data]` table, with its defaults; ValueError for values out of range.

    In addition to the keys it has `train` (the seeds of `[train]`), `sampler_seed`, `source`, `schedule()`, and `data`,
    the object itself, because KempnerForge's code reads `config.data`.
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
        require(self.num_workers >= 0, "num_workers must be non-negative", self.num_workers)
        require(self.prefetch_factor >= 1, "prefetch_factor must be >= 1", self.prefetch_factor)
        require(self.hf_image_size >= 1, "hf_image_size must be >= 1", self.hf_image_size)
        require(self.mix_temperature > 0, "mix_temperature must be positive", self.mix_temperature)
        steps = [phase.start_step for phase in self.phases]
        increasing = all(earlier < later for earlier, later in pairwise(steps))
        require(increasing, "data.phases start_steps must be strictly monotonically increasing", steps)
        require(self.anneal_start_step >= 0, "anneal_start_step must be non-negative", self.anneal_start_step)
        require_weights("anneal_weights", self.anneal_weights)
        if self.phases and (self.anneal_start_step > 0 or self.anneal_weights):
            raise ValueError(
                "Cannot use both data.phases and data.anneal_start_step — use phases for multi-phase scheduling"
            )

    @property
    def data(self) -> DataConfig:
        """The configuration itself, for KempnerForge's `config.data`."""
        return self

    @property
    def sampler_seed(self) -> int:
        """The seed of the samplers: train.data_seed if it is set, else train.seed."""
        return self.train.seed if self.train.data_seed is None else self.train.data_seed

    @property
    def source(self) -> str:
        """The key that locates the data: the first that is set of "datasets", "dataset_path" and "hf_dataset_name".

        "" if none is set. Whether images are read with the text is a setting of the model, not of the data.
        """
        keys = ("datasets", "dataset_path", "hf_dataset_name")
        return next((key for key in keys if getattr(self, key)), "")

    def schedule(self) -> list[TrainingPhase]:
        """Return the phases in order; annealing is one phase that does not change the learning rate."""
        if self.anneal_start_step > 0 and self.anneal_weights:
            return [TrainingPhase(self.anneal_start_step, self.anneal_weights)]
        return list(self.phases)


def load_config(path: PathLike, cli_args: Iterable[str] = ()) -> DataConfig:
    r"""Read the `[data]` table of a TOML file, with overrides (as KempnerForge).

    Parameters
    ----------
    path
        The TOML file. Other tables are ignored, except the seeds of `[train]`.
    cli_args
        Overrides `--data.key=value`. A value is parsed as a Python literal if possible, otherwise it is text;
        `--data.key` alone means true. Arguments of other sections are ignored.

    Returns
    -------
    DataConfig
        The settings of `[data]`; `train` has the seeds of `[train]`.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If the file is not TOML, a key is unknown, or a value has another type or is out of range.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> path = tempfile.mkdtemp() + "/run.toml"
    >>> with open(path, "w") as file:
    ...     _ = file.write('[data]\ndataset_path = "shards"\nnum_workers = 2')
    >>> config = fastpack.load_config(path, ["--data.num_workers=8"])
    >>> config.dataset_path, config.num_workers, config.prefetch_factor
    ('shards', 8, 2)
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
        raise ValueError(f"{path}: found more than {MAX_BYTES:,} bytes, expected a smaller configuration")
    if _DEEP_KEY.search(text):  # the time of tomllib is quadratic in the number of keys
        raise ValueError(f"{path}: found a dotted key of more than {MAX_KEYS} keys, expected a configuration")
    try:
        return tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:  # also an invalid date or number, and deeply nested brackets
        raise ValueError(f"{path}: invalid TOML: {error}") from error


class _Text(str):
    """An unparsed value of the command line: whether `7` is a number depends on the type of its key."""

    __slots__ = ()


def _parse(argument: str) -> tuple[str, str, Any]:
    """Return section, key and value of `--section.key=value`."""
    name, equals, value = argument.partition("=")
    section, dot, key = name.removeprefix("--").partition(".")
    if not (name.startswith("--") and section and dot and key):
        raise ValueError(f"{argument!r} is not an override: write --data.key=value")
    return section, key.replace("-", "_"), _Text(value) if equals else True


def _table(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, Mapping):
        raise ValueError(f"[{name}] is {table!r}, a table is needed")
    return table


def _build(kind: type[T], values: Mapping[str, Any]) -> T:
    """Construct a dataclass from a table; ValueError for unknown and missing keys and wrong types."""
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


def _convert(name: str, value: Any, expected: Any) -> Any:
    """Convert `value` to the type `expected`; ValueError if it has another one."""
    choices = typing.get_args(expected) if isinstance(expected, types.UnionType) else (expected,)
    if isinstance(value, _Text):
        value = _literal(value, str in choices)
    if value is None and type(None) in choices:
        return None
    if type(value) is int and value.bit_length() > MAX_BITS:  # Python refuses to print such numbers
        raise ValueError(f"{name} is a number of {value.bit_length()} bits, the maximum is {MAX_BITS}")
    kind, inner = typing.get_origin(choices[0]) or choices[0], typing.get_args(choices[0])
    if kind is list and isinstance(value, (list, tuple)):
        return [_build(inner[0], _table({name: one}, name)) for one in value]
    if kind is dict and isinstance(value, Mapping):
        return {str(key): _convert(f"{name}.{key}", one, inner[1]) for key, one in value.items()}
    if kind is float and type(value) is int and abs(value) < 1 << 1023:  # larger ones are not representable
        return float(value)
    if type(value) is kind:
        return value
    raise ValueError(f"{name} is {value!r}, {kind.__name__} is needed")


def _literal(text: str, text_expected: bool) -> Any:
    """Parse a Python literal, or return the text; where text is expected, a literal only if it is text or None."""
    if text in ("true", "false"):
        return str(text) if text_expected else text == "true"
    try:
        value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):  # the last two for deep nesting
        return str(text)
    return str(text) if text_expected and not isinstance(value, (str, types.NoneType)) else value
