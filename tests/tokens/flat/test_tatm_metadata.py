"""tatm's metadata: bytes as written by tatm 0.2.2, reading, and invalid files."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fastpack.tokens.flat.tatm_metadata import TatmDataMetadata, TokenizedInfo

# As PyYAML dumps tatm 0.2.2's object: sorted keys, None left out at the top and kept in tokenized_info.
WRITTEN = """\
content_field: NA
corpuses: []
data_content: text
dataset_path: out
date_downloaded: ''
description: Tokenized dataset created using tatm
download_source: Tokenized by tatm
name: tokenized
tokenized_info:
  dtype: uint32
  file_extension: bin
  file_prefix: /abs/out/tokenized
  parent_datasets:
  - redpajama-v1:arxiv
  tatm_version: 0.2.2
  tokenizer: t5-base
  tokenizers_version: null
  vocab_size: 32100
"""


def metadata() -> TatmDataMetadata:
    return TatmDataMetadata(
        name="tokenized",
        dataset_path="out",
        description="Tokenized dataset created using tatm",
        date_downloaded="",
        download_source="Tokenized by tatm",
        data_content="text",
        content_field="NA",
        tokenized_info=TokenizedInfo(
            tokenizer="t5-base",
            file_prefix="/abs/out/tokenized",
            dtype="uint32",
            vocab_size=32100,
            tatm_version="0.2.2",
            parent_datasets=["redpajama-v1:arxiv"],
        ),
    )


def test_yaml_matches_tatm_byte_for_byte(tmp_path: Path) -> None:
    metadata().to_yaml(tmp_path / "metadata.yaml")
    assert (tmp_path / "metadata.yaml").read_bytes() == WRITTEN.encode()
    assert TatmDataMetadata.from_directory(tmp_path) == metadata()
    metadata().to_json(tmp_path / "metadata.json")
    assert TatmDataMetadata.from_file(str(tmp_path / "metadata.json")) == metadata()
    assert str(metadata()) == (tmp_path / "metadata.json").read_text()


def test_strategy_is_written_as_its_value() -> None:
    strategic = metadata()
    strategic.corpus_separation_strategy = "data_dirs"
    assert "corpus_separation_strategy: data_dirs\n" in TatmDataMetadata(**vars(strategic)).as_yaml()


def test_json_before_yaml_before_yml(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"No metadata file found in the specified directory\."):
        TatmDataMetadata.from_directory(tmp_path)
    for suffix in ("yml", "yaml", "json"):
        named = metadata()
        named.name = suffix
        text = named.as_json() if suffix == "json" else named.as_yaml()
        (tmp_path / f"metadata.{suffix}").write_text(text)
        assert TatmDataMetadata.from_directory(tmp_path).name == suffix


def test_dataset_path_defaults_to_the_folder(tmp_path: Path) -> None:
    (tmp_path / "metadata.yaml").write_text(WRITTEN.replace("dataset_path: out\n", ""))
    assert TatmDataMetadata.from_directory(str(tmp_path)).dataset_path == str(tmp_path.resolve())


@pytest.mark.parametrize(
    ("old", "new", "error", "text"),
    [
        ("  dtype: uint32", "  colour: red", TypeError, "colour"),
        ("  tokenizer: t5-base\n", "", TypeError, "tokenizer"),
        ("name: tokenized\n", "", TypeError, "name"),
        ("data_content: text", "data_content: smell", ValueError, "Invalid data_content value: smell"),
        ("name: tokenized", "corpus_separation_strategy: x\nname: y", ValueError, "Invalid corpus_separation_strategy"),
        ("name: tokenized", "name: &a [1]\nx: *a", ValueError, "aliases are refused"),
        ("name: tokenized", "name: !!python/name:os.system", ValueError, "not a YAML file"),
        ("name: tokenized", "name: [", ValueError, "not a YAML file"),
        ("name: tokenized", "name: " + "x" * (1 << 20), ValueError, "1048576 bytes"),
        (WRITTEN, "- a list", ValueError, "found list"),
    ],
)
def test_invalid_files_are_rejected(tmp_path: Path, old: str, new: str, error: type[Exception], text: str) -> None:
    path = tmp_path / "metadata.yaml"
    path.write_text(WRITTEN.replace(old, new))
    with pytest.raises(error, match=text):
        TatmDataMetadata.from_file(path)


def test_other_suffixes_and_broken_json_are_rejected(tmp_path: Path) -> None:
    for name, text in (("metadata.toml", "Unsupported file format"), ("metadata.json", "not a JSON file")):
        (tmp_path / name).write_text("{")
        with pytest.raises(ValueError, match=text):
            TatmDataMetadata.from_file(tmp_path / name)


def test_the_golden_text_matches_pyyaml() -> None:
    assert yaml.dump(yaml.safe_load(WRITTEN)) == WRITTEN
