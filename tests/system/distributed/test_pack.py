"""`pack` by ranks: chunks of any lines, existing outputs, faulty documents, interrupts, and ranks from Slurm."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from distributed_sources import write_texts
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_sources import config_to, interrupt, settings_of
from ranks import run

from fastpack.distributed.pack_tasks import collect_pack, plan_pack
from fastpack.distributed.ranks import run_rank
from fastpack.documents.create_index import create_raw_index
from fastpack.documents.raw_index import write_raw_index
from fastpack.errors import JobError
from fastpack.packing.pack import pack_each, pack_encoded_data
from fastpack.packing.settings import Source
from fastpack.packing.source_batches import lines_before, read_batches, read_chunk


@pytest.fixture
def corpus(tmp_path: Path) -> list[Path]:
    return write_texts(tmp_path)


def test_existing_output_files_are_kept(corpus: list[Path], tmp_path: Path) -> None:
    pack_each(config_to(corpus, tmp_path / "local"))
    shutil.copytree(tmp_path / "local", tmp_path / "distributed")
    (tmp_path / "distributed" / "b.pbin").unlink()
    settings = settings_of(config_to(corpus, tmp_path / "distributed"), per_source=True, if_exists="skip")
    plan = plan_pack(settings, bytes_per_task=15000)
    run_rank(plan, 0, 1)
    assert [result.kept_existing for result in collect_pack(plan, if_exists="skip")] == [
        True, False, True, True, True, True,
    ]  # fmt: skip
    assert (tmp_path / "distributed" / "b.pbin").read_bytes() == (tmp_path / "local" / "b.pbin").read_bytes()


def test_first_faulty_document_is_reported_as_in_a_local_run(corpus: list[Path], tmp_path: Path) -> None:
    for source in corpus[:2]:
        config = config_to([source], tmp_path / "x.pbin")
        with pytest.raises(ValueError, match=r"line \d+ at byte \d+") as local:
            pack_encoded_data(config, on_faulty="error")
        plan = plan_pack(settings_of(config, on_error="raise"), bytes_per_task=4000)
        with pytest.raises(JobError, match="failed") as distributed:
            run_rank(plan, 0, 1)
        assert str(local.value) in str(distributed.value)
        with pytest.raises(JobError, match="are not done"):
            collect_pack(plan)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b"")), max_size=30), st.booleans(), st.data()
)
def test_every_line_is_in_one_chunk(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ends: bool, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    text = b"\n".join(lines) + b"\n" * ends
    (folder / "a.jsonl").write_bytes(text)
    n_chunks = data.draw(st.integers(1, max(1, len(text) + 2)))
    create_raw_index(folder / "a.jsonl", validate=False)
    for source in (Source(str(folder / "a.jsonl"), None), Source(str(folder / "a.jsonl"), str(folder / "a.idx"))):
        whole = [row for piece in read_batches(source, 0, 1 << 20) for row in piece.batch.rows.tolist()]
        found = []
        for chunk in range(n_chunks):
            n_before = len(found)
            for piece in read_chunk(source, chunk, n_chunks, 8):
                assert lines_before(source, chunk, n_chunks) == n_before
                assert piece.first_row == len(found) - n_before
                assert piece.lines.tolist() == list(range(piece.first_row + 1, piece.next_row + 1))
                found += piece.batch.rows.tolist()
        assert found == whole


def test_shuffled_index_keeps_its_order(tmp_path: Path) -> None:
    rows = [(30, 9), (0, 9), (20, 9), (10, 9)]
    (tmp_path / "a.jsonl").write_text("".join(f'"line {k:02}"\n' for k in range(4)))
    write_raw_index(tmp_path / "a.idx", rows)
    source = Source(str(tmp_path / "a.jsonl"), str(tmp_path / "a.idx"))
    for n_chunks in range(1, 9):
        pieces = [piece for chunk in range(n_chunks) for piece in read_chunk(source, chunk, n_chunks, 1)]
        assert [tuple(row) for piece in pieces for row in piece.batch.rows.tolist()] == rows


def test_rank_from_slurm(corpus: list[Path], tmp_path: Path) -> None:
    words = ["pack", "in", "--tokenizer", "bytes", "-o", "distributed.pbin", "--task-bytes", "9000", "--json"]
    done = run([*words, "--rank", "slurm"], tmp_path, {"SLURM_PROCID": "1", "SLURM_NTASKS": "3"})
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["rank"], result["world_size"]) == (1, 3)


def test_interrupted_rank_reports_how_to_continue(corpus: list[Path], tmp_path: Path) -> None:
    plan = plan_pack(settings_of(config_to(corpus, tmp_path / "distributed.pbin")), bytes_per_task=9000)
    with pytest.raises(KeyboardInterrupt) as stopped:
        run_rank(plan, 0, 1, interrupt)
    (note,) = stopped.value.__notes__
    assert re.fullmatch(r"stopped at \d+ %; run the same rank again to continue", note)
    assert run_rank(plan, 0, 1).done_before == 1
