"""`fastpack pack`: tokenise the documents of a JSONL file and pack them into one .pbin."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from fastpack.cli.common import Commands, add_policy_option, emit, new_command, progress, say

if TYPE_CHECKING:
    from fastpack.build.packing.pack import PackResult

REASONS_SHOWN = 5
# What llm_gym's create_packed_data took when it was told nothing.
OLD_TOKENIZER_TYPE = "GPT2TokenizerFast"
OLD_TOKENIZER_FILE = "data/tokenizer/tokenizer.json"
OLD_EOD_TOKEN = "<|endoftext|>"


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """The command `pack`."""
    parser = new_command(
        commands,
        "pack",
        run="fastpack.cli.pack:run_pack",
        aliases=("pack_encoded_data", "create_packed_data"),
        help="tokenise the documents of a JSONL file and pack them into one .pbin",
        example="fastpack pack corpus.jsonl --tokenizer gpt2/tokenizer.json --eod-token '<|endoftext|>'",
    )
    parser.add_argument("source", metavar="CONFIG.yaml|SRC.jsonl", help="a Modalities configuration, or the documents")
    parser.add_argument(
        "--tokenizer",
        metavar="T",
        help="`bytes` (UTF-8 bytes as tokens), a tokenizer.json, the directory of a Hugging Face tokenizer, or a "
        "SentencePiece .model",
    )
    parser.add_argument("--eod-token", "--eod_token", metavar="E", help="the token that ends each document")
    parser.add_argument(
        "-o", "--output", "--dst-path", "--dst_path", dest="dst_path", metavar="DST", help="default: SRC's stem + .pbin"
    )
    parser.add_argument("--index-path", "--index_path", metavar="PATH", help="default: SRC's stem + .idx")
    parser.add_argument("--jq-pattern", "--jq_pattern", metavar="JQ", help="where a line has its text (default: .text)")
    parser.add_argument(
        "--num-cpus", "--num_cpus", type=int, metavar="N", help="tokenising processes (default: all CPUs)"
    )
    parser.add_argument(
        "--on-faulty",
        "--on_faulty",
        choices=("skip", "error"),
        default="skip",
        help="leave out a document that cannot be packed, or stop at it (default: skip)",
    )
    add_policy_option(parser)
    old = parser.add_argument_group("options of the old llm_gym create_packed_data")
    old.add_argument("--tokenizer-type", "--tokenizer_type", metavar="CLASS", help="such as GPT2TokenizerFast")
    old.add_argument("--tokenizer-file", "--tokenizer_file", metavar="PATH", help="its tokenizer.json")
    return [parser]


def run_pack(args: argparse.Namespace) -> int:
    """Pack; return the exit code."""
    import warnings

    from fastpack.build.packing.pack import pack_encoded_data

    is_config = args.source.lower().endswith((".yaml", ".yml"))
    if not is_config and (missing := _missing_option(args)):
        print(f"fastpack: error: {missing}", file=sys.stderr)
        return 2
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        config = _from_file(args) if is_config else _from_flags(args)
        started = time.perf_counter()
        result = pack_encoded_data(
            config,
            file_existence_policy=args.file_existence_policy,
            on_faulty=args.on_faulty,
            progress=progress(args, "pack"),
        )
    for warning in warned:
        say(args, str(warning.message))
    _report(args, result, time.perf_counter() - started)
    return 0


def _report(args: argparse.Namespace, result: PackResult, seconds: float) -> None:
    fields: dict[str, Any] = {
        "path": result.path,
        "documents": result.documents,
        "tokens": result.tokens,
        "skipped": result.skipped,
        "seconds": round(seconds, 3),
        "kept_existing": result.kept_existing,
    }
    if result.kept_existing:
        emit(args, fields, f"{result.path}: exists, kept")
        return
    for skipped in result.skipped[:REASONS_SHOWN]:
        say(args, f"left out line {skipped['line']}: {skipped['reason']}")
    if len(result.skipped) > REASONS_SHOWN:
        say(args, f"left out {len(result.skipped) - REASONS_SHOWN} more (--json lists all)")
    left_out = f", {len(result.skipped):,} left out" if result.skipped else ""
    rate = result.tokens / seconds if seconds else 0.0
    emit(
        args,
        fields,
        f"{result.path}: {result.documents:,} documents, {result.tokens:,} tokens{left_out}, "
        f"in {seconds:.1f} s ({rate:,.0f} tokens/s)",
    )


def _missing_option(args: argparse.Namespace) -> str | None:
    if args.tokenizer is None and args.tokenizer_file is None and args.command != "create_packed_data":
        return (
            f"{args.source} is no .yaml file, so --tokenizer is needed (bytes, a tokenizer.json, a directory, a .model)"
        )
    if args.eod_token is None and args.tokenizer not in (None, "bytes"):
        return "--eod-token is needed: the token of that tokenizer that ends a document"
    return None


def _from_file(args: argparse.Namespace) -> str | dict[str, Any]:
    """The configuration's path, or what it holds, with the values of the flags in place of its own."""
    given = {
        key: getattr(args, key)
        for key in ("dst_path", "index_path", "jq_pattern", "num_cpus", "eod_token")
        if getattr(args, key) is not None
    }
    has_tokenizer = args.tokenizer is not None or args.tokenizer_file is not None
    if not given and not has_tokenizer:
        return str(args.source)
    from fastpack.build.packing.yaml_config import load_yaml

    config = load_yaml(args.source)
    config["settings"] = {**(config.get("settings") or {}), **given}
    if has_tokenizer:
        config["tokenizer"] = _tokenizer(args)
    return config


