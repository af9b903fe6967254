"""What the commands share: common options, results on stdout, progress on stderr."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fastpack.cli import STDOUT
from fastpack.cli.escaping import safe_line, unescaped

if TYPE_CHECKING:
    from fastpack.cli.tables import Table

Commands = Any  # argparse's subparsers action, whose class is private
Progress = Callable[[int, int], None]
SHOWN_AFTER = 0.3  # seconds: a bar that is gone at once only flickers
OUTPUT = "what is written"  # title of a group of options
LOG_EVERY = 10.0  # seconds


def new_command(
    commands: Commands, name: str, *, run: str, help: str, example: str, aliases: tuple[str, ...] = ()
) -> argparse.ArgumentParser:
    """A sub-command that calls `run` ("module:function"); every command has a help line and an example."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        aliases=aliases,
        help=help,
        description=f"{help[0].upper()}{help[1:]}.",
        epilog=f"example: {example}",
    )
    parser.set_defaults(run=run)
    return parser


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """The options every command takes."""
    group = parser.add_argument_group("common options")
    group.add_argument("--json", action="store_true", help="print the result as one JSON object")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress and no messages")
    group.add_argument("--no-progress", "--no_progress", action="store_true", help="no progress bar")
    group.add_argument("--kernels", choices=("numba", "cython", "numpy"), help="backend of the kernels")
    group.add_argument("--debug", action="store_true", help="show the traceback of a failure")


def output_group(parser: argparse.ArgumentParser) -> Any:
    """The group of options about what is written, which several functions add to."""
    for group in parser._action_groups:
        if group.title == OUTPUT:
            return group
    return parser.add_argument_group(OUTPUT)


def add_policy_option(parser: argparse.ArgumentParser, default: str = "error") -> None:
    """`--file-existence-policy`, in both spellings, and `--force`."""
    output_group(parser).add_argument(
        "--file-existence-policy",
        "--file_existence_policy",
        choices=("skip", "error", "override"),
        default=default,
        help=f"what to do when the output exists (default: {default})",
    )
    output_group(parser).add_argument(
        "--force", dest="file_existence_policy", action="store_const", const="override", help="replace the output"
    )


def add_dry_run_option(parser: argparse.ArgumentParser) -> None:
    """`--dry-run`: say what would be written, and write nothing."""
    output_group(parser).add_argument(
        "--dry-run", "--dry_run", action="store_true", help="say what would be written, write nothing"
    )


def add_eos_option(parser: argparse.ArgumentParser) -> None:
    """`--eos-token-id`, where it is found out unless given."""
    parser.add_argument(
        "--eos-token-id",
        "--eos_token_id",
        type=int,
        metavar="ID",
        help="the token that ends every document (default: what documents or files end in)",
    )


def add_webdataset_options(group: argparse._ActionsContainer, splits: str, *aliases: str) -> None:
    """`--split-parts`, `--split-config` and `--dataset-config`, as Energon's commands have them.

    splits: the help of the first one; aliases: further names of it.
    """
    group.add_argument(
        *_both("--split-parts", *aliases), dest="split_parts", type=_names, metavar="NAME,...", help=splits
    )
    group.add_argument(
        "--split-config", "--split_config", default="split.yaml", metavar="NAME", help="another split file of .nv-meta"
    )
    group.add_argument(
        "--dataset-config",
        "--dataset_config",
        default="dataset.yaml",
        metavar="NAME",
        help="another definition of samples in .nv-meta (default: dataset.yaml)",
    )


def _both(*options: str) -> list[str]:
    """Each option in both spellings."""
    return [name for option in options for name in (option, f"--{option[2:].replace('-', '_')}")]


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r}: names of splits are needed, such as train,val")
    return names


def add_dtype_option(parser: argparse.ArgumentParser) -> None:
    """`--dtype`, of shards that do not say it themselves."""
    parser.add_argument(
        "--dtype", help="of the tokens in .bin shards (default: what metadata beside them says, else their sizes)"
    )


def add_checksum_option(parser: argparse.ArgumentParser) -> None:
    """`--write-checksums`: see `write_checksums`."""
    output_group(parser).add_argument(
        "--write-checksums",
        "--write_checksums",
        action="store_true",
        help="write checksums beside what is written (FILE.fpsum), which `fastpack verify` compares; extra checksum",
    )


def check_checksum_option(args: argparse.Namespace) -> None:
    """MissingExtra at the start, and not when all is done, where checksums are wanted and cannot be written."""
    if args.write_checksums:
        from fastpack.io.checksums import load_hash

        load_hash()


def write_checksums(args: argparse.Namespace, *paths: str | os.PathLike[str]) -> None:
    """Write the checksums of files that the command has written, or found as they are to be, if they are wanted."""
    if args.write_checksums:
        from fastpack.io.checksums import are_current, write_checksums

        for path in paths:
            if not are_current(path):
                write_checksums(path, progress=progress(args, "checksums"))


