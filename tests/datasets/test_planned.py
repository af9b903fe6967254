"""The rows of a packing plan, compared with a naive implementation."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_rows import documents_of, naive_batch

import fastpack
from fastpack.datasets import planned
from fastpack.datasets.planned import PlannedDataset
from fastpack.errors import DataWarning, FormatError, JobError
from fastpack.plans.plan_file import Segments
from fastpack.tokens.formats import format_named
from fastpack.tokens.interop_formats import output_path
from fastpack.tokens.token_file import TokenFile

OUTPUTS = ("input_ids", "labels", "doc_ids", "position_ids", "loss_mask", "cu_seqlens", "max_seqlen")
LENGTHS = [5, 1, 90, 33, 2, 64, 300, 7, 8, 16]


def write(folder: Path, name: str, dtype: str, lengths: list[int] = LENGTHS, seed: int = 0) -> TokenFile:
    folder.mkdir(exist_ok=True)
    row = format_named(name)
    assert row.create is not None
    path = folder / f"a{''.join(row.suffixes[:1])}"
    with row.create(path, np.dtype(dtype), "overwrite") as writer:
        writer.append_many(np.random.default_rng(seed).integers(1, 30_000, sum(lengths)), lengths)
    return fastpack.open_tokens(output_path(name, path))


def write_plan(path: Path, passes: list[TokenFile], seq_length: int, **options: Any) -> Path:
    fastpack.plan([file.path for file in passes], path, seq_length=seq_length, if_exists="overwrite", **options)
    return path


@pytest.fixture(scope="module")
def passes(tmp_path_factory: pytest.TempPathFactory) -> list[TokenFile]:
    """Sources of several formats and dtypes, one of them twice, one with documents in another order than its tokens."""
    folder = tmp_path_factory.mktemp("sources")
    kinds = [
        ("pbin", "uint16"),
        ("megatron", "int32"),
        ("datatrove", "uint32"),
        ("mds", "uint16"),
        ("litdata", "uint32"),
    ]
    files = [write(folder / name, name, dtype, seed=k) for k, (name, dtype) in enumerate(kinds)]
    with fastpack.PackedWriter(folder / "odd.pbin", 4) as writer:
        writer.append_tokens(np.arange(2000, 2100))
        writer.append_documents([np.array([[60, 40], [0, 9], [30, 0], [20, 25]])])
    return [*files, files[0], fastpack.open_tokens(folder / "odd.pbin")]


@pytest.fixture(scope="module")
def documents(passes: list[TokenFile]) -> list[list[int]]:
    return documents_of(passes)


@given(
    seq_length=st.integers(1, 40),
    algorithm=st.sampled_from(["best_fit", "first_fit", "none"]),
    multiple=st.sampled_from([1, 1, 2, 3, 8]),
    seed=st.none() | st.integers(0, 99),
    dtype=st.sampled_from(["int64", "int32"]),
    wanted=st.sets(st.sampled_from(OUTPUTS), min_size=1),
    data=st.data(),
)
def test_batches_equal_a_naive_implementation(
    backend: str,
    passes: list[TokenFile],
    documents: list[list[int]],
    tmp_path_factory: pytest.TempPathFactory,
    seq_length: int,
    algorithm: Any,
    multiple: int,
    seed: int | None,
    dtype: Any,
    wanted: set[str],
    data: Any,
) -> None:
    options = {"algorithm": algorithm, "seed": seed}
    if algorithm != "none":
        seq_length, options["pad_to_multiple"] = seq_length * multiple, multiple
    path = write_plan(tmp_path_factory.mktemp("plan") / "a.plan", passes, seq_length, **options)
    with PlannedDataset(path, pad_token_id=9) as dataset:
        rows = data.draw(st.lists(st.integers(0, len(dataset) - 1), max_size=6))
        expected = naive_batch(dataset.plan, documents, rows, 9)
        dataset.will_need(rows)
        found = dataset.batch(rows, sorted(wanted), dtype)
        assert set(found) == wanted
        for name, array in found.items():
            np.testing.assert_array_equal(array, np.reshape(expected[name], np.shape(array)), name)
        grids = {array.dtype.name for name, array in found.items() if name not in OUTPUTS[4:]}
        assert grids <= {dtype}
        for name in wanted - {"cu_seqlens", "max_seqlen"}:
            assert found[name].shape == (len(rows), seq_length)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A plan with two rows of six tokens: documents 0 and 2, document 1 and padding."""
    with fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append_many([5, 6, 7, 8, 9, 1, 2, 3], lengths=[3, 2, 3])
    path = write_plan(tmp_path / "a.plan", [fastpack.open_tokens(tmp_path / "a.pbin")], 6)
    with PlannedDataset(path) as dataset:
        assert dataset.documents(0).tolist() == [[0, 0, 3], [2, 0, 3]]
        assert dataset.documents(1).tolist() == [[1, 0, 2]]
    return path


