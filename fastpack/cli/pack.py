"""`fastpack pack`: tokenise the documents of a JSONL file and pack them into one .pbin."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from fastpack.cli.distributed_options import add_spread_options, clear, is_spread, misuse, run_spread
from fastpack.cli.options import (
    Commands,
    add_checksum_option,
    add_dry_run_option,
    add_policy_option,
    check_checksum_option,
    new_command,
    output_group,
    write_checksums,
)
from fastpack.cli.output import emit, say
from fastpack.cli.pack_report import report
from fastpack.cli.progress import progress

if TYPE_CHECKING:
    from fastpack.packing.modalities_config import PackSettings
    from fastpack.packing.pack import PackResult
    from fastpack.packing.pack_estimate import PlannedPack

# What llm_gym's create_packed_data took when it was told nothing.
OLD_TOKENIZER_TYPE = "GPT2TokenizerFast"
OLD_TOKENIZER_FILE = "data/tokenizer/tokenizer.json"
ENGINES = ("auto", "tokenizers", "gigatoken", "tiktoken", "sentencepiece")
OLD_EOD_TOKEN = "<|endoftext|>"
FLAGS = {  # setting of a configuration -> the flag that takes its place
    "settings.dst_path": "--output",
    "settings.index_path": "--index-path",
    "settings.jq_pattern": "--jq-pattern",
    "settings.num_cpus": "--num-cpus",
    "settings.eod_token": "--eod-token",
    "tokenizer.config.pretrained_model_name_or_path": "--tokenizer",
    "tokenizer.config.tokenizer_model_file": "--tokenizer",
    "settings.src_path": "",
}


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """The command `pack`."""
    parser = new_command(
        commands,
        "pack",
        run=run_pack,
        aliases=("pack_encoded_data", "create_packed_data"),
        help="tokenise the documents of JSONL files and pack them into one .pbin",
        example="fastpack pack corpus.jsonl --tokenizer gpt2/tokenizer.json --eod-token '<|endoftext|>'",
    )
    _add_inputs(parser)
    _add_ways(parser)
    add_policy_option(parser)
    add_dry_run_option(parser)
    add_checksum_option(parser)
    add_spread_options(parser)
    old = parser.add_argument_group("options of the old llm_gym create_packed_data")
    old.add_argument("--tokenizer-type", "--tokenizer_type", metavar="CLASS", help="such as GPT2TokenizerFast")
    old.add_argument("--tokenizer-file", "--tokenizer_file", metavar="PATH", help="its tokenizer.json")
    return [parser]


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    """What is packed, and into what."""
    parser.add_argument(
        "source",
        nargs="+",
        metavar="CONFIG.yaml|SRC",
        help="a Modalities configuration, or the documents: .jsonl files, also .gz and .zst, directories of them, "
        "patterns in quotes",
    )
    output_group(parser).add_argument(
        "-o",
        "--output",
        "--dst-path",
        "--dst_path",
        dest="dst_path",
        metavar="DST",
        help="the packed file, or a flat shard where it ends in .npy, or the folder for --per-source (default: beside "
        "SRC, its stem + .pbin)",
    )
    output_group(parser).add_argument(
        "--per-source", "--per_source", action="store_true", help="pack each source into a file of its own"
    )
    texts = parser.add_argument_group("texts and tokens")
    texts.add_argument(
        "--tokenizer",
        metavar="T",
        help="`bytes` (UTF-8 bytes as tokens), a tokenizer.json, the directory of a Hugging Face tokenizer, or a "
        "SentencePiece .model",
    )
    texts.add_argument("--eod-token", "--eod_token", metavar="E", help="the token that ends each document")
    texts.add_argument(
        "--special-tokens-in-text",
        "--special_tokens_in_text",
        choices=("keep", "split", "skip", "error"),
        default="keep",
        help="a text that contains a special token such as <|endoftext|>: keep the token, as Modalities (default), "
        "split it into the tokens of its text, skip the document, or stop at it",
    )
    texts.add_argument("--index-path", "--index_path", metavar="PATH", help="default: SRC's stem + .idx")
    texts.add_argument("--jq-pattern", "--jq_pattern", metavar="JQ", help="where a line has its text (default: .text)")


def _add_ways(parser: argparse.ArgumentParser) -> None:
    """How the work is done."""
    work = parser.add_argument_group("the work")
    work.add_argument(
        "--num-cpus", "--num_cpus", type=int, metavar="N", help="tokenising processes (default: all CPUs)"
    )
    work.add_argument(
        "--on-faulty",
        "--on_faulty",
        choices=("skip", "error"),
        default="skip",
        help="leave out a document that cannot be packed, or stop at it (default: skip)",
    )
    work.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="what tokenises (default: auto, the fastest installed that gives the very same ids)",
    )
    work.add_argument(
        "--audit",
        type=float,
        metavar="SHARE",
        help="share of the documents, from 0 to 1, on which a faster engine is compared with the tokenizer's own "
        "library during the run (default: as many as take 8 %% of the time)",
    )
    work.add_argument(
        "--resume",
        action="store_true",
        help="continue a run that was interrupted or killed; a finished target is left as it is",
    )


def run_pack(args: argparse.Namespace) -> int:
    """Pack; return the exit code."""
    from fastpack.errors import vocabulary

    is_config = len(args.source) == 1 and args.source[0].lower().endswith((".yaml", ".yml"))
    flags = {key: (flag, value) for (key, flag), value in zip(FLAGS.items(), _values(args), strict=True)}
    names = {key: flag for key, (flag, value) in flags.items() if not is_config or value is not None}
    with vocabulary(names):
        return _run(args, is_config)


def _values(args: argparse.Namespace) -> list[str | int | None]:
    """The values of the flags in FLAGS."""
    tokenizer = args.tokenizer or args.tokenizer_file
    return [args.dst_path, args.index_path, args.jq_pattern, args.num_cpus, args.eod_token, tokenizer, tokenizer, None]


def _run(args: argparse.Namespace, is_config: bool) -> int:
    import warnings

    if wrong := misuse(args, ("--dry-run", "--resume", "--num-cpus")):
        print(f"fastpack: error: {wrong}", file=sys.stderr)
        return 2
    if not is_config and (missing := _missing_option(args)):
        print(f"fastpack: error: {missing}", file=sys.stderr)
        return 2
    check_checksum_option(args)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        config = _from_file(args) if is_config else _from_flags(args)
        started = time.perf_counter()
        results: list[PackResult] = []
        if args.dry_run:
            _plan(args, config)
        elif is_spread(args):
            results = _pack_in_parts(args, config)
            if args.rank is not None:
                return 0
        else:
            results = _pack(args, config)
            _refuse_nothing(config, results)
    for warning in warned:
        say(args, str(warning.message))
    for result in results:
        if not result.kept_existing:
            write_checksums(args, result.path)
    if not args.dry_run:
        report(args, results, time.perf_counter() - started)
    return 0


def _pack(args: argparse.Namespace, config: str | dict[str, Any]) -> list[PackResult]:
    from fastpack.packing.pack import pack_each, pack_encoded_data

    options: dict[str, Any] = {
        "file_existence_policy": args.file_existence_policy,
        "on_faulty": args.on_faulty,
        "engine": args.engine,
        "resume": args.resume,
        "progress": progress(args, "pack", at_once=True),
        "special_tokens_in_text": args.special_tokens_in_text,
        "audit": args.audit,
    }
    return pack_each(config, **options) if args.per_source else [pack_encoded_data(config, **options)]


def _pack_in_parts(args: argparse.Namespace, config: str | dict[str, Any]) -> list[PackResult]:
    from fastpack.distributed.pack_tasks import collect_parts, plan_parts

    policy = args.file_existence_policy
    plan = plan_parts(
        config,
        each=args.per_source,
        on_faulty=args.on_faulty,
        engine=args.engine,
        bytes_per_task=args.part_bytes,
        folder=args.parts_folder,
        file_existence_policy=policy,
        special_tokens_in_text=args.special_tokens_in_text,
        audit=args.audit,
    )

    def collect() -> list[PackResult]:
        return collect_parts(plan, file_existence_policy=policy, progress=progress(args, "join"))

    results = run_spread(args, "pack", plan, collect)
    if results is None:
        return []
    _refuse_nothing(config, results)
    clear(args, plan)
    return results


def _refuse_nothing(config: str | dict[str, Any], results: list[PackResult]) -> None:
    """JobError where there is no document: most often the text has another key. The empty files are removed.

    From Python such a file is written, as by Modalities; who types a command would take exit code 0 for success.
    """
    if any(result.documents or result.kept_existing for result in results):
        return
    from fastpack.errors import JobError
    from fastpack.io import remove
    from fastpack.packing.modalities_config import load_pack_config

    for result in results:
        remove(result.path)
    settings = load_pack_config(config, one_output=False).settings
    n_skipped = sum(len(result.skipped) for result in results)
    if not n_skipped:
        paths = [source.path for source in settings.sources]
        what = f"{paths[0]} is empty" if len(paths) == 1 else f"the {len(paths)} sources are empty"
        raise JobError(f"{what}: there is no document to pack, so nothing was written")
    raise JobError(_nothing_packed(settings, results, n_skipped))


def _nothing_packed(settings: PackSettings, results: list[PackResult], n_skipped: int) -> str:
    from fastpack.packing.document_sample import first_keys

    keys = first_keys(settings.sources[0])
    first = next(result.skipped[0] for result in results if result.skipped)
    what = "the only document could not" if n_skipped == 1 else f"none of the {n_skipped:,} documents could"
    return (
        f"{what} be packed, so nothing was written. Line {first['line']}: {first['reason']}; the jq pattern is "
        + settings.jq_pattern
        + (f", and the first document has the keys {', '.join(keys)}" if keys else "")
    )


def _plan(args: argparse.Namespace, config: str | dict[str, Any]) -> None:
    from fastpack.packing.pack_estimate import plan_packing

    plans = plan_packing(
        config,
        each=args.per_source,
        file_existence_policy=args.file_existence_policy,
        engine=args.engine,
        resume=args.resume,
    )
    emit(
        args,
        {"dry_run": True, "files": [vars(plan) for plan in plans]},
        [f"{plan.path}: {_describe_plan(plan)}" for plan in plans],
    )


def _describe_plan(plan: PlannedPack) -> str:
    if plan.kept_existing:
        return "exists, kept"
    lines = "" if plan.lines is None else f"{plan.lines:,} lines, "
    n_tokens = plan.estimated_tokens
    size = "" if n_tokens is None else f"about {n_tokens:,} tokens, {n_tokens * plan.token_size_in_bytes:,} bytes; "
    source = plan.sources[0] if len(plan.sources) == 1 else f"{len(plan.sources)} files"
    return (
        f"would hold {size}{plan.token_size_in_bytes} byte(s) a token, from {source} ({lines}{plan.source_bytes:,} "
        f"bytes){f', tokenised by {plan.engine}' if plan.engine else ''}"
    )


def _missing_option(args: argparse.Namespace) -> str | None:
    from fastpack.documents.source_paths import find_sources

    if args.tokenizer is None and args.tokenizer_file is None and args.command != "create_packed_data":
        kinds = "bytes, a tokenizer.json, a directory, a .model"
        return f"{args.source[0]} is no .yaml file, so --tokenizer is needed ({kinds})"
    if args.eod_token is None and args.tokenizer not in (None, "bytes"):
        from fastpack.packing.source_indexes import missing_eod

        return missing_eod(args.tokenizer)
    if not args.per_source and args.dst_path is None and not _is_one(args.source):
        find_sources(args.source)  # raises where there is none
        return "--output is needed for several sources (or --per-source, for a packed file of each)"
    if args.index_path is not None and not _is_one(args.source):
        return "--index-path takes one source file"
    return None


def _is_one(sources: list[str]) -> bool:
    from fastpack.documents.source_paths import is_one_file

    return len(sources) == 1 and is_one_file(sources[0])


def _from_file(args: argparse.Namespace) -> str | dict[str, Any]:
    """The configuration's path, or what it holds, with the values of the flags in place of its own."""
    given = {
        key: getattr(args, key)
        for key in ("dst_path", "index_path", "jq_pattern", "num_cpus", "eod_token")
        if getattr(args, key) is not None
    }
    has_tokenizer = args.tokenizer is not None or args.tokenizer_file is not None
    if not given and not has_tokenizer:
        return str(args.source[0])
    from fastpack.packing.yaml_config import load_yaml

    config = load_yaml(args.source[0])
    config["settings"] = {**(config.get("settings") or {}), **given}
    if has_tokenizer:
        config["tokenizer"] = _tokenizer(args)
    return config


