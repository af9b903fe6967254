"""`fastpack prepare` and `fastpack prepare-media`: index WebDatasets, JSONL datasets and metadatasets."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastpack.cli.distributed_options import (
    check_distributed_options,
    given_options,
    is_distributed,
    run_distributed,
    task_options,
)
from fastpack.cli.failures import UsageError, usage_errors
from fastpack.cli.options import Commands, add_dry_run_option, new_command, write_checksums
from fastpack.cli.output import emit, say
from fastpack.cli.prepare_options import (
    add_definition_options,
    add_execution_options,
    add_media_options,
    add_split_options,
    media_filter_of,
    wants_media,
)
from fastpack.cli.prepare_report import report
from fastpack.cli.progress import progress
from fastpack.errors import counted

if TYPE_CHECKING:
    from fastpack.cli.prepare_assistant import Assistant
    from fastpack.webdataset.preparation.media import MediaFilter
    from fastpack.webdataset.preparation.settings import ExecutionSettings, PrepareSettings, SplitSpec
    from fastpack.webdataset.preparation.walk_shards import WalkResult

_FOLDERS_ONLY = ("split_ratio", "split_parts", "split_glob", "exclude", "sample_type", "field_map", "tar_index_only")


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the commands `prepare` and `prepare-media`."""
    parser = new_command(
        commands,
        "prepare",
        run=run_prepare,
        help="index the tar shards of a WebDataset",
        about="Index a WebDataset's tar shards, a JSONL dataset or a metadataset's joins as Megatron-Energon does.",
        example="fastpack prepare DIR --non-interactive --split-ratio 8,1,1        (or: fastpack prepare x.jsonl)",
    )
    parser.add_argument("path", metavar="PATH", help="a folder with .tar shards, a .jsonl file or a metadataset .yaml")
    add_split_options(parser)
    add_definition_options(parser)
    add_media_options(parser)
    add_execution_options(parser)
    media = new_command(
        commands,
        "prepare-media",
        run=run_prepare_media,
        aliases=("prepare_media",),
        help="add sizes and lengths of media to the index",
        about="Add the sizes of images, and lengths of audio and video, to the index of a WebDataset or of plain "
        "files.",
        example="fastpack prepare-media DIR --media-metadata-by-extension",
    )
    media.add_argument("path", metavar="PATH", help="a prepared WebDataset, or a folder of plain files")
    add_media_options(media)
    media.add_argument("--num-workers", type=int, metavar="N", help="threads (default: one per processor, at most 16)")
    media.add_argument("--tmp-path", metavar="DIR", help="accepted for compatibility and ignored")
    media.add_argument("--progress", dest="no_progress", action="store_false", help="show progress (the default)")
    add_dry_run_option(media)
    return [parser, media]


def run_prepare_media(args: argparse.Namespace) -> int:
    """Add media metadata; return the exit code."""
    from fastpack.webdataset.preparation.prepare_media import media_paths, plan_media, prepare_media

    media = media_filter_of(args)
    if args.dry_run:
        files = list(map(str, plan_media(args.path, media)))
        lines = [f"would write {path}" for path in files]
        emit(args, {"path": args.path, "media": None, "files": files, "dry_run": True}, lines)
        return 0
    n = prepare_media(
        args.path, media, num_workers=args.num_workers, progress=progress(args, "prepare-media", at_once=True)
    )
    files = list(map(str, media_paths(args.path)))
    write_checksums(args, *files)
    fields = {"path": args.path, "media": n, "files": files, "dry_run": False}
    emit(args, fields, [f"{args.path}: metadata of {counted(n, 'file')}"])
    return 0


def run_prepare(args: argparse.Namespace) -> int:
    """Index the path, according to its kind; return the exit code."""
    from fastpack.webdataset.preparation.path_kinds import UNKNOWN, kind_of

    kinds = {"webdataset": _prepare_folder, "jsonl": _prepare_jsonl, "metadataset": _prepare_metadataset}
    kind = kind_of(args.path)
    if not kind:
        raise ValueError(f"{args.path} {UNKNOWN}")
    given = [f"--{name.replace('_', '-')}" for name in _FOLDERS_ONLY if getattr(args, name)]
    given += ["--media-metadata-by-..."] if wants_media(args) else []
    given += ["--executor, --rank, --collect"] if is_distributed(args) else []
    if given and kind != "webdataset":
        raise UsageError(f"{', '.join(given)}: only for folders of shards, not for a {kind}")
    return kinds[kind](args)