def test_rows_by_hand(small: Path, backend: str) -> None:
    dataset = PlannedDataset(small, pad_token_id=4, outputs=OUTPUTS)
    batch: Any = dataset.batch([1, 0])
    assert batch["input_ids"].tolist() == [[8, 9, 4, 4, 4, 4], [5, 6, 7, 1, 2, 3]]
    assert batch["labels"].tolist() == [[9, -100, -100, -100, -100, -100], [6, 7, -100, 2, 3, -100]]
    assert batch["doc_ids"].tolist() == [[0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]]
    assert batch["position_ids"].tolist() == [[0, 1, 0, 1, 2, 3], [0, 1, 2, 0, 1, 2]]
    assert batch["loss_mask"].tolist() == [[True] + [False] * 5, [True, True, False, True, True, False]]
    assert batch["cu_seqlens"].tolist() == [0, 2, 6, 9, 12]
    assert batch["max_seqlen"] == 4
    fixed = dataset.batch([1, 0], ["cu_seqlens"], cu_seqlens_length=7)
    assert fixed["cu_seqlens"].tolist() == [0, 2, 6, 9, 12, 12, 12]
    sample = dataset[0]
    assert {name: np.shape(value) for name, value in sample.items()} == {
        **dict.fromkeys(OUTPUTS[:5], (6,)),
        "cu_seqlens": (3,),
        "max_seqlen": (),
    }
    assert sample["input_ids"].tolist() == [5, 6, 7, 1, 2, 3]


def test_other_rows_of_the_outputs_are_kept(small: Path) -> None:
    dataset = PlannedDataset(small)
    arrays = {name: np.full((4, 6), -7) for name in ("input_ids", "labels")}
    dataset._fill_rows(np.array([1, 0]), arrays | {"loss_mask": np.ones((4, 6), np.bool_)}, np.array([3, 1]))
    assert arrays["input_ids"][[0, 2]].tolist() == [[-7] * 6] * 2
    assert arrays["input_ids"][3].tolist() == [8, 9, 0, 0, 0, 0]


@pytest.mark.parametrize("index", [-1, 2, 2**40])
def test_rows_out_of_range(small: Path, index: int) -> None:
    dataset = PlannedDataset(small)
    calls: list[Callable[[Any], Any]] = [dataset.__getitem__, dataset.documents]
    calls += [lambda i: dataset.batch([0, i]), lambda i: dataset.will_need([i])]
    for call in calls:
        with pytest.raises(IndexError, match=rf"Index {index} out of range \[0, 2\)"):
            call(index)
    with pytest.raises(TypeError):
        dataset.batch([0.5])  # type: ignore[list-item]


