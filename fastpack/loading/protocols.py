"""What the loader needs of a dataset and of a sampler; `fastpack.loading.adapters` provides it for all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypedDict, TypeVar, runtime_checkable

import numpy as np

from fastpack.datasets.base import Indices
from fastpack.datasets.outputs import Allocate, IntArray, OutputDtype, Outputs
from fastpack.loading.context_parallel import CpLayout

BatchT_co = TypeVar("BatchT_co", covariant=True)


@runtime_checkable
class BatchDataset(Protocol[BatchT_co]):
    """A dataset that produces whole batches: every dataset of token rows in fastpack."""

    def __len__(self) -> int: ...

    def new_outputs(
        self,
        n_rows: int,
        outputs: Sequence[str] | None = None,
        dtype: OutputDtype | None = None,
        cu_seqlens_length: int | None = None,
        empty: Allocate = np.empty,
    ) -> Outputs:
        """Allocate the arrays that `fill` takes by `empty(shape, dtype)`."""
        ...

    def fill(self, indices: Indices, out: Any, /) -> None:
        """Write the samples `indices` into the arrays of `out`."""
        ...

    def batch(
        self,
        indices: Indices,
        outputs: Sequence[str] | None = None,
        dtype: OutputDtype | None = None,
        out: Any = None,
        *,
        cu_seqlens_length: int | None = None,
    ) -> BatchT_co:
        """Return the samples `indices` as arrays by name."""
        ...

    def will_need(self, indices: Indices, /) -> None:
        """Hint that these samples are needed soon."""
        ...

    def check_unchanged(self) -> None:
        """Raise FormatError if a file of the dataset has changed since construction."""
        ...


@runtime_checkable
class ResumableSampler(Protocol):
    """A sampler that can start anywhere in an epoch: every sampler in fastpack.

    Rank r of R takes the positions r, r + R, ... of an epoch's global order, so after k batches of b samples on R ranks
    exactly the first k * b * R positions are consumed.
    """

    @property
    def num_replicas(self) -> int:
        """The number of ranks."""
        ...

    def __len__(self) -> int: ...

    def blocks(self, size: int, /) -> Iterator[IntArray]:
        """Yield this rank's sample numbers from the skip on, `size` at a time; the last block may be shorter."""
        ...

    def set_epoch(self, epoch: int, /) -> None:
        """Choose the epoch, counted from 0."""
        ...

    def set_skip(self, skip: int, /) -> None:
        """Skip this rank's first `skip` samples in the next iteration."""
        ...

    def resume_at(self, consumed: int, base_num_replicas: int, /) -> None:
        """Continue after `consumed` samples of the global order for `base_num_replicas` ranks."""
        ...

    def forget_resume(self) -> None:
        """Undo `resume_at`."""
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """Return what the global order depends on, other than the epoch and the number of ranks."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the state, as JSON values; empty if there is none."""
        ...

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Load a state of `state_dict`."""
        ...


class LoaderOptions(TypedDict, total=False):
    """The keyword-only arguments of `StatefulDataLoader`."""

    prefetch: int | None
    outputs: Sequence[str] | None
    dtype: OutputDtype
    num_threads: int
    elastic: bool
    cu_seqlens_length: int | None
    context_parallel: tuple[int, int] | None
    cp_layout: CpLayout
    shapes_only: bool
    share_memory: bool | None
