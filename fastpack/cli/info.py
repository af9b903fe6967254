"""`fastpack info`: facts about a file or folder."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

from fastpack.cli.options import (
    Commands,
    add_dtype_option,
    add_eos_option,
    add_text_options,
    add_webdataset_options,
    new_command,
)
from fastpack.cli.output import emit
from fastpack.cli.progress import progress

_NAMES = 22  # characters: width of the column of names
# Facts that are printed separately:
_LOSS = ("loss_tokens", "loss_per_document", "turns_per_document")
_APART = ("warnings", "histogram", "samples_at", "packing", "eos", "path", "fingerprint", "digest", *_LOSS)


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `info`."""
    parser = new_command(
        commands,
        "info",
        run=run_info,
        help="print facts about anything fastpack reads",
        about="Print facts about a text source, an index, a token file, a folder of shards or a prepared WebDataset.",
        example="fastpack info corpus.pbin --seq-len 2048 4096",
    )
    parser.add_argument(
        "path",
        metavar="PATH",
        help="a .jsonl, .parquet, .arrow, .csv, .tsv, .txt, .idx, .pbin, .npy, .bin, .fpm or .plan file, a folder, or "
        "a pattern that matches Parquet, Arrow, CSV, TSV or text files",
    )
    parser.add_argument(
        "--seq-len",
        type=int,
        nargs="+",
        metavar="N",
        help="count the samples of N tokens, and say what `fastpack plan` would give (default: 2048 4096 8192)",
    )
    add_eos_option(parser)
    add_dtype_option(parser)
    parser.add_argument("--quick", action="store_true", help="do not read tokens or texts, only headers and indexes")
    parser.add_argument(
        "--digest",
        action="store_true",
        help="also print the digest of a token file, which is equal for the same documents in any format (extra: "
        "checksum)",
    )
    add_text_options(parser.add_argument_group("texts"))
    add_webdataset_options(parser.add_argument_group("WebDatasets"), "splits to report (default: all)")
    return [parser]


def run_info(args: argparse.Namespace) -> int:
    """Print the result of `inspect`, one line per fact."""
    from fastpack.inspection.inspect import SEQ_LENS, inspect

    found = inspect(
        args.path,
        eos_token_id=args.eos_token_id,
        seq_lens=args.seq_len or SEQ_LENS,
        dtype=args.dtype,
        quick=args.quick,
        digest=args.digest,
        split_config=args.split_config,
        dataset_config=args.dataset_config,
        split_parts=args.split_parts,
        text_field=args.text_field,
        split_on=args.split_on,
        progress=progress(args, "info"),
    )
    emit(args, found, _lines(found))
    return 0


def _lines(found: dict[str, Any]) -> Iterator[str]:
    from fastpack.analysis.document_lengths import Bin
    from fastpack.inspection.histogram import draw_histogram

    yield _line("path", found["path"])
    for name, value in found.items():
        if name not in _APART:
            yield _line(name.replace("_", " "), _shown(value))
    if found.get("eos"):
        yield _line("eos", _eos(found["eos"]))
    elif "eos" in found:
        yield _line("eos", "unknown; pass --eos-token-id")
    if found.get("fingerprint"):
        yield _line("recorded tokenizer", _tokenizer(found["fingerprint"]))
    if found.get("loss_tokens") is not None:
        share = found["loss_tokens"] / max(1, found["tokens"])
        yield _line("tokens in the loss", f"{found['loss_tokens']:,}, {share:.1%} of all")
        for name in _LOSS[1:]:
            if found[name] is not None:
                yield _line(name.replace("_", " "), _shown(found[name]))
    if found.get("digest"):
        yield _line("digest", found["digest"])
    for text in found["warnings"]:
        yield _line("warning", text)
    if found.get("samples_at"):
        yield ""
        yield from _samples(found["samples_at"])
    if found.get("packing"):
        yield ""
        yield from _packing(found["packing"])
    if found.get("histogram"):
        histogram = found["histogram"]
        columns = shutil.get_terminal_size().columns
        yield ""
        yield histogram["of"].replace("_", " ")
        bins = [Bin(one["from"], one["to"], one["documents"], one["total"]) for one in histogram["bins"]]
        yield from draw_histogram(bins, min(columns, 100) - 1, plain=_is_plain())


def _line(name: str, text: str) -> str:
    return f"{name:<{_NAMES}} {text}"


def _eos(eos: dict[str, Any]) -> str:
    text = f"token {eos['id']} ({eos['from']})"
    return text if eos["tokens"] is None else f"{text}: {eos['tokens']:,} tokens, {eos['share']:.4%} of all"


def _tokenizer(fingerprint: dict[str, Any]) -> str:
    files = f", files {fingerprint['sha256'][:12]}" if fingerprint["sha256"] else ""
    ids = f"{fingerprint['vocab_size']:,} ids, EOS {fingerprint['eos_token_id']}"
    return f"{fingerprint['tokenizer']} ({ids}{files})"


def _samples(samples: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table of the number of samples of each length in each system."""
    peers = [name for name in samples[0] if name != "seq_len"]
    head = "samples of length"
    yield "  ".join([f"{head:>{_NAMES}}", *(f"{name.replace('_', ' '):>20}" for name in peers)])
    for row in samples:
        numbers = ["none" if row[name] is None else f"{row[name]:,}" for name in peers]
        yield "  ".join([f"{row['seq_len']:>{_NAMES},}", *(f"{number:>20}" for number in numbers)])


def _packing(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table of what `fastpack plan` would give."""
    heads = ("rows", "padding", "documents cut", "tokens left out")
    head = "packed to length"
    yield "  ".join([f"{head:>{_NAMES}}", f"{'algorithm':<18}", *(f"{name:>15}" for name in heads)])
    for row in rows:
        algorithm = row["algorithm"] if row["algorithm"] == "none" else f"{row['algorithm']}, {row['long']}"
        cut = "unknown" if row["documents_cut"] is None else f"{row['documents_cut']:,}"
        cells = (f"{row['rows']:,}", f"{row['padding_share']:.3%}", cut, f"{row['left_out']:,}")
        yield "  ".join([f"{row['seq_len']:>{_NAMES},}", f"{algorithm:<18}", *(f"{text:>15}" for text in cells)])


def _is_plain() -> bool:
    """Return whether to print only ASCII characters."""
    return os.environ.get("TERM") == "dumb" or not (sys.stdout.encoding or "").lower().startswith("utf")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{name} {_within(number)}" for name, number in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _within(value: Any) -> str:
    return f"({_shown(value)})" if isinstance(value, dict) else _shown(value)
