"""The process of the command line: what is done only because the process ends after one command."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from typing import NoReturn

from fastpack.cli.command_line import main

_YOUNG_OBJECTS = 100_000  # between collections of garbage: the imports of a command would start twenty of them


def run() -> NoReturn:
    """Run the command line of the process, and end the process with its exit code.

    The objects of the command are not freed one by one, which takes 20 to 60 ms. Exit functions run, as at any exit.
    """
    gc.set_threshold(_YOUNG_OBJECTS)
    code = main()
    if threading.active_count() > 1:  # Python waits for the other threads
        sys.exit(code)
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(code)  # Python reports the stream
    os._exit(code)
