"""Names and data with terminal control sequences: all commands escape them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli
from tar_files import write_tar

import fastpack
from fastpack.cli import main
from fastpack.cli.streams import escaping_output, unescaped
from fastpack.escape import escape_line, escape_text

EVIL = "e\x1b[2J\a\r\nforged: all is sound\u202egnp\u2066\x9b31m"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write sound and damaged files of every type with hostile names, keys and texts; one name is not UTF-8."""
    home = tmp_path / EVIL
    home.mkdir()
    texts = [json.dumps({"text": f"{EVIL} {n}"}) for n in range(5)]
    (home / f"{EVIL}.jsonl").write_text("\n".join(texts) + "\n")
    (home / f"{EVIL}bad.jsonl").write_text("\n".join([*texts, f"{{{EVIL}"]))
    with fastpack.PackedWriter(home / f"{EVIL}.pbin", 2) as writer:
        writer.append(np.arange(50))
        writer.append(np.arange(9))
    (home / f"{EVIL}cut.pbin").write_bytes((home / f"{EVIL}.pbin").read_bytes()[:50])
    for shards in ("npy", "bin", "odd"):
        (home / shards).mkdir()
    np.save(home / "npy" / f"{EVIL}.npy", np.arange(100, dtype=np.uint16))
    (home / "npy" / f"{EVIL}x.npy").write_bytes(b"no array")
    (home / "bin" / f"{EVIL}.bin").write_bytes(np.arange(101, dtype=np.uint16).tobytes() + b"1")
    (home / "odd" / "metadata.yaml").write_text(f"tokenized_info: {{dtype: {json.dumps(EVIL)}}}\n")
    (home / "odd" / "a.bin").write_bytes(bytes(8))
    names = (f"{EVIL}.txt", f"k{EVIL}.jpg", "k.json", "broken.png")
    write_tar(home / "images" / f"{EVIL}.tar", dict.fromkeys(names, EVIL.encode()))
    with open(os.fsencode(home) + b"/\xff\xfe\x1b.pbin", "wb") as file:
        file.write(b"no packed file")
    return home


def commands(home: Path) -> Iterator[list[str]]:
    """Return every command with valid and invalid inputs."""
    base = str(home)
    pbin, cut, jsonl, bad = (f"{base}/{EVIL}{end}" for end in (".pbin", "cut.pbin", ".jsonl", "bad.jsonl"))
    missing, latin = f"{base}/{EVIL}none", os.fsdecode(os.fsencode(home) + b"/\xff\xfe\x1b.pbin")
    folders = [f"{base}/{name}" for name in ("npy", "bin", "odd", "images")]
    one = [pbin, cut, jsonl, bad, missing, latin, *folders, base]
    for command in ("info", "verify", "validate", "preview", "report", "manifest", "repair", "fetch", "chat"):
        yield from ([command, path] for path in one)
    yield ["verify", *one]
    yield ["verify", "--deep", *one]
    yield ["validate", "--deep", folders[0]]
    for path in (jsonl, bad, missing, latin):
        yield ["index", path]
        yield ["index", "--dry-run", path]
        yield ["index", path, "--force", "--drop-faulty"]
        yield ["pack", path, "--tokenizer", "bytes"]
        yield ["pack", path, "--tokenizer", "bytes", "--force"]
        yield ["pack", path, "--tokenizer", missing, "--force"]
        yield ["pack", path, "--tokenizer", "bytes", "--jq-pattern", EVIL]
    for command in ("shuffle", "merge", "chunk", "filter"):
        for path in (pbin, cut, jsonl, missing):
            yield [command, path, f"{base}/{EVIL}{command}.pbin"]
            yield [command, path, "-o", f"{base}/{EVIL}{command}.pbin"]
            yield [command, path, "--output", missing, "--n-chunks", "2"]
    images = folders[3]
    yield ["prepare", images, "--non-interactive", "--split-ratio", "8,1,1", "--dry-run"]
    yield ["prepare", images, "--non-interactive", "--split-ratio", "8,1,1"]
    yield ["prepare", images, "--non-interactive", "--split-parts", f"train:{EVIL}*"]
    yield ["prepare", jsonl]
    yield ["prepare-media", images, "--dry-run"]
    yield ["fix-duplicates", images, f"{base}/{EVIL}fixed"]
    for command in ("info", "verify", "preview", "validate", "mount"):
        yield [command, images, f"{base}/{EVIL}point"] if command == "mount" else [command, images]
    yield [EVIL]
    yield ["info", f"--{EVIL}", pbin]
    yield ["info", pbin, "--kernels", EVIL]


def test_no_command_prints_control_sequences(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastpack.webdataset.browsing.mount.mount", lambda *_, **__: None, raising=False)
    monkeypatch.chdir(folder)  # `report` writes report.html into the current folder
    ran = 0
    for words in commands(folder):
        for more in ([], ["--json"]):
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                warnings.showwarning = _show
                with contextlib.suppress(SystemExit):
                    main([*words, *more])
            captured = capsys.readouterr()
            for stream in captured:
                assert not RAW.search(stream), (words, more, stream)
                assert not re.search("^forged", stream, re.MULTILINE), (words, more, stream)
                assert "Traceback" not in stream
                assert "internal error" not in stream, (words, stream)
            for line in filter(None, captured.out.splitlines()) if more else ():
                json.loads(line)
            ran += bool(captured.out)
    assert ran > 60


def _show(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def test_a_separate_process(folder: Path) -> None:
    for words in (["info", f"{EVIL}.pbin"], ["verify", "."], ["pack", f"{EVIL}bad.jsonl", "--tokenizer", "bytes"]):
        done = subprocess.run(
            [sys.executable, "-m", "fastpack", *words], cwd=folder, capture_output=True, timeout=120, check=False
        )
        for stream in (done.stdout, done.stderr):
            assert not RAW.search(stream.decode()), words
        assert done.stdout or done.stderr


@pytest.mark.parametrize("name", ["Ünïcode 日本語.pbin", "نص.pbin", "क्\u200dष.pbin", "a b　c.pbin", "👩\u200d💻.pbin"])
def test_ordinary_names_are_not_escaped(name: str, folder: Path, cli: Cli) -> None:
    shutil.copy(folder / f"{EVIL}.pbin", folder.parent / name)
    assert str(folder.parent / name) in cli("info", folder.parent / name).out
    assert escape_line(name) == name


def test_streams_are_restored(capsys: pytest.CaptureFixture[str]) -> None:
    before, form = (sys.stdout, sys.stderr), warnings.formatwarning
    with escaping_output(), escaping_output():
        sys.stdout.write("a\x1bb\nc\n")
        unescaped(sys.stdout).write("own\x1b[0m\n")
        sys.stderr.writelines(["\u202e", "\ud800\n"])
        assert sys.stdout.encoding == before[0].encoding
    assert (sys.stdout, sys.stderr, warnings.formatwarning) == (*before, form)
    captured = capsys.readouterr()
    assert captured.out == "a\\u001bb\nc\nown\x1b[0m\n"
    assert captured.err == "\\u202e\\ud800\n"
    assert escape_text("a\nb") == "a\nb"