def _prepare_jsonl(args: argparse.Namespace) -> int:
    from fastpack.io import size_of
    from fastpack.webdataset.preparation.crude_jsonl_index import index_webdataset_jsonl

    if args.dry_run:
        n_bytes = size_of(args.path)
        fields = {"path": f"{args.path}.idx", "source_bytes": n_bytes, "samples": None}
        text = f"{args.path}.idx: would index {counted(n_bytes, 'byte')} of {args.path}"
    else:
        result = index_webdataset_jsonl(args.path, progress=progress(args, "prepare"))
        write_checksums(args, result.path)
        fields = {"path": str(result.path), "source_bytes": result.bytes, "samples": result.samples}
        text = f"{result.path}: {counted(result.samples, 'sample')}"
    emit(args, {**fields, "written": not args.dry_run, "dry_run": args.dry_run}, [text])
    return 0


def _prepare_metadataset(args: argparse.Namespace) -> int:
    from fastpack.webdataset.preparation.metadataset import prepare_metadataset

    result = prepare_metadataset(args.path, dry_run=args.dry_run)
    if not args.dry_run:
        write_checksums(args, *(path for path, n_rows in result.joins.items() if n_rows is not None))
    would = "would write " if args.dry_run else ""
    lines = [
        f"{path}: already exists" if n_rows is None else f"{would}{path}: {counted(n_rows, 'row')}"
        for path, n_rows in result.joins.items()
    ]
    gone = "would be removed" if args.dry_run else "removed"
    lines += [f"{path}: {gone} (outdated)" for path in result.removed]
    for warning in result.warnings:
        say(args, f"warning: {warning}")
    fields = {"path": args.path, "joins": result.joins, "removed": result.removed, "warnings": result.warnings}
    fields["dry_run"] = args.dry_run
    emit(args, fields, lines or [f"{args.path}: no joins, nothing to prepare"])
    return 0


def _prepare_folder(args: argparse.Namespace) -> int:
    from fastpack.webdataset.preparation.prepare_webdataset import prepare_webdataset, rebuild_indexes

    _check_usage(args)
    if args.tar_index_only:
        result = rebuild_indexes(
            args.path,
            num_workers=args.num_workers,
            resume=args.resume,
            sample_tables=not args.no_sample_tables,
            compat=args.compat,
            progress=progress(args, "prepare", at_once=True),
        )
        write_checksums(args, *result.paths)
        report(args, result)
        return 0
    assistant = _assistant(args)
    if assistant and not assistant.may_start():
        return 0
    define = None if assistant is None or args.skip_dataset_yaml or _has_sample_type(args) else assistant.define
    settings = None if args.rank is not None else _settings(args, assistant, asks_for_type=define is not None)

    def finish(walker: Callable[[str], WalkResult] | None = None) -> None:
        assert settings is not None  # a rank does not finish the job
        bar = progress(args, "prepare", at_once=assistant is None)
        done = prepare_webdataset(args.path, settings, dry_run=args.dry_run, progress=bar, walker=walker, define=define)
        report(args, done)
        if assistant and define:
            assistant.finish(done)
        if done.written:
            write_checksums(args, *done.paths)

    if is_distributed(args):
        from fastpack.distributed.prepare_tasks import plan_walk, walker_of

        options = {"exclude": args.exclude, "execution": _execution(args), "media": _media(args)}
        plan = plan_walk(args.path, **options, **task_options(args))
        skip = args.skip_bad_shards
        run_distributed(args, "prepare", plan, lambda: finish(walker_of(plan, skip_bad_shards=skip)))
    else:
        finish()
    return 0


