"""`pack`: sources, a target and a tokenizer by their names, without a configuration."""

from __future__ import annotations

import os
import warnings
from typing import Any, NamedTuple

from fastpack.documents.compressed import SUFFIXES
from fastpack.documents.create_index import FaultyLine, create_raw_index
from fastpack.documents.raw_index_check import default_index_path, read_raw_index_of
from fastpack.documents.source_paths import Sources, find_sources, is_one_file
from fastpack.errors import DataWarning, JobError, StaleIndex, spoken, vocabulary
from fastpack.io import ExistencePolicy, PathLike, Progress, exists, is_file, may_write, remove, size_of
from fastpack.packing.line_numbers import omission_reason_of
from fastpack.packing.pack import Engine, OnFaulty, PackResult, pack_encoded_data
from fastpack.packing.special_tokens import SpecialRule
from fastpack.tokenizers.interface import END_OF_TEXT, named_tokens
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

ARGUMENTS = {  # what callers of `pack` call the settings of a configuration
    **{f"settings.{name}": name for name in ("dst_path", "index_path", "jq_pattern", "num_cpus", "eod_token")},
    "settings.src_path": "sources",
    "tokenizer.config.pretrained_model_name_or_path": "tokenizer",
    "tokenizer.config.tokenizer_model_file": "tokenizer",
}


def pack(
    sources: Sources,
    dst_path: PathLike | None = None,
    *,
    tokenizer: PathLike,
    eod_token: str | None = None,
    index_path: PathLike | None = None,
    jq_pattern: str = ".text",
    num_cpus: int | None = None,
    file_existence_policy: ExistencePolicy = "error",
    on_faulty: OnFaulty = "skip",
    engine: Engine = "auto",
    resume: bool = False,
    progress: Progress | None = None,
    special_tokens_in_text: SpecialRule = "keep",
    audit: float | None = None,
) -> PackResult:
    """Tokenise the documents of JSONL files and pack them into one `.pbin`, as the command `fastpack pack` does.

    sources: a file (also .gz, .zst), a directory, a pattern, or a list of these. dst_path: of the packed file, or of a
    flat shard where it ends in .npy; of one source it may be left out: beside it, its stem + .pbin. tokenizer:
    "bytes", a tokenizer.json, the directory of a Hugging Face tokenizer, or a SentencePiece .model. eod_token: what
    ends each document; needed but for "bytes".
    index_path: of one source (default: its stem + .idx). An index that does not exist is made. The default one is
    rebuilt, with a DataWarning, when it does not belong to the source as it is now; one that is passed as index_path,
    or is the index of another file (of `a.json` for `a.jsonl`), is rebuilt under the policy "override" only and is
    otherwise an error (StaleIndex).
    num_cpus: tokenising processes (default: all). The rest, and what is raised, is as in `pack_encoded_data`; JobError
    as well for a source without a line of JSON.
    """
    with vocabulary(ARGUMENTS):
        return _pack(
            sources,
            dst_path,
            os.fspath(tokenizer),
            eod_token,
            index_path,
            jq_pattern,
            num_cpus,
            {
                "file_existence_policy": file_existence_policy,
                "on_faulty": on_faulty,
                "engine": engine,
                "resume": resume,
                "progress": progress,
                "special_tokens_in_text": special_tokens_in_text,
                "audit": audit,
            },
        )


def _pack(
    sources: Sources,
    dst_path: PathLike | None,
    name: str,
    eod_token: str | None,
    index_path: PathLike | None,
    jq_pattern: str,
    num_cpus: int | None,
    options: dict[str, Any],
) -> PackResult:
    if eod_token is None and name != "bytes":
        raise ValueError(missing_eod(name))
    if dst_path is None and not is_one_file(sources):
        find_sources(sources)  # raises where there is none
        raise ValueError("dst_path is needed for several sources")
    if is_one_file(sources):
        source = os.fspath(sources)  # type: ignore[arg-type]
        dst_path = default_packed_path(source) if dst_path is None else dst_path
        check_not_empty(source)
        replaces = options["file_existence_policy"] == "override"
        if missing := why_index_is_missing(source, index_path, replaces=replaces):
            if not options["resume"]:
                may_write(dst_path, options["file_existence_policy"])  # raises before the work of an index
            if missing.stale:
                warnings.warn(f"{missing.reason}: it was rebuilt", DataWarning, stacklevel=3)
            make_index(source, index_path, on_faulty=options["on_faulty"], progress=options["progress"])
    config = direct_config(
        sources,
        named_component(name),
        dst_path=dst_path,
        index_path=index_path,
        jq_pattern=jq_pattern,
        num_cpus=num_cpus,
        eod_token=eod_token or END_OF_TEXT,
    )
    return pack_encoded_data(config, **options)


