"""Several datasets as one: `MixtureDataset` (KempnerForge) and `CombinedDataset` (Modalities)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.datasets.concatenation import Concatenation
from fastpack.datasets.map_dataset import MapDataset
from fastpack.item_numbers import item_number, position_of


class MixtureDataset(Concatenation):
    """Concatenate datasets that a `MixtureSampler` draws from by weight (as KempnerForge).

    A sample is the dataset's own, with "dataset_idx" added: the number of its dataset, an int. A batch has dataset_idx
    as int64 [B], by default too.

    Parameters
    ----------
    datasets
        Datasets whose samples are dicts of arrays; those of other libraries as well.
    names
        One name per dataset.
    mix_tokenizers
        Combine datasets whose files were written with different tokenizers, as their side files record (see
        `TokenizerFingerprint`), with a DataWarning. By default they are refused.

    Attributes
    ----------
    datasets : list
        The datasets.
    dataset_names : list of str
        Their names.
    cumulative_sizes : list of int
        Where each dataset begins, and the number of all samples: the argument of `MixtureSampler`.

    Raises
    ------
    ValueError
        If there is no dataset, not one name per dataset, or the recorded tokenizers of two datasets differ.

    Examples
    --------
    >>> import tempfile, numpy as np, fastpack
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/a.npy", np.arange(10, dtype=np.uint16))
    >>> web = fastpack.MemoryMappedDataset(folder, seq_len=5)
    >>> books = fastpack.MemoryMappedDataset(folder, seq_len=5)
    >>> mixture = fastpack.MixtureDataset([web, books], names=["web", "books"])
    >>> mixture.cumulative_sizes
    [0, 2, 4]
    >>> mixture[3]["labels"], mixture[3]["dataset_idx"]
    (array([6, 7, 8, 9]), 1)
    >>> mixture.batch([0, 3])["dataset_idx"]
    array([0, 1])
    """

    _numbered = True

    def __init__(
        self, datasets: Sequence[MapDataset[Any]], names: Sequence[str], *, mix_tokenizers: bool = False
    ) -> None:
        if len(datasets) != len(names):
            raise ValueError("datasets and names must have the same length")
        if len(datasets) == 0:
            raise ValueError("At least one dataset is required")
        super().__init__(datasets, mix_tokenizers)
        self.cumulative_sizes, self.dataset_names = self._bounds, list(names)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return sample `index` with its "dataset_idx"; IndexError if it is out of range, also below 0."""
        index = item_number(index)
        if index < 0 or index >= self._total:
            raise IndexError(f"Index {index} out of range [0, {self._total})")
        number, local = self._locate(index)
        sample: dict[str, Any] = self.datasets[number][local]
        sample["dataset_idx"] = number
        return sample


class CombinedDataset(Concatenation):
    """Concatenate datasets into one (as Modalities).

    A sample is the dataset's own. Negative indices count from the end: `[-1]` is the last sample of the last dataset
    (in Modalities it is the last sample of the first dataset). `batch` and `fill` need datasets of the same outputs
    and row length.

    Parameters
    ----------
    datasets
        Map-style datasets with samples of any type.
    mix_tokenizers
        Combine datasets whose files were written with different tokenizers, as their side files record (see
        `TokenizerFingerprint`), with a DataWarning. By default they are refused.

    Attributes
    ----------
    datasets : list
        The datasets.
    cumulative_sizes : numpy.ndarray
        Where each dataset ends, in samples, exclusive: int64 [n_datasets].

    Raises
    ------
    ValueError
        If the recorded tokenizers of two datasets differ.

    Examples
    --------
    >>> import fastpack
    >>> combined = fastpack.CombinedDataset([["a", "b"], ["c"]])
    >>> len(combined), combined[1], combined[-1]
    (3, 'b', 'c')
    >>> combined.cumulative_sizes
    array([2, 3])
    """

    def __init__(self, datasets: Sequence[MapDataset[Any]], *, mix_tokenizers: bool = False) -> None:
        super().__init__(datasets, mix_tokenizers)
        self.cumulative_sizes = self._cumulative[1:]

    def __getitem__(self, index: int) -> Any:
        """Return sample `index`; IndexError if it is out of range."""
        number, local = self._locate(position_of(index, self._total))
        return self.datasets[number][local]

    def _absolute(self, index: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.where(index < 0, index + self._total, index)
