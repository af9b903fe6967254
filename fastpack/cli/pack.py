"""`fastpack pack`: tokenise documents and pack them into one token file."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from fastpack.cli.distributed_options import (
    add_distributed_options,
    check_distributed_options,
    given_options,
    is_distributed,
    run_distributed,
    task_options,
)
from fastpack.cli.failures import UsageError
from fastpack.cli.options import (
    FORMATS,
    Commands,
    add_engine_option,
    add_on_error_option,
    add_output_options,
    add_split_option,
    new_command,
    output_group,
    write_checksums,
)
from fastpack.cli.output import say, warnings_as_messages
from fastpack.cli.pack_report import print_estimate, refuse_empty, report
from fastpack.cli.progress import progress

if TYPE_CHECKING:
    from fastpack.packing.pack_result import PackResult
    from fastpack.packing.settings import PackSettings
    from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

# Defaults of llm_gym's create_packed_data.
OLD_TOKENIZER_TYPE = "GPT2TokenizerFast"
OLD_TOKENIZER_FILE = "data/tokenizer/tokenizer.json"
OLD_EOS_TOKEN = "<|endoftext|>"
FLAGS = {  # setting of a configuration -> the flags that replace it
    "resume": ("--resume",),
    "settings.dst_path": ("--output",),
    "settings.index_path": ("--index-path",),
    "settings.jq_pattern": ("--jq-pattern", "--text-field"),
    "settings.num_cpus": ("--num-workers",),
    "settings.eod_token": ("--eos-token",),
    "split_on": ("--split-on",),
    "tokenizer.config.pretrained_model_name_or_path": ("--tokenizer", "--tokenizer-file"),
    "tokenizer.config.tokenizer_model_file": ("--tokenizer", "--tokenizer-file"),
}


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `pack`."""
    parser = new_command(
        commands,
        "pack",
        run=run_pack,
        aliases=("pack_encoded_data", "create_packed_data"),
        help="tokenise documents into one token file",
        about="Tokenise documents (JSONL, Parquet, Arrow, CSV, text) and pack them into one token file.",
        example="fastpack pack corpus.jsonl --tokenizer gpt2/tokenizer.json --eos-token '<|endoftext|>'",
    )
    _add_inputs(parser)
    _add_execution(parser)
    add_output_options(parser)
    add_distributed_options(parser)
    old = parser.add_argument_group("options of the old llm_gym create_packed_data")
    old.add_argument("--tokenizer-type", metavar="CLASS", help="such as GPT2TokenizerFast")
    old.add_argument("--tokenizer-file", metavar="PATH", help="its tokenizer.json")
    return [parser]


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the options of inputs and outputs."""
    parser.add_argument(
        "source",
        nargs="+",
        metavar="CONFIG.yaml|SRC",
        help="a Modalities configuration, or the documents: .jsonl, .csv, .tsv or .txt files, also .gz and .zst, "
        ".parquet, .arrow, directories of them, patterns in quotes",
    )
    output_group(parser).add_argument(
        "-o",
        "--output",
        "--dst-path",
        metavar="DST",
        help="the packed file, or a flat shard if it ends in .npy, or the folder for --per-source (default: SRC's stem "
        "+ .pbin)",
    )
    output_group(parser).add_argument(
        "--format",
        metavar="FORMAT",
        choices=FORMATS,
        help=f"format of the output: {', '.join(FORMATS)} (default: npy if DST ends in .npy, else pbin); megatron "
        "writes DST_text_document.bin and .idx, as preprocess_data with --append-eod",
    )
    output_group(parser).add_argument(
        "--per-source", action="store_true", help="pack each source into a file of its own"
    )
    texts = parser.add_argument_group("texts and tokens")
    texts.add_argument(
        "--tokenizer",
        metavar="T",
        help="`bytes` (UTF-8 bytes as tokens), a tokenizer.json, the directory of a Hugging Face tokenizer, ORG/NAME "
        "on the Hugging Face Hub (downloaded unless it is in the local cache), or a SentencePiece .model",
    )
    texts.add_argument(
        "--eos-token", "--eod-token", dest="eos_token", metavar="E", help="the token that ends each document"
    )
    texts.add_argument("--eos-token-id", type=int, metavar="ID", help="the same token, by its id")
    texts.add_argument(
        "--special-tokens-in-text",
        choices=("keep", "split", "skip", "error"),
        default="keep",
        help="a text that contains a special token such as <|endoftext|>: keep the token, as Modalities (default), "
        "split it into the tokens of its text, skip the document, or fail",
    )
    texts.add_argument("--index-path", metavar="PATH", help="default: SRC's stem + .idx")
    field = texts.add_mutually_exclusive_group()
    field.add_argument(
        "--text-field", metavar="NAME", help="key or column of the text (default: text); a.b is b in the object a"
    )
    field.add_argument("--jq-pattern", metavar="JQ", help="jq pattern that selects the text of a line")
    add_split_option(texts)


def _add_execution(parser: argparse.ArgumentParser) -> None:
    """Add the options of how the work is done."""
    work = parser.add_argument_group("the work")
    work.add_argument(
        "--num-workers", "--num-cpus", type=int, metavar="N", help="tokenising processes (default: number of CPUs)"
    )
    add_on_error_option(work, "a document that cannot be packed")
    add_engine_option(work)
    work.add_argument(
        "--audit",
        type=float,
        metavar="SHARE",
        help="share of the documents, from 0 to 1, on which a faster engine is compared with the tokenizer's own "
        "library during the run (default: as many as take 8 %% of the time)",
    )
    work.add_argument(
        "--record-lines",
        action="store_true",
        help="also write OUTPUT.lines, the source and line of each document (8 bytes), which `trace` shows",
    )
    work.add_argument(
        "--resume",
        action="store_true",
        help="continue a run that was interrupted or killed; a finished output is kept (pbin and npy)",
    )


def run_pack(args: argparse.Namespace) -> int:
    """Pack; return the exit code."""
    from fastpack.errors import vocabulary

    is_config = len(args.source) == 1 and args.source[0].lower().endswith((".yaml", ".yml"))
    with vocabulary(_flag_names(args, is_config)):
        check_distributed_options(args, "--dry-run", "--resume", "--record-lines", "--num-workers")
        if not is_config:
            _check_options(args)
        return _pack(args, is_config)


def _flag_names(args: argparse.Namespace, is_config: bool) -> dict[str, str]:
    """Return the names of settings in messages: flags, except for settings that come from a configuration."""
    names = {key: flags[0] for key, flags in FLAGS.items() if not is_config or given_options(args, *flags)}
    return names if is_config else {**names, "settings.src_path": ""}


def _pack(args: argparse.Namespace, is_config: bool) -> int:
    import warnings

    from fastpack.io import as_path
    from fastpack.tokens.interop_formats import output_files

    started = time.perf_counter()
    with warnings_as_messages(args):
        warnings.filterwarnings("ignore", ".*faulty line", UserWarning)  # of an index: the result lists these lines
        settings = _settings(args, is_config)
        if args.dry_run:
            print_estimate(args, [settings])
            return 0
        results = _pack_as_tasks(args, settings) if is_distributed(args) else _pack_here(args, settings)
    if results is None:  # a rank: the last step has the results
        return 0
    for result in results:
        if not result.kept_existing:
            write_checksums(args, *output_files(settings.format, as_path(result.path)))
    report(args, results, time.perf_counter() - started)
    return 0


def _pack_here(args: argparse.Namespace, settings: PackSettings) -> list[PackResult]:
    from fastpack.packing.pack_job import pack_files

    results = pack_files(
        settings,
        progress=progress(args, "pack", at_once=True),
        index_progress=progress(args, "index"),
        note_index=lambda reason, _stale: say(args, f"{reason}: making it"),
    )
    refuse_empty(settings, results)
    return results


def _pack_as_tasks(args: argparse.Namespace, settings: PackSettings) -> list[PackResult] | None:
    from fastpack.distributed.pack_tasks import collect_pack, plan_pack

    plan = plan_pack(settings, **task_options(args))

    def collect() -> list[PackResult]:
        results = collect_pack(plan, if_exists=settings.if_exists, progress=progress(args, "join"))
        refuse_empty(settings, results)
        return results

    return run_distributed(args, "pack", plan, collect)


def _check_options(args: argparse.Namespace) -> None:
    """Raise UsageError for a missing option that the sources need, or for sources or a tokenizer that do not exist."""
    from fastpack.documents.source_paths import find_sources

    if args.tokenizer is None and args.tokenizer_file is None and args.command != "create_packed_data":
        kinds = "bytes, a tokenizer.json, a directory, a .model"
        raise UsageError(f"{args.source[0]} is no .yaml file, so --tokenizer is needed ({kinds})")
    if args.eos_token is None and args.eos_token_id is None and args.tokenizer not in (None, "bytes"):
        from fastpack.packing.pack import missing_eos_text

        raise UsageError(missing_eos_text(args.tokenizer))
    if not args.per_source and args.output is None and not _is_one(args.source):
        find_sources(args.source)  # raises where there is none
        raise UsageError("--output is needed for several sources (or --per-source, for a packed file of each)")
    if args.index_path is not None and not _is_one(args.source):
        raise UsageError("--index-path takes one source file")


def _is_one(sources: list[str]) -> bool:
    from fastpack.documents.source_paths import is_one_file

    return len(sources) == 1 and is_one_file(sources[0])


def _settings(args: argparse.Namespace, is_config: bool) -> PackSettings:
    """Return the settings of the flags and, for what they do not say, of the configuration."""
    from dataclasses import fields

    from fastpack.packing.modalities_config import load_pack_settings
    from fastpack.packing.settings import PackSettings, settings_of

    given: dict[str, Any] = {field.name: getattr(args, field.name, None) for field in fields(PackSettings)}
    given |= {
        "split_on": args.split_on,
        "if_exists": args.if_exists,
        "text_pattern": _text_pattern(args),
        "tokenizer": None,
    }
    if not is_config or args.tokenizer is not None or args.tokenizer_file is not None:
        given["tokenizer"] = _tokenizer(args)
    given = {name: value for name, value in given.items() if value is not None}
    if is_config:
        return load_pack_settings(args.source[0], index_path=args.index_path, **given)
    if "eos_token_id" not in given:
        given.setdefault("eos_token", OLD_EOS_TOKEN)
    sources = args.source[0] if _is_one(args.source) else args.source
    return settings_of(sources, given.pop("output", None), index_path=args.index_path, **given)


def _text_pattern(args: argparse.Namespace) -> str | None:
    from fastpack.packing.settings import field_pattern

    if args.text_field is not None:
        return field_pattern(args.text_field)
    pattern: str | None = args.jq_pattern
    return pattern


def _tokenizer(args: argparse.Namespace) -> TokenizerSpec:
    from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

    if args.tokenizer is not None:
        return TokenizerSpec.from_name(args.tokenizer)
    file = args.tokenizer_file or OLD_TOKENIZER_FILE
    return TokenizerSpec(
        "llm_gym_tokenizer", {"tokenizer_type": args.tokenizer_type or OLD_TOKENIZER_TYPE, "tokenizer_file": file}
    )
