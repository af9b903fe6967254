"""tatm's description of a dataset, `metadata.yaml` (or `.json`): read with care, written byte for byte."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import Enum, StrEnum
from types import NoneType
from typing import Any

from fastpack.io import AnyPath, AtomicFile, PathLike, as_path, read_start

MAX_BYTES = 1 << 20
NAMES = ("metadata.json", "metadata.yaml", "metadata.yml")


class DataContentType(StrEnum):
    """What the data are."""

    TEXT = "text"
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    OTHER = "other"


class CorpusSeparationStrategy(StrEnum):
    """How the corpora of a dataset are told apart."""

    DATA_DIRS = "data_dirs"
    CONFIGS = "configs"


@dataclass(kw_only=True)
class TokenizedInfo:
    """How a dataset was tokenised; file_prefix is the absolute path its files begin with, dtype numpy's name.

    An unknown key in a file is a TypeError.
    """

    tokenizer: str
    file_prefix: str
    dtype: str = "uint16"
    file_extension: str = "bin"
    vocab_size: int | None = None
    tatm_version: str | None = None
    tokenizers_version: str | None = None
    parent_datasets: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class TatmDataMetadata:
    """What tatm writes beside a dataset. Raises ValueError for data_content or a strategy it does not know."""

    name: str
    dataset_path: str
    description: str
    date_downloaded: str
    download_source: str
    data_content: DataContentType | str
    content_field: str = "text"
    corpuses: list[str] = field(default_factory=list)
    corpus_separation_strategy: CorpusSeparationStrategy | str | None = None
    corpus_data_dir_parent: str | None = None
    tokenized_info: TokenizedInfo | None = None

    def __post_init__(self) -> None:
        self.data_content = _member(DataContentType, self.data_content, "data_content")
        if self.corpus_separation_strategy is not None:
            self.corpus_separation_strategy = _member(
                CorpusSeparationStrategy, self.corpus_separation_strategy, "corpus_separation_strategy"
            )
        if isinstance(self.tokenized_info, dict):
            self.tokenized_info = TokenizedInfo(**self.tokenized_info)
        if not isinstance(self.tokenized_info, (TokenizedInfo, NoneType)):
            raise ValueError(f"Invalid tokenized_info value: {self.tokenized_info!r:.80}")

    def _plain(self) -> dict[str, Any]:
        """Plain values, None left out at the top and kept below, as tatm does."""
        values = {name: value for name, value in asdict(self).items() if value is not None}
        return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}

    def as_yaml(self) -> str:
        """The text of metadata.yaml."""
        import yaml  # 20 ms, wherever shards without metadata are looked at

        return yaml.dump(self._plain())

    def as_json(self) -> str:
        """The text of metadata.json."""
        return json.dumps(self._plain())

    def __str__(self) -> str:
        return self.as_json()

    def to_yaml(self, filename: PathLike) -> None:
        """Write metadata.yaml."""
        _write(filename, self.as_yaml())

    def to_json(self, filename: PathLike) -> None:
        """Write metadata.json."""
        _write(filename, self.as_json())

    @classmethod
    def from_json(cls, json_path: PathLike) -> TatmDataMetadata:
        """What a metadata.json says; errors as `from_file`."""
        return cls._from_tree(_mapping(load_json(json_path), json_path), json_path)

    @classmethod
    def from_yaml(cls, yaml_path: PathLike) -> TatmDataMetadata:
        """What a metadata.yaml says; errors as `from_file`."""
        return cls._from_tree(_mapping(load_yaml(yaml_path), yaml_path), yaml_path)

    @classmethod
    def _from_tree(cls, tree: dict[str, Any], path: PathLike) -> TatmDataMetadata:
        return cls(**{"dataset_path": str(as_path(path).resolve().parent), **tree})

    @classmethod
    def from_file(cls, path: PathLike) -> TatmDataMetadata:
        """What a metadata file says, a .json, .yaml or .yml.

        Raises FileNotFoundError; ValueError for another suffix, a file over 1 MiB, one that cannot be parsed, and YAML
        aliases; TypeError for missing or unknown keys, as tatm does.
        """
        return cls._from_tree(load_metadata(path), path)

    @classmethod
    def from_directory(cls, directory: PathLike) -> TatmDataMetadata:
        """What metadata.json, else .yaml, else .yml in `directory` says; MetadataNotFound without any."""
        return cls.from_file(find_metadata(directory))


class MetadataNotFound(FileNotFoundError, ValueError):
    """A folder holds no metadata (tatm raises ValueError here)."""


def find_metadata(directory: PathLike) -> AnyPath:
    """metadata.json, else .yaml, else .yml in `directory`; MetadataNotFound without any."""
    for name in NAMES:
        path = as_path(directory) / name
        if path.exists():
            return path
    raise MetadataNotFound("No metadata file found in the specified directory.")


def load_metadata(path: PathLike) -> dict[str, Any]:
    """The mapping in a metadata file, .json, .yaml or .yml; ValueError as `TatmDataMetadata.from_file`."""
    suffix = as_path(path).suffix
    if suffix not in (".json", ".yaml", ".yml"):
        raise ValueError(f"Unsupported file format: {path}")
    return _mapping(load_json(path) if suffix == ".json" else load_yaml(path), path)


def _mapping(tree: object, path: PathLike) -> dict[str, Any]:
    if not isinstance(tree, dict):
        raise ValueError(f"{path}: found {type(tree).__name__}, expected a mapping")
    return tree


def load_json(path: PathLike) -> Any:
    """What a small JSON file holds; ValueError for one over 1 MiB or that cannot be parsed."""
    from fastpack.io.parsing import ParseError, parse_json

    try:
        return parse_json(_read(path))
    except ParseError as error:
        raise ValueError(f"{path}: not a JSON file: {error}") from error


def load_yaml(path: PathLike) -> Any:
    """What a small YAML file holds; ValueError for one over 1 MiB, with aliases, or that cannot be parsed."""
    from fastpack.io.parsing import ParseError, parse_yaml

    try:
        return parse_yaml(_read(path))
    except ParseError as error:
        raise ValueError(f"{path}: not a YAML file that can be read: {error}") from error


def _read(path: PathLike) -> bytes:
    data = read_start(path, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path}: metadata of more than {MAX_BYTES} bytes are refused")
    return data


def _write(path: PathLike, text: str) -> None:
    with AtomicFile(path) as file:
        file.write(text.encode())


def _member(kind: type[Any], value: object, name: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"Invalid {name} value: {value}") from None