def _from_flags(args: argparse.Namespace) -> dict[str, Any]:
    """A configuration of the flags; the index of one file is made if it is missing or stale."""
    from fastpack.packing.source_indexes import default_packed_path, direct_config, why_index_is_missing

    sources: str | list[str] = args.source
    dst_path = args.dst_path
    if _is_one(args.source):
        (source,) = args.source
        replaces = args.file_existence_policy == "override"
        missing = why_index_is_missing(source, args.index_path, replaces=replaces)
        if missing and not args.dry_run and not is_spread(args):
            _make_index(args, source, dst_path or default_packed_path(source), missing.reason)
        if not (missing and args.dry_run and args.index_path is None):  # then its lines are found by reading it
            sources = source
        if dst_path is None and not args.per_source:
            dst_path = default_packed_path(source)
    return direct_config(
        sources,
        _tokenizer(args),
        dst_path=dst_path,
        index_path=args.index_path,
        jq_pattern=args.jq_pattern or ".text",
        num_cpus=args.num_cpus,
        eod_token=OLD_EOD_TOKEN if args.eod_token is None else args.eod_token,
    )


def _make_index(args: argparse.Namespace, source: str, target: str, reason: str) -> None:
    import warnings

    from fastpack.io import may_write
    from fastpack.packing.source_indexes import check_not_empty, make_index

    if not args.per_source and not args.resume:
        may_write(target, args.file_existence_policy)  # raises before the work of an index, not after it
    check_not_empty(source)
    say(args, f"{reason}: making it")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*faulty line", UserWarning)  # the result lists these lines
        make_index(source, args.index_path, on_faulty=args.on_faulty, progress=progress(args, "index"))


def _tokenizer(args: argparse.Namespace) -> dict[str, Any]:
    from fastpack.packing.source_indexes import component, named_component

    if args.tokenizer is None:
        file = args.tokenizer_file or OLD_TOKENIZER_FILE
        kind = args.tokenizer_type or OLD_TOKENIZER_TYPE
        return component("llm_gym_tokenizer", tokenizer_type=kind, tokenizer_file=file)
    return named_component(args.tokenizer)
