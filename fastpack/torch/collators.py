# mypy: disable-error-code="misc, override"
# pyright: reportIncompatibleMethodOverride=false
# (Both: the classes below narrow the arrays of their parents' batches to tensors.)
"""Modalities' collators, with batches of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastpack.loading.collators import DatasetBatch as _DatasetBatch
from fastpack.loading.collators import GPT2LLMCollateFn as _GPT2LLMCollateFn
from fastpack.loading.collators import LossMaskingCollateFnWrapper as _LossMaskingCollateFnWrapper
from fastpack.torch.tensors import from_arrays


@dataclass
class DatasetBatch(_DatasetBatch):
    """`fastpack.DatasetBatch` of tensors, with the methods that Modalities' training loop calls.

    Examples
    --------
    >>> import torch, fastpack.torch
    >>> batch = fastpack.torch.DatasetBatch({"input_ids": torch.zeros(2, 4)}, {"target_ids": torch.ones(2, 4)})
    >>> batch.device
    device(type='cpu')
    """

    @property
    def device(self) -> Any:
        """The device of the samples."""
        return next(iter(self.samples.values())).device

    def to(self, device: Any) -> None:
        """Move samples and targets to `device`, in place.

        Parameters
        ----------
        device
            A device, as torch names it.
        """
        self.samples = {name: tensor.to(device) for name, tensor in self.samples.items()}
        self.targets = {name: tensor.to(device) for name, tensor in self.targets.items()}

    def detach(self) -> None:
        """Detach samples and targets from the graph, in place."""
        self.samples = {name: tensor.detach() for name, tensor in self.samples.items()}
        self.targets = {name: tensor.detach() for name, tensor in self.targets.items()}

    def pin_memory(self) -> DatasetBatch:
        """Return a copy in page-locked memory; a DataLoader with pin_memory=True calls this.

        Returns
        -------
        DatasetBatch
            The copy.
        """
        samples = {name: tensor.pin_memory() for name, tensor in self.samples.items()}
        targets = {name: tensor.pin_memory() for name, tensor in self.targets.items()}
        return type(self)(samples, targets, self.batch_dim)


class GPT2LLMCollateFn(_GPT2LLMCollateFn):
    """`fastpack.GPT2LLMCollateFn` that returns tensors; samples may be arrays or tensors.

    Examples
    --------
    >>> import torch, fastpack.torch
    >>> collate = fastpack.torch.GPT2LLMCollateFn("input_ids", "target_ids")
    >>> batch = collate([{"input_ids": torch.arange(4)}])
    >>> batch.samples["input_ids"], batch.targets["target_ids"]
    (tensor([[0, 1, 2]]), tensor([[1, 2, 3]]))
    """

    def __call__(self, batch: Sequence[Mapping[str, Any]]) -> DatasetBatch:
        """Collate the samples."""
        return _batch_of_tensors(super().__call__(batch))


class LossMaskingCollateFnWrapper(_LossMaskingCollateFnWrapper):
    """`fastpack.LossMaskingCollateFnWrapper` that returns tensors; the wrapped collator may return either.

    Examples
    --------
    >>> import torch, fastpack.torch
    >>> class Tokenizer:
    ...     def get_token_id(self, token):
    ...         return {"<b>": 8, "<e>": 9}[token]
    >>> tokens = {"b_include_to_loss_token": "<b>", "e_include_to_loss_token": "<e>"}
    >>> collate = fastpack.torch.GPT2LLMCollateFn("input_ids", "targets")
    >>> masked = fastpack.torch.LossMaskingCollateFnWrapper(collate, ["targets"], -100, tokens, Tokenizer())
    >>> masked([{"input_ids": torch.tensor([1, 2, 8, 3, 4, 9, 5])}]).targets["targets"]
    tensor([[-100, -100,    3,    4, -100, -100]])
    """

    def __call__(self, batch: Any) -> Any:
        """Collate the samples and mask the targets."""
        collated = super().__call__(batch)
        if type(collated) is _DatasetBatch:
            return _batch_of_tensors(collated)
        collated.targets.update((name, from_arrays(collated.targets[name])) for name in self.target_keys_to_mask)
        return collated


def _batch_of_tensors(batch: _DatasetBatch) -> DatasetBatch:
    return DatasetBatch(from_arrays(batch.samples), from_arrays(batch.targets), batch.batch_dim)
