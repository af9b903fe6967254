"""What the three samplers have in common: epochs, skips, resuming in the middle of one, and lazy iteration."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fastpack.datasets.permutations import Indices
from fastpack.display import Described, facts
from fastpack.loading.order import BLOCK, Order, Steps, integers, this_process
from fastpack.loading.resume import check_order, fingerprint

ORDERS = ("torch", "feistel")


class Resume(NamedTuple):
    """Where an epoch goes on: its global order as `base_num_replicas` ranks had it, `consumed` samples of it done."""

    consumed: int
    base_num_replicas: int


class EpochSampler(Described, ABC):
    """A rank's sample numbers, epoch by epoch.

    Ranks take the global order of an epoch strided: rank r of R has its places r, r + R, r + 2R, ... So once every
    rank has taken k samples, exactly the first k * R places are done, which is what `resume_at` builds on.
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
        self._resume: Resume | None = None

    @property
    def epoch(self) -> int:
        """The epoch whose order comes next."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, counted from 0; another one than now forgets `resume_at`."""
        if epoch != self._epoch:
            self._resume = None
        self._epoch = epoch

    def set_skip(self, skip: int) -> None:
        """Leave out this rank's first `skip` samples, in the next iteration only."""
        self._skip = skip

    def resume_at(self, consumed: int, base_num_replicas: int) -> None:
        """Go on with the current epoch after `consumed` samples of its global order for `base_num_replicas` ranks.

        This rank takes what is left strided over the ranks of now, so that a change of the world size neither loses nor
        repeats a sample. Ranks get equally many: with drop_last the last few (fewer than ranks) are left out, otherwise
        the order's first samples fill up. Holds until another epoch is set, for every iteration; `set_skip` counts from
        there. Any number of changes in one epoch: `base_num_replicas` stays what it was at the epoch's start.

        Raises ValueError when one of the numbers cannot be.
        """
        if consumed < 0 or base_num_replicas < 1:
            raise ValueError(f"cannot resume after {consumed} samples of {base_num_replicas} ranks")
        self._resume = Resume(operator.index(consumed), operator.index(base_num_replicas))

    def forget_resume(self) -> None:
        """Take back `resume_at`: the next iteration begins with this rank's first sample of the epoch."""
        self._resume = None

    @abstractmethod
    def global_order_length(self, base_num_replicas: int) -> int:
        """Samples in the global order of the current epoch as it is laid out for so many ranks, padding included."""

    @abstractmethod
    def _layout(self, base_num_replicas: int) -> tuple[Order, int]:
        """The global order for so many ranks: place p < length of it is `order` at p modulo its n."""

    @abstractmethod
    def _own_steps(self) -> Steps:
        """This rank's whole epoch when nothing is resumed."""

    def _steps(self) -> Steps:
        return self._own_steps() if self._resume is None else self._steps_from(self._resume)

    def _steps_from(self, start: Resume) -> Steps:
        """This rank's share of what is left."""
        order, length = self._layout(start.base_num_replicas)
        left = max(0, length - start.consumed)
        count = left // self.num_replicas if self.drop_last else -(-left // self.num_replicas)
        return Steps(order, max(1, length), start.consumed + self.rank, self.num_replicas, count)

    def _open(self) -> tuple[Steps, int]:
        """The epoch's steps and the first to take; the skip is used up."""
        steps, skip = self._steps(), max(0, self._skip)
        self._skip = 0
        return steps, min(skip, steps.count)

    def indices(self) -> Indices:
        """This rank's sample numbers of the epoch from the skip on, which is used up: int32 if they fit, else int64."""
        steps, skip = self._open()
        return steps.take(skip, steps.count - skip)

    def blocks(self, size: int = BLOCK) -> Iterator[Indices]:
        """The same as arrays of `size` (the last one shorter), made one by one: memory for all is not needed.

        With order="feistel" and without shuffling nothing else is held; torch's order holds 4 bytes a sample.
        """
        steps, skip = self._open()  # now, not when the first block is taken: what is set afterwards holds from the next
        return steps.settled().blocks(skip, size)

    def __iter__(self) -> SampleNumbers:
        return SampleNumbers(self)

    def __len__(self) -> int:
        """Samples of this rank in a whole epoch, whatever is skipped or resumed."""
        return self.num_samples

    def state_dict(self) -> dict[str, Any]:
        """`{"epoch", "seed", "num_replicas", "rank"}`."""
        return {"epoch": self._epoch, "seed": self.seed, "num_replicas": self.num_replicas, "rank": self.rank}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the epoch, and only that: seed, ranks and weights are this run's."""
        self.set_epoch(state.get("epoch", 0))

    def fingerprint(self) -> dict[str, Any]:
        """What the global order depends on beside epoch and number of ranks; equal fingerprints, equal orders."""
        return {"order": self.order, "seed": self.seed, "shuffle": self.shuffle, "drop_last": self.drop_last}


class SampleNumbers(Iterator[int]):
    """An iteration over a rank's sample numbers, as Python ints, that can be saved and resumed.

    torchdata's StatefulDataLoader saves this state next to the sampler's, which has no position in the epoch.
    """

    def __init__(self, sampler: EpochSampler) -> None:
        self._sampler = sampler
        self._open()

    def _open(self) -> None:
        resume = self._sampler._resume
        steps, self._taken = self._sampler._open()
        self._rest = integers(steps.settled().blocks(self._taken, BLOCK))
        self._saved = {
            "sampler": self._sampler.state_dict(),
            "order": fingerprint(self._sampler),
            "resumed_at": None if resume is None else list(resume),
        }

    def __next__(self) -> int:
        number = next(self._rest)
        self._taken += 1
        return number

    def state_dict(self) -> dict[str, Any]:
        """How many of the rank's samples were taken, and what their order depends on: JSON."""
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
            check_order(state["order"], self._sampler)
        self._sampler.load_state_dict(saved)
        self._sampler.forget_resume()
        if state["resumed_at"] is not None:
            self._sampler.resume_at(*state["resumed_at"])
        self._sampler.set_skip(state["taken"])
        self._open()
