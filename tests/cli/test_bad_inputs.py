"""Every command with invalid inputs: a short message on stderr, exit code 1 or 2, and no side effects."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line import Cli, actions

from fastpack.cli import main
from fastpack.cli.argument_parser import parsers_of
from fastpack.cli.parser import build_parser

# The call of each command with the invalid input X. OUT is its output path.
CALLS = {
    "index": "index X",
    "pack": "pack X --tokenizer bytes -o OUT/x.pbin",
    "merge": "merge X OUT/x.pbin",
    "shuffle": "shuffle_tokenized_data X OUT/x.pbin --seed 1",
    "shuffle lines": "shuffle_jsonl_data X OUT/x.jsonl --seed 1",
    "chunk": "create_shuffled_dataset_chunk X -o OUT/x.pbin --chunk-id 0 --num-chunks 2",
    "filter": "filter X OUT/x.pbin --min-length 1",
    "convert": "convert X -o OUT/x.ds",
    "plan": "plan X --seq-len 8 -o OUT/x.plan",
    "chat": "chat X",
    "prepare": "prepare X --non-interactive --split-ratio 1,0,0",
    "prepare-media": "prepare-media X --media-metadata-by-extension",
    "fix-duplicates": "fix-duplicates X OUT/y",
    "info": "info X",
    "report": "report X -o OUT/x.html",
    "compare": "compare X X",
    "validate": "validate X",
    "verify": "verify X",
    "repair": "repair X -o OUT/x.pbin",
    "preview": "preview X -n 1",
    "manifest": "manifest X",
    "fetch": "fetch X",
    "bench": "bench X --seconds 0",
    "trace": "trace X --step 0",
    "init": "init OUT/x.py --data X --tokenizer bytes --framework numpy",
}
WITHOUT_INPUT = {"quickstart", "completion", "mount", "doctor"}  # mount: see test_mount
KINDS = ("missing", "folder", "empty", "garbage", "suffix", "no permission")
# Valid cases: these commands accept such an input and exit with 0.
FINE = {
    *(("shuffle lines", kind) for kind in ("empty", "garbage", "suffix")),  # any lines are accepted
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "OUT").mkdir()
    return tmp_path


def make(kind: str, name: str) -> Path:
    suffix = {"chat": ".yaml", "index": ".jsonl", "pack": ".jsonl", "shuffle lines": ".jsonl"}.get(name, ".pbin")
    path = Path(f"input{'.docx' if kind == 'suffix' else suffix}")
    if kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.write_bytes(b"" if kind == "empty" else bytes(range(256)) * 3)
    return path


def seen(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CALLS)
def test_invalid_inputs_are_reported(
    name: str, kind: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(kind, name)
    before = seen(place)
    words = [str(path) if word == "X" else word for word in CALLS[name].split()]
    with monkeypatch.context() as patched:
        if kind == "no permission":  # root may read everything: the system's error is simulated
            forbid(patched, path)
        try:
            code = main(words)
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    printed = capsys.readouterr()
    if (name, kind) in FINE:
        assert code == 0
        return
    assert code in (1, 2, 3)
    assert seen(place) == before
    if code == 3:  # verify: damage is a result, on stdout
        assert name == "verify"
        return
    assert printed.out == ""
    assert 1 <= len(printed.err.splitlines()) <= 3, printed.err
    assert "Traceback" not in printed.err
    assert "internal error" not in printed.err
    assert path.stem in printed.err, "which file?"


def forbid(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    import builtins

    real_open, real_os_open = builtins.open, os.open
    forbidden = os.path.realpath(path)

    def check(file: object) -> None:
        if isinstance(file, (str, os.PathLike)) and os.path.realpath(file) == forbidden:
            raise PermissionError(13, "Permission denied", os.fspath(file))

    def no_open(file: object, *args: object, **options: object) -> object:
        check(file)
        return real_open(file, *args, **options)  # type: ignore[call-overload]

    def no_os_open(file: object, *args: object, **options: object) -> int:
        check(file)
        return real_os_open(file, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("builtins.open", no_open)
    monkeypatch.setattr("io.open", no_open)
    monkeypatch.setattr("os.open", no_os_open)


def number_options() -> list[tuple[str, str]]:
    return [
        (names[0], max(action.option_strings, key=lambda name: (name[:2] == "--", len(name))))
        for names, parser in parsers_of(build_parser()).items()
        for action in actions(parser)
        if action.option_strings and action.type is not None and action.metavar not in ("NAME,...", "TEXT")
    ]


@pytest.mark.parametrize(("name", "option"), number_options())
def test_invalid_numbers_are_usage_errors(name: str, option: str, place: Path, cli: Cli) -> None:
    printed = cli(name, option, "many", "x", code=2)
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 2
    assert option in printed.err
    assert "many" in printed.err


def test_every_command_has_a_case() -> None:
    assert {words.split()[0] for words in CALLS} | WITHOUT_INPUT == {names[0] for names in parsers_of(build_parser())}


@pytest.mark.parametrize(
    "words",
    [
        "index a.jsonl", "pack a.jsonl --tokenizer bytes -o b.pbin", "merge b.pbin c.pbin",
        "shuffle_jsonl_data a.jsonl c.pbin", "filter b.pbin c.pbin --min-length 1",
    ],
)  # fmt: skip
def test_existing_outputs_are_kept(words: str, place: Path, cli: Cli) -> None:
    Path("a.jsonl").write_text('{"text": "a"}\n')
    cli("index", "a.jsonl", "-q")
    cli("pack", "a.jsonl", "--tokenizer", "bytes", "-o", "b.pbin", "-q", "--num-cpus", "1")
    Path("c.pbin").write_bytes(b"old")
    before = seen(place)
    printed = cli(*words.split(), code=1)
    assert printed.out == ""
    assert "--force" in printed.err, "what to do"
    assert seen(place) == before