def missing_eod(name: str) -> str:
    """What to say where a tokenizer is named and its end-of-document token is not; raises what is wrong with `name`."""
    known = named_tokens(TokenizerSpec.from_name(name).build().special_names())
    return f"{spoken('eod_token')} is needed: the token of {name} that ends a document. {known}."


def direct_config(
    sources: Sources, tokenizer: dict[str, Any], *, num_cpus: int | None = None, **settings: Any
) -> dict[str, Any]:
    """The configuration, in Modalities' shape, that says the same."""
    if num_cpus is not None:
        settings["num_cpus"] = num_cpus
    return {"settings": {"src_path": sources, **settings}, "tokenizer": tokenizer}


def named_component(name: str) -> dict[str, Any]:
    """The configuration's `tokenizer` for one that is named as in `pack`."""
    spec = TokenizerSpec.from_name(name)
    return component(spec.variant_key, **spec.config)


def component(variant_key: str, **config: Any) -> dict[str, Any]:
    """The configuration's `tokenizer` of this variant."""
    return {"component_key": "tokenizer", "variant_key": variant_key, "config": config}


def default_packed_path(source: str) -> str:
    """Where the documents of `source` go unless told otherwise: its stem + .pbin."""
    for suffix in SUFFIXES:
        source = source.removesuffix(suffix)
    return f"{os.path.splitext(source)[0]}.pbin"


class MissingIndex(NamedTuple):
    """Why `pack` has to make the index of its source; stale: there is one, which does not belong to the source."""

    reason: str
    stale: bool


def why_index_is_missing(source: str, index_path: PathLike | None, *, replaces: bool) -> MissingIndex | None:
    """Whether `pack` has to make the index of this one source; replaces: it may replace files that the user named.

    Raises StaleIndex for an index that does not belong to the source and may not be replaced, FormatError for a file
    that is not an index.
    """
    if source.endswith(SUFFIXES) or not is_file(source):
        return None
    path = default_index_path(source) if index_path is None else index_path
    if not exists(path):
        return MissingIndex(f"{os.fspath(path)} does not exist", False)
    try:
        read_raw_index_of(source, path)
    except StaleIndex as error:
        if not replaces and (index_path is not None or error.owner is not None):
            raise
        belongs = f"it is that of {error.owner}" if error.owner else error.found
        return MissingIndex(f"{error.path} is not the index of {source} as it is now ({belongs})", True)
    return None


def make_index(source: str, index_path: PathLike | None, *, on_faulty: OnFaulty, progress: Progress | None) -> None:
    """Write the index of a source; JobError, and no index, where no line of it is JSON."""
    try:
        result = create_raw_index(
            source,
            index_path,
            drop_faulty_entries=on_faulty == "skip",
            file_existence_policy="override",
            progress=progress,
        )
    except FaultyLine as error:
        reason = omission_reason_of(error.__cause__)
        text = f"{error.path}: line {error.line} at byte {error.offset}: {reason}"
        raise FaultyLine(text, error.path, error.line, error.offset) from error.__cause__
    if not result.entries:
        remove(result.path)
        what = "the only line" if result.dropped == 1 else f"none of the {result.dropped:,} lines"
        raise JobError(
            f"{what} of {source} is {'not ' if result.dropped == 1 else ''}JSON. pack reads JSON lines: one object "
            "per line, with the text under a key. examples/pack_folder.py makes them from text files"
        )


def check_not_empty(source: str) -> None:
    """JobError for a file without any byte."""
    if is_file(source) and size_of(source) == 0:
        raise JobError(f"{source} is empty: there is no document to pack")
