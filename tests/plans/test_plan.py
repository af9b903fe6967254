"""Plans: their rows compared with the definitions, and every token accounted for."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpack
from fastpack import kernels
from fastpack.errors import FormatError, JobError
from fastpack.plans import pack_bins
from fastpack.plans.plan_file import PlanFile
from fastpack.plans.plan_settings import PlanSettings

Corpus = Callable[..., Path]
Row = list[tuple[int, int, int]]  # document, start and end of each segment

settings = st.fixed_dictionaries(
    {
        "seq_length": st.sampled_from([1, 2, 7, 16]),
        "algorithm": st.sampled_from(["best_fit", "first_fit", "none"]),
        "long": st.sampled_from(["split", "truncate", "drop"]),
        "max_documents": st.sampled_from([None, 1, 2, 3]),
    }
)


def rows_of(plan: PlanFile) -> list[Row]:
    rows: list[Row] = [[] for _ in range(plan.n_rows)]
    for row, *segment in zip(*(column.tolist() for column in plan.segments(range(plan.n_rows))), strict=True):
        rows[row].append(tuple(segment))
    return rows


def rows_by_definition(lengths: Sequence[int], seq_length: int, algorithm: str, long: str, most: int) -> list[Row]:
    kept = [0 if long == "drop" and length > seq_length else length for length in lengths]
    kept = [min(length, seq_length) if long == "truncate" else length for length in kept]
    if algorithm == "none":
        return cut(kept, seq_length, most)
    full = [(d, k, k + seq_length) for d, n in enumerate(kept) for k in range(0, n - seq_length + 1, seq_length)]
    ends = [(d, n - n % seq_length, n) for d, n in enumerate(kept) if n % seq_length]
    if algorithm == "best_fit":
        ends.sort(key=lambda segment: segment[1] - segment[2])
    rows: list[Row] = []
    used: list[int] = []
    for segment in ends:
        size = segment[2] - segment[1]
        fitting = [k for k, n in enumerate(used) if n + size <= seq_length and len(rows[k]) < most]
        if not fitting:
            fitting = [len(rows)]
            rows.append([])
            used.append(0)
        # of rows with the same space, the one that has had it longest is the one whose last segment was sorted first
        order = {segment: k for k, segment in enumerate(ends)}
        best = min(fitting, key=lambda k: (-used[k], order[rows[k][-1]] if rows[k] else 0))
        chosen = best if algorithm == "best_fit" else fitting[0]
        rows[chosen].append(segment)
        used[chosen] += size
    return [[segment] for segment in full] + rows


def cut(lengths: Sequence[int], seq_length: int, most: int) -> list[Row]:
    rows: list[Row] = [[]]
    for document, length in enumerate(lengths):
        for token in range(length):
            row = rows[-1]
            continues = bool(row) and row[-1][0] == document
            if sum(end - start for _, start, end in row) == seq_length or (len(row) == most and not continues):
                rows.append([])
                row, continues = rows[-1], False
            start = row.pop()[1] if continues else token
            row.append((document, start, token + 1))
    return rows if rows[0] else []


@given(lengths=st.lists(st.integers(0, 40), max_size=60), options=settings)
def test_rows_are_those_of_the_definition(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], options: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("plan")
    with fastpack.PackedWriter(folder / "a.pbin", 2) as writer:
        writer.append_many(np.arange(sum(lengths)) % 99, lengths)
    result = fastpack.plan(folder / "a.pbin", folder / "a.plan", **options)
    plan = PlanFile(folder / "a.plan")
    rows = rows_of(plan)
    most = options["max_documents"] or 10**9
    assert rows == rows_by_definition(lengths, options["seq_length"], options["algorithm"], options["long"], most)
    used = sum(end - start for row in rows for _, start, end in row)
    assert result.n_tokens + result.n_truncated + result.n_dropped == result.n_source_tokens == sum(lengths)
    assert (result.n_tokens, result.n_padding) == (used, len(rows) * options["seq_length"] - used)
    assert result.n_segments == sum(map(len, rows))
    assert result.n_documents == len({segment[0] for row in rows for segment in row})
    assert result.n_cuts == result.n_segments - result.n_documents
    assert fastpack.plan(folder / "a.pbin", folder / "a.plan", if_exists="skip", **options).n_rows == len(rows)
    shown = ("n_rows", "n_segments", "n_documents", "n_tokens", "n_padding", "n_truncated", "n_dropped", "algorithm")
    assert all(getattr(plan, name) == getattr(result, name) for name in shown)


def test_a_plan_takes_at_most_8_bytes_per_document(tmp_path: Path, corpus: Corpus) -> None:
    rng = np.random.default_rng(0)
    lengths = np.maximum(1, rng.lognormal(np.log(800) - 0.5, 1, 20_000)).astype(int)
    source = corpus(lengths.tolist())
    for seq_length in (512, 2048, 8192):
        for algorithm in ("best_fit", "first_fit", "none"):
            result = fastpack.plan(
                source, tmp_path / "a.plan", seq_length=seq_length, algorithm=algorithm, if_exists="overwrite"
            )
            assert (tmp_path / "a.plan").stat().st_size <= 8 * len(lengths), (seq_length, algorithm)
            assert result.padding_share < 0.03


@given(
    lengths=st.lists(st.integers(0, 70), max_size=40),
    multiple=st.sampled_from([1, 2, 8, 16, 32]),
    algorithm=st.sampled_from(["best_fit", "first_fit"]),
    most=st.sampled_from([None, 1, 2]),
    data_parallel=st.sampled_from([None, 2]),
)
def test_rows_padded_to_multiples_are_those_of_longer_documents(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    multiple: int,
    algorithm: str,
    most: int | None,
    data_parallel: int | None,
) -> None:
    folder = tmp_path_factory.mktemp("plan")
    rounded = [-(-length // multiple) * multiple for length in lengths]
    options: dict[str, Any] = {"seq_length": 32, "algorithm": algorithm, "max_documents": most}
    if data_parallel:
        options |= {"balance": "attention", "data_parallel": data_parallel}
    found = []
    for name, counts, padding in (("as-is", lengths, multiple), ("rounded", rounded, 1)):
        with fastpack.PackedWriter(folder / f"{name}.pbin", 2) as writer:
            writer.append_many(np.zeros(sum(counts), np.uint16), counts)
        result = fastpack.plan(writer.path, folder / f"{name}.plan", pad_to_multiple=padding, **options)
        plan = PlanFile(folder / f"{name}.plan")
        assert plan.pad_to_multiple == padding
        assert result.n_tokens + result.n_padding == 32 * result.n_rows
        assert result.n_tokens == sum(counts)
        found.append([[(d, start, min(end, lengths[d])) for d, start, end in row] for row in rows_of(plan)])
    assert sorted(found[0]) == sorted(found[1])


def test_a_multiple_that_is_impossible(tmp_path: Path, corpus: Corpus) -> None:
    source = corpus([3, 4])
    for multiple in (0, -1, 3, 16):
        with pytest.raises(ValueError, match=f"pad_to_multiple: found {multiple}, expected a divisor of seq_length 8"):
            fastpack.plan(source, tmp_path / "a.plan", seq_length=8, pad_to_multiple=multiple)
    with pytest.raises(ValueError, match="pad_to_multiple: the algorithm none does not pad"):
        fastpack.plan(source, tmp_path / "a.plan", seq_length=8, pad_to_multiple=2, algorithm="none")
    assert not (tmp_path / "a.plan").exists()


def test_the_seed_permutes_rows_and_nothing_else(tmp_path: Path, corpus: Corpus) -> None:
    source = corpus([5, 30, 17, 8, 1] * 20)
    plans = []
    for name, seed in (("a", None), ("b", 1), ("c", 1), ("d", 2)):
        fastpack.plan(source, tmp_path / f"{name}.plan", seq_length=16, seed=seed)
        plans.append(rows_of(PlanFile(tmp_path / f"{name}.plan")))
    assert plans[1] == plans[2] != plans[3] != plans[0]
    assert sorted(plans[0]) == sorted(plans[1]) == sorted(plans[3])


def test_shards_and_threads(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards are packed independently, whatever the number of threads."""
    rng = np.random.default_rng(1)
    source = corpus(rng.integers(0, 60, 3000).tolist())
    whole = fastpack.plan(source, tmp_path / "whole.plan", seq_length=32)
    monkeypatch.setattr(pack_bins, "SHARD_DOCUMENTS", 700)
    for threads in (1, 3):
        sharded = fastpack.plan(source, tmp_path / f"{threads}.plan", seq_length=32, num_threads=threads)
        assert whole.n_rows <= sharded.n_rows <= whole.n_rows * 1.01
    assert rows_of(PlanFile(tmp_path / "1.plan")) == rows_of(PlanFile(tmp_path / "3.plan"))
    found = sorted(segment for row in rows_of(PlanFile(tmp_path / "1.plan")) for segment in row)
    assert found == sorted(segment for row in rows_of(PlanFile(tmp_path / "whole.plan")) for segment in row)


