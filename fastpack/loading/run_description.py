"""A run as a JSON document, from which with the data files any of its batches can be reconstructed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.datasets.dataset_description import describe_dataset
from fastpack.loading.base_sampler import EpochSampler
from fastpack.loading.megatron_samplers import (
    MegatronPretrainingRandomSampler,
    MegatronPretrainingSampler,
    MegatronSampler,
)
from fastpack.loading.mixture_encoding import decode_changes
from fastpack.loading.mixture_epochs import MixtureEpochs
from fastpack.loading.mixture_sampler import MixtureSampler
from fastpack.loading.resumable_sampler import ResumableDistributedSampler
from fastpack.loading.resume import json_fingerprint
from fastpack.loading.run_record import RunRecord, StepPosition, WeightChange
from fastpack.loading.sampler import DistributedSampler

Numbers: TypeAlias = npt.NDArray[np.int64]

FORMAT, VERSION = "fastpack-run", 2
SAMPLERS = (
    DistributedSampler,
    MegatronPretrainingRandomSampler,
    MegatronPretrainingSampler,
    MixtureSampler,
    ResumableDistributedSampler,
)


def describe_run(dataset: Any, sampler: Any, run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a run: `run` is the state of its record; ValueError for other samplers."""
    kind = next((one for one in SAMPLERS if isinstance(sampler, one)), None)
    if kind is None or not isinstance(sampler, EpochSampler):
        raise ValueError(
            f"a run in the order of a {type(sampler).__name__} cannot be described: use a sampler of fastpack"
        )
    if isinstance(sampler, MegatronSampler) and not sampler.drop_last:
        raise ValueError("a run with drop_last=False of Megatron's sampler cannot be described: its ranks end apart")
    described: dict[str, Any] = {"class": kind.__name__, **json_fingerprint(sampler.fingerprint())}
    if isinstance(sampler, MixtureSampler):
        described["names"] = sampler.all_names
        described["mixture"] = sampler._mixture_state(whole=True) if sampler.no_repeat else None
    return {
        "format": FORMAT,
        "version": VERSION,
        "dataset": describe_dataset(dataset),
        "sampler": described,
        "run": dict(run),
    }


