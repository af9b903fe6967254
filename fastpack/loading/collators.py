"""Modalities' collators: samples to inputs and targets, and targets masked outside marked spans."""

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
    """A batch of inputs and targets (as Modalities).

    Parameters
    ----------
    samples, targets
        Arrays [B, ...] by key.
    batch_dim
        The dimension whose size is `len()`.

    Examples
    --------
    >>> import numpy as np, fastpack
    >>> len(fastpack.DatasetBatch({"input_ids": np.zeros((4, 8))}, {"labels": np.zeros((4, 8))}))
    4
    """

    samples: dict[str, Any]
    targets: dict[str, Any]
    batch_dim: int = 0

    def __len__(self) -> int:
        return int(next(iter(self.samples.values())).shape[self.batch_dim])


class GPT2LLMCollateFn:
    """Collate blocks of L tokens into inputs and targets of L - 1 tokens (as Modalities).

    For the `collate_fn` of a DataLoader or StatefulDataLoader; picklable. Batches that a dataset of fastpack produces
    are not copied.

    Parameters
    ----------
    sample_key
        The key of the tokens in a sample, and of the inputs in the batch.
    target_key
        The key of the targets in the batch.

    Notes
    -----
    Calling it returns a `DatasetBatch` of two views, [B, L - 1], of one array of the samples' dtype. It raises KeyError
    for a sample without sample_key, and ValueError for samples of different lengths.

    Examples
    --------
    >>> import numpy as np, fastpack
    >>> collate = fastpack.GPT2LLMCollateFn("input_ids", "target_ids")
    >>> batch = collate([{"input_ids": np.array([1, 2, 3])}, {"input_ids": np.array([4, 5, 6])}])
    >>> batch.samples["input_ids"].tolist(), batch.targets["target_ids"].tolist()
    ([[1, 2], [4, 5]], [[2, 3], [5, 6]])
    """

    def __init__(self, sample_key: str, target_key: str) -> None:
        self.sample_key, self.target_key = sample_key, target_key

    def __call__(self, batch: Sequence[Mapping[str, Any]]) -> DatasetBatch:
        """Collate the samples."""
        tokens = self._tokens(batch)
        return DatasetBatch(samples={self.sample_key: tokens[:, :-1]}, targets={self.target_key: tokens[:, 1:]})

    def _tokens(self, batch: Sequence[Mapping[str, Any]]) -> npt.NDArray[Any]:
        if isinstance(batch, Rows) and self.sample_key in batch.batch:
            return np.asarray(batch.batch[self.sample_key])
        samples = [np.asarray(sample[self.sample_key]) for sample in batch]
        different = next((sample for sample in samples if sample.shape != samples[0].shape), None)
        if different is not None:
            found = f"{samples[0].shape} and {different.shape}"
            raise ValueError(f"samples under {self.sample_key!r} have different shapes: {found}")
        return np.stack(samples)


class LossMaskingCollateFnWrapper:
    """Mask the targets of another collator's batches outside spans that two tokens mark (as Modalities).

    Parameters
    ----------
    wrapped_collate_fn
        Returns batches with a dict `targets`.
    target_keys_to_mask
        The keys of the targets to mask.
    loss_ignore_index
        The value of masked targets.
    mask_tokens
        A mapping, or an object with attributes, b_include_to_loss_token and e_include_to_loss_token: the tokens before
        and after a span, which are masked themselves.
    tokenizer
        An object with `get_token_id(token)`.
    compat
        "modalities-0.5" masks a batch completely, with a warning, if one of the two tokens does not occur in it, and
        raises ValueError if a span ends before any starts.

    Raises
    ------
    ValueError
        If both tokens have the same id; when called, if spans are nested (with row and position).
    TypeError
        When called, if targets are neither integers nor floats.

    Warns
    -----
    DataWarning
        If a batch has no marker, so that it does not count towards the loss.

    Notes
    -----
    Rows are masked independently. A span that is open at the end of a block extends to its end; an end without a start
    closes a span that an earlier block opened, from the start of the block. (A block that lies completely within a span
    has no marker and is masked.) Targets keep their dtype unless loss_ignore_index does not fit: then they are int64 or
    float64.

    Examples
    --------
    >>> import numpy as np, fastpack
    >>> class Tokenizer:
    ...     def get_token_id(self, token):
    ...         return {"<b>": 8, "<e>": 9}[token]
    >>> tokens = {"b_include_to_loss_token": "<b>", "e_include_to_loss_token": "<e>"}
    >>> collate = fastpack.GPT2LLMCollateFn("input_ids", "targets")
    >>> masked = fastpack.LossMaskingCollateFnWrapper(collate, ["targets"], -100, tokens, Tokenizer())
    >>> masked([{"input_ids": np.array([1, 2, 8, 3, 4, 9, 5])}]).targets["targets"].tolist()
    [[-100, -100, 3, 4, -100, -100]]
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
            raise ValueError(f"compat is {compat!r}: omit it, or choose 'modalities-0.5'")
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
        """Collate the samples and mask the targets."""
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
