"""The comparison with Modalities: its table, rows and processes. Modalities itself is not needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastpack import PackedFile, read_raw_index

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module", autouse=True)
def peers() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "asv_benchmarks"))
    yield
    sys.path.remove(str(ROOT / "asv_benchmarks"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "peers"]:
        del sys.modules[name]


def row(**changes: Any) -> Any:
    from peers.table import Row

    values = {"peer_cpu": 2.0, "peer_wall": 2.5, "our_cpu": 0.1, "our_wall": 0.2, "bar": 10, "equal": "yes"}
    return Row("pack", "a.jsonl", **{**values, **changes})


def test_the_ratio_and_its_targets() -> None:
    assert row().ratio == pytest.approx(20)
    assert row().failure is None
    assert row(bar=None).failure is None
    assert row(bar=20.1).failure == "20x, expected at least 20.1x"
    assert row(equal="no").failure == "bytes equal: no, expected yes"
    assert row(equal="no", equal_expected="no").failure is None
    assert row(our_cpu=0.0, note="modalities: no answer in 3 s").failure == "not measured: modalities: no answer in 3 s"
    assert row().as_json()["ratio"] == pytest.approx(20)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.0000123, "0.0000123"),
        (0.012345, "0.0123"),
        (1.5, "1.5"),
        (123.4, "123"),
        (999.6, "1,000"),
        (12345.6, "12,346"),
    ],
)
def test_number_format(value: float, text: str) -> None:
    from peers.table import shown

    assert shown(value) == text


def test_the_table() -> None:
    from peers.table import HEADER, rendered

    text = rendered([row(), row(our_cpu=0.0, note="a | b", bar=None)], "Footer.")
    lines = text.splitlines()
    assert lines[0].count("|") == len(HEADER) + 1
    assert lines[2] == "| pack | a.jsonl | 2 / 2.5 s | 0.1 / 0.2 s | **20x** | 10x | yes |"
    assert lines[3] == "| pack | a.jsonl | - | - | - | - | a \\| b |"
    assert lines[4:] == ["", "Footer."]


def test_the_table_is_written_to_the_readme(tmp_path: Path) -> None:
    from markdown_tables import write_between
    from peers.table import END, START

    path = tmp_path / "README.md"
    path.write_text((ROOT / "README.md").read_text(encoding="utf-8"), encoding="utf-8")
    before = path.read_text(encoding="utf-8")
    write_between(path, "new table", START, END)
    after = path.read_text(encoding="utf-8")
    assert f"{START}\nnew table\n{END}" in after
    assert after.split(START)[0] == before.split(START)[0]
    assert after.split(END)[1] == before.split(END)[1]
    path.write_text(f"{END} {START}")
    with pytest.raises(ValueError, match="each once"):
        write_between(path, "x", START, END)


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


def test_folders_are_compared_by_names_and_bytes(tmp_path: Path) -> None:
    from peers.modalities import same_files

    left, right = tmp_path / "a", tmp_path / "b"
    for folder in (left, right):
        (folder / "x").mkdir(parents=True)
        (folder / "x" / "1").write_bytes(b"same")
    assert same_files(left, right)
    assert same_files(left / "x" / "1", right / "x" / "1")
    assert not same_files(left / "x", right / "x" / "1")
    assert not same_files(left, tmp_path / "absent")
    (left / "x" / "1").write_bytes(b"Same")
    assert not same_files(left, right)
    (left / "x" / "1").write_bytes(b"same")
    (right / "2").write_bytes(b"")
    assert not same_files(left, right)
