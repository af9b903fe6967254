"""`main()` parses the arguments, runs one command, and turns a failure into one line and an exit code.

Exit codes: 0 success (also "skipped, exists"), 1 failure, 2 usage, 3 `verify` found damage, 130 interrupted,
141 broken pipe.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from fastpack.cli.failures import FLAGS, UsageError, describe, describe_stdout_failure
from fastpack.cli.options import check_checksum_option
from fastpack.cli.output import flush
from fastpack.cli.progress import end_progress
from fastpack.cli.signals import handle_signals, restore_signals
from fastpack.cli.streams import discard_stdout, escaping_output, open_closed_streams
from fastpack.escape import escape_line


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; return its exit code (help, and bad usage, end by SystemExit with 0 and 2)."""
    words = list(sys.argv[1:] if argv is None else argv)
    open_closed_streams()
    handle_signals()
    with escaping_output():
        return _run_and_report(words)


def _run_and_report(words: list[str]) -> int:
    """Run a command line; return the exit code, also of a failure, whose message is printed."""
    try:
        try:
            return _run(words)
        finally:
            flush()
    except KeyboardInterrupt as stopped:
        _print_notes(stopped)
        return 130
    except SystemExit as stopped:
        _print_notes(stopped)
        raise
    except BrokenPipeError:
        discard_stdout()
        return 141
    except Exception as error:
        text = describe_stdout_failure(error) or describe(error)
        is_usage = isinstance(error, UsageError)
        if "--debug" in words and not is_usage:
            raise
        with contextlib.suppress(OSError):  # a full stderr: the exit code reports the failure
            print(escape_line(f"fastpack: error: {text}"), file=sys.stderr)
        return 2 if is_usage else 1
    finally:
        restore_signals()


def _print_notes(stopped: BaseException) -> None:
    """Print how to resume an interrupted command."""
    for note in getattr(stopped, "__notes__", ()):
        with contextlib.suppress(OSError):
            print(f"fastpack: {note}", file=sys.stderr)


def _run(words: list[str]) -> int:
    """Parse the words, and run the command they name; return its exit code."""
    from fastpack.cli.parser import build_parser, normal
    from fastpack.errors import vocabulary

    # NumPy's OpenBLAS starts one thread per core, which spin: half of the 0.28 s of CPU time of importing NumPy.
    # No command multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    words = normal(words)
    parser = build_parser(words[0] if words else "")
    args = parser.parse_args(words)
    if not args.run:
        parser.print_help(sys.stderr)
        return 2
    if args.kernels:
        os.environ["FASTPACK_KERNELS"] = args.kernels
    check_checksum_option(args)
    try:
        with vocabulary(FLAGS):
            code: int = args.run(args)
        return code
    finally:
        end_progress()