def _settings(args: argparse.Namespace, assistant: Assistant | None, *, asks_for_type: bool) -> PrepareSettings:
    """Return the settings of the flags, and of the assistant's answers for missing ones."""
    from fastpack.webdataset.preparation.dataset_yaml import sample_type_spec
    from fastpack.webdataset.preparation.settings import PrepareSettings

    sample_type = None
    if not (args.skip_dataset_yaml or asks_for_type):
        sample_type = sample_type_spec(args.sample_type, args.field_map, dataset_yaml_name=args.dataset_yaml_name)
    execution = _execution(args, force_overwrite=args.force_overwrite or assistant is not None)
    return PrepareSettings(_split_spec(args, assistant), sample_type, _media(args), execution)


def _execution(args: argparse.Namespace, **changes: Any) -> ExecutionSettings:
    from fastpack.webdataset.preparation.settings import ExecutionSettings

    names = ("num_workers", "force_overwrite", "resume", "walk_all", "skip_bad_shards")
    given = {name: getattr(args, name) for name in names}
    return ExecutionSettings(**{**given, "sample_tables": not args.no_sample_tables, **changes})


def _media(args: argparse.Namespace) -> MediaFilter | None:
    return media_filter_of(args) if wants_media(args) else None


def _split_spec(args: argparse.Namespace, assistant: Assistant | None) -> SplitSpec:
    from fastpack.webdataset.preparation.settings import SplitSpec
    from fastpack.webdataset.preparation.splits import check_ratio

    ratio = args.split_ratio
    if ratio is None and not (args.split_parts or args.split_glob) and assistant is not None:
        ratio = assistant.ask_ratio()
    if ratio is not None:
        ratio = ratio.split(",")
        with usage_errors():
            check_ratio(ratio)
    return SplitSpec(
        ratio=ratio,
        patterns=[_pair("--split-parts", text) for text in args.split_parts],
        globs=[_pair("--split-glob", text) for text in args.split_glob],
        shuffle=args.shuffle_tars,
        exclude=args.exclude,
        compat=args.compat,
    )


def _check_usage(args: argparse.Namespace) -> None:
    from fastpack.webdataset.preparation.dataset_yaml import sample_type_spec

    check_distributed_options(args, "--dry-run", "--resume", "--tar-index-only", "--num-workers")
    if args.fix_duplicates:
        raise UsageError(
            "fastpack changes no tar in place. `fastpack fix-duplicates DIR NEWDIR` writes renamed copies."
        )
    if _media(args) is not None and args.tar_index_only:
        raise UsageError("--tar-index-only does not read media metadata. Use prepare-media.")
    if args.tar_index_only:
        if given := given_options(args, "--exclude", "--skip-bad-shards", "--dry-run"):
            raise UsageError(f"--tar-index-only keeps the list of shards; remove {given}")
        return
    ways = (args.split_ratio is not None) + bool(args.split_parts) + bool(args.split_glob)
    if ways > 1:
        raise UsageError("choose one of --split-ratio, --split-parts and --split-glob")
    if not ways and not _asks(args) and args.rank is None:
        raise UsageError("non-interactive mode needs --split-ratio, --split-parts or --split-glob")
    if not args.skip_dataset_yaml:
        with usage_errors():
            sample_type_spec(args.sample_type, args.field_map)


def _asks(args: argparse.Namespace) -> bool:
    return not (args.non_interactive or args.json or args.dry_run or is_distributed(args))


def _has_sample_type(args: argparse.Namespace) -> bool:
    from fastpack.webdataset.preparation.dataset_yaml import CRUDE

    return args.sample_type is not None and (args.field_map is not None or args.sample_type == CRUDE)


def _assistant(args: argparse.Namespace) -> Assistant | None:
    """Return the interactive prompt for missing options; None in non-interactive mode."""
    if not _asks(args):
        return None
    from fastpack.cli.prepare_assistant import Assistant

    return Assistant(args)


def _pair(option: str, text: str) -> tuple[str, str]:
    name, colon, pattern = text.partition(":")
    if not (name and colon and pattern):
        raise UsageError(f"{option} expects NAME:PATTERN, not {text!r}")
    return name, pattern
