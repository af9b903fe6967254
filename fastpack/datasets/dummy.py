"""`DummyDataset`: random samples of given shapes, for testing a training loop without data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from fastpack.datasets.base import Dataset
from fastpack.display import facts
from fastpack.item_numbers import position_of


@dataclass(frozen=True)
class DummySampleConfig:
    """Define an array of the samples of a `DummyDataset`.

    Parameters
    ----------
    sample_key
        Its key in a sample.
    sample_shape
        Its shape.
    sample_type
        "float" (normally distributed float64) or "int" (int64 in [0, 512)).

    Raises
    ------
    ValueError
        If the type or the shape is invalid.

    Examples
    --------
    >>> import fastpack
    >>> fastpack.DummySampleConfig("input_ids", (4,), "int").sample_key
    'input_ids'
    """

    sample_key: str
    sample_shape: Sequence[int]
    sample_type: str

    def __post_init__(self) -> None:
        if self.sample_type not in ("float", "int"):
            raise ValueError(f"sample_type of {self.sample_key!r} is {self.sample_type!r}: choose float or int")
        if not all(isinstance(size, int) and size >= 0 for size in self.sample_shape):
            raise ValueError(f"sample_shape of {self.sample_key!r} is {self.sample_shape!r}: a list of sizes is needed")


class DummyDataset(Dataset):
    """Generate random samples {key: array} (as Modalities, but sample i is always the same for a seed).

    Parameters
    ----------
    num_samples
        The number of samples.
    sample_definition
        A `DummySampleConfig`, or a mapping of its fields, for each array of a sample.
    seed
        The seed.

    Examples
    --------
    >>> import fastpack
    >>> dataset = fastpack.DummyDataset(3, [fastpack.DummySampleConfig("input_ids", (2, 4), "int")])
    >>> len(dataset), dataset[0]["input_ids"].shape, dataset[0]["input_ids"].dtype
    (3, (2, 4), dtype('int64'))
    """

    _shown = facts(
        samples="_total",
        keys=lambda self: ", ".join(one.sample_key for one in self.sample_definition),
        seed="seed",
        closed="_closed",
    )

    def __init__(
        self, num_samples: int, sample_definition: Sequence[DummySampleConfig | Mapping[str, Any]], *, seed: int = 0
    ) -> None:
        self._total = self.num_samples = num_samples
        self.sample_definition = tuple(_definition(one) for one in sample_definition)
        self.seed = seed

    def _identity(self) -> bytes:
        arrays = [(one.sample_key, tuple(one.sample_shape), one.sample_type) for one in self.sample_definition]
        return repr((arrays, self.seed)).encode()

    def __getitem__(self, index: SupportsIndex) -> dict[str, npt.NDArray[Any]]:
        rng = np.random.default_rng((self.seed, position_of(index, self._total)))
        return {one.sample_key: _draw(one, rng) for one in self.sample_definition}


def _draw(definition: DummySampleConfig, rng: np.random.Generator) -> npt.NDArray[Any]:
    shape = tuple(definition.sample_shape)
    return rng.standard_normal(shape) if definition.sample_type == "float" else rng.integers(0, 512, shape)


def _definition(given: Any) -> DummySampleConfig:
    names = ("sample_key", "sample_shape", "sample_type")
    if not isinstance(given, Mapping):
        given = {name: getattr(given, name) for name in names}
    if set(given) != set(names):
        raise ValueError(f"a sample_definition has {', '.join(names)}, not {', '.join(map(str, given)) or 'nothing'}")
    return DummySampleConfig(**given)
