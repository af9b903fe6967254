"""Modalities configurations: accepted values, and messages for rejected ones."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from fastpack.documents.source_paths import InputNotFound
from fastpack.packing.modalities_config import load_pack_settings
from fastpack.packing.settings import Source
from fastpack.packing.yaml_config import load_yaml, resolve

YAML = """\
settings:
  src_path: data/docs.jsonl
  dst_path: data/docs.pbin
  index_path: data/docs.idx
  jq_pattern: .text
  num_cpus: ${node_env:num_cpus}
  eod_token: <|endoftext|>
  processing_batch_size: 10
  raw_samples_queue_size: 20
  processed_samples_queue_size: 20
  some_future_key: [1, 2]
tokenizer:
  component_key: tokenizer
  variant_key: pretrained_hf_tokenizer
  config: {pretrained_model_name_or_path: data/tokenizer, padding: false, truncation: false}
other: ignored
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a working directory with the files that the configuration names."""
    (tmp_path / "data").mkdir()
    for name in ("docs.jsonl", "docs.idx"):
        (tmp_path / "data" / name).write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(folder: Path, text: str) -> Any:
    (folder / "c.yaml").write_text(text, encoding="utf-8")
    return load_pack_settings(folder / "c.yaml")


def mapping(**settings: Any) -> dict[str, Any]:
    base = {"src_path": "data/docs.jsonl", "dst_path": "x.pbin", "jq_pattern": ".text", "eod_token": "e", "num_cpus": 1}
    return {"settings": {**base, **settings}, "tokenizer": {"variant_key": "builtin_bytes"}}


def test_real_configuration(folder: Path) -> None:
    config = load(folder, YAML)
    assert config.sources == (Source("data/docs.jsonl", "data/docs.idx"),)
    assert config.num_workers == os.cpu_count()
    assert config.eos_token == "<|endoftext|>"
    assert config.tokenizer.variant_key == "pretrained_hf_tokenizer"
    assert config.tokenizer.config["padding"] is False


def test_defaults(folder: Path) -> None:
    text = YAML.replace("  num_cpus: ${node_env:num_cpus}\n", "").replace("  index_path: data/docs.idx\n", "")
    settings = load(folder, text)
    assert settings.num_workers == os.cpu_count()
    assert settings.sources == (Source("data/docs.jsonl", "data/docs.idx"),)


def test_mapping_accepts_paths_and_needs_no_queue_sizes(folder: Path) -> None:
    settings = load_pack_settings(mapping(src_path=Path("data/docs.jsonl"), dst_path=Path("a/b.pbin")))
    assert settings.sources == (Source("data/docs.jsonl", "data/docs.idx"),)
    assert settings.output == "a/b.pbin"


@pytest.mark.parametrize(
    ("found", "replacement", "message"),
    [
        ("num_cpus: ${node_env:num_cpus}", 'num_cpus: "2"', "settings.num_cpus: found '2', expected an int"),
        ("num_cpus: ${node_env:num_cpus}", "num_cpus: 0", "settings.num_cpus: found 0"),
        ("num_cpus: ${node_env:num_cpus}", "num_cpus: true", "settings.num_cpus: found True"),
        ("num_cpus: ${node_env:num_cpus}", "num_cpus: 2.0", "settings.num_cpus: found 2.0"),
        ("  dst_path: data/docs.pbin\n", "", "settings.dst_path is missing"),
        ("  jq_pattern: .text\n", "", "settings.jq_pattern: found nothing"),
        ("jq_pattern: .text", "jq_pattern: 5", "settings.jq_pattern: found 5"),
        ("  eod_token: <|endoftext|>\n", "", "settings.eod_token: found nothing"),
        ("  processing_batch_size: 10\n", "", "settings.processing_batch_size: found nothing"),
        ("raw_samples_queue_size: 20", "raw_samples_queue_size: -1", "settings.raw_samples_queue_size: found -1"),
        ("  src_path: data/docs.jsonl\n", "", "settings.src_path: found nothing"),
        ("component_key: tokenizer", "component_key: model", "tokenizer.component_key: found 'model'"),
        ("  variant_key: pretrained_hf_tokenizer\n", "", "tokenizer.variant_key: found None"),
        ("${node_env:num_cpus}", "${nope.nope}", "the configuration has no 'nope'"),
        ("${node_env:num_cpus}", "${unknown:x}", "unknown resolver 'unknown'"),
        ("${node_env:num_cpus}", "${node_env:gpus}", "only num_cpus"),
        ("${node_env:num_cpus}", "${node_env:num_cpus", "unterminated interpolation"),
        ("settings:", "settings: [", "not a valid YAML file"),
        ("other: ignored", "settings: {}", "occurs twice"),
        ("other: ignored", "other: !!python/object/apply:os.getcwd []", "not a valid YAML file"),
    ],
)
def test_invalid_settings(folder: Path, found: str, replacement: str, message: str) -> None:
    assert found in YAML
    with pytest.raises(ValueError, match=re.escape(message)):
        load(folder, YAML.replace(found, replacement))


def test_missing_files(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_pack_settings(folder / "absent.yaml")
    with pytest.raises(InputNotFound, match=r"nowhere\.jsonl"):
        load_pack_settings(mapping(src_path="nowhere.jsonl"))
    (folder / "data/docs.idx").unlink()
    with pytest.raises(FileNotFoundError, match=r"fastpack index data/docs\.jsonl"):
        load_pack_settings(mapping())
    with pytest.raises(ValueError, match=r"--index-path there\.idx"):
        load_pack_settings(mapping(index_path="there.idx"))


@pytest.mark.parametrize("text", ["", "- a list", "5", "settings: 3\ntokenizer: {}\n", "\x00"])
def test_configuration_that_is_not_a_mapping(folder: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"c\.yaml|settings"):
        load(folder, text)


def test_interpolation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FASTPACK_TEST", "from the environment")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.delenv("FASTPACK_ABSENT", raising=False)
    path = tmp_path / "c.yaml"
    path.write_text(
        "a: {b: 7, c: '${.b}', d: ['${..b}', 'x${a.b}y']}\n"
        "whole: ${a.b}\nlist: ${a.d[1]}\nname: b\nnested: ${a.${name}}\nchain: ${whole}\n"
        "env: ${oc.env:FASTPACK_TEST}\ndefault: ${oc.env:FASTPACK_ABSENT,fallback}\n"
        "quoted: ${oc.env:FASTPACK_ABSENT,'a b'}\n"
        "other: ${oc.env:FASTPACK_ABSENT,${name}}\nnothing: ${oc.env:FASTPACK_ABSENT,null}\n"
        "rank: ${cuda_env:RANK}\nfile: ${modalities_env:config_file_path}\n"
        "folder: ${modalities_env:config_folder_path}\n"
        "escaped: \\${a.b}\nsub: ${a}\n",
        encoding="utf-8",
    )
    tree = load_yaml(path)
    assert tree["a"] == {"b": 7, "c": 7, "d": [7, "x7y"]}
    assert (tree["whole"], tree["list"], tree["nested"], tree["chain"]) == (7, "x7y", 7, 7)
    assert (tree["env"], tree["default"], tree["quoted"]) == ("from the environment", "fallback", "a b")
    assert (tree["other"], tree["nothing"], tree["rank"]) == ("b", None, 3)
    assert (tree["file"], tree["folder"]) == (str(path), str(tmp_path))
    assert tree["escaped"] == "${a.b}"
    assert tree["sub"] == tree["a"]


def test_interpolation_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTPACK_ABSENT", raising=False)
    monkeypatch.setenv("RANK", "first")
    for text in ("${oc.env:FASTPACK_ABSENT}", "${cuda_env:RANK}", "${modalities_env:config_file_path}", "${x.y}"):
        with pytest.raises(ValueError, match=r"environment|known|no 'x'"):
            resolve({"a": text})


def test_yaml_bombs_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "bomb.yaml"
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match="expands"):
        load_yaml(path)
    path.write_text("a: &a [*a]\n")
    with pytest.raises(ValueError, match="expands"):
        load_yaml(path)
    path.write_text("a: ${b}\nb: ${a}\n")
    with pytest.raises(ValueError, match="expands"):
        load_yaml(path)
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="not a valid YAML file"):
        load_yaml(path)
    path.write_bytes(b"a: " + b"x" * (1 << 20))
    with pytest.raises(ValueError, match="must not exceed"):
        load_yaml(path)


def test_anchors_are_accepted(folder: Path) -> None:
    text = YAML.replace("other: ignored", "x: &size 5\ny: {<<: {z: *size}}")
    assert load(folder, text).output == "data/docs.pbin"