def _from_flags(args: argparse.Namespace) -> dict[str, Any]:
    """A configuration of the flags; an index that is not there is made on the way."""
    from fastpack.files import may_write
    from fastpack.formats.jsonl import default_index_path

    dst_path = args.dst_path or os.path.splitext(args.source)[0] + ".pbin"
    index_path = args.index_path or str(default_index_path(args.source))
    if os.path.isfile(args.source) and not os.path.exists(index_path):
        may_write(dst_path, args.file_existence_policy)  # raises before the work of an index, not after it
        _make_index(args, index_path)
    settings = {
        "src_path": args.source,
        "dst_path": dst_path,
        "index_path": args.index_path,
        "jq_pattern": args.jq_pattern or ".text",
        "num_cpus": (os.cpu_count() or 1) if args.num_cpus is None else args.num_cpus,
        "eod_token": OLD_EOD_TOKEN if args.eod_token is None else args.eod_token,
    }
    return {"settings": settings, "tokenizer": _tokenizer(args)}


def _make_index(args: argparse.Namespace, index_path: str) -> None:
    from fastpack.build.index import create_raw_index

    say(args, f"{index_path} is not there: making it")
    create_raw_index(
        args.source,
        index_path,
        drop_faulty_entries=args.on_faulty == "skip",
        progress=progress(args, "index"),
    )


def _tokenizer(args: argparse.Namespace) -> dict[str, Any]:
    if args.tokenizer is None:
        file = args.tokenizer_file or OLD_TOKENIZER_FILE
        kind = args.tokenizer_type or OLD_TOKENIZER_TYPE
        return _component("llm_gym_tokenizer", tokenizer_type=kind, tokenizer_file=file)
    if args.tokenizer == "bytes":
        return _component("builtin_bytes")
    if args.tokenizer.endswith(".model"):
        return _component("pretrained_sp_tokenizer", tokenizer_model_file=args.tokenizer)
    return _component("pretrained_hf_tokenizer", pretrained_model_name_or_path=args.tokenizer)


def _component(variant_key: str, **config: str) -> dict[str, Any]:
    return {"component_key": "tokenizer", "variant_key": variant_key, "config": config}
