"""`fastpack filter`: rules, and expressions only with --trust-code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastpack import PackedFile, PackedWriter
from fastpack.cli import main


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Documents [0], [1, 1], [2, 2, 2], ...; each starts with its number."""
    with PackedWriter(tmp_path / "a.pbin", 2) as writer:
        for number in range(6):
            writer.append([number] * (number + 1))
    return tmp_path / "a.pbin"


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        (["--min-length", "5"], [4, 5]),
        (["--max_length", "2"], [0, 1]),
        (["--min_length=2", "--max-length=3"], [1, 2]),
        (["--contains-token", "3"], [3]),
        (["--contains_token=3", "--contains-token=4"], []),
        (["--lacks-token=0", "--lacks_token=5"], [1, 2, 3, 4]),
        (["--expression", "len(tokens) > 3", "--trust-code"], [3, 4, 5]),
        (["--expression", " i % 2 == 0 and np.sum(tokens) > 0", "--trust_code", "--max-length=4"], [2]),
    ],
)
def test_rules(packed: Path, capsys: pytest.CaptureFixture[str], rules: list[str], kept: list[int]) -> None:
    target = packed.with_name("out.pbin")
    assert main(["filter", str(packed), str(target), *rules]) == 0
    with PackedFile(target) as file:
        assert [int(file[i][0]) for i in range(len(file))] == kept
    n_tokens = sum(number + 1 for number in kept)
    n_documents = "1 document" if len(kept) == 1 else f"{len(kept)} documents"
    message = f"{n_documents}, {n_tokens} tokens, {target.stat().st_size:,} bytes, {6 - len(kept)} documents excluded"
    assert capsys.readouterr() == (f"{target}: {message}\n", "")


def test_json_and_dry_run(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = packed.with_name("out.pbin")
    words = ["filter_packed_data", str(packed), str(target), "--min-length", "3", "--json"]
    assert main([*words, "--dry-run"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert not target.exists()
    assert main(words) == 0
    done = json.loads(capsys.readouterr().out)
    assert planned == done | {"written": False, "dry_run": True}
    assert (done["documents"], done["left_out"], done["bytes"]) == (4, 2, target.stat().st_size)


def test_an_expression_needs_trust(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = packed.with_name("out.pbin")
    touch = f"open({str(packed.with_name('touched'))!r}, 'w')"
    assert main(["filter", str(packed), str(target), "--expression", touch]) == 2
    assert "--expression runs code with your permissions: add --trust-code" in capsys.readouterr().err
    assert not packed.with_name("touched").exists()
    assert not target.exists()


@pytest.mark.parametrize("expression", ["len(tokens) >", "a = 1", "", "\0"])
def test_invalid_expressions_are_usage_errors(
    packed: Path, capsys: pytest.CaptureFixture[str], expression: str
) -> None:
    target = packed.with_name("out.pbin")
    assert main(["filter", str(packed), str(target), "--trust-code", "--expression", expression]) == 2
    assert capsys.readouterr().err.startswith("fastpack: error: --expression is not a Python expression")


def test_a_failing_expression_names_the_document(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = packed.with_name("out.pbin")
    assert main(["filter", str(packed), str(target), "--trust-code", "--expression", "1 // (3 - i) > 5"]) == 1
    assert "--expression, document 3: ZeroDivisionError" in capsys.readouterr().err
    assert not target.exists()


def test_usage(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["filter", str(packed), "out"]) == 2
    assert "no rule: pass at least one" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["filter", str(packed), "out", "--min-length", "many"])
    assert caught.value.code == 2
