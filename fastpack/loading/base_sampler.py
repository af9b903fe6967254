"""The base class of the samplers: epochs, skips, resuming in the middle of an epoch, and lazy iteration."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from fastpack.datasets.permutations import Indices
from fastpack.display import Described, facts
from fastpack.loading.order import BLOCK, Order, Steps, this_process
from fastpack.loading.resume import EpochPosition, check_order, json_fingerprint

ORDERS = ("torch", "feistel")


class EpochSampler(Described, ABC):
    """The sample numbers of a rank, epoch by epoch.

    Ranks take the global order of an epoch strided: rank r of R has its positions r, r + R, r + 2R, ... So once every
    rank has taken k samples, exactly the first k * R positions are consumed; `resume_at` relies on that.
    """

    _shown = facts(
        "num_samples",
        "rank",
        "num_replicas",
        "epoch",
        datasets="sizes",
        skipped="skip_num_global_samples",
        shuffle="shuffle",
        seed="seed",
        order="order",
        no_repeat=lambda self: self.no_repeat or None,
    )

    seed: int
    shuffle: bool
    drop_last: bool
    order: str
    num_samples: int

    def __init__(self, num_replicas: int | None, rank: int | None, order: str) -> None:
        default_replicas, default_rank = this_process() if num_replicas is None or rank is None else (1, 0)
        self.num_replicas = default_replicas if num_replicas is None else operator.index(num_replicas)
        self.rank = default_rank if rank is None else operator.index(rank)
        if self.num_replicas < 1 or not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"rank {self.rank} of {self.num_replicas}: ranks are counted from 0 to num_replicas - 1")
        if order not in ORDERS:
            raise ValueError(f"unknown order {order!r}: choose one of {', '.join(ORDERS)}")
        self.order = order
        self._epoch = 0
        self._skip = 0
        self._resume: EpochPosition | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, counted from 0; a change of the epoch undoes `resume_at`.

        Parameters
        ----------
        epoch
            The epoch.
        """
        if epoch != self._epoch:
            self._resume = None
        self._epoch = epoch

    def set_skip(self, skip: int) -> None:
        """Skip this rank's first `skip` samples, in the next iteration only.

        Parameters
        ----------
        skip
            Number of samples; a negative number counts as 0.
        """
        self._skip = skip

    def resume_at(self, consumed: int, base_num_replicas: int) -> None:
        """Continue the current epoch after `consumed` samples of its global order for `base_num_replicas` ranks.

        The current ranks take the rest strided, so a change of the world size neither loses nor repeats a sample.
        All ranks get the same number: with drop_last the last few samples (fewer than ranks) are dropped, otherwise the
        first samples of the order are repeated. Applies to every iteration until another epoch is set; `set_skip`
        counts from there. The world size may change any number of times in an epoch: `base_num_replicas` remains that
        of the epoch's start.

        Parameters
        ----------
        consumed
            Samples that all ranks together have consumed.
        base_num_replicas
            The number of ranks at the epoch's start.

        Raises
        ------
        ValueError
            If `consumed` is negative or `base_num_replicas` is below 1.
        """
        if consumed < 0 or base_num_replicas < 1:
            raise ValueError(f"cannot resume after {consumed} samples of {base_num_replicas} ranks")
        self._resume = EpochPosition(operator.index(consumed), operator.index(base_num_replicas))

    def forget_resume(self) -> None:
        """Undo `resume_at`: the next iteration starts with this rank's first sample of the epoch."""
        self._resume = None

    @abstractmethod
    def global_order_length(self, base_num_replicas: int) -> int:
        """Return the length of the current epoch's global order for this number of ranks, padding included.

        Parameters
        ----------
        base_num_replicas
            The number of ranks.

        Returns
        -------
        int
            Number of samples.
        """

    @abstractmethod
    def _layout(self, base_num_replicas: int) -> tuple[Order, int]:
        """Return the global order for this number of ranks and its length: position p is `order` at p modulo its n."""

    @abstractmethod
    def _own_steps(self) -> Steps:
        """Return this rank's whole epoch, without a resume."""

    def _steps(self) -> Steps:
        return self._own_steps() if self._resume is None else self._steps_from(self._resume)

    def _steps_from(self, start: EpochPosition) -> Steps:
        """Return this rank's share of the rest of the epoch."""
        order, length = self._layout(start.base)
        left = max(0, length - start.consumed)
        count = left // self.num_replicas if self.drop_last else -(-left // self.num_replicas)
        return Steps(order, max(1, length), start.consumed + self.rank, self.num_replicas, count)

    def _open(self) -> tuple[Steps, int]:
        """Return the epoch's steps and the first step to take; this consumes the skip."""
        steps, skip = self._steps(), max(0, self._skip)
        self._skip = 0
        return steps, min(skip, steps.count)

    def indices(self) -> Indices:
        """Return this rank's sample numbers of the epoch; this consumes the skip.

        Returns
        -------
        array
            int32 if the numbers fit, otherwise int64.
        """
        steps, skip = self._open()
        return steps.take(skip, steps.count - skip)

    def blocks(self, size: int = BLOCK) -> Iterator[Indices]:
        """Yield the sample numbers of `indices` in arrays of `size`; the last one may be shorter.

        With order="feistel", or without shuffling, only one array is in memory; torch's order takes 4 bytes a sample.

        Parameters
        ----------
        size
            Samples per array.

        Yields
        ------
        array
            The next sample numbers, int32 or int64 [size].
        """
        steps, skip = self._open()  # now, not with the first block: later settings apply to the next iteration
        return steps.settled().blocks(skip, size)

    def __iter__(self) -> SampleNumbers:
        return SampleNumbers(self)

    def __len__(self) -> int:
        """Return the samples of this rank in a whole epoch, regardless of skip and resume."""
        return self.num_samples

    def state_dict(self) -> dict[str, Any]:
        """Return the state: epoch, seed and ranks.

        Returns
        -------
        dict
            "epoch", "seed", "num_replicas" and "rank".
        """
        return {"epoch": self._epoch, "seed": self.seed, "num_replicas": self.num_replicas, "rank": self.rank}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the epoch only: seed, ranks and weights remain those of this run.

        Parameters
        ----------
        state
            A state of `state_dict`. Without "epoch", epoch 0 is restored.
        """
        self.set_epoch(state.get("epoch", 0))

    def fingerprint(self) -> dict[str, Any]:
        """Return what the global order depends on, in addition to the epoch and the number of ranks, as JSON values.

        Returns
        -------
        dict
            JSON values by name. Equal values mean equal orders, for the same epoch and number of ranks.
        """
        return {"order": self.order, "seed": self.seed, "shuffle": self.shuffle, "drop_last": self.drop_last}


class SampleNumbers(Iterator[int]):
    """An iteration over a rank's sample numbers, as Python ints, whose state can be saved and loaded.

    torchdata's StatefulDataLoader saves this state next to the sampler's, which has no position in the epoch.
    """

    def __init__(self, sampler: EpochSampler) -> None:
        self._sampler = sampler
        self._open()

    def _open(self) -> None:
        resume = self._sampler._resume
        steps, self._taken = self._sampler._open()
        self._rest = chain.from_iterable(block.tolist() for block in steps.settled().blocks(self._taken, BLOCK))
        self._saved = {
            "sampler": self._sampler.state_dict(),
            "order": json_fingerprint(self._sampler.fingerprint()),
            "resumed_at": None if resume is None else [resume.consumed, resume.base],
        }

    def __next__(self) -> int:
        number: int = next(self._rest)
        self._taken += 1
        return number

    def state_dict(self) -> dict[str, Any]:
        """Return how many of the rank's samples were taken, and what their order depends on, as JSON values."""
        return {"taken": self._taken, **self._saved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the last sample that was taken when the state was saved.

        Raises
        ------
        ValueError
            If this sampler has another order or another number of ranks.
        """
        saved, ranks = state["sampler"], self._sampler.num_replicas
        if state["taken"] and saved["num_replicas"] != ranks:
            raise ValueError(
                f"the sampler's state was saved in the middle of an epoch on {saved['num_replicas']} ranks, now there "
                f"are {ranks}: resume on {saved['num_replicas']} ranks, or use fastpack's StatefulDataLoader, which "
                "can resume on any number"
            )
        if state["taken"]:
            check_order(state["order"], json_fingerprint(self._sampler.fingerprint()))
        self._sampler.load_state_dict(saved)
        self._sampler.forget_resume()
        if state["resumed_at"] is not None:
            self._sampler.resume_at(*state["resumed_at"])
        self._sampler.set_skip(state["taken"])
        self._open()