class RunOrder:
    """The samples of each step of a described run.

    Parameters
    ----------
    description
        The result of `describe_run`.

    Raises
    ------
    ValueError
        If it is no description, or of a later version.

    Attributes
    ----------
    first_step, n_steps
        The first step whose samples are known, and the number of steps so far.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        if description.get("format") != FORMAT:
            raise ValueError("this is not the description of a run: save what loader.describe() returns")
        if description["version"] > VERSION:
            raise ValueError(
                f"the run's description is of version {description['version']}, this fastpack reads {VERSION}"
            )
        self._sampler_of = description["sampler"]
        self.record = RunRecord()
        self.record.load(description["run"], 0)
        self.n_steps: int = description["run"]["step"]
        self.first_step = self._first_step()
        self._orders: dict[tuple[int, ...], Callable[[Numbers], Any]] = {}

    def _first_step(self) -> int:
        """Return the first step that is known: a description keeps the newest 4,096 changes of a mixture."""
        found = [leg.step for leg in self.record.legs[:1]] + [change.step for change in self.record.weights[:1]]
        if self._sampler_of.get("no_repeat") and self.record.legs:
            mixture = self._sampler_of["mixture"]
            found.append(self.record.step_at(int(decode_changes(mixture["history"]).positions[0])))
        return max(found, default=0)

    def samples(self, step: int, rank: int | None = None) -> tuple[Numbers, Numbers]:
        """Return the rank and the sample number of each row of a step, both int64 [rows]; by default of all ranks.

        Raises IndexError for a step that is not in the record, or a rank that the step did not have.
        """
        place = self.record.locate(step)
        if step < self.first_step:
            raise IndexError(
                f"the mixture of step {step} is not in this description, which keeps the newest changes, from step "
                f"{self.first_step} on: use the description that was saved with an earlier checkpoint"
            )
        leg = place.leg
        if rank is not None and not 0 <= rank < leg.num_replicas:
            raise IndexError(f"rank {rank}: step {step} had {leg.num_replicas} ranks")
        ranks = np.arange(leg.num_replicas) if rank is None else np.array([rank])
        first = place.batch * leg.batch_size * leg.num_replicas
        own = first + np.arange(leg.batch_size)[None, :] * leg.num_replicas + ranks[:, None]
        numbers = self._at(step, place, own.ravel(), first)
        return np.repeat(ranks, leg.batch_size), numbers

    def blocks(self, n_samples: int) -> Iterator[tuple[int, int, int, Numbers]]:
        """Yield the run so far: first step, ranks, batch size, and the samples of whole steps in the global order."""
        step = self.first_step if self.record.legs else self.n_steps
        while step < self.n_steps:
            place = self.record.locate(step)
            leg, per_step = place.leg, place.leg.batch_size * place.leg.num_replicas
            changes = [leg.step for leg in self.record.legs] + [change.step for change in self.record.weights]
            later = [change for change in changes if change > step]
            end = min((self.n_steps, *later, step + leg.period - place.batch if leg.period else self.n_steps))
            n_steps = max(1, min(end - step, n_samples // per_step))
            first = place.batch * per_step
            numbers = self._at(step, place, first + np.arange(n_steps * per_step), first)
            yield step, leg.num_replicas, leg.batch_size, numbers
            step += n_steps

    def _at(self, step: int, place: StepPosition, positions: Numbers, first: int) -> Numbers:
        """Return the samples of steps from `step` on, at positions counted from the start of the leg's epoch."""
        if self._sampler_of.get("no_repeat"):
            epoch, offset = 0, place.samples - first
        else:
            epoch, offset = place.epoch, place.start.consumed
        size, ranks = place.leg.micro_batch, place.leg.num_replicas
        if self._sampler_of["class"] == "MegatronPretrainingSampler":  # ranks take micro-batches, not samples, in turn
            own, rank = np.divmod(positions, ranks)
            positions = (own // size * ranks + rank) * size + own % size
        change = self.record.weights_at(step)
        key = (epoch, place.start.base, size, -1 if change is None else change.step)
        if key not in self._orders:
            order = self._order(epoch, place.start.base, size, change)
            self._orders = {key: order}  # torch's order is held as a whole: only one
        found: Numbers = self._orders[key](positions + offset).astype(np.int64)
        return found

    def _order(self, epoch: int, base: int, micro_batch: int, change: WeightChange | None) -> Callable[[Numbers], Any]:
        sampler = self._sampler(base, micro_batch)
        sampler.set_epoch(epoch)
        if change is not None and isinstance(sampler, MixtureSampler):
            sampler.update_weights(change.weights, change.temperature)
        if isinstance(sampler, MixtureEpochs) and sampler.no_repeat:
            return sampler.run_order().at
        order, length = sampler._layout(base)
        return lambda positions: order.at(positions % max(1, length) % order.n)

    def _sampler(self, ranks: int, micro_batch: int) -> EpochSampler:
        given = self._sampler_of
        if given["class"] == "MegatronPretrainingSampler":
            return MegatronPretrainingSampler(given["sizes"][0], 0, micro_batch, 0, ranks)
        if given["class"] == "MegatronPretrainingRandomSampler":
            sharding = given["data_sharding"]
            return MegatronPretrainingRandomSampler(None, given["sizes"][0], 0, micro_batch, 0, ranks, sharding)
        common = {"shuffle": given["shuffle"], "seed": given["seed"], "drop_last": given["drop_last"]}
        if given["class"] == "DistributedSampler":
            return DistributedSampler(range(given["sizes"][0]), ranks, 0, order=given["order"], **common)
        if given["class"] == "ResumableDistributedSampler":
            skipped = given["skipped"]
            return ResumableDistributedSampler(
                range(given["sizes"][0]), 0, ranks, skip_num_global_samples=skipped, **common
            )
        bounds = [0, *accumulate(given["sizes"])]
        names = given["names"][: len(given["sizes"])] or None
        if not given["no_repeat"]:
            weights, temperature = given["weights"], given["temperature"]
            return MixtureSampler(bounds, weights, ranks, 0, order=given["order"], temperature=temperature, **common)
        sampler = MixtureSampler(bounds, [1.0] * len(given["sizes"]), ranks, 0, no_repeat=True, names=names, **common)
        sampler.load_state_dict({"mixture": given["mixture"]})
        return sampler
