"""The results of `--json` match their schemas."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from json_cases import CASES, Case, make_inputs
from json_schemas import command_schema, reference, write_schemas
from jsonschema import Draft202012Validator

from fastpack.cli import main
from fastpack.cli.argument_parser import parsers_of
from fastpack.cli.json_types import JSON_TYPES
from fastpack.cli.output import emit
from fastpack.cli.parser import build_parser

NAMES = sorted(names[0] for names in parsers_of(build_parser()))


def test_every_command_has_a_schema_and_successful_cases() -> None:
    assert sorted(JSON_TYPES) == NAMES
    assert {case.words.split()[0] for case in CASES if case.code == 0} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_strict(name: str) -> None:
    schema = command_schema(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    nodes: list[Any] = [schema]
    while nodes:
        node = nodes.pop()
        if isinstance(node, list):
            nodes += node
        elif isinstance(node, dict):
            nodes += node.values()
            if "properties" in node and "type" in node:
                assert node["additionalProperties"] is False
                for key, value in node["properties"].items():
                    assert set(value) & {"type", "const", "enum", "oneOf"}, f"{name}: {key}"


@pytest.mark.parametrize("name", NAMES)
def test_results_match_the_schema(
    name: str, golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "bench":
        # Covered by the test below: importing torch takes 5 s.
        monkeypatch.delitem(sys.modules, "fastpack.torch", raising=False)
        monkeypatch.setitem(sys.modules, "torch", None)
    make_inputs(tmp_path / "run", golden)
    monkeypatch.chdir(tmp_path / "run")
    monkeypatch.setitem(sys.modules, "mfusepy", SimpleNamespace(FUSE=lambda *_, **__: None))
    monkeypatch.setenv("FASTPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "fastpack.io.remote_files.fetch_all", lambda *_, **__: ([tmp_path], 5)
    )  # covered in tests/system/stores
    schema = command_schema(name)
    results = [result for case in CASES if case.words.split()[0] == name and (result := _run(case, schema, capsys))]
    for number in range(len(schema.get("oneOf", []))):
        shape = Draft202012Validator({**schema, "oneOf": [schema["oneOf"][number]]})
        assert any(map(shape.is_valid, results)), f"no case gives shape {number} of {name}"


@pytest.mark.slow
def test_bench_with_torch(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    make_inputs(tmp_path / "run", golden)
    monkeypatch.chdir(tmp_path / "run")
    (case, *_) = [case for case in CASES if case.words.startswith("bench")]
    assert _run(case, command_schema("bench"), capsys)["torch"]["tokens_per_second"] > 0


def _run(case: Case, schema: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> Any:
    try:
        code = main([*shlex.split(case.words), "--json", "--no-progress"])
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    out, err = capsys.readouterr()
    assert code == case.code, f"{case.words}: {err}"
    if case.clean:
        assert out == ""
        assert err.lower().count("error: ") == 1
        return None
    assert out.count("\n") == 1, case.words
    assert out.rstrip("\n").isprintable()
    result = json.loads(out)
    errors = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(result)]
    assert not errors, f"{case.words}: {errors}"
    return result


def test_the_reference_documents_every_field(tmp_path: Path) -> None:
    text = reference()
    write_schemas(tmp_path)
    for name in NAMES:
        assert f"## {name}\n" in text
        assert json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8")) == command_schema(name)
    assert "| `partitions[].skipped[].line` | integer | line or row in the file, from 1 |" in text
    assert "| `files.jsonl` | string | the text |" in text
    assert "| `split.*.samples` | integer or null | number of samples |" in text


@pytest.mark.parametrize("text", ["plain", "\x9b2J", "\u202e", "\udc80", "日本 é", "\U000e0001"])
def test_results_are_printable_without_control_characters(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    emit(argparse.Namespace(json=True, quiet=False), {text: [text]}, "")
    out = capsys.readouterr().out
    assert out.rstrip("\n").isprintable()
    assert json.loads(out) == {text: [text]}
    assert text in out or not text.isprintable()
