"""`PackSettings`: what a pack job reads, what it writes and how. YAML files, flags and arguments all construct it."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from fastpack.documents.compressed import is_compressed
from fastpack.documents.json_fields import parse_plain_path
from fastpack.documents.raw_index_check import default_index_path
from fastpack.documents.source_formats import SourceFormat, source_format
from fastpack.documents.source_paths import InputNotFound, Sources, find_sources, is_one_file
from fastpack.errors import DataWarning, spoken
from fastpack.io import ExistencePolicy, PathLike, is_file, is_read_only, read_start
from fastpack.io.if_exists import OVERWRITING
from fastpack.packing.audit import check_share
from fastpack.packing.conversations.chat_settings import ChatSettings
from fastpack.packing.conversations.conversation import columns_of
from fastpack.packing.output_formats import RESUMABLE, PackFormat, default_output, first_file, named_format
from fastpack.packing.special_tokens import RULES, SpecialRule
from fastpack.tokenizers.engines import ENGINES
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

Engine: TypeAlias = Literal["auto", "tokenizers", "gigatoken", "tiktoken", "sentencepiece"]
OnError: TypeAlias = Literal["skip", "raise"]
IndexRule: TypeAlias = Literal["require", "create", "rebuild", "replace", "optional"]

_EXECUTION = ("if_exists", "num_workers", "resume")  # settings that do not decide the bytes written
_PLAIN_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Source:
    """A file of documents; of a JSON Lines file, also its index.

    columns: the path of the text column of a Parquet, Arrow or CSV file; as_rows: they are columns instead, of which
    each row is read as a JSON object. separator: the text between the documents of a plain text file, None for one
    document per file.
    index_path: None where the lines are found by scanning the file.
    index_rule: what to do with an index that is missing or stale (it does not belong to the file as it is now).
    "require": both are errors. "create": a missing index is created, a stale one is an error. "rebuild": also a stale
    index is created again, unless it is the index of another file. "replace": that one, too. "optional": the lines are
    found by scanning the file.
    """

    path: str
    index_path: str | None = None
    index_rule: IndexRule = field(default="optional", compare=False)
    format: SourceFormat = "jsonl"
    columns: tuple[str, ...] = ()
    separator: str | None = None
    as_rows: bool = False

    @property
    def is_splittable(self) -> bool:
        """Return whether a chunk can be read without reading all before it."""
        return self.format in ("jsonl", "parquet", "arrow") and not is_compressed(self.path)

    @property
    def is_smaller_than_text(self) -> bool:
        """Return whether the file is smaller than its text, as far as its name tells."""
        return self.format == "parquet" or is_compressed(self.path)


@dataclass(frozen=True, kw_only=True)
class PackSettings:
    """A pack job. Paths are relative to the working directory.

    output: the token file, the first one in formats of several files; with `per_source`, the folder of the token files,
    or None to write each next to its source.
    text_pattern: the jq pattern that selects the text of a document.
    eos_token, eos_token_id: the token that ends each document, as text or as id; one of them is None.
    num_workers: number of tokenising processes.
    audit: share of the documents that is compared with the reference library; None: 8 % of the time.
    chat: how documents are rendered if they are conversations; these need no EOS token, and get none.
    record_lines: whether to write the line of each document next to the output.
    """

    sources: tuple[Source, ...]
    output: str | None
    tokenizer: TokenizerSpec
    format: PackFormat = "pbin"
    per_source: bool = False
    text_pattern: str = ".text"
    eos_token: str | None = None
    eos_token_id: int | None = None
    special_tokens_in_text: SpecialRule = "keep"
    on_error: OnError = "skip"
    if_exists: ExistencePolicy = "error"
    engine: Engine = "auto"
    num_workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    audit: float | None = None
    resume: bool = False
    chat: ChatSettings | None = None
    record_lines: bool = False

    def __post_init__(self) -> None:
        """Replace former values by current ones; raise ValueError for a wrong one, under the name the caller knows."""
        object.__setattr__(self, "on_error", on_error_rule(self.on_error))
        if self.engine not in ENGINES:
            raise ValueError(f"unknown engine {self.engine!r}: choose one of {', '.join(ENGINES)}")
        if self.special_tokens_in_text not in RULES:
            name = spoken("special_tokens_in_text")
            raise ValueError(f"{name}: found {self.special_tokens_in_text!r}, expected one of {', '.join(RULES)}")
        if not isinstance(self.num_workers, int) or isinstance(self.num_workers, bool) or self.num_workers < 1:
            name = spoken("settings.num_cpus")
            raise ValueError(f"{name}: found {self.num_workers!r}, expected an int of at least 1")
        if self.chat is None and (self.eos_token is None) == (self.eos_token_id is None):
            raise ValueError(f"exactly one of {spoken('settings.eod_token')} and eos_token_id is needed")
        if self.resume and self.record_lines:
            raise ValueError(f"{spoken('record_lines')} and {spoken('resume')} cannot be combined: pack from the start")
        if self.resume and self.format not in RESUMABLE:
            continued, restarted = " and ".join(RESUMABLE), f"a run that writes {self.format} starts again"
            raise ValueError(f"{spoken('resume')} continues runs that write {continued}: {restarted}")
        check_share(self.audit)

    def as_json(self) -> dict[str, Any]:
        """Return the settings that decide the bytes written, for `from_json`; tuples become lists."""
        settings = {name: value for name, value in vars(self).items() if name not in _EXECUTION}
        settings["sources"] = [
            [source.path, source.index_path, source.format, source.columns, source.separator, source.as_rows]
            for source in self.sources
        ]
        settings["chat"] = None if self.chat is None else vars(self.chat)
        settings["tokenizer"] = {"variant_key": self.tokenizer.variant_key, "config": dict(self.tokenizer.config)}
        decoded: dict[str, Any] = json.loads(json.dumps(settings, default=str))
        return decoded

    @classmethod
    def from_json(cls, settings: Mapping[str, Any]) -> PackSettings:
        """Return the settings of `as_json`, with one worker process."""
        sources = tuple(
            Source(path, index_path, format=kind, columns=tuple(columns), separator=separator, as_rows=as_rows)
            for path, index_path, kind, columns, separator, as_rows in settings["sources"]
        )
        chat = None if settings["chat"] is None else ChatSettings(**settings["chat"])
        tokenizer = TokenizerSpec(**settings["tokenizer"], adds_special_tokens=chat is None)
        return cls(**{**settings, "sources": sources, "tokenizer": tokenizer, "chat": chat, "num_workers": 1})


def settings_of(
    sources: Sources,
    output: PathLike | None,
    *,
    index_path: PathLike | None = None,
    format: PackFormat | None = None,
    per_source: bool = False,
    split_on: str | None = None,
    **fields: Any,
) -> PackSettings:
    """Return the settings of sources that a user names; fields: other fields of `PackSettings`.

    The default output is that of a single source. A missing index of a single source is created; a stale one is created
    again if it is the default one, or if outputs are overwritten. Raises as `find_pack_sources`, and ValueError for
    several sources without an output.
    """
    rule: IndexRule = "rebuild" if index_path is None else "create"
    if fields.get("if_exists") in OVERWRITING:
        rule = "replace"
    text_pattern = fields.get("text_pattern", ".text")
    chat = fields.get("chat")
    found = find_pack_sources(sources, index_path, rule, text_pattern=text_pattern, split_on=split_on, chat=chat)
    if output is None and not per_source:
        if not (isinstance(sources, (str, os.PathLike)) and is_one_file(sources)):
            raise ValueError(f"{spoken('settings.dst_path')} is needed for several sources")
        if is_read_only(sources):
            raise ValueError(f"{spoken('settings.dst_path')} is needed: nothing can be written next to {sources}")
        output = default_output(os.fspath(sources), format or "pbin")
    written = named_format(None if per_source else output, format)
    return PackSettings(
        sources=found,
        output=output_of(output, written, per_source),
        format=written,
        per_source=per_source,
        **fields,
    )


def output_of(output: PathLike | None, format: PackFormat, per_source: bool) -> str | None:
    """Return the path of `PackSettings.output`: a folder with `per_source`, else the first file of the format."""
    if output is None or per_source:
        return None if output is None else os.fspath(output)
    return first_file(output, format)


def find_pack_sources(
    sources: Sources,
    index_path: PathLike | None,
    single_rule: IndexRule,
    *,
    text_pattern: str = ".text",
    split_on: str | None = None,
    chat: ChatSettings | None = None,
) -> tuple[Source, ...]:
    """Return the files that `sources` names, each with its index.

    A single JSON Lines file that is not compressed has the index `index_path` (default: its stem + .idx) under
    `single_rule`. Of several files, those with an index next to them use it, if it is current.

    Raises InputNotFound where a file, or an index under the rule "require", is missing; ValueError for `index_path`
    with several files or with one that has no index, and for `split_on` without a plain text file.
    """
    try:
        paths = find_sources(sources)
    except InputNotFound as error:
        name = spoken("settings.src_path")
        raise InputNotFound(f"{name}: {error}" if name else str(error)) from None
    formats: list[SourceFormat] = [source_format(path) for path in paths]
    if split_on == "":
        raise ValueError(f"{spoken('split_on')}: found an empty text, expected a separator")
    if split_on is not None and "text" not in formats:
        raise ValueError(f"{spoken('split_on')} is for plain text files (.txt): {paths[0]} is a {formats[0]} file")
    is_one = is_one_file(sources)
    if is_one and index_path is None and single_rule != "require" and is_read_only(paths[0]):
        single_rule = "optional"
    elif is_one and formats[0] == "jsonl" and not is_compressed(paths[0]):
        named = None if index_path is None else os.fspath(index_path)
        return (Source(paths[0], _index_path(paths[0], named, single_rule), single_rule),)
    if index_path is not None:
        name = spoken("settings.index_path")
        raise ValueError(f"{name} needs a single JSON Lines source that is not compressed")
    rule: IndexRule = single_rule if is_one and formats[0] == "jsonl" else "optional"
    return tuple(
        Source(path, _index_next_to(path), rule)
        if kind == "jsonl"
        else _table_source(path, kind, text_pattern, split_on)
        if chat is None
        else _rows_source(path, kind, chat)
        for path, kind in zip(paths, formats, strict=True)
    )


def _table_source(path: str, kind: SourceFormat, text_pattern: str, split_on: str | None) -> Source:
    if kind == "text":
        if read_start(path, 1) == b"{":
            text = f"{path} begins like JSON Lines, but is read as plain text: rename it to .jsonl to pack its lines"
            warnings.warn(text, DataWarning, stacklevel=4)
        return Source(path, format=kind, separator=split_on)
    steps = parse_plain_path(text_pattern)
    if not steps or not all(isinstance(step, str) for step in steps):
        raise ValueError(f"{path}: the pattern {text_pattern} does not name a column of a {kind} file: pass text_field")
    return Source(path, format=kind, columns=tuple(map(str, steps)))


def _rows_source(path: str, kind: SourceFormat, chat: ChatSettings) -> Source:
    """Return a table of conversations."""
    if kind not in ("parquet", "arrow"):
        raise ValueError(f"{path}: conversations are read from JSON Lines, Parquet and Arrow files, not from {kind}")
    return Source(path, format=kind, columns=columns_of(chat), as_rows=True)


def _index_path(path: str, named: str | None, rule: IndexRule) -> str:
    index_path = named or str(default_index_path(path))
    if rule == "require":
        require_index_file(path, index_path)
    return index_path


def require_index_file(path: str, index_path: str) -> None:
    """Raise InputNotFound where the index of `path` does not exist; the message has the command that creates it."""
    if is_file(index_path):
        return
    option = "" if index_path == str(default_index_path(path)) else f" --index-path {index_path}"
    raise InputNotFound(f"Index file does not exist: {index_path}. Create it with `fastpack index {path}{option}`")


def _index_next_to(path: str) -> str | None:
    index_path = str(default_index_path(path))
    return index_path if not is_compressed(path) and is_file(index_path) else None


def on_error_rule(on_error: str) -> OnError:
    """Return `on_error` with "raise" for its former value "error". Raises ValueError for an unknown value."""
    if on_error == "skip":
        return "skip"
    if on_error in ("raise", "error"):
        return "raise"
    raise ValueError(f"{spoken('on_error')}: found {on_error!r}, expected 'skip' or 'raise'")


def field_pattern(text_field: str) -> str:
    """Return the jq pattern that selects a field by its name, or a nested field by its path: `a.b`."""
    names = text_field.split(".") if all(text_field.split(".")) else [text_field]
    steps = [
        f".{name}" if _PLAIN_NAME.fullmatch(name) else f"[{json.dumps(name, ensure_ascii=False)}]" for name in names
    ]
    return "".join(steps) if steps[0].startswith(".") else "." + "".join(steps)
