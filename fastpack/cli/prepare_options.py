"""Options of `fastpack prepare` and `fastpack prepare-media`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from fastpack.cli.distributed_options import add_distributed_options
from fastpack.cli.failures import usage_errors
from fastpack.cli.options import add_dry_run_option

if TYPE_CHECKING:
    from fastpack.webdataset.preparation.media import MediaFilter


def add_split_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("shards and splits")
    group.add_argument("--split-ratio", metavar="A,B,C", help="shards for train, val and test, such as 8,1,1")
    group.add_argument(
        "--split-parts",
        metavar="NAME:RE",
        action="append",
        default=[],
        help="shards of a split: a regular expression that matches the start of their paths (may be repeated)",
    )
    group.add_argument(
        "--split-glob",
        metavar="NAME:GLOB",
        action="append",
        default=[],
        help="shards of a split: a glob of their whole paths, ** also matches slashes (may be repeated)",
    )
    group.add_argument("--shuffle-tars", action="store_true", help="shuffle the shards before they are split by ratio")
    group.add_argument("--exclude", metavar="RE", help="exclude shards in whose path this regular expression is found")
    group.add_argument(
        "--compat",
        choices=("energon",),
        help="split exactly as Energon 7.4.1, even where it loses shards, and keep its counts",
    )


def add_definition_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("dataset.yaml")
    group.add_argument(
        "--sample-type", metavar="CLASS", help="sample class, such as CaptioningSample or CrudeWebdataset"
    )
    group.add_argument(
        "--field-map", metavar="JSON", help='its stored fields, such as {"image": "jpg", "caption": "txt"}'
    )
    group.add_argument("--skip-dataset-yaml", action="store_true", help="do not write dataset.yaml")
    group.add_argument("--dataset-yaml-name", metavar="NAME", default="dataset.yaml", help="name of the file")


def add_media_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("media metadata").add_mutually_exclusive_group()
    group.add_argument(
        "--media-metadata-by-glob", metavar="PAT,...", help="of fields whose names match, such as '*.jpg'"
    )
    group.add_argument(
        "--media-metadata-by-header", action="store_true", help="of fields that start like a media format"
    )
    group.add_argument("--media-metadata-by-extension", action="store_true", help="of fields with a known extension")


def media_filter_of(args: argparse.Namespace) -> MediaFilter:
    from fastpack.webdataset.preparation.media import media_filter

    glob, header, extension = _media_options(args)
    with usage_errors():
        return media_filter(glob, header=header, extension=extension)


def wants_media(args: argparse.Namespace) -> bool:
    """Return whether media metadata is to be read."""
    return any(value not in (None, False) for value in _media_options(args))


def _media_options(args: argparse.Namespace) -> list[Any]:
    return [getattr(args, f"media_metadata_by_{way}") for way in ("glob", "header", "extension")]


def add_execution_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("execution")
    group.add_argument("--non-interactive", action="store_true", help="do not ask questions")
    group.add_argument("--force-overwrite", action="store_true", help="prepare again what has already been prepared")
    group.add_argument("--resume", action="store_true", help="continue a run that was interrupted or killed")
    group.add_argument(
        "--walk-all", action="store_true", help="also walk shards that have not changed since the last run"
    )
    group.add_argument("--num-workers", type=int, metavar="N", help="threads (default: one per processor, at most 16)")
    group.add_argument("--skip-bad-shards", action="store_true", help="skip damaged and empty shards, with a warning")
    group.add_argument(
        "--no-sample-tables",
        action="store_true",
        help="write index.sqlite without samples: lookup by key needs them, training does not",
    )
    group.add_argument("--tar-index-only", action="store_true", help="only rewrite the indexes of a prepared dataset")
    group.add_argument("--tmp-path", metavar="DIR", help="accepted for compatibility and ignored")
    group.add_argument("--fix-duplicates", action="store_true", help=argparse.SUPPRESS)
    group.add_argument("--progress", dest="no_progress", action="store_false", help="show progress (the default)")
    add_dry_run_option(parser)
    add_distributed_options(parser)
