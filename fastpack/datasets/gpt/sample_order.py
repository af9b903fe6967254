"""The order of the samples of one token file: epochs of shuffled documents, cut into samples that are shuffled again.

The document index and the shuffle index are those of Megatron, from one stream of NumPy's legacy generator. They are
computed when the first sample is asked for. The sample index is not stored: the positions of samples are multiples of
the sequence length, and the ends of blocks of documents lead to the documents at a position.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.gpt.document_source import DocumentSource, Numbers
from fastpack.datasets.permutations import LegacyGenerator

SEPARATE_BELOW = 0.80  # of an epoch: a final epoch of fewer samples is shuffled by itself
BLOCK = 16  # documents whose end is stored: half a byte per document; a sample walks through 8 more on average
PARTS_PER_SAMPLE = 8  # expected at first; more parts take a second call


@dataclass(frozen=True)
class SampleRules:
    """What samples are: their length and extra token (0 or 1), the seed, and whether Megatron's errors are repeated."""

    sequence_length: int
    extra: int
    seed: int
    megatron: bool


class Parts(NamedTuple):
    """The parts of documents that samples consist of.

    samples: the number of each part's sample in the batch. columns: its first token in the sample. starts: its first
    token in the file. lengths: in tokens. All int64 [n]. sizes: the tokens of each sample, int64 [b].
    """

    samples: Numbers
    columns: Numbers
    starts: Numbers
    lengths: Numbers
    sizes: Numbers


class _Indices(NamedTuple):
    documents: npt.NDArray[np.int32]
    starts: Numbers
    ends: Numbers
    block_ends: Numbers
    shuffled: npt.NDArray[Any]


class SampleOrder:
    """The samples of some documents of a file.

    Parameters
    ----------
    n_requested
        The minimum number of samples, which determines the number of epochs; None: one epoch.
    drop_last
        Whether an incomplete last sample is dropped; otherwise it is padded.

    Attributes
    ----------
    n_samples : int
        The number of samples.
    n_tokens : int
        The tokens of all epochs.
    n_exact : int
        The number that exact arithmetic gives; it differs only where Megatron's rounding is repeated.
    """

    def __init__(
        self, source: DocumentSource, documents: range, n_requested: int | None, rules: SampleRules, drop_last: bool
    ) -> None:
        self.source, self.rules = source, rules
        self._chosen = documents
        per_epoch = source.n_tokens_of(documents)
        length, extra = rules.sequence_length, rules.extra
        self.n_epochs = -(-((n_requested or 0) * length + extra) // per_epoch) if per_epoch and n_requested else 1
        self.n_tokens = self.n_epochs * per_epoch
        available = max(0, self.n_tokens - extra)
        self.n_exact = available // length if drop_last else -(-available // length)
        self.n_rounded = self.n_exact if drop_last else _rounded_samples(available, length)
        self.n_samples = self.n_rounded if rules.megatron else self.n_exact
        self._before_final = self._samples_before_final_epoch(per_epoch, n_requested)
        self._attach()

    def _attach(self) -> None:
        self._lock = threading.Lock()
        self._indices: _Indices | None = None

    def _samples_before_final_epoch(self, per_epoch: int, n_requested: int | None) -> int | None:
        """Return the samples before the final epoch, if that is shuffled by itself."""
        if self.n_epochs == 1 or n_requested is None:
            return None
        length, extra = self.rules.sequence_length, self.rules.extra
        before = ((self.n_epochs - 1) * per_epoch - extra) // length
        separate = n_requested - before < int(SEPARATE_BELOW * ((per_epoch - extra) // length))
        return before if separate else None

    def indices(self) -> _Indices:
        """Return the indices; the first call computes them."""
        with self._lock:
            if self._indices is None:
                self._indices = self._computed()
        return self._indices

    def _computed(self) -> _Indices:
        generator, per_epoch = LegacyGenerator(self.rules.seed), len(self._chosen)
        documents = np.arange(self._chosen.start, self._chosen.stop, dtype=np.int32)
        if self.n_epochs > 1:
            documents = np.tile(documents, self.n_epochs)
        before, n_together = self._before_final, len(documents)
        if before is not None:
            n_together -= per_epoch
        generator.shuffle(documents[:n_together])
        generator.shuffle(documents[n_together:])
        starts, ends = self.source.bounds()
        block_ends = np.empty(-(-len(documents) // BLOCK), np.int64)
        kernels.part_blocks(documents, starts, ends, BLOCK, block_ends)
        dtype = np.int64 if self.n_samples >= np.iinfo(np.uint32).max - 1 else np.uint32
        shuffled = np.arange(self.n_samples, dtype=dtype)
        together = self.n_samples if before is None else min(before, self.n_samples)
        generator.shuffle(shuffled[:together])
        generator.shuffle(shuffled[together:])
        return _Indices(documents, starts, ends, block_ends, shuffled)

    def parts(self, samples: Numbers) -> Parts:
        """Return the parts of documents of these samples, in order; of empty documents too."""
        documents, starts, ends, block_ends, shuffled = self.indices()
        extra, length = self.rules.extra, self.rules.sequence_length
        positions = shuffled[samples].astype(np.int64) * length
        np.minimum(positions, max(0, self.n_tokens - extra), out=positions)
        order = (documents, starts, ends, BLOCK, block_ends)
        sizes, room = np.empty(len(samples), np.int64), PARTS_PER_SAMPLE * len(samples)
        while True:
            out = np.empty((4, room), np.int64)
            n_parts = kernels.sample_parts(positions, length + extra, extra, *order, sizes, out)
            if n_parts <= room:
                numbers, columns, first_tokens, lengths = out[:, :n_parts]
                return Parts(numbers, columns, first_tokens, lengths, sizes)
            room = n_parts

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_indices")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._attach()


def _rounded_samples(n_tokens: int, length: int) -> int:
    """Return the number of samples, an incomplete one included, as Megatron computes it: in single precision."""
    return int(np.ceil(np.int64(n_tokens).astype(np.float32) / np.float32(length)))
