"""Every line of a source is either a document or listed as skipped, with its line number in the file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from command_line import Cli
from hypothesis import given, settings
from pack_sources import batch_bytes, config_of, line, settings_of

import fastpack
from fastpack.cli import main
from fastpack.distributed.pack_tasks import collect_pack, plan_pack
from fastpack.distributed.ranks import run_rank
from fastpack.documents.raw_index import write_raw_index
from fastpack.errors import JobError
from fastpack.packing.pack import pack_each, pack_encoded_data
from fastpack.packing.pack_result import PackResult
from fastpack.packing.settings import Source
from fastpack.packing.source_batches import lines_before, read_batches, read_chunk

GOOD, EMPTY, BROKEN, BLANK = line("good"), line(""), b'{"text": "torn', b""
LINES = [BROKEN, GOOD, BLANK, EMPTY, GOOD, BROKEN, BROKEN, line(3), GOOD, b"   "]
LEFT_OUT = {
    1: "not JSON: Invalid control character at character 9",
    3: "blank line",
    4: "empty text",
    6: "not JSON",
    7: "not JSON",
    8: "the result is a number, expected a string",
    10: "blank line",
}


def numbers(result: PackResult) -> list[int]:
    return [found["line"] for found in result.skipped]


def write(path: Path, lines: list[bytes]) -> Path:
    data = b"".join(line + b"\n" for line in lines)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def index_json(path: Path) -> None:
    """Index a file as Modalities does when it drops faulty lines."""
    with pytest.warns(UserWarning, match="faulty line"):
        fastpack.create_raw_index(path, drop_faulty_entries=True)


@pytest.mark.parametrize("num_cpus", [1, 2])
@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
@pytest.mark.parametrize("batch", [1, 1 << 20])
def test_documents_and_skipped_lines_are_all_lines(
    name: str, batch: int, num_cpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_batches: None
) -> None:
    batch_bytes(monkeypatch, batch, checkpoints=False)
    source = write(tmp_path / name, LINES)
    if name == "x.jsonl":
        index_json(source)
    result = pack_encoded_data(config_of(source, dst_path=tmp_path / "x.pbin", num_cpus=num_cpus))
    assert numbers(result) == list(LEFT_OUT)
    assert result.documents + len(result.skipped) == len(LINES)
    for found in result.skipped if name == "x.jsonl" else ():
        assert found["reason"].startswith(LEFT_OUT[found["line"]].partition(" at")[0][:8])
    assert result.skipped[1]["reason"] == "blank line"


def test_index_of_some_lines(tmp_path: Path) -> None:
    source = write(tmp_path / "x.jsonl", [line(str(n)) for n in range(10)])
    fastpack.create_raw_index(source)
    rows = fastpack.read_raw_index(source.with_suffix(".idx"))
    write_raw_index(source.with_suffix(".idx"), rows[[3, 4, 9]])
    result = pack_encoded_data(config_of(source))
    assert result.skipped == [{"line": n, "reason": "not in the index"} for n in (1, 2, 3, 6, 7, 8, 9)]
    write_raw_index(source.with_suffix(".idx"), rows[[9, 3]])
    again = pack_encoded_data(config_of(source), if_exists="overwrite")
    assert numbers(again) == [1, 2, 3, 5, 6, 7, 8, 9]


def test_index_that_ends_before_the_last_document_is_rejected(tmp_path: Path) -> None:
    """Such an index is indistinguishable from that of a file that was extended later."""
    source = write(tmp_path / "x.jsonl", [line(str(n)) for n in range(10)])
    fastpack.create_raw_index(source)
    rows = fastpack.read_raw_index(source.with_suffix(".idx"))
    for some in (rows[:9], rows[:0]):
        write_raw_index(source.with_suffix(".idx"), some)
        with pytest.raises(fastpack.FormatError, match="has no entry"):
            pack_encoded_data(config_of(source))


def test_faulty_line_that_stops_the_run_is_numbered(tmp_path: Path) -> None:
    source = write(tmp_path / "x.jsonl", [BROKEN, GOOD, EMPTY])
    index_json(source)
    offset = len(BROKEN) + len(GOOD) + 2
    with pytest.raises(ValueError, match=rf"x\.jsonl: line 3 at byte {offset}: empty text"):
        pack_encoded_data(config_of(source), on_faulty="error")


def test_line_that_is_not_json_is_numbered(tmp_path: Path) -> None:
    source = write(tmp_path / "x.jsonl", [GOOD, BROKEN])
    with pytest.raises(ValueError, match=rf"x\.jsonl: line 2 at byte {len(GOOD) + 1}: not JSON: "):
        fastpack.pack(source, tokenizer="bytes", on_faulty="error")


def test_skipped_lines_of_several_sources(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl"):
        write(tmp_path / name, LINES)
    index_json(tmp_path / "c.jsonl")
    names = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl")]
    result = pack_encoded_data(config_of(tmp_path / "a.jsonl", src_path=names))
    assert [(found.get("source"), found["line"]) for found in result.skipped] == [
        (name, number) for name in names for number in LEFT_OUT
    ]
    each = pack_each(config_of(tmp_path / "a.jsonl", src_path=names, dst_path=tmp_path / "each"))
    assert [numbers(one) for one in each] == [list(LEFT_OUT)] * 3


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("bytes_per_task", [10, 60, None])
def test_ranks_give_the_local_line_numbers(indexed: bool, bytes_per_task: int | None, tmp_path: Path) -> None:
    source = write(tmp_path / "x.jsonl", LINES * 3)
    if indexed:
        index_json(source)
    config = config_of(source, src_path=[source], dst_path=tmp_path / "x.pbin")
    plan = plan_pack(settings_of(config), bytes_per_task=bytes_per_task)
    run_rank(plan, 0, 1)
    (result,) = collect_pack(plan)
    local = pack_encoded_data(config_of(source, src_path=[source], dst_path=tmp_path / "local.pbin"))
    assert result.skipped == local.skipped
    assert numbers(result) == [10 * k + n for k in range(3) for n in LEFT_OUT]


@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_resumed_run_lists_every_line_once(
    stop_after: int, tmp_path: Path, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_bytes(monkeypatch, 30)
    source = write(tmp_path / "x.jsonl", LINES)
    index_json(source)
    calls: list[int] = []

    def stop(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == stop_after:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        pack_encoded_data(config_of(source), resume=True, progress=stop)
    result = pack_encoded_data(config_of(source), resume=True)
    assert result.resumed_documents + len(result.skipped) > 0
    assert numbers(result) == list(LEFT_OUT)
    assert result.documents + len(result.skipped) == len(LINES)


LINE = st.sampled_from([b"", b"1", b"22", b"x", b"333", b"\r"])


@settings(deadline=None, max_examples=80)
@given(lines=st.lists(LINE, max_size=12), ends=st.booleans(), chosen=st.sets(st.integers(0, 11)), data=st.data())
def test_line_numbers_of_any_index_in_any_number_of_chunks(
    lines: list[bytes], ends: bool, chosen: set[int], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    text = b"\n".join(lines) + b"\n" * ends
    path.write_bytes(text)
    fastpack.create_raw_index(path, validate=False)
    rows = fastpack.read_raw_index(path.with_suffix(".idx"))
    kept = sorted(row for row in chosen if row < len(rows))
    write_raw_index(path.with_suffix(".idx"), rows[kept])
    source = Source(str(path), str(path.with_suffix(".idx")))
    others = sorted(set(range(len(rows))) - set(kept))
    pieces = list(read_batches(source, 0, data.draw(st.integers(1, 8))))
    assert [number - 1 for piece in pieces for number in piece.lines.tolist()] == kept
    assert [number - 1 for piece in pieces for number, _ in piece.omitted] == others
    n_chunks = data.draw(st.integers(1, 6))
    found: list[tuple[int, bool]] = []
    before = 0
    for chunk in range(n_chunks):
        n_lines = 0
        for piece in read_chunk(source, chunk, n_chunks, 4):
            assert lines_before(source, chunk, n_chunks) == before
            found += [(before + n, True) for n in piece.lines.tolist()]
            found += [(before + n, False) for n, _ in piece.omitted]
            n_lines = piece.n_lines
        before += n_lines
    assert sorted(found) == [(row + 1, row in kept) for row in range(len(rows))]


def test_empty_source_is_an_error(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "empty.jsonl").touch()
    with gzip.open(tmp_path / "none.jsonl.gz", "wb"):
        pass
    with pytest.raises(JobError, match=r"empty\.jsonl is empty"):
        fastpack.pack(tmp_path / "empty.jsonl", tokenizer="bytes")
    for sources in (["empty.jsonl"], ["none.jsonl.gz"], ["empty.jsonl", "none.jsonl.gz"]):
        paths = [str(tmp_path / name) for name in sources]
        output = [] if len(paths) == 1 else ["-o", str(tmp_path / "x.pbin")]
        out, err = cli("pack", *paths, "--tokenizer", "bytes", *output, code=1)
        assert out == ""
        assert "empty" in err.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.jsonl", "none.jsonl.gz"]


def test_empty_source_among_others_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    write(tmp_path / "b.jsonl", [GOOD])
    assert main(["pack", str(tmp_path), "--tokenizer", "bytes", "-o", str(tmp_path / "x.pbin"), "-q"]) == 0


def test_index_of_an_empty_file_warns(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "empty.jsonl").touch()
    assert "empty.jsonl: line 1 at byte 0: the file is empty" in cli("index", tmp_path / "empty.jsonl", code=1).err


def test_command_reports_physical_line_numbers(tmp_path: Path, cli: Cli) -> None:
    source = write(tmp_path / "x.jsonl", LINES)
    words: list[Any] = ["pack", str(source), "--tokenizer", "bytes", "--json"]
    for more in ([], ["--force"]):
        report = json.loads(cli(*words, *more).out)
        assert [found["line"] for found in report["skipped"]] == list(LEFT_OUT)
        assert report["documents"] + len(report["skipped"]) == len(LINES)