def emit(
    args: argparse.Namespace,
    result: Mapping[str, Any],
    text: str | Iterable[str],
    parts: Callable[[], Iterable[Table | str]] | None = None,
) -> None:
    """Print a command's result on stdout: `result` with --json, else `text` (nothing with --quiet).

    text: lines, in each of which a line end is part of a name, and is escaped; or a whole text.
    parts: the same as tables and lines, for a terminal where rich is installed.
    """
    end_progress()
    if args.json:
        put(_json(result))
    elif not args.quiet:
        from fastpack.cli.tables import show, takes_tables

        if parts is not None and takes_tables():
            show(parts())
        else:
            put(text if isinstance(text, str) else "\n".join(map(safe_line, text)))


def _json(result: Mapping[str, Any]) -> str:
    """One line of JSON; what could move a terminal's cursor, or cannot be written to stdout, stands there escaped."""
    import json

    text = json.dumps(result, ensure_ascii=not (sys.stdout.encoding or "utf-8").lower().startswith("utf"))
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


def put(text: str, *, raw: bool = False) -> None:
    """A line on stdout; an OSError names it. raw: its control characters are fastpack's own."""
    try:
        print(text, file=unescaped(sys.stdout) if raw else sys.stdout)
    except OSError as error:
        error.filename = STDOUT
        raise


def say(args: argparse.Namespace, text: str) -> None:
    """A message on stderr, unless --quiet."""
    if not args.quiet:
        for bar in _bars:
            bar.clear()
        print(safe_line(text), file=sys.stderr)


def progress(
    args: argparse.Namespace, label: str | Callable[[], str], unit: str = "B", *, at_once: bool = False
) -> Progress | None:
    """A callback (done, total), in bytes or `unit`: a bar on a terminal, else a line per 10 s; None if none is wanted.

    label: may change on the way. It may start over, for another file. at_once: show a bar before anything is done. What
    is left of a bar goes away by `end_progress`, which `main` calls.
    """
    if args.quiet or args.no_progress:
        return None

    def text() -> str:
        return safe_line(label() if callable(label) else label)

    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        bar = _Bar(text, unit)
        _bars.append(bar)
        if at_once:
            bar.start(delay=0)
        return bar
    return _LogLines(text, unit)


def end_progress() -> None:
    """Take the bars off the terminal: the command is done, or has failed."""
    while _bars:
        _bars.pop().close()


class _Bar:
    """A bar on the terminal that stands only while there is something to wait for."""

    def __init__(self, label: Callable[[], str], unit: str) -> None:
        self._label = label
        self._started = time.monotonic()
        self._settings: dict[str, Any] = {"unit": unit, "unit_scale": True}
        if unit == "B":
            self._settings["unit_divisor"] = 1024
        else:
            self._settings["unit"] = f" {unit}"
        self._bar: Any = None

    def start(self, delay: float = SHOWN_AFTER) -> None:
        """Put the bar on the terminal, after a delay in seconds."""
        from tqdm import tqdm

        tqdm.monitor_interval = 0  # its thread would be there when workers are forked
        self._bar = tqdm(**self._settings, leave=False, delay=delay, dynamic_ncols=True, file=unescaped(sys.stderr))
        self._bar.set_description_str(self._label())  # no total yet: tqdm adds the colon

    def count(self, documents: int, tokens: int) -> None:
        """Show how many documents and tokens a second were packed."""
        if self._bar is not None:
            self._bar.set_postfix_str(_rates(documents, tokens, time.monotonic() - self._started), refresh=False)

    def __call__(self, done: int, total: int) -> None:
        if self._bar is None and done < total:
            self.start()
        if self._bar is not None:
            self._bar.set_description(self._label(), refresh=False)
            self._bar.total = total
            self._bar.update(done - self._bar.n)
            if done >= total:
                self.close()

    def clear(self) -> None:
        if self._bar is not None:
            self._bar.clear()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class _LogLines:
    """A line per 10 seconds."""

    def __init__(self, label: Callable[[], str], unit: str) -> None:
        self._label, self._unit = label, unit
        self._started = self._last = time.monotonic()
        self._done = 0
        self._packed: tuple[int, int] | None = None

    def count(self, documents: int, tokens: int) -> None:
        """Take how many documents and tokens were packed."""
        self._packed = documents, tokens

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done < self._done:
            self._started = now
        self._done = done
        if now - self._last < LOG_EVERY:
            return
        self._last = now
        rate = done / max(now - self._started, 1e-9)
        left = f"{(total - done) / rate:.0f} s left" if rate else "ETA unknown"
        speed = f"{rate / 2**20:.1f} MiB/s" if self._unit == "B" else f"{rate:,.1f} {self._unit}/s"
        if self._packed is not None:
            speed += f", {_rates(*self._packed, now - self._started)}"
        print(f"{self._label()}: {done / max(total, 1):.0%}, {speed}, {left}", file=sys.stderr)


def _rates(documents: int, tokens: int, seconds: float) -> str:
    return f"{documents / max(seconds, 1e-9):,.0f} documents/s, {tokens / max(seconds, 1e-9):,.0f} tokens/s"


_bars: list[_Bar] = []
