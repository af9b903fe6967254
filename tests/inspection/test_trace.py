"""`fastpack.trace`: what a step contained, from the description of a run, equals the batches that were delivered."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from described_runs import NumberLoader

import fastpack
from fastpack.inspection.trace import TracedRun
from fastpack.modalities import CombinedDataset

EOS = 0
MULTIPLE = 5  # of tokens, to which one plan pads its documents


def shards(folder: Path, seed: int, n_shards: int = 3) -> Path:
    folder.mkdir()
    random = np.random.default_rng(seed)
    for number in range(n_shards):
        np.save(folder / f"{number}.npy", random.integers(0, 30, 900 + 37 * number).astype(np.uint16))
    return folder


def packed(path: Path, seed: int, n_documents: int = 60) -> Path:
    random = np.random.default_rng(seed)
    with fastpack.PackedWriter(path, token_size_in_bytes=2) as writer:
        for _ in range(n_documents):
            writer.append(np.append(random.integers(1, 30, random.integers(1, 40)), EOS))
    return path


def windows(folder: Path) -> Any:
    return fastpack.MemoryMappedDataset(shards(folder / "shards", 1), 13, pack_sequences=True, eos_token_id=EOS)


def blocks(folder: Path) -> Any:
    path = packed(folder / "a.pbin", 2)
    return fastpack.PackedMemMapDatasetContinuous(path, "tokens", 13, True, eos_token_id=EOS)


def megatron_blocks(folder: Path) -> Any:
    return fastpack.PackedMemMapDatasetMegatron(packed(folder / "b.pbin", 3), "tokens", 50, eos_token_id=EOS)


def chunks(folder: Path) -> Any:
    fastpack.convert([packed(folder / "c.pbin", 4)], folder / "litdata", format="litdata")
    return fastpack.PackedMemMapDatasetContinuous(folder / "litdata", "tokens", 13, True, eos_token_id=EOS)


def mixture(folder: Path) -> Any:
    return fastpack.MixtureDataset([windows(folder), blocks(folder)], ["web", "code"])


def combined(folder: Path) -> Any:
    return CombinedDataset([windows(folder), blocks(folder)])


def planned(folder: Path) -> Any:
    first, second = packed(folder / "d.pbin", 6), packed(folder / "e.pbin", 7)
    fastpack.convert([second], folder / "e", format="megatron")
    fastpack.plan([first, folder / "e", first], folder / "a.plan", seq_length=30, seed=4)
    return fastpack.PlannedDataset(folder / "a.plan", pad_token_id=99)


def gpt(folder: Path) -> Any:
    paths = [packed(folder / "f.pbin", 8), packed(folder / "g.pbin", 9), shards(folder / "gpt", 10, 1) / "0.npy"]
    blend = [2, paths[0], 1.5, str(paths[1]), 1, paths[2]]
    split = {"num_samples": (400, 30, 0), "split": "8,2,0", "eod_token_id": EOS}
    return fastpack.GPTDataset.build(blend, 12, 1234, **split)[0]


def plans(folder: Path) -> Any:
    return fastpack.MixtureDataset([planned(folder), shorter_plan(folder)], ["web", "code"])


def shorter_plan(folder: Path) -> Any:
    fastpack.plan(
        [packed(folder / "h.pbin", 11)], folder / "b.plan", seq_length=30, long="truncate", pad_to_multiple=MULTIPLE
    )
    return fastpack.PlannedDataset(folder / "b.plan", pad_token_id=99)


def sampler_of(dataset: Any, ranks: int, rank: int, order: str) -> Any:
    if order == "no_repeat":
        sizes = dataset.cumulative_sizes
        return fastpack.MixtureSampler(sizes, [2, 1], ranks, rank, no_repeat=True, names=["web", "code"])
    return fastpack.DistributedSampler(dataset, ranks, rank, seed=5, order=order)


def megatron_sampler_of(dataset: Any, ranks: int, rank: int, size: int, order: str) -> Any:
    n = len(dataset)
    if order == "megatron":
        return fastpack.MegatronPretrainingSampler(n, 0, size, rank, ranks)
    return fastpack.MegatronPretrainingRandomSampler(None, n, 0, size, rank, ranks, order == "megatron_sharded")


def tokens_of(entry: dict[str, Any]) -> Any:
    if entry["file"].endswith(".npy"):
        return np.load(entry["file"])[entry["start"] : entry["end"]]
    with fastpack.open_tokens(entry["file"]) as tokens:
        return tokens.tokens(entry["start"], entry["end"])


def row_tokens(entries: list[dict[str, Any]], batch_size: int, multiple: int = 1) -> list[list[int]]:
    """Return the tokens of each row; after a document, 99 up to a multiple of tokens, or one token."""
    rows: list[list[int]] = [[] for _ in range(batch_size)]
    for entry in entries:
        row = rows[entry["row"]]
        if entry["source"] == "code":
            row += [99] * (-len(row) % multiple)
        assert entry["column"] == len(row)
        row += tokens_of(entry).tolist()
    return rows


def tokens_name(dataset: Any) -> str:
    return "tokens" if isinstance(dataset, fastpack.GPTDataset) else "input_ids"


def segment_labels(entries: list[dict[str, Any]], batch_size: int) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(batch_size)]
    for entry in entries:
        with fastpack.open_tokens(entry["file"]) as file:
            document = file.document(entry["document"]).tolist()
        tokens = tokens_of(entry).tolist()
        assert any(document[k : k + len(tokens)] == tokens for k in range(len(document)))
        row = rows[entry["row"]]
        row += [*[-100] * (entry["column"] - len(row)), *tokens[1:], -100]
    return [(row + [-100] * 30)[:30] for row in rows]


class RecordedRun:
    """A run whose batches are recorded: ranks, weights and skips change."""

    def __init__(self, dataset: Any, order: str, n_steps: int) -> None:
        self.dataset, self.order = dataset, order
        self.batches: dict[tuple[int, int], Any] = {}
        shapes = [(2, 3), (3, 2), (3, 2), (1, 4)]
        state: Any = None
        for leg, (ranks, batch_size) in enumerate(shapes):
            self.loaders = [self.loader(ranks, rank, batch_size) for rank in range(ranks)]
            for loader in self.loaders:
                if state is not None:
                    loader.load_state_dict(state)
                if order == "no_repeat":
                    loader.sampler.update_weights({"web": 1.0 + leg})
                if leg == 2:
                    loader.skip(steps=(loader.step + 1, loader.step + 4))
            while self.loaders[0].step < (leg + 1) * n_steps // len(shapes):
                for rank, loader in enumerate(self.loaders):
                    iter(loader)
                    for batch in loader:
                        self.batches[loader.step - 1, rank] = batch
                        if loader.step >= (leg + 1) * n_steps // len(shapes):
                            break
            state = json.loads(json.dumps(self.loaders[-1].state_dict()))

    def micro_batch_size(self, batch_size: int) -> int:
        """Return a divisor of the batch size; the same in all legs where the order depends on it."""
        return batch_size // (2 - batch_size % 2) if self.order == "megatron" else 1

    def loader(self, ranks: int, rank: int, batch_size: int) -> Any:
        if self.order.startswith("megatron"):
            sampler = megatron_sampler_of(self.dataset, ranks, rank, self.micro_batch_size(batch_size), self.order)
        else:
            sampler = sampler_of(self.dataset, ranks, rank, self.order)
        outputs = (tokens_name(self.dataset), "labels")
        return fastpack.StatefulDataLoader(self.dataset, batch_size, sampler, outputs=outputs, prefetch=0)


CASES: list[tuple[Callable[[Path], Any], str]] = [
    (windows, "feistel"),
    (windows, "torch"),
    (blocks, "feistel"),
    (megatron_blocks, "feistel"),
    (chunks, "feistel"),
    (mixture, "no_repeat"),
    (combined, "feistel"),
    (planned, "feistel"),
    (plans, "no_repeat"),
    (gpt, "torch"),
    (gpt, "megatron"),
    (windows, "megatron_sharded"),
    (blocks, "megatron_random"),
]


def check_run(folder: Path, make: Callable[[Path], Any], order: str, n_steps: int) -> int:
    recorded = RecordedRun(make(folder), order, n_steps)
    text = json.dumps(recorded.loaders[0].describe())
    (folder / "run.json").write_text(text)
    traced = TracedRun(folder / "run.json")
    assert len(text) < 4096
    for (step, rank), batch in recorded.batches.items():
        entries = traced.rows(step, rank)
        assert not any("skipped" in entry for entry in entries)
        found = batch[tokens_name(recorded.dataset)].tolist()
        rows = row_tokens(entries, len(found), MULTIPLE if make is plans else 1)
        if make in (planned, plans):
            assert [(row + [99] * 30)[:30] for row in rows] == found
            assert segment_labels(entries, len(found)) == batch["labels"].tolist()
        else:
            assert [row[:-1] for row in rows] == found
    steps = {step for step, _ in recorded.batches}
    for step in set(range(max(steps))) - steps:
        assert all(entry["skipped"] for entry in traced.rows(step))
    return len(recorded.batches)


@pytest.mark.parametrize(("make", "order"), CASES)
def test_traces_equal_recorded_batches(tmp_path: Path, make: Callable[[Path], Any], order: str) -> None:
    assert check_run(tmp_path, make, order, 60) > 60


@pytest.mark.slow
@pytest.mark.parametrize(("make", "order"), CASES)
def test_ten_thousand_traces_equal_recorded_batches(tmp_path: Path, make: Callable[[Path], Any], order: str) -> None:
    assert check_run(tmp_path, make, order, 760) * len(CASES) > 10_000


def changing_run(dataset: Any, order: str, n_changes: int) -> tuple[Any, dict[tuple[int, int], Any]]:
    """Change the weights of a mixture with repeats at random steps, which iter() applies, and the number of ranks."""
    random, expected, state = np.random.default_rng(3), {}, None
    for change in range(n_changes):
        ranks = 1 + change % 3
        options = {"seed": 5, "temperature": 1.3, "order": order}
        weights = [2.0, 1.0] if state is None else state["elastic"]["order"]["weights"]
        samplers = [
            fastpack.MixtureSampler(dataset.cumulative_sizes, weights, ranks, rank, **options) for rank in range(ranks)
        ]
        for rank, sampler in enumerate(samplers):
            loader = fastpack.StatefulDataLoader(dataset, 2, sampler, outputs=("input_ids",), prefetch=0)
            if state is not None:
                loader.load_state_dict(state)
            steps = np.random.default_rng(change)
            for _ in range(3):
                iter(loader)
                for _ in range(int(steps.integers(1, 9))):
                    if (batch := next(loader, None)) is None:
                        break
                    expected[loader.step - 1, rank] = batch["input_ids"].tolist()
                sampler.update_weights(steps.random(2).tolist(), temperature=1.3)
            iter(loader)  # the weights of the state apply from its step on
        if random.random() < 0.8:
            state = json.loads(json.dumps(loader.state_dict()))
            if state["batches_yielded"] == 0:
                state["elastic"]["order"]["weights"] = sampler.weights
    return loader, expected


@pytest.mark.parametrize("order", ["torch", "feistel"])
def test_weights_that_change_without_no_repeat(tmp_path: Path, order: str) -> None:
    """Regression: every step was traced by the newest weights."""
    dataset = mixture(tmp_path)
    loader, expected = changing_run(dataset, order, 14)
    traced = TracedRun(json.loads(json.dumps(loader.describe())))
    recorded = {key: rows for key, rows in expected.items() if key[0] < loader.step}
    assert len(recorded) > 150
    for (step, rank), rows in recorded.items():
        try:
            found = row_tokens(traced.rows(step, rank), 2)
        except IndexError:  # a step that was repeated on fewer ranks
            continue
        assert [row[:-1] for row in found] == rows


def test_rows_are_divided_at_documents(tmp_path: Path) -> None:
    dataset = blocks(tmp_path)
    loader = fastpack.StatefulDataLoader(dataset, 2, fastpack.DistributedSampler(dataset, 1, 0, seed=2), prefetch=0)
    run = loader.describe()
    with fastpack.open_tokens(tmp_path / "a.pbin") as tokens:
        ends = tokens.document_ends().tolist()
    for entry in fastpack.trace(run, step=7):
        number = entry["document"]
        assert ([0, *ends][number]) <= entry["start"] < entry["end"] <= ends[number]
    whole = fastpack.trace(run, step=7, documents=False)
    assert [entry["end"] - entry["start"] for entry in whole] == [13, 13]
    assert [entry["document"] for entry in whole] == [None, None]


def test_steps_of_a_document(tmp_path: Path) -> None:
    recorded = RecordedRun(mixture(tmp_path), "no_repeat", 80)
    run = recorded.loaders[0].describe()
    traced = TracedRun(run)
    path = str(tmp_path / "a.pbin")
    expected = {
        (step, entry["rank"], entry["row"])
        for step in range(80)
        for entry in traced.rows(step)
        if entry["file"] == path and entry["document"] == 20
    }
    found = fastpack.trace(run, document=f"{path}:20")
    assert expected
    assert {(one["step"], one["rank"], one["row"]) for one in found} == expected
    assert {one["source"] for one in found} == {"code"}
    for document, message in (
        ("a.pbin", "is not FILE:NUMBER"),
        (f"{path}:999", "has 60 documents"),
        ("other.pbin:1", "is not a file of the dataset"),
    ):
        with pytest.raises(ValueError, match=message):
            fastpack.trace(run, document=document)


@pytest.mark.parametrize(("make", "name"), [(planned, "d.pbin"), (gpt, "gpt/0.npy")])
def test_steps_of_a_document_of_plans_and_blends(tmp_path: Path, make: Callable[[Path], Any], name: str) -> None:
    recorded = RecordedRun(make(tmp_path), "feistel", 40)
    traced = TracedRun(recorded.loaders[0].describe())
    entries = [{"step": step, **entry} for step in range(40) for entry in traced.rows(step)]
    path = str(tmp_path / name)
    number = next(entry["document"] for entry in entries if entry["file"] == path)
    of_it = [entry for entry in entries if entry["file"] == path and entry["document"] == number]
    expected = {(entry["step"], entry["rank"], entry["row"]) for entry in of_it}
    found = traced.steps_of(f"{path}:{number}")
    assert {(one["step"], one["rank"], one["row"]) for one in found} == expected


def test_documents_that_are_not_in_order(tmp_path: Path) -> None:
    with fastpack.PackedWriter(tmp_path / "odd.pbin", 2) as writer:
        writer.append_tokens(np.arange(1, 31))
        writer.append_documents([np.array([[20, 10], [0, 9], [9, 11]])])
    fastpack.plan([tmp_path / "odd.pbin"], tmp_path / "odd.plan", seq_length=30)
    dataset = fastpack.PlannedDataset(tmp_path / "odd.plan")
    loader = fastpack.StatefulDataLoader(dataset, 1, fastpack.DistributedSampler(dataset, 1, 0), prefetch=0)
    rows = fastpack.trace(loader.describe(), step=0)
    assert sorted((row["document"], row["start"], row["end"]) for row in rows) == [(0, 20, 30), (1, 0, 9), (2, 9, 20)]
    with pytest.raises(ValueError, match=r"odd.pbin has unknown document boundaries: there is no document 0"):
        fastpack.trace(loader.describe(), document=f"{tmp_path / 'odd.pbin'}:0")


@pytest.mark.parametrize("make", [planned, gpt])
def test_other_files_of_plans_and_blends_are_noticed(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    dataset = make(tmp_path)
    sampler = fastpack.DistributedSampler(dataset, 1, 0)
    run = fastpack.StatefulDataLoader(dataset, 1, sampler).describe()
    if make is gpt:
        (tmp_path / "f.pbin").unlink()
        packed(tmp_path / "f.pbin", 20, 61)
    else:
        fastpack.plan([tmp_path / "d.pbin"] * 3, tmp_path / "a.plan", seq_length=30, if_exists="overwrite")
    with pytest.raises(ValueError, match="its files changed"):
        fastpack.trace(run, step=0)


@pytest.mark.parametrize("order", ["megatron", "megatron_sharded", "megatron_random"])
def test_consumed_samples_and_other_micro_batches(tmp_path: Path, order: str) -> None:
    """A run that begins in the middle, and whose second epoch has another micro-batch size."""
    dataset, state, expected = blocks(tmp_path), None, {}
    for size in (4, 2):
        samplers = [megatron_sampler_of(dataset, 2, rank, size, order) for rank in range(2)]
        if size == 4:
            samplers = [type(one)(*arguments(one, order, 16)) for one in samplers]
        for rank, sampler in enumerate(samplers):
            loader = fastpack.StatefulDataLoader(dataset, 4, sampler, prefetch=0, outputs=("input_ids",))
            if state is not None:
                loader.load_state_dict(state)
            for batch in loader:
                expected[loader.step - 1, rank] = batch["input_ids"].tolist()
        state = loader.state_dict()
    run = json.loads(json.dumps(loader.describe()))
    assert len(run["run"]["legs"]) == 2
    for (step, rank), rows in expected.items():
        found = row_tokens(fastpack.trace(run, step=step, rank=rank, dataset=dataset), 4)
        assert [row[:-1] for row in found] == rows
    if order == "megatron":
        sampler = fastpack.MegatronPretrainingSampler(len(dataset), 0, 4, 0, 1, drop_last=False)
        with pytest.raises(ValueError, match="drop_last=False of Megatron's sampler cannot be described"):
            fastpack.StatefulDataLoader(dataset, 4, sampler).describe()


def arguments(sampler: Any, order: str, consumed: int) -> list[Any]:
    common = [sampler.total_samples, consumed, 4, sampler.rank, 2]
    return common if order == "megatron" else [None, *common, order == "megatron_sharded"]


def test_wrong_questions(tmp_path: Path) -> None:
    dataset = windows(tmp_path)
    loader = fastpack.StatefulDataLoader(dataset, 2, fastpack.DistributedSampler(dataset, 2, 0), prefetch=0)
    run = loader.describe()
    for arguments, error, message in (
        ({"step": 1, "rank": 2}, IndexError, "rank 2: step 1 had 2 ranks"),
        ({"step": -1}, IndexError, "step -1 is not in the record"),
        ({}, ValueError, "either step= or document="),
    ):
        with pytest.raises(error, match=message):
            fastpack.trace(run, **arguments)
    with pytest.raises(ValueError, match="not the description of a run"):
        fastpack.trace({}, step=0)
    with pytest.raises(ValueError, match=r"of version 99, this fastpack reads 2"):
        fastpack.trace({**run, "version": 99}, step=0)
    (tmp_path / "x.json").write_text("no JSON")
    with pytest.raises(ValueError, match="is no JSON"):
        fastpack.trace(tmp_path / "x.json", step=0)
    np.save(tmp_path / "shards" / "9.npy", np.zeros(100, np.uint16))
    with pytest.raises(ValueError, match="its files changed"):
        fastpack.trace(run, step=0)
    with pytest.raises(ValueError, match="in the order of a list cannot be described"):
        fastpack.StatefulDataLoader(dataset, 2, [1, 2, 3]).describe()


@pytest.mark.parametrize("make", [mixture, plans, gpt])
def test_tokens_of_an_entry(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    dataset = make(tmp_path)
    sampler = fastpack.DistributedSampler(dataset, 1, 0, seed=2)
    outputs = (tokens_name(dataset),)
    traced = TracedRun(fastpack.StatefulDataLoader(dataset, 8, sampler, outputs=outputs).describe())
    for entry in traced.rows(3):
        assert traced.tokens(entry).tolist() == tokens_of(entry).tolist()


def sparse_mixture(folder: Path) -> Any:
    """Return four sources of 15 T tokens together, whose files occupy no space."""
    datasets, n_tokens = [], 250_000_000_000
    for name, n_files in (("a", 32), ("b", 16), ("c", 10), ("d", 2)):
        (folder / name).mkdir()
        for number in range(n_files):
            header = np.lib.format.header_data_from_array_1_0(np.empty(0, np.uint16)) | {"shape": (n_tokens,)}
            with (folder / name / f"{number:02}.npy").open("wb") as file:
                np.lib.format.write_array_header_1_0(file, header)
                file.truncate(file.tell() + 2 * n_tokens)
        fastpack.write_manifest(folder / name)
        (manifest,) = (folder / name).glob("*.fpm")
        datasets.append(fastpack.MemoryMappedDataset(manifest, 4097))
    return fastpack.MixtureDataset(datasets, [*"abcd"])


def test_a_run_of_15_trillion_tokens(tmp_path: Path) -> None:
    """100 changes of weights and 10 of the world size: the state is below 4 KB, and any step is found in 100 ms."""
    dataset, random = sparse_mixture(tmp_path), np.random.default_rng(1)
    state: Any = None
    expected: dict[int, Any] = {}
    for leg in range(10):
        ranks = 1024 - 64 * (leg % 2)
        sampler = fastpack.MixtureSampler(
            dataset.cumulative_sizes, [1] * 4, ranks, 7, no_repeat=True, names=dataset.dataset_names
        )
        loader = NumberLoader(dataset, 4, sampler, collate_fn=len, prefetch=0)
        if state is not None:
            loader.load_state_dict(state)
        iter(loader)
        for _ in range(10):
            sampler.update_weights(random.random(4).tolist())
            samples = next(loader)
            expected[loader.step - 1] = samples
            loader._progress.advance(0, 9200)  # as if these steps had run
            loader._position.yielded += 9200
        text = json.dumps(loader.state_dict())
        assert len(text) < 4096
        state = json.loads(text)
    assert loader._progress.samples * 4096 > 14.9e12
    (tmp_path / "run.json").write_text(json.dumps(loader.describe()))
    assert (tmp_path / "run.json").stat().st_size < 4096
    times = []
    for step, samples in [*expected.items()][::4]:
        start = time.process_time()
        rows = fastpack.trace(tmp_path / "run.json", step=step, rank=7)
        times.append(time.process_time() - start)
        assert [row["sample"] for row in rows] == samples
        assert [row["end"] - row["start"] for row in rows] == [4097] * 4
    assert sorted(times)[20] < 0.1  # 12 ms, measured; the machine may be busy


def test_keys_of_webdataset_samples(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        for number in range(12):
            info = tarfile.TarInfo(f"sample{number}.txt")
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
    fastpack.prepare(tmp_path, split_ratio=(1, 0, 0), sample_type="TextSample", field_map={"text": "txt"})
    dataset = fastpack.WebDataset(tmp_path, "train")
    sampler = fastpack.DistributedSampler(dataset, 1, 0, seed=3, order="feistel")
    loader = fastpack.StatefulDataLoader(dataset, 3, sampler, collate_fn=lambda one: [s.__key__ for s in one])
    batches = list(loader)
    run = json.loads(json.dumps(loader.describe()))
    for step, keys in enumerate(batches):
        assert [entry["key"] for entry in fastpack.trace(run, step=step)] == keys
    with pytest.raises(ValueError, match="a WebDataset does not know the documents of its samples"):
        fastpack.trace(run, document="0.tar:1")
    loader.close()
    dataset.close()
