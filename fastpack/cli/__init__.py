"""The command line: `main()` parses, runs one command, and turns every failure into one line and an exit code.

Exit codes: 0 done (also "skipped, exists"), 1 the data or the job failed, 2 usage, 3 `verify` found damage,
130 interrupted, 141 broken pipe.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; return its exit code (argparse exits with 2 itself on bad usage)."""
    from fastpack.cli.parser import build_parser

    # NumPy's OpenBLAS starts a thread a core that spins for work: half of the 0.28 s of CPU that importing NumPy takes
    # here. No command multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["data"]:  # `modalities data COMMAND` moves here by replacing one word
        words = words[1:]
    parser = build_parser(words[0] if words else "")
    args = parser.parse_args(words)
    if not getattr(args, "run", None):
        parser.print_help(sys.stderr)
        return 2
    if getattr(args, "kernels", None):
        os.environ["FASTPACK_KERNELS"] = args.kernels
    _listen_to_signals()
    try:
        module, function = args.run.split(":")
        code: int = getattr(importlib.import_module(module), function)(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes stdout once more
        return 141
    except Exception as error:
        if args.debug:
            raise
        print(f"fastpack: error: {describe(error)}", file=sys.stderr)
        return 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if signal.getsignal(signal.SIGINT) is _end:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def describe(error: BaseException) -> str:
    """One line that says what went wrong, for a person."""
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, (ValueError, OSError, RuntimeError, ImportError)):
        return text
    return f"internal error: {type(error).__name__}: {text} (run again with --debug and report it)"


# Where Python loses an exception and goes on: finalisers, and imports (importlib's callback on a module lock that dies;
# a parser that is interrupted starts over).
_SWALLOWING = frozenset({"__del__", "_find_and_load"})
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
        if frame.f_code.co_name in _SWALLOWING:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            return
        frame = frame.f_back
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    if _asked_by == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + _asked_by)
