"""Options of `fastpack prepare` and `fastpack prepare-media`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from fastpack.cli.distributed_options import add_distributed_options
from fastpack.cli.options import add_checksum_option, add_dry_run_option

if TYPE_CHECKING:
    from fastpack.webdataset.preparation.media import MediaFilter


class UsageError(ValueError):
    """Conflicting options or an invalid answer: exit code 2."""


def add_option(group: Any, name: str, **settings: Any) -> None:
    """Add an option in both spellings."""
    group.add_argument(name, *([name[:2] + name[2:].replace("-", "_")] if "-" in name[2:] else []), **settings)


def add_split_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("shards and splits")
    add_option(group, "--split-ratio", metavar="A,B,C", help="shards for train, val and test, such as 8,1,1")
    add_option(
        group,
        "--split-parts",
        metavar="NAME:RE",
        action="append",
        default=[],
        help="shards of a split: a regular expression that matches the start of their paths (may be repeated)",
    )
    add_option(
        group,
        "--split-glob",
        metavar="NAME:GLOB",
        action="append",
        default=[],
        help="shards of a split: a glob of their whole paths, ** also matches slashes (may be repeated)",
    )
    add_option(group, "--shuffle-tars", action="store_true", help="shuffle the shards before they are split by ratio")
    add_option(group, "--exclude", metavar="RE", help="leave out shards in whose path this regular expression is found")
    add_option(
        group,
        "--compat",
        choices=("energon",),
        help="split exactly as Energon 7.4.1, even where it loses shards, and keep its counts",
    )


def add_definition_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("dataset.yaml")
    add_option(
        group, "--sample-type", metavar="CLASS", help="sample class, such as CaptioningSample or CrudeWebdataset"
    )
    add_option(
        group,
        "--field-map",
        metavar="JSON",
        help='its stored fields, such as {"image": "jpg", "caption": "txt"}',
    )
    add_option(group, "--skip-dataset-yaml", action="store_true", help="do not write dataset.yaml")
    add_option(
        group,
        "--dataset-yaml-name",
        metavar="NAME",
        default="dataset.yaml",
        help="name of the file",
    )


def add_media_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("media metadata").add_mutually_exclusive_group()
    add_option(
        group, "--media-metadata-by-glob", metavar="PAT,...", help="of fields whose names match, such as '*.jpg'"
    )
    add_option(
        group, "--media-metadata-by-header", action="store_true", help="of fields that start like a media format"
    )
    add_option(group, "--media-metadata-by-extension", action="store_true", help="of fields with a known extension")


def media_filter_of(args: argparse.Namespace) -> MediaFilter:
    from fastpack.webdataset.preparation.media import media_filter

    glob, header, extension = (getattr(args, f"media_metadata_by_{way}") for way in ("glob", "header", "extension"))
    try:
        return media_filter(glob, header=header, extension=extension)
    except ValueError as error:
        raise UsageError(str(error)) from None


def add_execution_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("execution")
    add_option(group, "--non-interactive", action="store_true", help="do not ask questions")
    add_option(group, "--force-overwrite", action="store_true", help="prepare again what has already been prepared")
    add_option(group, "--resume", action="store_true", help="continue a run that was interrupted or killed")
    add_option(group, "--walk-all", action="store_true", help="also walk shards that did not change since the last run")
    add_option(group, "--num-workers", type=int, metavar="N", help="threads (default: one per processor, at most 16)")
    add_option(
        group, "--skip-bad-shards", action="store_true", help="leave damaged and empty shards out, with a warning"
    )
    add_option(
        group,
        "--no-sample-tables",
        action="store_true",
        help="leave samples out of index.sqlite: lookup by key needs them, training does not",
    )
    add_option(group, "--tar-index-only", action="store_true", help="only rewrite the indexes of a prepared dataset")
    add_option(group, "--tmp-path", metavar="DIR", help="accepted for compatibility and ignored")
    add_option(group, "--fix-duplicates", action="store_true", help=argparse.SUPPRESS)
    group.add_argument("--progress", dest="no_progress", action="store_false", help="show progress (the default)")
    add_dry_run_option(parser)
    add_checksum_option(parser)
    add_distributed_options(parser)


def wants_media(args: argparse.Namespace) -> bool:
    return any(vars(args)[f"media_metadata_by_{way}"] not in (None, False) for way in ("glob", "header", "extension"))
