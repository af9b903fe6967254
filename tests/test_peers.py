"""The comparisons with Modalities and Megatron-Energon, without these systems: inputs, runner, byte comparison."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastpack
from fastpack import PackedFile, read_raw_index

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module", autouse=True)
def peers() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "asv_benchmarks"))
    yield
    sys.path.remove(str(ROOT / "asv_benchmarks"))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("peers", "commands")]:
        del sys.modules[name]


def test_every_row_is_an_operation_of_both_systems() -> None:
    from peers.runner import Fastpack, Modalities
    from peers.work import all_work

    rows = all_work()
    assert len({(work.title, work.source) for work in rows}) == len(rows) > 15
    for work in rows:
        assert callable(getattr(Fastpack, work.operation))
        assert callable(getattr(Modalities, work.operation))
        assert "@" not in json.dumps(work.request("tiny", 0.1))
    targets = {work.title.split(",")[0]: work.bar for work in rows if work.bar}
    assert set(targets) >= {"create_raw_index", "pack_encoded_data", "create_shuffled_dataset_chunk"}


def test_fastpack_alone_on_small_inputs(tmp_path: Path) -> None:
    """Everything except the peer: inputs, the runner's process, and every operation without a tokenizer."""
    from peers.inputs import make_inputs
    from peers.processes import PeerFailure, Side
    from peers.work import all_work

    make_inputs(tmp_path / "inputs", 30_000, "../tokenizers")
    (tmp_path / "fastpack" / "out").mkdir(parents=True)
    side = Side("fastpack", sys.executable, tmp_path / "fastpack", 60, tmp_path / "log")
    try:
        for work in all_work():
            if work.operation in ("pack", "prepare_chat"):
                continue
            answer = side.ask(work.request("inputs", 0.0))
            assert answer["calls"] == 1
            assert answer["cpu"] > 0
            assert bool(work.out) != ("digest" in answer)
            assert not work.out or (tmp_path / "fastpack" / work.out).stat().st_size > 0
        with pytest.raises(PeerFailure, match="fastpack: FileNotFoundError: "):
            side.ask({"operation": "index", "source": "absent", "out": "x", "seconds": 0, "options": {}})
        side.timeout = 0.05
        with pytest.raises(PeerFailure, match="no answer in 0 s"):
            side.ask(all_work()[0].request("inputs", 5.0))
    finally:
        side.stop()
    assert len(read_raw_index(tmp_path / "inputs" / "text.idx")) > 3
    with PackedFile(tmp_path / "fastpack" / "out" / "chunk.pbin") as file:
        assert len(file) > 0