def test_documents_are_numbered_across_sources_and_passes(tmp_path: Path, corpus: Corpus) -> None:
    one, two = corpus([3, 4], "one"), corpus([5, 6, 7, 0], "two")
    result = fastpack.plan([one, two], tmp_path / "a.plan", seq_length=8, repeats=[2, 1.5], seed=4)
    plan = PlanFile(tmp_path / "a.plan")
    assert [Path(source.path).name for source in plan.sources] == ["one.pbin"] * 2 + ["two.pbin"] * 2
    assert plan.n_source_documents == 12
    lengths = [3, 4, 3, 4, 5, 6, 7, 0, 5, 6, 7, 0]
    used = {document: end for row in rows_of(plan) for document, _, end in row}
    assert {document: lengths[document] for document in used} == used
    assert {0, 1, 2, 3, 4, 5, 6} <= set(used)
    assert result.n_source_tokens == sum(used.values())
    assert len([document for document in used if document >= 8]) in (1, 2)  # two of four, of which one is empty
    files = plan.open_sources()
    assert files[0] is files[1]
    assert [file.n_documents for file in files] == [2, 2, 4, 4]


def test_a_fraction_is_a_subset_of_exactly_this_share(tmp_path: Path, corpus: Corpus) -> None:
    source = corpus([2] * 1000)
    chosen = []
    for seed in (0, 1):
        fastpack.plan(source, tmp_path / f"{seed}.plan", seq_length=8, repeats=[0.3], seed=seed)
        chosen.append({document for row in rows_of(PlanFile(tmp_path / f"{seed}.plan")) for document, _, _ in row})
    assert [len(documents) for documents in chosen] == [300, 300]
    assert chosen[0] != chosen[1]
    assert 0.4 < np.mean([document < 500 for document in chosen[0]]) < 0.6


