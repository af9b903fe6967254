"""tatm's description of a dataset, `metadata.yaml` (or `.json`): validated when read, written byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import Enum, StrEnum
from types import NoneType
from typing import Any

from fastpack.io import AnyPath, AtomicFile, PathLike, as_path, read_start

MAX_BYTES = 1 << 20
NAMES = ("metadata.json", "metadata.yaml", "metadata.yml")


class DataContentType(StrEnum):
    """The kind of data."""

    TEXT = "text"
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    OTHER = "other"


class CorpusSeparationStrategy(StrEnum):
    """How the corpora of a dataset are separated."""

    DATA_DIRS = "data_dirs"
    CONFIGS = "configs"


@dataclass(kw_only=True)
class TokenizedInfo:
    """How a dataset was tokenized.

    `file_prefix` is the absolute path that its files begin with, `dtype` NumPy's name of the token dtype. An unknown
    key in a file raises TypeError.
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
    """The metadata that tatm stores next to a dataset: the contents of its metadata.yaml.

    Parameters
    ----------
    name
        Name of the dataset.
    dataset_path
        Folder of the dataset.
    description
        A description, for readers.
    date_downloaded
        When the data was downloaded, as text.
    download_source
        Where the data was downloaded from.
    data_content
        Kind of data: "text", "image", "audio", "video" or "other".
    content_field
        Name of the field that holds the content of a document.
    corpuses
        Names of the corpora.
    corpus_separation_strategy
        How the corpora are separated: "data_dirs" or "configs".
    corpus_data_dir_parent
        The folder of the corpora's folders.
    tokenized_info
        How the data was tokenized; None if it is not. A dict is converted.

    Raises
    ------
    ValueError
        If `data_content` or the separation strategy is unknown.

    Examples
    --------
    >>> from fastpack.tatm import TatmDataMetadata
    >>> metadata = TatmDataMetadata(
    ...     name="web", dataset_path="/data/web", description="", date_downloaded="2024-05-01",
    ...     download_source="https://example.org", data_content="text")
    >>> print(metadata.as_yaml().splitlines()[0])
    content_field: text
    """

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
        """Plain values, without None at the top level (as tatm)."""
        values = {name: value for name, value in asdict(self).items() if value is not None}
        return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}

    def as_yaml(self) -> str:
        """Return the text of metadata.yaml.

        Returns
        -------
        str
            YAML.
        """
        import yaml  # takes 20 ms, not needed for shards without metadata

        return yaml.dump(self._plain())

    def as_json(self) -> str:
        """Return the text of metadata.json.

        Returns
        -------
        str
            JSON.
        """
        return json.dumps(self._plain())

    def __str__(self) -> str:
        return self.as_json()

    def to_yaml(self, filename: PathLike) -> None:
        """Write metadata.yaml.

        Parameters
        ----------
        filename
            The file, which is replaced.
        """
        _write(filename, self.as_yaml())

    def to_json(self, filename: PathLike) -> None:
        """Write metadata.json.

        Parameters
        ----------
        filename
            The file, which is replaced.
        """
        _write(filename, self.as_json())

    @classmethod
    def from_json(cls, json_path: PathLike) -> TatmDataMetadata:
        """Read a JSON file.

        Parameters
        ----------
        json_path
            The file.

        Returns
        -------
        TatmDataMetadata
            The metadata; raises as `from_file`.
        """
        return cls._from_tree(_mapping(load_json(json_path), json_path), json_path)

    @classmethod
    def from_yaml(cls, yaml_path: PathLike) -> TatmDataMetadata:
        """Read a YAML file.

        Parameters
        ----------
        yaml_path
            The file.

        Returns
        -------
        TatmDataMetadata
            The metadata; raises as `from_file`.
        """
        return cls._from_tree(_mapping(load_yaml(yaml_path), yaml_path), yaml_path)

    @classmethod
    def _from_tree(cls, tree: dict[str, Any], path: PathLike) -> TatmDataMetadata:
        return cls(**{"dataset_path": str(as_path(path).resolve().parent), **tree})

    @classmethod
    def from_file(cls, path: PathLike) -> TatmDataMetadata:
        """Read a metadata file.

        Parameters
        ----------
        path
            A .json, .yaml or .yml file.

        Returns
        -------
        TatmDataMetadata
            The metadata.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            For another suffix, a file over 1 MiB, one that cannot be parsed, and YAML aliases.
        TypeError
            For missing or unknown keys (as tatm).
        """
        return cls._from_tree(load_metadata(path), path)

    @classmethod
    def from_directory(cls, directory: PathLike) -> TatmDataMetadata:
        """Read metadata.json, else metadata.yaml, else metadata.yml.

        Parameters
        ----------
        directory
            The folder of the file.

        Returns
        -------
        TatmDataMetadata
            The metadata.

        Raises
        ------
        MetadataNotFound
            If there is none of the files (a FileNotFoundError and a ValueError).
        """
        return cls.from_file(find_metadata(directory))


class MetadataNotFound(FileNotFoundError, ValueError):
    """A folder contains no metadata (tatm raises ValueError)."""


def find_metadata(directory: PathLike) -> AnyPath:
    """Return metadata.json, else .yaml, else .yml in `directory`; MetadataNotFound without any."""
    for name in NAMES:
        path = as_path(directory) / name
        if path.exists():
            return path
    raise MetadataNotFound("No metadata file found in the specified directory.")


def load_metadata(path: PathLike) -> dict[str, Any]:
    """Return the mapping in a metadata file; ValueError as `TatmDataMetadata.from_file`."""
    suffix = as_path(path).suffix
    if suffix not in (".json", ".yaml", ".yml"):
        raise ValueError(f"Unsupported file format: {path}")
    return _mapping(load_json(path) if suffix == ".json" else load_yaml(path), path)


def tokenized_info(folder: PathLike) -> dict[str, Any]:
    """Return tokenized_info of the metadata in a folder, whose values may be invalid; empty without any.

    Raises ValueError or OSError for metadata that cannot be read.
    """
    try:
        info = load_metadata(find_metadata(folder)).get("tokenized_info")  # the rest need not be valid
    except MetadataNotFound:
        return {}
    return info if isinstance(info, dict) else {}


def _mapping(tree: object, path: PathLike) -> dict[str, Any]:
    if not isinstance(tree, dict):
        raise ValueError(f"{path}: found {type(tree).__name__}, expected a mapping")
    return tree


def load_json(path: PathLike) -> Any:
    """Parse a JSON file; ValueError if it is over 1 MiB or cannot be parsed."""
    from fastpack.io.parsing import parse_json

    return _parse(path, parse_json, "JSON")


def load_yaml(path: PathLike) -> Any:
    """Parse a YAML file; ValueError if it is over 1 MiB, has aliases, or cannot be parsed."""
    from fastpack.io.parsing import parse_yaml

    return _parse(path, parse_yaml, "YAML")


def _parse(path: PathLike, parse: Callable[[bytes], Any], name: str) -> Any:
    from fastpack.io.parsing import ParseError

    data = read_start(path, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path}: metadata files are limited to {MAX_BYTES} bytes")
    try:
        return parse(data)
    except ParseError as error:
        raise ValueError(f"{path}: not a {name} file: {error}") from error


def _write(path: PathLike, text: str) -> None:
    with AtomicFile(path) as file:
        file.write(text.encode())


def _member(kind: type[Any], value: object, name: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"Invalid {name} value: {value}") from None
