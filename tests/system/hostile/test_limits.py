"""Small inputs that expand to much time or memory fail soon, with an error that names the file and the limit."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastpack import load_config
from fastpack.documents import compressed, json_fields, json_lines
from fastpack.documents.json_fields import FaultyDocument, compile_pattern
from fastpack.errors import FormatError
from fastpack.io.parsing import MAX_YAML_BYTES
from fastpack.packing import yaml_config
from fastpack.tokens.flat import tatm_metadata as tatm
from fastpack.webdataset import metadata as nvmeta

SIXTIES = ":59" * 200_000


def refused(read: Callable[[Path], Any], path: Path, message: str, seconds: float = 10) -> None:
    start = time.monotonic()
    with pytest.raises(ValueError, match=message) as caught:
        read(path)
    assert time.monotonic() - start < seconds
    assert path.name in str(caught.value)
    assert len(str(caught.value)) < 2000


READERS: dict[str, Callable[[Path], Any]] = {
    "settings": yaml_config.load_yaml,
    "metadata": tatm.load_yaml,
    "definition": nvmeta.read_yaml,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "number", [f"1{SIXTIES}", f"-1{SIXTIES}", f"1{SIXTIES}.5", "9" * 600_000, "0x" + "f" * 600_000]
)
def test_long_yaml_numbers_are_rejected(reader: str, number: str, tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(f"a: {number}\n")
    refused(READERS[reader], path, "a number of 60000[0-9] characters, expected at most 1000")


def test_short_yaml_numbers_are_parsed(tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text("{a: 1:59:59, b: 1:30.5, c: 0x1F, d: 1e3, e: '" + "9" * 2000 + "'}")
    found = tatm.load_yaml(tmp_path / "file.yaml")
    assert found == {"a": 7199, "b": 90.5, "c": 31, "d": "1e3", "e": "9" * 2000}


@pytest.mark.parametrize("merge", ["[*a{0}, *a{0}]", "[*a{0}, *a{0}, *a{0}]"])
def test_nested_yaml_merges_are_rejected(merge: str, tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    lines = ["a0: &a0 {k: 1}", *(f"a{n + 1}: &a{n + 1} {{<<: {merge.format(n)}}}" for n in range(60))]
    path.write_text("\n".join(lines))
    refused(yaml_config.load_yaml, path, r"merges \(<<\) more than 10000 keys")


def test_large_yaml_is_rejected(tmp_path: Path) -> None:
    (tmp_path / ".nv-meta").mkdir()
    path = tmp_path / ".nv-meta" / "split.yaml"
    path.write_bytes(b"- a\n" * (MAX_YAML_BYTES // 4 + 1))
    refused(lambda _: nvmeta.read_split(tmp_path), path, "16,777,220 bytes of YAML, expected at most 16,777,216")


TOML = {
    "dotted keys": ("a" + ".a" * 100_000 + " = 1", "a dotted key of more than 100 keys"),
    "quoted keys": ('[data]\nx = {"a"' + '."a"' * 30_000 + " = 1}", "a dotted key of more than 100 keys"),
    "a table": ("[a" + " . 'a'" * 20_000 + "]", "a dotted key of more than 100 keys"),
    "size": ("#" * (1 << 18) + "\n", "more than 262,144 bytes"),
    "brackets": ("a = " + "[" * 100_000, "invalid TOML"),
    "digits": ("[data]\nnum_workers = " + "9" * 100_000, "invalid TOML"),
    "bits": ("[data]\nnum_workers = 0x" + "f" * 100_000, "num_workers is a number of 400000 bits, the maximum is 4096"),
}


@pytest.mark.parametrize("name", TOML)
def test_hostile_toml_is_rejected(name: str, tmp_path: Path) -> None:
    text, message = TOML[name]
    (tmp_path / "train.toml").write_text(text)
    start = time.monotonic()
    with pytest.raises(ValueError, match=message):
        load_config(tmp_path / "train.toml")
    assert time.monotonic() - start < 10


def test_strings_with_dots_are_not_keys(tmp_path: Path) -> None:
    (tmp_path / "train.toml").write_text(f"[data]\ndataset_path = '{'a. b c ' * 500}'\n" + "# ." * 200)
    assert load_config(tmp_path / "train.toml").dataset_path == "a. b c " * 500


@pytest.mark.parametrize("value", ["(" * 100_000, "[" * 100_000, "-" * 100_000 + "1", "{[]: 1}"])
def test_hostile_overrides_are_strings(value: str, tmp_path: Path) -> None:
    (tmp_path / "train.toml").write_text("")
    assert load_config(tmp_path / "train.toml", [f"--data.dataset_path={value}"]).dataset_path == value
    with pytest.raises(ValueError, match="num_workers"):
        load_config(tmp_path / "train.toml", [f"--data.num_workers={value}"])


def test_endless_compressed_lines_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compressed.MAX_LINE_BYTES <= 1 << 30
    monkeypatch.setattr(compressed, "MAX_LINE_BYTES", 10_000_000)
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(bytes(100_000_000), 1))
    with pytest.raises(FormatError, match=r"bomb\.jsonl\.gz: .*a line of more than 10,000,000 bytes"):
        list(compressed.read_lines(path, 1 << 20))


@pytest.mark.parametrize("line", [b'{"text": "a"}', b'{"x": NaN, "text": "a"}', b'\xef\xbb\xbf{"text": "a"}'])
def test_lines_too_long_for_jq_are_read_without_jq(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = compile_pattern(".text")(line)
    monkeypatch.setattr(json_fields, "MAX_FAST_BYTES", 4)
    assert compile_pattern(".text")(line) == expected == "a"
    pytest.importorskip("jq")
    with pytest.raises(FaultyDocument, match=rf"a line of {len(line)} bytes, more than 4, the limit for jq"):
        compile_pattern(".text | .")(line)


def test_a_memory_error_is_not_a_faulty_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(json, "loads", fail)
    with pytest.raises(MemoryError):
        json_lines.json_fault(b"{}")


LINES = {"unclosed": ('{"x": "', ""), "NaN": ('{"x": NaN, "text": "', '"}'), "sound": ('{"text": "', '"}')}


@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("limit", [700, 1000])
def test_a_long_line_under_a_memory_limit(name: str, limit: int, tmp_path: Path) -> None:
    """Without limits, jq and orjson would end the process by a signal."""
    start, end = LINES[name]
    with open(tmp_path / "a.jsonl", "w") as file:
        file.write(f'{{"text": "a"}}\n{start}')
        for _ in range(200):
            file.write("a" * (1 << 20))
        file.write(f'{end}\n{{"text": "b"}}\n')
    code = f"""
        import resource, sys
        resource.setrlimit(resource.RLIMIT_AS, ({limit} << 20,) * 2)
        from fastpack.cli import main
        sys.exit(main(["pack", "a.jsonl", "--tokenizer", "bytes", "-q"]))
    """
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode in (0, 1), done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    if done.returncode:
        assert done.stderr.splitlines()[-1] == "fastpack: error: out of memory"
