"""The samples of each split: which documents of which files, how many, and blended in which order."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastpack.datasets.gpt.blends import (
    Blend,
    BlendLike,
    BlendOrder,
    exhaustive_order,
    parse_blend,
    samples_per_file,
    weighted_order,
)
from fastpack.datasets.gpt.document_source import DocumentSource, Numbers
from fastpack.datasets.gpt.sample_order import Parts, SampleOrder, SampleRules
from fastpack.datasets.gpt.splits import SPLITS, Split, documents_of, normalized, split_shares
from fastpack.datasets.recorded_tokenizers import tokenizer_of_shards
from fastpack.datasets.segment_reader import SegmentReader
from fastpack.datasets.shard_masks import FileMasks
from fastpack.errors import DataWarning
from fastpack.io import is_remote
from fastpack.tokens.common_fingerprint import Recorded, described_files
from fastpack.tokens.megatron import prefix_of

WHOLE = (0.0, 1.0)  # the share of a split that has a blend of its own


class BuildOptions(NamedTuple):
    """The arguments of `GPTDataset.build` that determine the samples."""

    rules: SampleRules
    num_samples: Sequence[int | None]
    split: Split | None
    eos_token_id: int | None
    drop_last_valid: bool
    surplus: float
    mix_tokenizers: bool


class BlendedSamples:
    """The samples of a split.

    Attributes
    ----------
    split
        Its name.
    orders : list of SampleOrder
        One per file.
    blend : BlendOrder or None
        Which file each sample is taken from; None if there is only one.
    reader
        Reads the tokens of the files, by number.
    sources : list of DocumentSource
        The files that `reader` reads.
    recorded
        The tokenizer of the files, if it is recorded.
    """

    def __init__(
        self,
        split: str,
        orders: list[SampleOrder],
        blend: BlendOrder | None,
        reader: SegmentReader,
        sources: list[DocumentSource],
        files: list[int],
        recorded: Recorded | None,
    ) -> None:
        self.split, self.orders, self.blend, self.reader, self.recorded = split, orders, blend, reader, recorded
        self.sources = sources
        self._files = np.array(files, np.int64)  # the number of each order's file in `reader`
        self.n_samples = orders[0].n_samples if blend is None else blend.n_samples

    @property
    def has_signed_tokens(self) -> bool:
        """Whether the tokens of a file may be negative."""
        return any(order.source.tokens.dtype.kind != "u" for order in self.orders)

    def masks(self) -> FileMasks:
        """Return the loss masks of the files, by their numbers in `reader`."""
        sources = (order.source.tokens for order in self.orders)
        return FileMasks(dict(zip(self._files.tolist(), sources, strict=True)))

    def parts(self, samples: Numbers) -> tuple[Parts, Numbers, Numbers | None]:
        """Return the parts of these samples, the number of each part's file, and of each sample's order, if blended."""
        if self.blend is None:
            parts = self.orders[0].parts(samples)
            return parts, np.full(len(parts.samples), self._files[0]), None
        chosen, numbers = self.blend.locate(samples)
        found, files, sizes = [], [], np.empty(len(samples), np.int64)
        for number in np.unique(chosen).tolist():
            which = np.flatnonzero(chosen == number)
            parts = self.orders[number].parts(numbers[which])
            found.append((which[parts.samples], *parts[1:4]))
            files.append(np.full(len(parts.samples), self._files[number]))
            sizes[which] = parts.sizes
        none = np.empty(0, np.int64)
        together = [np.concatenate([none, *(arrays[k] for arrays in found)]) for k in range(4)]
        parts = Parts(together[0], together[1], together[2], together[3], sizes)
        return parts, np.concatenate([none, *files]), chosen


def build_splits(
    blend: BlendLike | None, blend_per_split: Sequence[BlendLike | None] | None, options: BuildOptions
) -> list[BlendedSamples | None]:
    """Return the samples of the train, valid and test splits; None for a split without a share or a blend."""
    n_samples = options.num_samples
    if len(n_samples) != len(SPLITS) or any(number is not None and number < 0 for number in n_samples):
        raise ValueError(f"num_samples={tuple(n_samples)!r}: three numbers are needed, or None")
    if (blend is None) == (blend_per_split is None):
        raise ValueError("pass blend, or blend_per_split")
    if blend_per_split is not None:
        if len(blend_per_split) != len(SPLITS):
            raise ValueError(f"blend_per_split has {len(blend_per_split)} blends: three are needed, or None")
        blends = [None if one is None else parse_blend(one) for one in blend_per_split]
        # A single file is not blended, though it may have a weight.
        blends = [one._replace(weights=None) if one and len(one.paths) == 1 else one for one in blends]
        shares = [WHOLE if one else None for one in blends]
    else:
        assert blend is not None
        if options.split is None:
            raise ValueError("split is needed for a blend of all splits")
        shares, blends = split_shares(options.split), [parse_blend(blend)] * len(SPLITS)
    return _SplitBuilder([one for one in blends if one], options).build(blends, shares)


class _SplitBuilder:
    """Opens every file once, for all splits."""

    def __init__(self, blends: list[Blend], options: BuildOptions) -> None:
        self._options = options
        paths = list(dict.fromkeys(path for blend in blends for path in blend.paths))
        self._numbers = {path: number for number, path in enumerate(paths)}
        self._sources = [DocumentSource(path, options.eos_token_id) for path in paths]
        for source in self._sources:
            _warn_of_old_indices(source)
        self._reader = SegmentReader([source.tokens for source in self._sources])
        described = [path for source in self._sources for path in described_files(source.tokens)]
        self._recorded = tokenizer_of_shards(described, options.mix_tokenizers, options.eos_token_id)

    def build(self, blends: Sequence[Blend | None], shares: Sequence[Any]) -> list[BlendedSamples | None]:
        return [
            self._samples(number, blend, share) if blend is not None and share is not None else None
            for number, (blend, share) in enumerate(zip(blends, shares, strict=True))
        ]

    def _samples(self, number: int, blend: Blend, share: tuple[float, float]) -> BlendedSamples:
        n_samples, weights = self._options.num_samples[number], blend.weights
        if weights is None:
            requested = [n_samples if len(blend.paths) == 1 else None] * len(blend.paths)
            orders = self._orders(number, blend, share, requested)
            make = None if len(orders) == 1 else self._by_size(number, orders, n_samples)
            return self._blended(number, orders, blend, make)
        if n_samples is None:
            raise ValueError(f"num_samples of {SPLITS[number]} is None: a blend with weights needs a number of samples")
        weights = normalized(weights)
        orders = self._orders(number, blend, share, samples_per_file(weights, n_samples, self._options.surplus))
        total = sum(samples_per_file(weights, n_samples))
        return self._blended(number, orders, blend, lambda sizes: weighted_order(weights, sizes, total))

    def _by_size(
        self, number: int, orders: list[SampleOrder], n_samples: int | None
    ) -> Callable[[list[int]], BlendOrder]:
        for order in orders:
            if not order.n_samples:
                raise ValueError(
                    f"{order.source.path}: its {order.n_tokens} tokens in the {SPLITS[number]} split are too few for a "
                    "sample: leave it out of the blend"
                )
        if n_samples is None:
            return exhaustive_order
        return lambda sizes: weighted_order([float(size) for size in sizes], sizes, min(n_samples, sum(sizes)))

    def _orders(
        self, number: int, blend: Blend, share: tuple[float, float], requested: Sequence[int | None]
    ) -> list[SampleOrder]:
        orders = []
        for path, n_samples in zip(blend.paths, requested, strict=True):
            source = self._sources[self._numbers[path]]
            documents = documents_of(share, source.n_documents)
            drop_last = SPLITS[number] != "valid" or self._options.drop_last_valid
            order = SampleOrder(source, documents, n_samples, self._options.rules, drop_last)
            if n_samples and not order.n_tokens:
                raise ValueError(
                    f"{source.path}: the {SPLITS[number]} split has no tokens, only documents {documents.start} to "
                    f"{documents.stop} of {source.n_documents}: pass another split, or 0 for it in num_samples"
                )
            _warn_of_rounding(order, SPLITS[number])
            orders.append(order)
        return orders

    def _blended(
        self, number: int, orders: list[SampleOrder], blend: Blend, make: Callable[[list[int]], BlendOrder] | None
    ) -> BlendedSamples:
        order = make([one.n_samples for one in orders]) if make is not None else None
        if order is not None and (short := order.first_exhausted()) is not None:
            raise ValueError(
                f"{blend.paths[short]} has {orders[short].n_samples} samples, fewer than the {SPLITS[number]} blend "
                "takes of it: increase mid_level_dataset_surplus"
            )
        files = [self._numbers[path] for path in blend.paths]
        return BlendedSamples(SPLITS[number], orders, order, self._reader, self._sources, files, self._recorded)


def _warn_of_rounding(order: SampleOrder, split: str) -> None:
    if order.n_rounded != order.n_exact and not order.rules.megatron:
        warnings.warn(
            f"{order.source.path}: the {split} split has {order.n_exact} samples; Megatron computes "
            f"{order.n_rounded}, in single precision, and so another order (compat='megatron' repeats that)",
            DataWarning,
            stacklevel=7,
        )


def _warn_of_old_indices(source: DocumentSource) -> None:
    """Warn of Megatron's index files in their default folder that are older than the tokens."""
    folder = os.path.join(prefix_of(source.path), "cache", "GPTDataset_indices")
    if is_remote(source.path) or not os.path.isdir(folder):
        return
    written = [entry.stat().st_mtime_ns for entry in os.scandir(folder) if entry.name.endswith(".npy")]
    changed = max((segment.stamp[1] or 0 for segment in source.tokens.segments() if segment.stamp), default=0)
    if written and min(written) < changed:
        warnings.warn(
            f"{folder}: Megatron's index files are older than the tokens of {source.path}. Megatron would use them "
            "nevertheless, and read other tokens in another order; fastpack does not use them. Delete the folder.",
            DataWarning,
            stacklevel=6,
        )
