"""`index` by ranks gives the bytes, warnings and errors of a local run for any lines."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed_sources import write_lines
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpack.distributed.index_tasks import collect_index, plan_index
from fastpack.distributed.plan import clear
from fastpack.distributed.ranks import run_rank
from fastpack.documents.create_index import create_raw_index
from fastpack.errors import JobError

LINES = st.sampled_from([b'{"a": 1}', b"", b"{torn", b"12", b'"\xff"', b'{"text": "gr\xc3\xbcn"}', b" " * 70])


def outcome(work: Callable[[], Any]) -> tuple[Any, ...]:
    """Return the result, or the error with its notes, and the warnings."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = [(one.entries, one.dropped, one.bytes, one.written) for one in work()]
        except ValueError as error:
            result = [type(error), str(error), error.__notes__]
    return result, [str(warning.message) for warning in seen]


def run_distributed(
    source: Any, target: Path | None, drop: bool, validate: bool, n_bytes: int | None, size: int
) -> Any:
    plan = plan_index(source, target, validate=validate, bytes_per_task=n_bytes)
    for rank in range(size):
        run_rank(plan, rank, size)
    results = collect_index(plan, drop_faulty_entries=drop)
    clear(plan)
    return results


@settings(deadline=None, max_examples=80)
@given(st.lists(LINES, max_size=40), st.booleans(), st.booleans(), st.booleans(), st.integers(1, 300))
def test_any_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ends: bool, drop: bool, validate: bool, n_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("index")
    source = folder / "a.jsonl"
    source.write_bytes(b"\n".join(lines) + b"\n" * ends)
    n_bytes = max(n_bytes, source.stat().st_size // 5)
    options = {"validate": validate, "drop_faulty_entries": drop}
    local = outcome(lambda: [create_raw_index(source, folder / "local.idx", **options)])
    assert outcome(lambda: run_distributed(source, folder / "distributed.idx", drop, validate, n_bytes, 2)) == local
    assert (folder / "distributed.idx").exists() == (folder / "local.idx").exists()
    if (folder / "distributed.idx").exists():
        assert (folder / "distributed.idx").read_bytes() == (folder / "local.idx").read_bytes()


def test_changed_source_is_detected(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    write_lines(source, 3000, 0)
    plan = plan_index(source, bytes_per_task=100_000)
    run_rank(plan, 0, 1)
    source.write_text(source.read_text().replace("{torn", '"tor"'))
    with pytest.raises(JobError, match="changed"):
        collect_index(plan, drop_faulty_entries=True)
    with pytest.raises(JobError, match="are not done"):  # as in a new command
        collect_index(plan_index(source, bytes_per_task=100_000))
