"""`fastpack preview`: show the first documents, lines or samples."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fastpack.cli.options import Commands, add_split_option, add_webdataset_options, at_least, new_command
from fastpack.cli.output import emit, put, say, warnings_as_messages
from fastpack.errors import counted

if TYPE_CHECKING:
    from fastpack.inspection.preview_shards import FoundShards
    from fastpack.inspection.preview_tokens import Reader
    from fastpack.tokenizers.decode import TokenDecoder

SHOWN = 3  # items, without a terminal
ROW_FORMATS = ("parquet", "arrow", "csv", "tsv", "text")
NO_TOKENIZER = "none"


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `preview`."""
    parser = new_command(
        commands,
        "preview",
        run=run_preview,
        help="show the first documents or samples",
        about="Show the first documents as text, or the first samples of a WebDataset with small images.",
        example="fastpack preview corpus.pbin --tokenizer gpt2/tokenizer.json",
    )
    parser.add_argument(
        "path",
        metavar="PATH",
        help="a .jsonl file (also .gz and .zst), a Parquet, Arrow, CSV, TSV or text file, a folder or a pattern of "
        "such files, a .pbin, a .npy or .bin shard, a folder of shards or samples, a manifest of shards (.fpm)",
    )
    parser.add_argument(
        "-n",
        "--samples",
        type=at_least(0),
        metavar="N",
        help=f"number of items (default: {SHOWN}; on a terminal, asks for more)",
    )
    parser.add_argument(
        "--start",
        type=at_least(0),
        default=0,
        metavar="N",
        help="number of the first document, line, row or sample to show, from 0; for shards, of the first token",
    )
    _add_tokens(parser)
    lines = parser.add_argument_group("texts")
    field = lines.add_mutually_exclusive_group()
    field.add_argument(
        "--text-field", metavar="NAME", help="key or column of the text (default: text); a.b is b in the object a"
    )
    field.add_argument("--jq-pattern", metavar="JQ", help="jq pattern that selects the text of a line")
    add_split_option(lines)
    lines.add_argument(
        "--index-path", metavar="PATH", help="index of the file (default: stem of the file + .idx, if it exists)"
    )
    lines.add_argument(
        "--max-characters", type=at_least(0), default=600, metavar="N", help="characters per text (default: 600)"
    )
    samples = parser.add_argument_group("WebDatasets")
    add_webdataset_options(samples, "splits to show, in this order (default: all shards)", "--split-part")
    samples.add_argument("--rows", type=int, default=16, metavar="N", help="lines per image (default: 16)")
    return [parser]