@pytest.fixture
def prepared(golden: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Return two copies of a dataset that Energon prepared."""
    for side in ("theirs", "ours"):
        shutil.copytree(golden / "energon" / "split", tmp_path / side)
    return tmp_path / "theirs", tmp_path / "ours"


def execute(path: Path, statement: str) -> None:
    db = sqlite3.connect(path)
    db.executescript(statement)
    db.close()


def test_differences_of_prepared_folders(prepared: tuple[Path, Path]) -> None:
    from peers.prepared import differences

    theirs, ours = prepared
    assert differences(theirs, ours) == []
    meta = ours / ".nv-meta"
    meta.joinpath("index.uuid").write_text("00000000-0000-4000-8000-000000000000")
    execute(meta / "index.sqlite", "UPDATE media_filters SET created_at_utc = 'now'")
    assert differences(theirs, ours) == []
    meta.joinpath("index.uuid").write_text("no")
    (ours / "train" / "part_00.tar.idx").unlink()
    meta.joinpath("split.yaml").write_text("other")
    execute(meta / "index.sqlite", "UPDATE samples SET byte_size = 1 WHERE sample_key = 'train_part_01_2'")
    found = differences(theirs, ours)
    assert found[0] == "train/part_00.tar.idx: only in one of them"
    assert ".nv-meta/index.uuid: not a uuid" in found
    assert ".nv-meta/split.yaml: other bytes" in found
    assert any("samples, sorted row 4: " in text and "'train_part_01_2'" in text for text in found)
    assert len(found) == 4


def test_tables_and_rows_on_one_side_only(prepared: tuple[Path, Path]) -> None:
    from peers.prepared import differences

    theirs, ours = prepared
    index = ours / ".nv-meta" / "index.sqlite"
    execute(index, "DELETE FROM samples WHERE tar_file_id = 9 AND sample_index = 2")
    assert any("None here" in text for text in differences(theirs, ours))
    execute(index, "DROP INDEX idx_sample_parts_seq")
    assert any("schema: " in text and "idx_sample_parts_seq" in text for text in differences(theirs, ours))


def test_shards_have_the_described_contents(tmp_path: Path) -> None:
    from peers.tars import ALL_SHARDS, make_shards

    small = ALL_SHARDS[0].scaled(0.002)
    make_shards(tmp_path / "a", small)
    make_shards(tmp_path / "b", small)
    assert small.n_samples == 10
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == [small.file_name(number) for number in range(8)]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    with tarfile.open(tmp_path / "a" / names[3]) as tar:
        members = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
    assert len(members) == 30
    key = small.key(3, 4)
    assert members[f"{key}.txt"].decode() == small.caption(3, 4)
    assert json.loads(members[f"{key}.json"])["caption"] == small.caption(3, 4)
    from PIL import Image

    with Image.open(io.BytesIO(members[f"{key}.jpg"])) as picture:
        picture.load()
        assert picture.mode == "RGB"
    sizes = [len(data) for name, data in members.items() if name.endswith("jpg")]
    assert 2_000 < sum(sizes) / len(sizes) < 4_000


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures the peak of memory in Linux")
def test_the_fastpack_side_of_the_comparison_with_megatron_core(tmp_path: Path) -> None:
    from peers.megatron import BATCH, N_BATCHES, Comparison, best, rate_row, time_row, write_corpus

    prefix = write_corpus(tmp_path, (N_BATCHES + 2) * BATCH * 50)
    comparison = Comparison({"fastpack": sys.executable}, prefix, tmp_path, 1)
    plain, eod = (comparison.read("fastpack", tmp_path / "none", *words) for words in ((), ("--eod",)))
    assert plain["digest"] != eod["digest"]
    assert 0 < plain["grown"] < 1 << 28
    row = time_row("first", [9.0, 9.0], best([plain, eod], "imports", "first"), 60)
    assert row.is_met
    assert row.ratio > 0.1
    assert not rate_row("batches", [0.1, 0.1], [0.2, 0.2], 2).is_met


def test_the_expected_rows_of_a_loop_are_those_of_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from peers import feed
    from peers.loop_process import hashes

    import fastpack

    monkeypatch.setattr(feed, "LENGTH", 128)
    monkeypatch.setattr(feed, "BATCH", 4)
    feed.write_tokens(tmp_path, 20, 128)
    names = ("input_ids", "labels", "position_ids")
    dataset = fastpack.MemoryMappedDataset(tmp_path, 129, "tokens.bin", True, feed.EOS, dtype="uint16")
    batch = dataset.batch(range(20), outputs=names)
    found = sum(hashes([batch[name] for name in names])) % (1 << 64)
    assert found == feed.expected_digest(tmp_path, "Torch", packed=True)
    assert found != feed.expected_digest(tmp_path, "Torch", packed=False)
    assert feed.expected_digest(tmp_path, "Megatron", packed=True) not in (None, found)
    assert feed.expected_digest(tmp_path, "GrainPacked", packed=True) is None


def test_a_loop_over_shards(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from peers.loop_process import Tasks
    from peers.media_loops import LOOPS
    from peers.tars import ALL_SHARDS, make_shards

    make_shards(tmp_path / "shards", ALL_SHARDS[1].scaled(0.0008))
    digests = []
    for decoded in (False, True):
        job = SimpleNamespace(folder=str(tmp_path), batch=8, workers=0, decoded=decoded, started=0.0)
        tasks = Tasks(LOOPS["Fastpack"](job), job)
        tasks.prepare()
        checked, measured = tasks.check(), tasks.measure()
        assert checked["samples"] == measured["samples"] == 80
        assert checked["memory"] > 1 << 20
        assert measured["imports"] <= measured["first"] <= measured["epoch"]
        digests.append(checked["digest"])
    fields = {"txt": ALL_SHARDS[1].caption(0, 3), "json": b"{}"}
    hashes = LOOPS["Fastpack"](job).hashes
    decoded_text = next(hashes(([{"__key__": "a", **fields}],)))
    assert decoded_text == next(hashes(([{"__key__": "a", **fields, "txt": fields["txt"].encode()}],)))  # type: ignore[union-attr]
    assert digests[0] != digests[1]  # objects and bytes of json


def test_a_loop_that_fails_names_its_log(tmp_path: Path) -> None:
    from peers.loop_runs import LoopFailure, Loops, best

    loops = Loops("media_loops", sys.executable, tmp_path, batch=2)
    with pytest.raises(LoopFailure, match=r"Absent, check: KeyError: 'Absent' \(see .*Absent\.log\)"):
        loops.ask("Absent", "check")
    rounds = [
        {"imports": [1.0, 2.0], "first": [1.5, 3.0], "epoch": [3.0, 6.0], "samples": 8},
        {"imports": [1.0, 3.0], "first": [1.2, 5.0], "epoch": [5.0, 5.0], "samples": 8},
    ]
    assert best(rounds) == {
        "samples_per_cpu_second": 4.0,
        "samples_per_second": 4.0,
        "first": [1.2, 3.0],
        "imports": [1.0, 2.0],
    }


def test_a_table_goes_to_the_page_with_its_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from peers import command

    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "a.md"
    (tmp_path / "README.md").write_text("nothing")
    page.write_text("before\n<!-- peers:x -->\nold\n<!-- /peers:x -->\nafter\n")
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results.json")
    args = command.make_parser("doc", "none", "1 GB").parse_args(["--write"])
    command.publish(args, "x", ["a", "b"], [["1", "2"]], "footer", {"rows": {"r": 1}})
    table = ["<!-- peers:x -->", "| a | b |", "| --- | --- |", "| 1 | 2 |", "", "footer", "<!-- /peers:x -->"]
    assert page.read_text().splitlines() == ["before", *table, "after"]
    assert json.loads((tmp_path / "results.json").read_text()) == {"x": {"conditions": "footer", "rows": {"r": 1}}}
    with pytest.raises(ValueError, match=r"peers:y --> is in 0 pages"):
        command.publish(args, "y", ["a"], [["1"]], "footer")


def test_tokenise_compares_the_documents_of_both_outputs(tmp_path: Path) -> None:
    from peers.tokenise import SYSTEMS, _compare_tokens

    assert {system.format for system in SYSTEMS.values()} >= {"datatrove", "megatron", "litdata", "mds", "olmo"}
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in ("a b", "c", "d")))
    (tmp_path / "b.jsonl").write_text('{"text": "a b"}\n')
    for name, out in (("a", tmp_path / "ours"), ("b", tmp_path / "theirs")):
        out.mkdir()
        fastpack.pack(tmp_path / f"{name}.jsonl", out / "a.ds", tokenizer="bytes", format="datatrove")
    system, ours = SYSTEMS["datatrove"], tmp_path / "ours" / "a.ds"
    assert _compare_tokens(system, tmp_path / "ours", ours) == "yes"
    assert _compare_tokens(system, tmp_path / "theirs", ours) == "no: 1 of 3 documents"


def test_the_side_of_fastpack_measures_further_text(tmp_path: Path) -> None:
    from peers.tokenise_side import cpu_seconds, measure

    before = cpu_seconds()
    runs: list[str] = []
    assert measure(lambda _, source: runs.append(source), str(tmp_path), ["small", "large"]) < 1
    assert runs == ["small", "large", "small", "large"]
    assert cpu_seconds() >= before


def test_rows_of_whole_commands_know_their_targets() -> None:
    from commands import Row

    assert Row("more", 1.9, "x", 1.8).is_met
    assert not Row("more", 1.7, "x", 1.8).is_met
    assert not Row("less", 23.0, "ms", 22).is_met
    assert Row("any", 1.0, "s").cells() == ["any", "**1.00** s", "-"]
