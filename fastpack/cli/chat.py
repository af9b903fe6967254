"""`fastpack chat`: conversations through a chat template, packed with a loss mask; or as Modalities configures it."""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fastpack.cli.distributed_options import (
    add_distributed_options,
    check_distributed_options,
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
    new_command,
    output_group,
    write_checksums,
)
from fastpack.cli.output import emit, fields_of, say, say_skipped, warnings_as_messages
from fastpack.cli.progress import progress
from fastpack.errors import counted

if TYPE_CHECKING:
    from fastpack.packing.chat.instruction_tuning import PreparedChat, PreparedPartition
    from fastpack.packing.pack_result import ChatResult
    from fastpack.packing.settings import PackSettings

_FILES = ("jsonl_path", "index_path", "pbin_path", "pbin_config_path")
_NAMES = {  # setting -> option, for messages
    "settings.src_path": "",
    "settings.dst_path": "--output",
    "settings.num_cpus": "--num-workers",
    "tokenizer.config.pretrained_model_name_or_path": "--tokenizer",
    "tokenizer": "--tokenizer",
    "chat_template": "--chat-template",
    "messages_field": "--messages-field",
}


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `chat`."""
    parser = new_command(
        commands,
        "chat",
        run=run_chat,
        aliases=("prepare_instruction_tuning_data",),
        help="turn conversations into tokens and a loss mask",
        about="Turn conversations into tokens by a chat template, with a loss mask (needs the extra chat).",
        example="fastpack chat chats.jsonl --tokenizer DIR -o sft.pbin",
    )
    parser.add_argument(
        "source",
        nargs="*",
        metavar="SRC|CONFIG.yaml",
        help="conversations, one a row (messages as OpenAI, ShareGPT, prompt and completion, chosen and rejected): "
        ".jsonl, also .gz and .zst, .parquet, .arrow, directories of them, patterns in quotes; or a Modalities "
        "configuration",
    )
    parser.add_argument("--config-file-path", metavar="CONFIG.yaml", help="alias of CONFIG.yaml, as in Modalities")
    output_group(parser).add_argument(
        "-o",
        "--output",
        metavar="DST",
        help="the packed file (default: SRC's stem + .pbin); its loss mask is DST.mask. Preference pairs are written "
        "to two files, with .chosen and .rejected before the suffix",
    )
    output_group(parser).add_argument(
        "--format",
        metavar="FORMAT",
        choices=FORMATS,
        help=f"format of the output: {', '.join(FORMATS)} (default: pbin)",
    )
    _add_conversation_options(parser)
    work = parser.add_argument_group("the work")
    work.add_argument("--num-workers", type=int, metavar="N", help="encoding processes (default: number of CPUs)")
    work.add_argument("--resume", action="store_true", help="continue a run that was interrupted (pbin and npy)")
    add_engine_option(work)
    add_on_error_option(work, "a conversation that cannot be packed")
    add_distributed_options(parser)
    add_output_options(parser, "error; overwrite with a configuration")
    parser.set_defaults(if_exists=None)
    return [parser]


def _add_conversation_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("conversations")
    group.add_argument(
        "--tokenizer", metavar="T", help="directory of a Hugging Face tokenizer, ORG/NAME on the Hub, or `bytes`"
    )
    group.add_argument(
        "--chat-template",
        metavar="FILE|NAME",
        help="a Jinja2 template, or the name of one of the tokenizer's (default: the tokenizer's own)",
    )
    group.add_argument(
        "--loss",
        choices=("assistant", "last", "all"),
        help="tokens that count in the loss: of the assistant (default), of its last turn, or all",
    )
    group.add_argument(
        "--messages-field",
        metavar="NAME",
        help="key or column of the messages (default: messages, conversations, conversation, or a pair)",
    )
    group.add_argument("--tools-field", metavar="NAME", help="key of the tools (default: tools)")


def run_chat(args: argparse.Namespace) -> int:
    """Run `fastpack chat`; return the exit code."""
    given = [*args.source, *([args.config_file_path] if args.config_file_path is not None else [])]
    is_config = args.config_file_path is not None or (len(given) == 1 and given[0].lower().endswith((".yaml", ".yml")))
    if not given or (is_config and len(given) > 1):
        raise UsageError("name conversations (fastpack chat SRC.jsonl --tokenizer DIR), or one configuration")
    return _prepare(args, given[0]) if is_config else _pack(args)


def _prepare(args: argparse.Namespace, config: str) -> int:
    from fastpack.packing.chat.instruction_tuning import prepare_instruction_tuning_data

    options = ("output", "format", "tokenizer", "chat_template", "loss", "messages_field", "tools_field", "num_workers")
    wrong = [f"--{name.replace('_', '-')}" for name in options if getattr(args, name) is not None]
    if wrong or args.resume or is_distributed(args):
        raise UsageError(f"{', '.join(wrong) or '--resume, --rank and --collect'}: not with a configuration")
    started = time.perf_counter()
    with warnings_as_messages(args):
        result = prepare_instruction_tuning_data(
            config,
            if_exists=args.if_exists or "overwrite",
            on_error=args.on_error,
            engine=args.engine,
            dry_run=args.dry_run,
            progress=progress(args, "chat", at_once=True),
        )
    if not (result.dry_run or result.kept_existing):
        files = (getattr(partition, name) for partition in result.partitions for name in _FILES)
        write_checksums(args, *filter(None, files), result.config_path)
    _report_prepared(args, result, time.perf_counter() - started)
    return 0


def _pack(args: argparse.Namespace) -> int:
    from fastpack.cli.pack_report import print_estimate, refuse_empty
    from fastpack.errors import vocabulary
    from fastpack.io import as_path
    from fastpack.packing.pack_conversations import chat_settings, pack_chats, preference_settings
    from fastpack.tokens.interop_formats import output_files

    check_distributed_options(args, "--dry-run", "--resume", "--num-workers")
    if args.tokenizer is None:
        raise UsageError(
            f"{args.source[0]} is no .yaml file, so --tokenizer is needed (a directory with a chat template)"
        )
    names = ("output", "tokenizer", "chat_template", "loss", "messages_field", "tools_field", "num_workers", "format")
    given: dict[str, Any] = {name: value for name in names if (value := getattr(args, name)) is not None}
    sources = args.source[0] if len(args.source) == 1 else args.source
    started = time.perf_counter()
    with vocabulary(_NAMES), warnings_as_messages(args):
        warnings.filterwarnings("ignore", ".*faulty line", UserWarning)  # of an index: the result lists these lines
        settings = chat_settings(
            sources,
            given.pop("output", None),
            **given,
            if_exists=args.if_exists or "error",
            on_error=args.on_error,
            engine=args.engine,
            resume=args.resume,
        )
        jobs = preference_settings(settings)
        if args.dry_run:
            print_estimate(args, jobs)
            return 0
        if is_distributed(args):
            if len(jobs) > 1:
                raise UsageError("preference pairs are packed without --rank, --collect and --executor")
            results = _pack_as_tasks(args, settings)
            if results is None:  # a rank: the last step has the results
                return 0
        else:
            result = pack_chats(settings, progress(args, "chat", at_once=True))
            results = [result] if result.rejected is None else [result, result.rejected]
        for job, one in zip(jobs, results, strict=True):
            refuse_empty(job, [one])
            if not one.kept_existing:
                files = output_files(job.format, as_path(one.path))
                write_checksums(args, *files)
    _report(args, results, time.perf_counter() - started)
    return 0


def _pack_as_tasks(args: argparse.Namespace, settings: PackSettings) -> list[Any] | None:
    from fastpack.distributed.pack_tasks import collect_pack, plan_pack

    plan = plan_pack(settings, **task_options(args))
    return run_distributed(
        args,
        "chat",
        plan,
        lambda: collect_pack(plan, if_exists=settings.if_exists, progress=progress(args, "join")),
    )


def _report(args: argparse.Namespace, results: list[ChatResult], seconds: float) -> None:
    from fastpack.packing.conversations.conversation import KINDS

    first = results[0]
    if first.engine_note:
        say(args, first.engine_note)
    say_skipped(args, [(f"{entry['source']}: " if "source" in entry else "", entry) for entry in first.skipped])
    lines = [_describe(result, seconds) for result in results]
    if first.recognised:
        lines.insert(0, "recognised: " + ", ".join(f"{n:,} x {KINDS[kind]}" for kind, n in first.recognised.items()))
    rejected = None if first.rejected is None else _fields(first.rejected)
    fields = {**_fields(first), "rejected": rejected, "seconds": round(seconds, 3), "dry_run": False}
    emit(args, fields, lines)


def _fields(result: ChatResult) -> dict[str, Any]:
    fields = fields_of(result)
    del fields["engine_note"], fields["rejected"]
    return {**fields, "written": not result.kept_existing}


def _describe(result: ChatResult, seconds: float) -> str:
    if result.kept_existing:
        return f"{result.path}: exists, kept"
    share = 100 * result.loss_tokens / max(1, result.tokens)
    skipped = f", {len(result.skipped):,} skipped" if result.skipped else ""
    return (
        f"{result.path}: {counted(result.documents, 'conversation')}, {counted(result.tokens, 'token')}, of which "
        f"{result.loss_tokens:,} ({share:.1f} %) count in the loss{skipped}, in {seconds:.1f} s"
    )


def _report_prepared(args: argparse.Namespace, result: PreparedChat, seconds: float) -> None:
    fields = {**asdict(result), "seconds": round(seconds, 3)}
    if result.kept_existing:
        emit(args, fields, [f"{result.folder}: exists, kept"])
        return
    say_skipped(args, [(f"{one.jsonl_path}: ", entry) for one in result.partitions for entry in one.skipped])
    lines = [_line(partition, result.dry_run) for partition in result.partitions]
    done = "nothing written (dry run)" if result.dry_run else f"in {seconds:.1f} s"
    emit(args, fields, [*lines, f"{result.folder}: {done}"])


def _line(partition: PreparedPartition, dry_run: bool) -> str:
    if not partition.rows:
        return f"{partition.name}: no rows; {partition.jsonl_path} is empty"
    if dry_run:
        files = ", ".join(str(getattr(partition, name)) for name in _FILES)
        return f"{partition.name}: {counted(partition.rows, 'row')} -> {files}"
    skipped = f", {len(partition.skipped):,} skipped" if partition.skipped else ""
    amount = f"{counted(partition.rows, 'row')}, {counted(partition.tokens, 'token')}"
    return f"{partition.name}: {amount}{skipped} -> {partition.pbin_path}"