def test_folders_and_patterns(tmp_path: Path, corpus: Corpus) -> None:
    corpus([3], "one")
    corpus([4, 5], "two")
    fastpack.convert(tmp_path / "two.pbin", tmp_path / "m" / "two", format="megatron")
    for sources in (tmp_path, tmp_path / "*.pbin", str(tmp_path / "*")):
        result = fastpack.plan(sources, tmp_path / "out" / "a.plan", seq_length=8, if_exists="overwrite")
        assert (result.n_source_documents, result.n_source_tokens) == (3, 12)
    result = fastpack.plan(tmp_path / "m", tmp_path / "out" / "a.plan", seq_length=8, if_exists="overwrite")
    assert result.n_source_documents == 2
    with pytest.raises(FileNotFoundError, match="no token files"):
        fastpack.plan(tmp_path / "*.ds", tmp_path / "b.plan", seq_length=8)


def test_relative_sources_move_with_the_plan(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus([3, 4])
    monkeypatch.chdir(tmp_path)
    fastpack.plan("corpus.pbin", "plans/a.plan", seq_length=8)
    (tmp_path / "plans").rename(tmp_path / "moved")
    monkeypatch.chdir("/")
    plan = PlanFile(tmp_path / "moved" / "a.plan")
    assert plan.sources[0].path == "../corpus.pbin"
    assert plan.open_sources()[0].n_documents == 2


@pytest.mark.parametrize("change", ["size", "contents", "time", "missing", "documents"])
def test_a_changed_source_is_an_error(tmp_path: Path, corpus: Corpus, change: str) -> None:
    source = corpus([3, 4])
    if change == "documents":
        fastpack.convert(source, tmp_path / "corpus", format="megatron")
        source = tmp_path / "corpus.idx"
    fastpack.plan(source, tmp_path / "a.plan", seq_length=8)
    status = source.stat()
    if change == "size":
        source.write_bytes(source.read_bytes() + b"a")
    elif change == "missing":
        source.unlink()
    elif change == "time":
        os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    else:
        source.write_bytes(source.read_bytes()[:-1] + b"a")
    what = {"size": "has 1?[0-9]+ bytes, and had", "missing": "is missing", "time": "it was modified"}
    with pytest.raises(JobError, match=rf"{source.name} .*{what.get(change, 'contents differ')}"):
        PlanFile(tmp_path / "a.plan").open_sources()


def test_times_of_copies_do_not_count(tmp_path: Path, corpus: Corpus) -> None:
    fastpack.plan(os.path.relpath(corpus([3, 4])), tmp_path / "a.plan", seq_length=8)
    (tmp_path / "copy").mkdir()
    for name in ("a.plan", "corpus.pbin"):
        shutil.copyfile(tmp_path / name, tmp_path / "copy" / name)
        os.utime(tmp_path / "copy" / name, (1, 1))
    assert PlanFile(tmp_path / "copy" / "a.plan").open_sources()[0].path.endswith("copy/corpus.pbin")


@pytest.mark.parametrize("algorithm", ["best_fit", "first_fit", "none"])
def test_the_same_input_gives_the_same_bytes(tmp_path: Path, corpus: Corpus, algorithm: str, backend: str) -> None:
    """On every backend."""
    source = corpus([5, 30, 17, 8, 1, 0, 600] * 30)
    options: dict[str, Any] = {"seq_length": 16, "algorithm": algorithm, "seed": 3, "max_documents": 3}
    for name in ("a", "b"):
        fastpack.plan(source, tmp_path / f"{name}.plan", **options)
    kernels.use("numpy")
    fastpack.plan(source, tmp_path / "numpy.plan", **options)
    assert len({path.read_bytes() for path in tmp_path.glob("*.plan")}) == 1
    assert (tmp_path / "a.plan").stat().st_mtime == pytest.approx(source.stat().st_mtime, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "documents"),
    [
        ("seeded", [1, 8, 2, 1, 2, 4, 9, 0, 3, 7, 6, 7]),
        ("balanced", [1, 2, 9, 0, 3, 7, 6, 1, 2, 4, 7, 8]),
        ("stream", [0, 1, 1, 1, 2, 2, 3, 4, 6, 7, 7, 8, 9]),
    ],
)
def test_earlier_plans_are_readable(
    tmp_path: Path, golden: Path, corpus: Corpus, name: str, documents: list[int]
) -> None:
    shutil.copy(golden / "plans" / f"{name}.plan", tmp_path)
    plan = PlanFile(tmp_path / f"{name}.plan")
    assert plan.segments(range(plan.n_rows)).document.tolist() == documents
    corpus([5, 30, 17, 8, 1, 0, 3, 21, 4, 9])
    assert plan.open_sources()[0].document(1).tolist() == list(range(100, 130))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seq_length": 0}, "seq_length: found 0"),
        ({"algorithm": "worst_fit"}, "algorithm: found 'worst_fit', expected one of best_fit"),
        ({"long": "keep"}, "long: found 'keep'"),
        ({"seed": -1}, "seed: found -1"),
        ({"max_documents": 0}, "max_documents: found 0"),
        ({"num_threads": 0}, "num_threads: found 0"),
        ({"repeats": [1, 2]}, "repeats: found 2 numbers for 1 sources"),
        ({"repeats": [0]}, "repeats: found 0"),
        ({"repeats": [float("nan")]}, "repeats: found nan"),
        ({"if_exists": "keep"}, "if_exists: found 'keep'"),
    ],
)
def test_wrong_arguments_write_nothing(tmp_path: Path, corpus: Corpus, options: dict[str, Any], message: str) -> None:
    source = corpus([3, 4])
    with pytest.raises(ValueError, match=message):
        fastpack.plan(source, tmp_path / "a.plan", **{"seq_length": 8, **options})
    assert not list(tmp_path.glob("*.plan"))