def test_outputs_that_do_not_fit(small: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown output 'tokens': choose from input_ids, .*loss_mask"):
        PlannedDataset(small, outputs=["tokens"])
    dataset = PlannedDataset(small)
    with pytest.raises(ValueError, match="unknown output 'tokens'"):
        dataset.batch([0], ["tokens"])
    for mask in (np.ones((2, 6)), np.ones((1, 6), np.bool_), [[True] * 6] * 2, np.ones((6, 2), np.bool_).T):
        with pytest.raises(ValueError, match="loss_mask must be"):
            dataset.fill([0, 1], {"loss_mask": mask})
    ids = np.zeros((1, 6), np.int64)
    with pytest.raises(ValueError, match="share memory"):
        dataset.fill([0], {"input_ids": ids, "labels": ids})
    dataset.close()
    with pytest.raises(ValueError, match="closed"):
        dataset.batch([0])


def test_a_token_that_does_not_fit_into_int32(tmp_path: Path) -> None:
    with fastpack.PackedWriter(tmp_path / "a.pbin", 4) as writer:
        writer.append_many([1, 2**31], lengths=[2])
    dataset = PlannedDataset(write_plan(tmp_path / "a.plan", [fastpack.open_tokens(tmp_path / "a.pbin")], 4))
    assert dataset[0]["input_ids"].tolist() == [1, 2**31, 0, 0]
    with pytest.raises(OverflowError, match="does not fit into int32"):
        dataset.batch([0], dtype="int32")


@pytest.mark.parametrize(
    ("document", "start", "end"),
    [(0, 0, 4), (0, -1, 2), (1, 2**62, 2**62 + 2), (2, 1, 9), (3, 0, 1), (-1, 0, 1), (2**62, 0, 1), (1, 2, 1)],
)
def test_a_plan_that_names_tokens_outside_of_documents_is_refused(
    small: Path, monkeypatch: pytest.MonkeyPatch, document: int, start: int, end: int
) -> None:
    dataset = PlannedDataset(small)
    columns = [np.array(values) for values in ([0, 0], [0, document], [0, start], [1, end])]
    monkeypatch.setattr(planned.PlanFile, "segments", lambda *_: Segments(*columns))
    out = {name: np.full((1, 6), -7) for name in ("input_ids", "labels")}
    for call in (lambda: dataset.fill([0], out), lambda: dataset.will_need([0])):
        with pytest.raises(ValueError, match="document"):
            call()


def test_a_row_that_is_too_long_is_refused(small: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    dataset = PlannedDataset(small)
    columns = [np.array(values) for values in ([0, 0, 0], [0, 2, 1], [0, 0, 0], [3, 3, 1])]
    monkeypatch.setattr(planned.PlanFile, "segments", lambda *_: Segments(*columns))
    with pytest.raises(ValueError, match="a row of too many tokens"):
        dataset.batch([0])


def test_changed_plans_and_sources_are_errors(small: Path, passes: list[TokenFile]) -> None:
    dataset = PlannedDataset(small)
    state = pickle.dumps(dataset)
    dataset.check_unchanged()
    assert pickle.loads(state)[1]["input_ids"].tolist() == [8, 9, 0, 0, 0, 0]
    content = small.read_bytes()
    write_plan(small, passes[:1], 6)
    for call in (dataset.check_unchanged, lambda: pickle.loads(state)):
        with pytest.raises(FormatError, match="another plan of that name"):
            call()
    small.write_bytes(content)
    with fastpack.PackedWriter(small.with_name("a.pbin"), 2, if_exists="overwrite") as writer:
        writer.append_many([5, 6, 7, 8, 9, 1, 2, 4], lengths=[3, 2, 3])
    with pytest.raises(JobError, match=r"a\.pbin has changed since the plan was made"):
        PlannedDataset(small)
    with pytest.raises(FormatError, match="another"):
        dataset.batch([0])
    small.write_bytes(content[:-9])
    with pytest.raises(FormatError, match=r"a\.plan"):
        PlannedDataset(small)


def test_sources_of_two_tokenizers(tmp_path: Path) -> None:
    files = []
    for name, size in (("one", 300), ("two", 400)):
        with fastpack.PackedWriter(tmp_path / f"{name}.pbin", 2) as writer:
            writer.append([1, 2, 3])
            writer.fingerprint = fastpack.TokenizerFingerprint(name, "", size, 256)
        files.append(fastpack.open_tokens(tmp_path / f"{name}.pbin"))
    plan = write_plan(tmp_path / "a.plan", files, 4)
    with pytest.raises(ValueError, match="Pass mix_tokenizers=True"):
        PlannedDataset(plan)
    with pytest.warns(DataWarning, match="different tokenizers"):
        assert len(PlannedDataset(plan, mix_tokenizers=True)) == 2


def stream(loaders: list[Any], steps: int) -> list[list[list[int]]]:
    """Return the rows of each step, of all ranks, sorted."""
    batches = [[next(loader)["input_ids"].tolist() for _ in range(steps)] for loader in map(iter, loaders)]
    return [sorted(row for rank in batches for row in rank[step]) for step in range(steps)]


def loaders_of(dataset: Any, ranks: int, batch_size: int) -> list[Any]:
    samplers = [fastpack.DistributedSampler(dataset, ranks, rank, seed=3) for rank in range(ranks)]
    return [fastpack.StatefulDataLoader(dataset, batch_size, sampler, dtype="int32") for sampler in samplers]


def test_a_run_resumes_on_other_ranks(passes: list[TokenFile], tmp_path: Path) -> None:
    dataset = PlannedDataset(write_plan(tmp_path / "a.plan", passes, 16, pad_to_multiple=2), outputs=OUTPUTS)
    expected = stream(loaders_of(dataset, 4, 2), 9)
    first = loaders_of(dataset, 4, 2)
    assert stream(first, 4) == expected[:4]
    other = loaders_of(pickle.loads(pickle.dumps(dataset)), 2, 4)
    for loader in other:
        loader.load_state_dict(first[1].state_dict())
    assert stream(other, 5) == expected[4:]
    assert next(iter(other[0]))["loss_mask"].dtype == np.bool_


@pytest.mark.parametrize("kind", ["mixture", "combined"])
def test_with_other_datasets(passes: list[TokenFile], tmp_path: Path, kind: str, backend: str) -> None:
    np.save(tmp_path / "a.npy", np.arange(200, dtype=np.uint16))
    windows = fastpack.MemoryMappedDataset(tmp_path, 17, pack_sequences=True, eos_token_id=7)
    plans = [
        PlannedDataset(write_plan(tmp_path / f"{multiple}.plan", passes, 16, seed=1, pad_to_multiple=multiple))
        for multiple in (1, 4)
    ]
    datasets: list[Any] = [plans[0], windows, plans[1]]
    together: Any = (
        fastpack.CombinedDataset(datasets) if kind == "combined" else fastpack.MixtureDataset(datasets, list("abc"))
    )
    ends = np.cumsum([len(dataset) for dataset in datasets])
    rows = [3, ends[0] + 2, ends[1] + 1, 0, ends[0], ends[2] - 1]
    for names in (None, ["input_ids", "position_ids", "cu_seqlens", "max_seqlen"]):
        batch = together.batch(rows, names)
        for k, row in enumerate(rows):
            number = int(np.searchsorted(ends, row, side="right"))
            one = datasets[number].batch([row - (ends[number - 1] if number else 0)], names)
            for name in one.keys() - {"cu_seqlens", "max_seqlen"}:
                np.testing.assert_array_equal(batch[name][k], one[name][0])
    assert batch["cu_seqlens"][-1] == 6 * 16
    together.will_need(rows)
    together.check_unchanged()
    masked = fastpack.CombinedDataset(plans).batch([0, len(plans[0])], ["labels", "loss_mask"])
    assert (masked["loss_mask"] == (masked["labels"] != -100)).all()
