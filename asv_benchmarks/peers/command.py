"""What the scripts of this folder share: options, the folder of a run, the page and the file of results."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from markdown_tables import markdown, write_between

from peers.processes import make_peer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results.json"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fastpack"


def make_parser(
    doc: str | None, environment: str | None, disk: str, *, rounds: int = 3, only: bool = True
) -> argparse.ArgumentParser:
    """Return a parser with the options of all comparisons.

    environment: the name of the peer's virtual environment, if there is one for all rows. disk: how large the inputs
    are. only: whether rows can be selected by their titles.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if environment is not None:
        venv = CACHE / environment
        parser.add_argument("--peer-python", metavar="PATH", help="a Python with the peers (default: create one)")
        parser.add_argument("--venv", type=Path, default=venv, metavar="DIR", help=f"its environment (default: {venv})")
    if only:
        parser.add_argument("--only", default="", metavar="TEXT", help="rows whose title contains this text")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"the best round counts (default: {rounds})")
    parser.add_argument("--folder", type=Path, metavar="DIR", help=f"folder of the inputs, {disk}")
    parser.add_argument("--keep", action="store_true", help="keep the folder of the run")
    parser.add_argument("--write", action="store_true", help="write the table to the page with its markers")
    return parser


def find_python(args: argparse.Namespace, requirements: Sequence[str], *, torch: bool = True) -> str:
    """Return the Python of the peer; create its environment on the first run."""
    return args.peer_python or str(make_peer(args.venv, requirements, torch=torch))


@contextlib.contextmanager
def run_folder(args: argparse.Namespace) -> Iterator[Path]:
    """Yield a new folder, which is removed at the end unless `--keep`."""
    folder = Path(tempfile.mkdtemp(prefix="fastpack-peers-", dir=args.folder))
    try:
        yield folder
    finally:
        if args.keep:
            print(folder, file=sys.stderr)
        else:
            shutil.rmtree(folder)


def machine() -> str:
    """Return the processor, the number of cores, and the version of Python."""
    return f"{processor()}, {os.cpu_count()} cores; Python {platform.python_version()}"


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def publish(
    args: argparse.Namespace,
    name: str,
    header: Sequence[str],
    rows: list[list[str]],
    footer: str,
    results: dict[str, Any] | None = None,
) -> None:
    """Print the table; with `args.write`, write it between the markers `peers:name`, and `results` to results.json."""
    text = markdown([list(header), ["---"] * len(header), *rows], footer)
    print(text)
    if args.write:
        start, end = f"<!-- peers:{name} -->", f"<!-- /peers:{name} -->"
        write_between(page_of(start), text, start, end)
        if results is not None:
            found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            found[name] = {"conditions": footer, **results}
            RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def page_of(marker: str) -> Path:
    """Return the page that contains the marker."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = [page for page in pages if marker in page.read_text(encoding="utf-8")]
    if len(found) != 1:
        raise ValueError(f"{marker} is in {len(found)} pages, expected one: {', '.join(map(str, found)) or 'none'}")
    return found[0]