def test_unknown_boundaries_and_existing_plans(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([5, 6, 0, 7, 0], np.uint16))
    with pytest.raises(ValueError, match="boundaries are unknown: pass eos_token_id"):
        fastpack.plan(tmp_path / "a.npy", tmp_path / "a.plan", seq_length=8)
    result = fastpack.plan(tmp_path / "a.npy", tmp_path / "a.plan", seq_length=8, eos_token_id=0)
    assert result.n_source_documents == 2
    assert PlanFile(tmp_path / "a.plan").open_sources()[0].document(1).tolist() == [7, 0]
    with pytest.raises(FileExistsError, match="exists"):
        fastpack.plan(tmp_path / "a.npy", tmp_path / "a.plan", seq_length=8, eos_token_id=0)
    (tmp_path / "a.plan").write_bytes(b"nothing")
    with pytest.raises(FormatError, match="a packing plan"):
        PlanFile(tmp_path / "a.plan")


def test_sources_without_documents(tmp_path: Path, corpus: Corpus) -> None:
    for number, lengths in enumerate(([], [0, 0])):
        source = corpus(lengths, f"c{number}")
        for algorithm in ("best_fit", "first_fit", "none"):
            path = tmp_path / f"{number}{algorithm}.plan"
            result = fastpack.plan(source, path, seq_length=8, algorithm=algorithm)
            assert (result.n_rows, result.padding_share) == (0, 0.0)
            assert PlanFile(path).segments([]).row.tolist() == []


