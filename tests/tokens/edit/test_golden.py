"""Every operation against golden bytes of Modalities 0.5.0, on every backend."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack
from fastpack.errors import DataWarning
from fastpack.tokens.edit.filter import KeepRules

EDITING = Path(__file__).parents[2] / "golden/modalities/editing"
CASES: list[dict[str, Any]] = json.loads((EDITING / "cases.json").read_text())
FILTERS: dict[str, Callable[[int, np.ndarray], bool]] = {
    "even": lambda i, _tokens: i % 2 == 0,
    "longer_than_20": lambda _i, tokens: len(tokens) > 20,
    "has_267": lambda _i, tokens: bool((tokens == 267).any() or (tokens == 7_000_000).any()),
    "none": lambda _i, _tokens: False,
    "all": lambda _i, _tokens: True,
}


def run(case: dict[str, Any], target: Path, dry_run: bool = False) -> fastpack.EditResult:
    """Call fastpack with the arguments of a golden case."""
    given = dict(case["arguments"])
    for key in ("src_paths", "file_path_list"):
        if key in given:
            given[key] = [EDITING.parent / path for path in given[key]]
    source = EDITING.parent / str(given.get("input_data_path", given.get("src_path", "")))
    name, compat = case["function"], {"compat": "modalities-0.5", "dry_run": dry_run}
    rule = FILTERS.get(given.pop("rule", ""), FILTERS["none"])
    if name == "merge_packed_data_files":
        return fastpack.merge_packed_data(given["src_paths"], target, **compat)
    if name == "filter_dataset":
        return fastpack.filter_packed_data(source, target, rule, dry_run=dry_run)
    if name == "create_filtered_tokenized_dataset":
        file = fastpack.PackedFile(source)
        return fastpack.create_filtered_tokenized_dataset(
            source, lambda i: rule(i, file[i]), target, "error", dry_run=dry_run
        )
    if "input_data_path" in given:
        given["input_data_path"] = source
    given["output_chunk_file_path" if "chunk" in name else "output_data_path"] = target
    options = compat if "jsonl" in name else {"dry_run": dry_run}
    function = fastpack.create_shuffled_jsonl_chunk if "jsonl_dataset" in name else getattr(fastpack, name)
    return function(**given, **options)


def named(case: dict[str, Any]) -> str:
    return f"{CASES.index(case)}-{case['function']}"


def test_all_golden_cases_exist() -> None:
    assert len(CASES) > 80
    assert len({case["function"] for case in CASES}) == 7
    for case in CASES:
        if "file" in case:
            assert hashlib.sha256((EDITING / case["file"]).read_bytes()).hexdigest() == case["sha256"]


@pytest.mark.filterwarnings("ignore:merged more than once:fastpack.DataWarning")
@pytest.mark.parametrize("case", CASES, ids=named)
def test_bytes_match_modalities(backend: str, case: dict[str, Any], tmp_path: Path) -> None:
    target = tmp_path / "out"
    if "error" in case:
        with pytest.raises(ValueError, match=case["message"].split(" the number of")[0].rstrip(".")):
            run(case, target)
        assert list(tmp_path.iterdir()) == []
        return
    planned = run(case, target, dry_run=True)
    assert not target.exists()
    result = run(case, target)
    data = target.read_bytes()
    assert (len(data), hashlib.sha256(data).hexdigest()) == (case["bytes"], case["sha256"])
    assert result.written
    assert not planned.written
    assert (planned.bytes, planned.documents, planned.tokens) == (result.bytes, result.documents, result.tokens)
    assert result.bytes == len(data)
    if "jsonl" not in case["function"] and case["function"] != "merge_packed_data_files":
        with fastpack.PackedFile(target) as file:
            assert (len(file), len(file.data)) == (result.documents, result.tokens)


@pytest.mark.filterwarnings("ignore:merged more than once:fastpack.DataWarning")
@pytest.mark.parametrize(
    "case", [case for case in CASES if "sha256" in case and "merge" not in case["function"]], ids=named
)
def test_without_compat_only_a_missing_newline_differs(case: dict[str, Any], tmp_path: Path) -> None:
    target = tmp_path / "out"
    if "jsonl" not in case["function"]:
        return
    arguments = dict(case["arguments"])
    run(case, target)
    peers = target.read_bytes()
    for key in ("file_path_list", "input_data_path"):
        if key in arguments:
            value = arguments[key]
            arguments[key] = [EDITING.parent / p for p in value] if isinstance(value, list) else EDITING.parent / value
    name = "create_shuffled_jsonl_chunk" if "chunk" in case["function"] else "shuffle_jsonl_data"
    key = "output_chunk_file_path" if "chunk" in name else "output_data_path"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(fastpack, name)(**arguments, **{key: tmp_path / "new"})
    ours = (tmp_path / "new").read_bytes()
    assert len(ours) == len(peers) + len(caught)
    assert all(issubclass(warning.category, DataWarning) for warning in caught)
    assert ours.replace(b"\n", b"") == peers.replace(b"\n", b"")
    assert (ours == peers) == (not caught)


@pytest.mark.parametrize(
    ("rules", "rule"), [(KeepRules(min_length=21), "longer_than_20"), (KeepRules(contains=(267,)), "has_267")]
)
def test_rules_write_the_same_bytes(backend: str, rules: KeepRules, rule: str, tmp_path: Path) -> None:
    wanted = [case for case in CASES if case["function"] == "filter_dataset" and case["arguments"]["rule"] == rule]
    source = EDITING.parent / wanted[0]["arguments"]["src_path"]
    fastpack.filter_packed_data(source, tmp_path / "out", rules)
    assert hashlib.sha256((tmp_path / "out").read_bytes()).hexdigest() == wanted[0]["sha256"]
