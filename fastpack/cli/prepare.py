"""`fastpack prepare`: folders of tar shards and JSON lines files become datasets for Megatron-Energon and fastpack."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from fastpack.cli.distributed_options import add_spread_options, clear, is_spread, misuse, run_spread
from fastpack.cli.options import (
    Commands,
    add_checksum_option,
    add_dry_run_option,
    check_checksum_option,
    new_command,
    write_checksums,
)
from fastpack.cli.output import emit, say
from fastpack.cli.prepare_report import report
from fastpack.cli.progress import progress
from fastpack.errors import counted

if TYPE_CHECKING:
    from fastpack.distributed.plan import Plan

_FOLDERS_ONLY = ("split_ratio", "split_parts", "split_glob", "exclude", "sample_type", "field_map", "tar_index_only")


class UsageError(ValueError):
    """Options that do not go together, or an answer that cannot be: exit code 2."""


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """The command `prepare`."""
    parser = new_command(
        commands,
        "prepare",
        run=run_prepare,
        help="index a WebDataset's tar shards, a JSONL dataset or a metadataset's joins as Megatron-Energon does",
        example="fastpack prepare DIR --non-interactive --split-ratio 8,1,1        (or: fastpack prepare x.jsonl)",
    )
    parser.add_argument("path", metavar="PATH", help="a folder with .tar shards, a .jsonl file or a metadataset .yaml")
    _add_split_options(parser)
    _add_definition_options(parser)
    _add_media_options(parser)
    _add_run_options(parser)
    media = new_command(
        commands,
        "prepare-media",
        run=run_prepare_media,
        aliases=("prepare_media",),
        help="add the sizes of images, and lengths of audio and video, to the index of a WebDataset or of plain files",
        example="fastpack prepare-media DIR --media-metadata-by-extension",
    )
    media.add_argument("path", metavar="PATH", help="a prepared WebDataset, or a folder of plain files")
    _add_media_options(media)
    _option(media, "--num-workers", type=int, metavar="N", help="threads (default: one a processor, at most 16)")
    _option(media, "--tmp-path", metavar="DIR", help="accepted and not needed: the index is built beside its place")
    media.add_argument("--progress", dest="no_progress", action="store_false", help="show progress (the default)")
    add_dry_run_option(media)
    add_checksum_option(media)
    return [parser, media]


def _option(group: Any, name: str, **settings: Any) -> None:
    """An option in both spellings."""
    group.add_argument(name, *([name[:2] + name[2:].replace("-", "_")] if "-" in name[2:] else []), **settings)


def _add_split_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("shards and splits")
    _option(group, "--split-ratio", metavar="A,B,C", help="shards for train, val and test, such as 8,1,1")
    _option(
        group,
        "--split-parts",
        metavar="NAME:RE",
        action="append",
        default=[],
        help="shards of a part: their paths begin with this regular expression (may be repeated)",
    )
    _option(
        group,
        "--split-glob",
        metavar="NAME:GLOB",
        action="append",
        default=[],
        help="shards of a part: their paths match this pattern, ** also over folders (may be repeated)",
    )
    _option(group, "--shuffle-tars", action="store_true", help="shuffle the shards before they are split by ratio")
    _option(group, "--exclude", metavar="RE", help="leave out shards in whose path this regular expression is found")
    _option(
        group,
        "--compat",
        choices=("energon",),
        help="split as Energon 7.4.1 does, even where it loses shards, and keep its counts",
    )


def _add_definition_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("dataset.yaml")
    _option(group, "--sample-type", metavar="CLASS", help="what a sample is, such as CaptioningSample, CrudeWebdataset")
    _option(
        group, "--field-map", metavar="JSON", help='parts of its fields, such as {"image": "jpg", "caption": "txt"}'
    )
    _option(group, "--skip-dataset-yaml", action="store_true", help="write no dataset.yaml")
    _option(group, "--dataset-yaml-name", metavar="NAME", default="dataset.yaml", help="another name for it")


def _add_media_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("metadata of media").add_mutually_exclusive_group()
    _option(group, "--media-metadata-by-glob", metavar="PAT,...", help="of parts whose names match, such as '*.jpg'")
    _option(group, "--media-metadata-by-header", action="store_true", help="of parts that begin as media do")
    _option(group, "--media-metadata-by-extension", action="store_true", help="of parts with a known extension")


def _media_filter(args: argparse.Namespace) -> Any:
    from fastpack.webdataset.prepare.media import media_filter

    glob, header, extension = (getattr(args, f"media_metadata_by_{way}") for way in ("glob", "header", "extension"))
    try:
        return media_filter(glob, header=header, extension=extension)
    except ValueError as error:
        raise UsageError(str(error)) from None


def run_prepare_media(args: argparse.Namespace) -> int:
    """Add metadata of media; return the exit code."""
    from fastpack.webdataset.prepare.prepare_webdataset import media_paths, plan_media, prepare_media

    try:
        wanted = _media_filter(args)
    except UsageError as error:
        print(f"fastpack: error: {error}", file=sys.stderr)
        return 2
    if args.dry_run:
        files = list(map(str, plan_media(args.path, wanted)))
        lines = [f"would write {path}" for path in files]
        emit(args, {"path": args.path, "media": None, "files": files, "dry_run": True}, lines)
        return 0
    check_checksum_option(args)
    n = prepare_media(args.path, wanted, num_workers=args.num_workers, progress=progress(args, "prepare-media"))
    files = list(map(str, media_paths(args.path)))
    write_checksums(args, *files)
    fields = {"path": args.path, "media": n, "files": files, "dry_run": False}
    emit(args, fields, [f"{args.path}: metadata of {counted(n, 'file')}"])
    return 0


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the run")
    _option(group, "--non-interactive", action="store_true", help="ask nothing")
    _option(group, "--force-overwrite", action="store_true", help="prepare anew what has already been prepared")
    _option(group, "--resume", action="store_true", help="continue a run that was interrupted or killed")
    _option(group, "--walk-all", action="store_true", help="walk shards too that did not change since the last run")
    _option(group, "--num-workers", type=int, metavar="N", help="threads (default: one a processor, at most 16)")
    _option(group, "--skip-bad-shards", action="store_true", help="leave damaged and empty shards out, and say so")
    _option(
        group,
        "--no-sample-tables",
        action="store_true",
        help="leave samples out of index.sqlite: training needs none there, access by key does",
    )
    _option(group, "--tar-index-only", action="store_true", help="only write the indexes of a prepared set anew")
    _option(group, "--tmp-path", metavar="DIR", help="accepted and not needed: indexes are built beside their place")
    _option(group, "--fix-duplicates", action="store_true", help=argparse.SUPPRESS)
    group.add_argument("--progress", dest="no_progress", action="store_false", help="show progress (the default)")
    add_dry_run_option(parser)
    add_checksum_option(parser)
    add_spread_options(parser)


def run_prepare(args: argparse.Namespace) -> int:
    """Prepare what the path is; return the exit code."""
    from fastpack.webdataset.prepare.path_kinds import UNKNOWN, kind_of

    kinds = {"webdataset": _prepare_folder, "jsonl": _prepare_jsonl, "metadataset": _prepare_metadataset}
    kind = kind_of(args.path)
    if not kind:
        raise ValueError(f"{args.path} {UNKNOWN}")
    try:
        given = [f"--{name.replace('_', '-')}" for name in _FOLDERS_ONLY if getattr(args, name)]
        given += ["--media-metadata-by-..."] if _wants_media(args) else []
        given += ["--executor, --rank, --collect"] if is_spread(args) else []
        if given and kind != "webdataset":
            raise UsageError(f"{', '.join(given)}: of folders of shards, not of a {kind}")
        check_checksum_option(args)
        return kinds[kind](args)
    except UsageError as error:
        print(f"fastpack: error: {error}", file=sys.stderr)
        return 2


def _prepare_jsonl(args: argparse.Namespace) -> int:
    from fastpack.io import size_of
    from fastpack.webdataset.prepare.crude_jsonl_index import index_webdataset_jsonl

    if args.dry_run:
        n_bytes = size_of(args.path)
        fields = {
            "path": f"{args.path}.idx",
            "source_bytes": n_bytes,
            "samples": None,
            "written": False,
            "dry_run": True,
        }
        emit(args, fields, [f"{args.path}.idx: would index {counted(n_bytes, 'byte')} of {args.path}"])
        return 0
    result = index_webdataset_jsonl(args.path, progress=progress(args, "prepare"))
    write_checksums(args, result.path)
    fields = {"path": str(result.path), "source_bytes": result.bytes, "samples": result.samples, "written": True}
    fields |= {"dry_run": False}
    emit(args, fields, [f"{result.path}: {counted(result.samples, 'sample')}"])
    return 0


def _prepare_metadataset(args: argparse.Namespace) -> int:
    from fastpack.webdataset.prepare.metadataset import prepare_metadataset

    result = prepare_metadataset(args.path, dry_run=args.dry_run)
    if not args.dry_run:
        write_checksums(args, *(path for path, n_rows in result.joins.items() if n_rows is not None))
    would = "would write " if args.dry_run else ""
    lines = [
        f"{path}: is there already" if n_rows is None else f"{would}{path}: {counted(n_rows, 'row')}"
        for path, n_rows in result.joins.items()
    ]
    gone = "would be removed" if args.dry_run else "removed"
    lines += [f"{path}: {gone}, of an earlier state" for path in result.removed]
    for warning in result.warnings:
        say(args, f"warning: {warning}")
    fields = {"path": args.path, "joins": result.joins, "removed": result.removed, "warnings": result.warnings}
    fields["dry_run"] = args.dry_run
    emit(args, fields, lines or [f"{args.path}: no joins, nothing to prepare"])
    return 0


def _prepare_folder(args: argparse.Namespace) -> int:
    from fastpack.webdataset.prepare.prepare_webdataset import prepare_webdataset, rebuild_indexes

    _check_usage(args)
    common: dict[str, Any] = {
        "num_workers": args.num_workers,
        "resume": args.resume,
        "sample_tables": not args.no_sample_tables,
        "compat": args.compat,
    }
    if args.tar_index_only:
        result = rebuild_indexes(args.path, progress=progress(args, "prepare"), **common)
        write_checksums(args, *result.paths)
        report(args, result)
        return 0
    assistant = _assistant(args)
    if assistant and not assistant.may_start():
        return 0
    split = _split(args, assistant) if args.rank is None else {}
    define = None if assistant is None or args.skip_dataset_yaml or _is_defined(args) else assistant.define
    walker, plan = None, None
    if is_spread(args):
        from fastpack.distributed.prepare_tasks import walker_of

        whole = _plan_parts(args)
        skip = args.skip_bad_shards
        walker, plan = run_spread(args, "prepare", whole, lambda: walker_of(whole, skip_bad_shards=skip)), whole
        if walker is None:
            return 0
    result = prepare_webdataset(
        args.path,
        **split,
        shuffle_tars=args.shuffle_tars,
        exclude=args.exclude,
        sample_type=None if args.skip_dataset_yaml or define else args.sample_type,
        field_map=None if args.skip_dataset_yaml else args.field_map,
        dataset_yaml_name=args.dataset_yaml_name,
        force_overwrite=args.force_overwrite or assistant is not None,
        walk_all=args.walk_all,
        skip_bad_shards=args.skip_bad_shards,
        media=_media_filter(args) if _wants_media(args) else None,
        dry_run=args.dry_run,
        progress=progress(args, "prepare"),
        walker=walker,
        define=define,
        **common,
    )
    report(args, result)
    if plan is not None:
        clear(args, plan)
    if assistant and define:
        assistant.finish(result)
    if result.written:
        write_checksums(args, *result.paths)
    return 0


def _plan_parts(args: argparse.Namespace) -> Plan:
    from fastpack.distributed.prepare_tasks import plan_walk

    return plan_walk(
        args.path,
        exclude=args.exclude,
        sample_tables=not args.no_sample_tables,
        walk_all=args.walk_all,
        media=_media_filter(args) if _wants_media(args) else None,
        force_overwrite=args.force_overwrite,
        bytes_per_task=args.part_bytes,
        folder=args.parts_folder,
    )


def _wants_media(args: argparse.Namespace) -> bool:
    return any(vars(args)[f"media_metadata_by_{way}"] not in (None, False) for way in ("glob", "header", "extension"))


def _check_usage(args: argparse.Namespace) -> None:
    from fastpack.webdataset.prepare.dataset_yaml import check_definition

    if wrong := misuse(args, ("--dry-run", "--resume", "--tar-index-only", "--num-workers")):
        raise UsageError(wrong)
    if args.fix_duplicates:
        raise UsageError("fastpack changes no tar in place: `fastpack fix-duplicates DIR NEWDIR` writes renamed copies")
    if _wants_media(args):
        _media_filter(args)
        if args.tar_index_only:
            raise UsageError("metadata of media does not go with --tar-index-only: use prepare-media")
    if args.tar_index_only:
        if given := [name for name in ("--exclude", "--skip-bad-shards", "--dry-run") if getattr(args, _dest(name))]:
            raise UsageError(f"--tar-index-only keeps the list of shards: it does not go with {', '.join(given)}")
        return
    ways = (args.split_ratio is not None) + bool(args.split_parts) + bool(args.split_glob)
    if ways > 1:
        raise UsageError("choose one of --split-ratio, --split-parts and --split-glob")
    if not ways and not _asks(args) and args.rank is None:
        raise UsageError("without questions, --split-ratio, --split-parts or --split-glob is needed")
    if not args.skip_dataset_yaml:
        try:
            check_definition(args.sample_type, args.field_map)
        except ValueError as error:
            raise UsageError(str(error)) from None


def _dest(option: str) -> str:
    return option[2:].replace("-", "_")


def _asks(args: argparse.Namespace) -> bool:
    return not (args.non_interactive or args.json or args.dry_run or is_spread(args))


def _is_defined(args: argparse.Namespace) -> bool:
    from fastpack.webdataset.prepare.dataset_yaml import CRUDE

    return args.sample_type is not None and (args.field_map is not None or args.sample_type == CRUDE)


def _assistant(args: argparse.Namespace) -> Any:
    """Who asks for what the options do not say; None if nothing is to be asked."""
    if not _asks(args):
        return None
    from fastpack.cli.prepare_assistant import Assistant

    return Assistant(args)


def _split(args: argparse.Namespace, assistant: Any) -> dict[str, Any]:
    from fastpack.webdataset.prepare.splits import check_ratio

    if args.split_parts:
        return {"split_parts": [_pair("--split-parts", text) for text in args.split_parts]}
    if args.split_glob:
        return {"split_globs": [_pair("--split-glob", text) for text in args.split_glob]}
    ratio = (args.split_ratio if args.split_ratio is not None else assistant.ask_ratio()).split(",")
    try:
        check_ratio(ratio)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return {"split_ratio": ratio}


def _pair(option: str, text: str) -> tuple[str, str]:
    name, colon, pattern = text.partition(":")
    if not (name and colon and pattern):
        raise UsageError(f"{option} wants NAME:PATTERN, not {text!r}")
    return name, pattern
