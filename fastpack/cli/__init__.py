"""The command line: `main()` parses, runs one command, and turns every failure into one line and an exit code.

Exit codes: 0 done (also "skipped, exists"), 1 the data or the job failed, 2 usage, 3 `verify` found damage,
130 interrupted, 141 broken pipe.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from fastpack.cli.escaping import escaping_output, safe_line

STDOUT = "standard output"  # the name of what print() could not write to
_SETTINGS = ("special_tokens_in_text", "audit", "engine", "eod_token", "index_path", "jq_pattern", "num_cpus")
FLAGS = {  # what messages call settings
    **{name: f"--{name.replace('_', '-')}" for name in _SETTINGS},
    "call again with resume=True": "run the same command with --resume",
    "Pass file_existence_policy='override'": "Pass --force",
    "Pass force_overwrite=True": "Pass --force-overwrite",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; return its exit code (help, and bad usage, end by SystemExit with 0 and 2)."""
    words = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    _listen_to_signals()
    with escaping_output():
        return _main(words)


def _main(words: list[str]) -> int:
    try:
        try:
            return _run(words)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt as stopped:
        _say_notes(stopped)
        return 130
    except SystemExit as stopped:
        _say_notes(stopped)
        raise
    except BrokenPipeError:
        _discard_stdout()
        return 141
    except Exception as error:
        text = _stdout_failure(error) or describe(error)
        if "--debug" in words:
            raise
        with contextlib.suppress(OSError):  # of a stderr that is full: the exit code says it
            print(safe_line(f"fastpack: error: {text}"), file=sys.stderr)
        return 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if signal.getsignal(signal.SIGINT) is _end:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _say_notes(stopped: BaseException) -> None:
    """How to continue what was interrupted."""
    for note in getattr(stopped, "__notes__", ()):
        with contextlib.suppress(OSError):
            print(f"fastpack: {note}", file=sys.stderr)


def _run(words: list[str]) -> int:
    """Parse the words, and run the command they name; its exit code."""
    from fastpack.cli.parser import build_parser, normal

    # NumPy's OpenBLAS starts a thread a core that spins for work: half of the 0.28 s of CPU that importing NumPy takes
    # here. No command multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    words = normal(words)
    parser = build_parser(words[0] if words else "")
    args = parser.parse_args(words)
    if not args.run:
        parser.print_help(sys.stderr)
        return 2
    if args.kernels:
        os.environ["FASTPACK_KERNELS"] = args.kernels
    module, function = args.run.split(":")
    from fastpack.cli.common import end_progress
    from fastpack.errors import vocabulary

    try:
        with vocabulary(FLAGS):
            code: int = getattr(importlib.import_module(module), function)(args)
        return code
    finally:
        end_progress()


def _open_closed_streams() -> None:
    """Give closed streams a file, which would else be the next one opened: `fastpack index a.jsonl >&- 2>&-`.

    What is written to a closed stdout then fails, as it has to; messages to a closed stderr are lost.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _stdout_failure(error: Exception) -> str:
    """What to say where stdout does not take the results; empty where the error is another one's."""
    if not isinstance(error, OSError) or error.filename not in (None, STDOUT):
        return ""
    try:
        sys.stdout.flush()  # what could not be written is still in its buffer, if it has one
    except OSError:
        _discard_stdout()
    else:
        if error.filename is None:
            return ""
    return f"{STDOUT}: {error.strerror}: the result is not written"


def _discard_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes stdout once more


def describe(error: BaseException) -> str:
    """One line that says what went wrong, for a person."""
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        hint = "; data are read at random and mapped, which a stream cannot be: name a file"
        return f"{error.filename}: {error.strerror}{hint if error.filename == '-' else ''}"
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, (ValueError, OSError, RuntimeError, ImportError)):
        return text
    return f"internal error: {type(error).__name__}: {text} (run again with --debug and report it)"


# Where Python loses an exception and goes on: finalisers, and imports (importlib's callback on a module lock that dies;
# a parser that is interrupted starts over).
_SWALLOWING = frozenset({"__del__", "_find_and_load"})
# Where a signal waits: half a batch cannot be resumed, and what is kept of an interrupted run is being written.
_UNDIVIDED = frozenset({"Packer._append_batch", "Packer._stop", "IndexWriter.suspend"})
_asked_by: int = signal.SIGTERM  # which signal asked the command to end


def _listen_to_signals() -> None:
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGALRM, _end)  # set by _end itself, to try again
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background jobs ignore it
        signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: FrameType | None) -> None:
    """End the command by an exception, so that partial files are removed; again and again until one passes."""
    global _asked_by
    if number != signal.SIGALRM:
        _asked_by = number
    while frame is not None:
        if frame.f_code.co_name in _SWALLOWING or frame.f_code.co_qualname in _UNDIVIDED:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            return
        frame = frame.f_back
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    if _asked_by == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + _asked_by)