def test_manifests_and_progress(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([5, 6, 0, 7, 0], np.uint16))
    np.save(tmp_path / "b.npy", np.array([8, 0], np.uint16))
    fastpack.write_manifest(tmp_path, eos_token_id=0)
    seen: list[tuple[int, int]] = []
    result = fastpack.plan(
        tmp_path / "manifest.fpm",
        tmp_path / "a.plan",
        seq_length=8,
        eos_token_id=0,
        repeats=[3],
        progress=lambda done, total: seen.append((done, total)),
    )
    assert (result.n_source_documents, result.n_rows) == (9, 3)
    assert seen[-1] == (9, 9)
    assert PlanFile(tmp_path / "a.plan").open_sources()[0].n_documents == 3


@pytest.mark.slow
def test_the_time_is_proportional_to_the_documents() -> None:
    """A bound far above the noise of shared machines, and far below quadratic growth."""
    ends = (np.random.default_rng(0).lognormal(6.2, 1, 2_000_000) % 4096).astype(np.uint32)
    for algorithm in ("best_fit", "first_fit"):
        settings = PlanSettings(4096, algorithm)
        best = []
        for part in (ends[:100_000], ends):
            times = []
            for _ in range(5):
                started = time.process_time()
                pack_bins.pack_shard(part, settings)
                times.append(time.process_time() - started)
            best.append(min(times))
        assert best[1] < 20 * 4 * best[0]