def _add_tokens(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("tokens")
    group.add_argument(
        "--tokenizer",
        metavar="T",
        help="the tokenizer of the data, as for `pack`: `bytes`, a tokenizer.json, the folder of a Hugging Face "
        f"tokenizer, or a SentencePiece .model; `{NO_TOKENIZER}` shows only ids (default: the one in tatm's metadata)",
    )
    group.add_argument("--eos-token-id", type=int, metavar="ID", help="the token that ends a document")
    group.add_argument("--eod-token", metavar="E", help="the same token by its name in the tokenizer")
    group.add_argument(
        "--max-tokens", type=at_least(0), default=128, metavar="N", help="tokens per document (default: 128)"
    )
    group.add_argument(
        "--dtype", metavar="D", help="dtype of .bin shards (default: from tatm's metadata, else from the file size)"
    )


class View(NamedTuple):
    """The contents of a preview: facts, a heading, the name of the items in JSON, and the items."""

    facts: dict[str, Any]
    title: str
    word: str
    items: Iterable[dict[str, Any]]


def run_preview(args: argparse.Namespace) -> int:
    """Print the first items; on a terminal and without a number, ask after each item whether to continue."""
    from fastpack.inspection.preview import kind_of

    kind = kind_of(args.path)
    if kind == "webdataset" and args.path.endswith(".jsonl") and (args.text_field or args.jq_pattern or args.tokenizer):
        kind = "jsonl"
    with warnings_as_messages(args, "warning: "):
        _show(args, kind, _samples(args) if kind == "webdataset" else _documents(args, kind))
    return 0


def _show(args: argparse.Namespace, kind: str, view: View) -> None:
    if args.json:
        items = [_as_json(item) for item in itertools.islice(view.items, _count(args))]
        emit(args, {"path": args.path, "kind": kind, **view.facts, view.word: items}, "")
        return
    if view.title:
        _print(args, [view.title])
    asks = args.samples is None and sys.stdin.isatty() and sys.stdout.isatty()
    for number, item in enumerate(itertools.islice(view.items, None if asks else _count(args))):
        if asks and number and not _wants_more():
            break
        _print(args, _lines(args, view, item))


def _count(args: argparse.Namespace) -> int:
    return SHOWN if args.samples is None else int(args.samples)


def _wants_more() -> bool:
    try:
        return input("Continue? [Y/n] ").strip().lower() in ("", "y", "yes")
    except EOFError:
        return False


def _print(args: argparse.Namespace, lines: Iterable[str]) -> None:
    if args.quiet:
        return
    encoding = sys.stdout.encoding or "utf-8"
    # The lines are already escaped, except for the colours of images.
    raw = sys.stdout.isatty()
    for line in lines:
        put(line.encode(encoding, "backslashreplace").decode(encoding), raw=raw)


def _samples(args: argparse.Namespace) -> View:
    from fastpack.webdataset.browsing.preview_samples import preview

    names = {name: getattr(args, name) for name in ("split_parts", "split_config", "dataset_config")}
    return View({}, "", "samples", preview(**names, path=args.path, start=args.start))


def _documents(args: argparse.Namespace, kind: str) -> View:
    """Open JSON lines, a packed file or shards, and their tokenizer."""
    shards = None
    if kind == "shards":
        from fastpack.inspection.preview_shards import find

        shards = find(args.path, args.dtype)
    name = args.tokenizer or (None if shards is None else _tokenizer_of(args, shards))
    reader = _reader(args, None if name == NO_TOKENIZER else name)
    if reader.decoder is None and kind in ("pbin", "shards") and args.tokenizer is None:
        say(args, "token ids only. Pass --tokenizer T to decode them to text")
    facts = {"tokenizer": None if reader.decoder is None else name, "eos_token_id": reader.eos}
    if kind == "jsonl":
        from fastpack.inspection.preview_lines import preview_lines

        items = preview_lines(args.path, _pattern(args), reader, args.start, args.max_characters, args.index_path)
        return View(facts, "", "lines", items)
    if kind in ROW_FORMATS:
        return _rows(args, facts, reader)
    if shards is None:
        from fastpack.inspection.preview import preview_packed

        return View(facts, "", "documents", preview_packed(args.path, reader, args.start))
    from fastpack.inspection.preview_shards import preview_shards

    if reader.eos is None:
        say(args, "not split into documents. Pass --eos-token-id ID, the token that ends a document")
    first = shards.scan(0)
    facts |= {"files": len(shards.files), "dtype": str(first.dtype), "dtype_from": _dtype_from(args, shards)}
    return View(facts, _describe_shards(facts), "documents", preview_shards(shards, reader, args.start))


def _rows(args: argparse.Namespace, facts: dict[str, Any], reader: Reader) -> View:
    from fastpack.documents.source_paths import find_tables
    from fastpack.inspection.preview_rows import preview_rows

    files = find_tables(args.path)
    items = preview_rows(files, _pattern(args), args.split_on, reader, args.start, args.max_characters)
    return View({**facts, "files": len(files)}, "", "rows", items)


def _pattern(args: argparse.Namespace) -> str:
    if args.text_field is None:
        return args.jq_pattern or ".text"
    from fastpack.packing.settings import field_pattern

    return field_pattern(args.text_field)


def _dtype_from(args: argparse.Namespace, shards: FoundShards) -> str:
    if args.path.endswith(".fpm") and not args.dtype:
        return "manifest"
    if not shards.raw:
        return "header"
    return "option" if args.dtype else "size" if shards.dtype is None else "metadata"


def _describe_shards(facts: dict[str, Any]) -> str:
    sources = {
        "header": "by its header",
        "option": "by --dtype",
        "size": "by the size of the first file (override with --dtype)",
        "metadata": "by tatm's metadata",
        "manifest": "by the manifest",
    }
    return f"{counted(facts['files'], 'file')}, {facts['dtype']} {sources[facts['dtype_from']]}"


def _tokenizer_of(args: argparse.Namespace, shards: FoundShards) -> str | None:
    """Return the tokenizer next to tatm's shards or in its metadata, if it is on this machine."""
    from fastpack.io import exists

    if shards.info is None or shards.metadata is None:
        return None
    folder = os.path.dirname(shards.metadata)
    for path in (os.path.join(folder, "tokenizer.json"), os.path.join(folder, shards.info.tokenizer)):
        if exists(path):
            return path
    say(args, f"{shards.metadata} names the tokenizer {shards.info.tokenizer!r}, which is not a file on this machine")
    return None


def _reader(args: argparse.Namespace, tokenizer: str | None) -> Reader:
    from fastpack.inspection.preview_tokens import Reader

    decoder: TokenDecoder | None = None
    if tokenizer is not None:
        from fastpack.tokenizers.decode import TokenDecoder
        from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

        decoder = TokenDecoder(TokenizerSpec.from_name(tokenizer).build())
    eos = args.eos_token_id
    if eos is None and args.eod_token is not None:
        if decoder is None:
            raise ValueError(f"--eod-token {args.eod_token} requires --tokenizer. Or pass --eos-token-id.")
        eos = decoder.tokenizer.eod_id(args.eod_token)
    elif eos is None and decoder is not None:
        eos = decoder.eos()
    return Reader(decoder, eos, args.max_tokens)


def _as_json(item: dict[str, Any]) -> dict[str, Any]:
    if "parts" not in item:
        return item
    fields = [{name: value for name, value in field.items() if name != "data"} for field in item["parts"]]
    return {**item, "parts": fields}


def _lines(args: argparse.Namespace, view: View, item: dict[str, Any]) -> Iterator[str]:
    from fastpack.inspection.preview_text import document_lines, line_lines, row_lines, sample_lines

    colours = _colours()
    if view.word == "samples":
        return sample_lines(item, args.rows, colours)
    lines = {"lines": line_lines, "rows": row_lines}.get(view.word, document_lines)
    return lines(item, view.facts["eos_token_id"], colours == "blocks")


def _colours() -> Literal["blocks", "letters"]:
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return "letters" if plain or not (sys.stdout.encoding or "").lower().startswith("utf") else "blocks"
