"""The samplers with torchdata's loader; the loader with Lightning, Grain, accelerate and transformers' Trainer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import fastpack  # noqa: E402
import fastpack.torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings within the frameworks


class Numbered(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    """A dataset whose item is its index."""

    def __len__(self) -> int:
        return 103

    def __getitem__(self, index: int) -> int:
        return index


def mixture(rank: int) -> fastpack.MixtureSampler:
    return fastpack.MixtureSampler([0, 40, 103], [1, 1], 2, rank, seed=4)


def annealed(rank: int) -> fastpack.MixtureSampler:
    sampler = fastpack.MixtureSampler([0, 40, 103], [1, 1], 2, rank, seed=4, no_repeat=True)
    sampler.set_skip(5)
    sampler.indices()
    sampler.set_skip(9)
    sampler.update_weights([1, 4])
    return sampler


def resumed(rank: int) -> fastpack.DistributedSampler:
    sampler = fastpack.DistributedSampler(Numbered(), 2, rank, seed=4)
    sampler.resume_at(15, 3)
    return sampler


SAMPLERS: dict[str, Callable[[int], Any]] = {
    "distributed": lambda rank: fastpack.DistributedSampler(Numbered(), 2, rank, seed=4),
    "feistel": lambda rank: fastpack.DistributedSampler(Numbered(), 2, rank, seed=4, order="feistel"),
    "mixture": mixture,
    "no_repeat, weights changed": annealed,
    "modalities": lambda rank: fastpack.ResumableDistributedSampler(
        Numbered(), rank, 2, shuffle=True, skip_num_global_samples=7
    ),
    "resumed on other ranks": resumed,
}

RESTARTED: dict[str, Callable[[int], Any]] = {  # where the state contains what was set on the first sampler
    "no_repeat, weights changed": lambda rank: fastpack.MixtureSampler(
        [0, 40, 103], [1, 4], 2, rank, seed=4, no_repeat=True
    ),
    "resumed on other ranks": SAMPLERS["distributed"],
}


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", SAMPLERS)
def test_torchdata_resumes_in_the_middle_of_an_epoch(kind: str, num_workers: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")

    def loader(epoch: int, sampler: Any) -> Any:
        if epoch:
            sampler.set_epoch(epoch)
        return stateful.StatefulDataLoader(Numbered(), 3, sampler=sampler, num_workers=num_workers)

    for epoch in (0, 2) if kind not in ("no_repeat, weights changed", "resumed on other ranks") else (0,):
        whole = [batch.tolist() for batch in loader(epoch, SAMPLERS[kind](1))]
        for taken in (0, 1, 4, len(whole) - 1) if num_workers == 0 else (4,):
            first = loader(epoch, SAMPLERS[kind](1))
            batches = iter(first)
            assert [next(batches).tolist() for _ in range(taken)] == whole[:taken]
            state = first.state_dict()
            del batches
            again = loader(epoch, RESTARTED.get(kind, SAMPLERS[kind])(1))
            again.load_state_dict(state)
            assert [batch.tolist() for batch in again] == whole[taken:]
            assert len(list(again)) >= len(whole) - (kind == "resumed on other ranks")  # the next epoch is whole


def test_torchdata_on_other_ranks_or_another_order_is_refused() -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    first = stateful.StatefulDataLoader(Numbered(), 3, sampler=SAMPLERS["distributed"](1))
    next(iter(first))
    batches = iter(first)
    next(batches)
    state = first.state_dict()
    for sampler, text in (
        (fastpack.DistributedSampler(Numbered(), 3, 0, seed=4), "on 2 ranks, now there are 3"),
        (fastpack.DistributedSampler(Numbered(), 2, 0, seed=5), "seed was 4, is 5"),
    ):
        other = stateful.StatefulDataLoader(Numbered(), 3, sampler=sampler)
        other.load_state_dict(state)
        with pytest.raises(ValueError, match=text):
            iter(other)


def test_an_iteration_is_saved_and_resumed() -> None:
    sampler = SAMPLERS["distributed"](0)
    numbers = iter(sampler)
    first = [next(numbers) for _ in range(7)]
    state = json.loads(json.dumps(numbers.state_dict()))  # type: ignore[attr-defined]
    rest = list(numbers)
    assert first + rest == sampler.indices().tolist()
    again = iter(SAMPLERS["distributed"](0))
    again.load_state_dict(state)  # type: ignore[attr-defined]
    assert list(again) == rest
    assert next(again, None) is None
    assert sampler.state_dict() == {"epoch": 0, "seed": 4, "num_replicas": 2, "rank": 0}


def test_an_iteration_continues_in_its_epoch_from_where_the_sampler_resumed() -> None:
    sampler = SAMPLERS["distributed"](0)
    sampler.set_epoch(2)
    sampler.resume_at(15, 3)
    numbers = iter(sampler)
    for _ in range(4):
        next(numbers)
    state = json.loads(json.dumps(numbers.state_dict()))  # type: ignore[attr-defined]
    again = iter(SAMPLERS["distributed"](0))
    again.load_state_dict(state)  # type: ignore[attr-defined]
    assert list(again) == list(numbers)


def test_an_iteration_on_other_ranks_or_in_another_order_is_refused() -> None:
    numbers = iter(SAMPLERS["distributed"](1))
    at_start = numbers.state_dict()  # type: ignore[attr-defined]
    next(numbers)
    state = numbers.state_dict()  # type: ignore[attr-defined]
    for sampler, text in (
        (fastpack.DistributedSampler(Numbered(), 3, 0, seed=4), "on 2 ranks, now there are 3"),
        (fastpack.DistributedSampler(Numbered(), 2, 0, seed=5), "seed was 4, is 5"),
    ):
        other = iter(sampler)
        with pytest.raises(ValueError, match=text):
            other.load_state_dict(state)  # type: ignore[attr-defined]
        other.load_state_dict(at_start)  # type: ignore[attr-defined]
        assert list(other) == list(sampler)


@pytest.fixture
def packed(tmp_path: Path) -> fastpack.torch.PackedMemMapDatasetContinuous:
    tokens = np.random.default_rng(5).integers(1, 250, 9 * 60)
    with fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append_many(tokens, [len(tokens)])
    return fastpack.torch.PackedMemMapDatasetContinuous(tmp_path / "a.pbin", "tokens", 9, False, eos_token_id=0)


def loader_of(dataset: Any, **options: Any) -> fastpack.torch.StatefulDataLoader:
    sampler = fastpack.DistributedSampler(dataset, 1, 0, seed=9)
    options = {"outputs": ("input_ids", "labels")} | options
    return fastpack.torch.StatefulDataLoader(dataset, 4, sampler, **options)


def test_lightning_validation(packed: Any) -> None:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Embedding(256, 256)
            self.validated: list[list[Any]] = []

        def training_step(self, batch: Any, _number: int) -> Any:
            return torch.nn.functional.cross_entropy(
                self.layer(batch["input_ids"]).flatten(0, 1), batch["labels"].flatten()
            )

        def validation_step(self, batch: Any, _number: int) -> None:
            self.validated[-1].append(batch["input_ids"].tolist())

        def on_validation_epoch_start(self) -> None:
            self.validated.append([])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    model = Model()
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=2, logger=False, enable_progress_bar=False, enable_checkpointing=False,
        enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(model, loader_of(packed), loader_of(packed))
    trainer.validate(model, loader_of(packed), verbose=False)
    reference = loader_of(packed)
    expected = [[batch["input_ids"].tolist() for batch in reference] for _ in range(2)]
    assert model.validated == [*expected, expected[0]]


def test_a_lightning_data_module_continues_in_the_middle_of_an_epoch(packed: Any, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")

    class Tokens(lightning.LightningDataModule):  # type: ignore[misc, name-defined]
        def train_dataloader(self) -> Any:
            return loader_of(packed)

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Embedding(256, 256)
            self.seen: list[Any] = []

        def training_step(self, batch: Any, _number: int) -> Any:
            self.seen.append(batch["input_ids"].tolist())
            return self.layer(batch["input_ids"]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def train(steps: int, checkpoint: Path | None = None) -> list[Any]:
        model = Model()
        trainer = lightning.Trainer(
            accelerator="cpu", max_steps=steps, logger=False, enable_progress_bar=False, enable_checkpointing=False,
            enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(model, Tokens(), ckpt_path=checkpoint)
        trainer.save_checkpoint(tmp_path / "model.ckpt")
        return model.seen

    whole = train(33)  # an epoch has 15 batches
    reference = loader_of(packed)
    assert whole == [batch["input_ids"].tolist() for _ in range(3) for batch in reference][:33]
    assert train(19) + train(33, tmp_path / "model.ckpt") == whole


def test_grain_reads_the_samples(tmp_path: Path) -> None:
    grain: Any = pytest.importorskip("grain.python", reason="grain is not installed")
    np.save(tmp_path / "0.npy", np.arange(9 * 30, dtype=np.uint16) % 250)
    flat = fastpack.MemoryMappedDataset(tmp_path, 9)
    for dataset in (flat, fastpack.MixtureDataset([flat, flat], ["a", "b"])):
        assert isinstance(dataset, grain.RandomAccessDataSource)

        def batches(source: Any) -> Any:
            return iter(
                grain.MapDataset.source(source).seed(3).shuffle().to_iter_dataset().batch(4, drop_remainder=True)
            )

        first = batches(dataset)
        taken = [next(first)["input_ids"].tolist() for _ in range(3)]
        resumed = batches(dataset)
        resumed.set_state(json.loads(json.dumps(first.get_state())))
        rest = [batch["input_ids"].tolist() for batch in first]
        assert [batch["input_ids"].tolist() for batch in resumed] == rest
        rows = [row for batch in taken + rest for row in batch]
        assert len(rows) == len(dataset) // 4 * 4
        assert not Counter(map(tuple, rows)) - Counter(tuple(dataset[k]["input_ids"]) for k in range(len(dataset)))


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_accelerate_skips_batches(packed: Any, dtype: Any) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    expected = list(loader_of(packed, dtype=dtype))
    loader = loader_of(packed, dtype=dtype)
    assert accelerate.Accelerator(cpu=True).prepare(loader) is loader
    skipped = accelerate.skip_first_batches(loader, 5)
    assert len(skipped) == len(expected) - 5
    for _ in range(2):  # the loader itself does not advance
        for batch, other in zip(skipped, expected[5:], strict=True):
            assert list(batch) == list(other)
            assert all(torch.equal(batch[name], other[name]) for name in other)
            assert {tensor.dtype for tensor in batch.values()} == {getattr(torch, dtype)}
    assert len(list(loader)) == len(expected)
    with pytest.raises(ValueError, match="cannot be put together from samples"):
        next(iter(accelerate.skip_first_batches(loader_of(packed, outputs=("input_ids", "cu_seqlens")), 1)))


def test_loops_that_count_epochs_themselves(packed: Any) -> None:
    loader, reference = loader_of(packed), loader_of(packed)
    epochs = [[batch["labels"].tolist() for batch in reference] for _ in range(3)]
    loader.set_epoch(2)
    assert [batch["labels"].tolist() for batch in loader] == epochs[2]
    loader.set_epoch(1)
    next(iter(loader))
    loader.set_epoch(1)  # continues where it is
    assert [batch["labels"].tolist() for batch in loader] == epochs[1][1:]
    loader.set_epoch(0)
    assert next(iter(loader.batch_sampler)) == list(loader.sampler)[:4]
    assert len(loader.batch_sampler) == len(loader)
    loader.batch_sampler.set_epoch(2)
    assert [batch["labels"].tolist() for batch in loader] == epochs[2]


class OwnBatches(Numbered):
    """A user's dataset with `batch`, whose samples do not depend on the loader's outputs."""

    def batch(self, indices: Any, dtype: str = "int64", outputs: Any = None) -> dict[str, Any]:
        return dict.fromkeys(outputs or ("numbers",), np.asarray(indices, dtype))


def test_batch_samplers_refuse_batches_that_samples_cannot_form(packed: Any) -> None:
    cannot = "cannot be put together from samples"
    with pytest.raises(ValueError, match=cannot):
        iter(loader_of(packed, outputs=("input_ids", "cu_seqlens")).batch_sampler)
    for options in ({"outputs": ("numbers",)}, {"dtype": "int32"}):
        with pytest.raises(ValueError, match=cannot):
            iter(fastpack.StatefulDataLoader(OwnBatches(), 4, **options).batch_sampler)
    plain = fastpack.StatefulDataLoader(OwnBatches(), 4)
    assert next(iter(plain.batch_sampler)) == list(plain.sampler)[:4]


def test_transformers_trainer_resumes(packed: Any, tmp_path: Path) -> None:
    """13 steps give the same batches as 5 steps and 8 more from a checkpoint in the second epoch."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    seen: list[Any] = []

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Embedding(256, 256)

        def forward(self, input_ids: Any, labels: Any) -> dict[str, Any]:
            seen.append((self.training, input_ids.tolist()))
            loss = torch.nn.functional.cross_entropy(self.layer(input_ids).flatten(0, 1), labels.flatten())
            return {"loss": loss}

    class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            return self.accelerator.prepare(loader_of(packed))

        def get_eval_dataloader(self, *_arguments: Any) -> Any:
            return self.accelerator.prepare(loader_of(packed))

    def train(steps: int, checkpoint: str | None = None) -> list[Any]:
        arguments = transformers.TrainingArguments(
            str(tmp_path / "out"), max_steps=steps, save_steps=19, report_to=[], use_cpu=True, disable_tqdm=True,
            logging_strategy="no",
        )  # fmt: skip
        trainer = Trainer(Model(), arguments)
        seen.clear()
        trainer.train(resume_from_checkpoint=checkpoint)
        taken = [batch for training, batch in seen if training]
        trainer.evaluate()
        assert sum(not training for training, _ in seen) == 15
        return taken

    whole = train(33)
    assert len(whole) == 33
    assert train(33, str(tmp_path / "out" / "checkpoint-19")) == whole[19:]


def test_a_mixture_whose_defaults_differ_with_outputs(packed: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", np.arange(9 * 30, dtype=np.uint16) % 250)
    flat = fastpack.MemoryMappedDataset(tmp_path, 9)
    both = fastpack.MixtureDataset([flat, packed], ["flat", "packed"])
    sampler = fastpack.MixtureSampler(both.cumulative_sizes, [1, 1], 1, 0)
    loader = fastpack.torch.StatefulDataLoader(both, 5, sampler, outputs=("input_ids", "labels"))
    batches = [batch["input_ids"] for batch in loader]
    assert len(batches) == 18
    assert batches[0].shape == (5, 8)
    whole = fastpack.torch.StatefulDataLoader(packed, 4, outputs=("cu_seqlens", "max_seqlen"))
    assert next(iter(whole))["max_seqlen"] <= 8
