"""Modalities' collators: samples -> inputs and targets, and targets that count within marked spans only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fastpack.datasets.base import Rows
from fastpack.loading.loss_mask import mask_targets, mask_targets_0_5_0


@dataclass
class DatasetBatch:
    """A batch: samples and targets, each {key: array [B, ...]}; its length is that of dimension batch_dim."""

    samples: dict[str, Any]
    targets: dict[str, Any]
    batch_dim: int = 0

    def __len__(self) -> int:
        return int(next(iter(self.samples.values())).shape[self.batch_dim])


class GPT2LLMCollateFn:
    """Samples of L tokens under sample_key -> a DatasetBatch: samples {sample_key: [B, L - 1]}, targets {target_key:
    the tokens that follow, [B, L - 1]}, two views of one array of the samples' dtype.

    It takes a list of dicts of arrays (or of what becomes one), as Modalities' own, and does not copy a batch that one
    of fastpack's datasets made at once. For a DataLoader's or StatefulDataLoader's `collate_fn`; picklable.
    Raises KeyError for a sample without sample_key, ValueError for samples of several lengths.
    """

    def __init__(self, sample_key: str, target_key: str) -> None:
        self.sample_key, self.target_key = sample_key, target_key

    def __call__(self, batch: Sequence[Mapping[str, Any]]) -> DatasetBatch:
        tokens = self._tokens(batch)
        return DatasetBatch(samples={self.sample_key: tokens[:, :-1]}, targets={self.target_key: tokens[:, 1:]})

    def _tokens(self, batch: Sequence[Mapping[str, Any]]) -> npt.NDArray[Any]:
        if isinstance(batch, Rows) and self.sample_key in batch.batch:
            return np.asarray(batch.batch[self.sample_key])
        samples = [np.asarray(sample[self.sample_key]) for sample in batch]
        different = next((sample for sample in samples if sample.shape != samples[0].shape), None)
        if different is not None:
            found = f"{samples[0].shape} and {different.shape}"
            raise ValueError(f"samples under {self.sample_key!r} have the shapes {found}: they make no batch")
        return np.stack(samples)


class LossMaskingCollateFnWrapper:
    """Another collator's batch, with loss_ignore_index for the targets outside spans marked by two tokens.

    A span lies between b_include_to_loss_token and e_include_to_loss_token, both not included, in the targets of each
    of target_keys_to_mask. mask_tokens: a mapping with these two, or an object with them as attributes; tokenizer: what
    has `get_token_id(token)`. Targets may be integers, or floats with whole numbers. Their dtype stays, unless
    loss_ignore_index does not fit into it: then it is int64 or float64.

    Each row is masked by itself. A span that the block ends counts to the end of the block. An end before any beginning
    ends a span that the block before began: it counts from the start of the block. (A block that lies within a span as
    a whole has no marker that would say so, and does not count.) A batch without markers is warned of.

    compat="modalities-0.5": a batch in whose targets one of the tokens does not occur at all is ignored whole, with a
    warning, and an end before any beginning raises ValueError.

    Raises ValueError for two equal tokens and, when called, for spans within spans, with row and position; TypeError
    for targets of another dtype.
    """

    def __init__(
        self,
        wrapped_collate_fn: Callable[[Any], Any],
        target_keys_to_mask: Sequence[str],
        loss_ignore_index: int,
        mask_tokens: Any,
        tokenizer: Any,
        *,
        compat: Literal["modalities-0.5"] | None = None,
    ) -> None:
        if compat not in (None, "modalities-0.5"):
            raise ValueError(f"compat is {compat!r}: leave it out, or choose 'modalities-0.5'")
        self.wrapped_collate_fn, self.tokenizer, self.compat = wrapped_collate_fn, tokenizer, compat
        self.target_keys_to_mask, self.loss_ignore_index = list(target_keys_to_mask), loss_ignore_index
        self.b_mask_token_id = tokenizer.get_token_id(_token(mask_tokens, "b_include_to_loss_token"))
        self.e_mask_token_id = tokenizer.get_token_id(_token(mask_tokens, "e_include_to_loss_token"))
        if self.b_mask_token_id == self.e_mask_token_id:
            raise ValueError(
                "b_mask_token_id and e_mask_token_id of the LossMaskingCollateFnWrapper must be different! "
                f"(both are {self.b_mask_token_id})"
            )

    def __call__(self, batch: Any) -> Any:
        collated = self.wrapped_collate_fn(batch)
        for key in self.target_keys_to_mask:
            collated.targets[key] = self._mask(np.asarray(collated.targets[key]))
        return collated

    def _mask(self, targets: npt.NDArray[Any]) -> npt.NDArray[Any]:
        mask = mask_targets if self.compat is None else mask_targets_0_5_0
        return mask(targets, self.b_mask_token_id, self.e_mask_token_id, self.loss_ignore_index)


def _token(mask_tokens: Any, name: str) -> str:
    if isinstance(mask_tokens, Mapping):
        if name not in mask_tokens:
            raise ValueError(f"mask_tokens has no {name}")
        token: str = mask_tokens[name]
        return token
    return str(getattr(mask_tokens, name))
