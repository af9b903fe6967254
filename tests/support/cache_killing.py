"""Kill processes at random while they use one cache, or upload. A separate script, because it forks.

    python cache_killing.py cache SEED SECONDS NAME=SEED:BYTES ...
    python cache_killing.py upload SEED TIMES URL BYTES

`content` gives the bytes of an object. The exit code is 1 if a process saw wrong bytes or an error.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from fastpack.io import AtomicFile, map_bytes, open_reader
from fastpack.io import remote_files as objects
from fastpack.io import stores as remote

BLOCK = 1 << 16
UPLOAD_PART = 5 << 20  # the minimum of S3
PROCESSES = 4


def content(seed: int, n_bytes: int) -> bytes:
    return np.random.default_rng(seed).bytes(n_bytes)


def main(words: list[str]) -> None:
    kind, seed, amount, *rest = words
    objects.BLOCK, objects.SMALL_BLOCK, remote.PART_BYTES = BLOCK, BLOCK, UPLOAD_PART
    rng = random.Random(int(seed))
    if kind == "upload":
        data = content(int(seed), int(rest[1]))
        for _ in range(int(amount)):
            _killed([partial(upload, rest[0], data)], rng)
        return
    known = {url: content(*map(int, about.split(":"))) for url, _, about in (word.rpartition("=") for word in rest)}
    end = time.monotonic() + float(amount)
    while time.monotonic() < end:
        _killed([partial(_use, known, rng.random()) for _ in range(PROCESSES)], rng)


def _killed(works: list[Callable[[], None]], rng: random.Random) -> None:
    """Run each function in a process and kill it; exit with 1 if a process fails."""
    started = [_start(work) for work in works]
    for pid in started:
        time.sleep(rng.uniform(0.01, 0.2))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if status not in (0, signal.SIGKILL):
            sys.exit(1)


def _start(work: Callable[[], None]) -> int:
    pid = os.fork()  # no obstore threads run yet
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        os._exit(code)


def _use(known: dict[str, bytes], seed: float) -> None:
    rng = random.Random(seed)
    while True:
        url = rng.choice(list(known))
        expected = known[url]
        if rng.random() < 0.2:
            found = map_bytes(url).tobytes()
        else:
            start = rng.randrange(len(expected))
            out = np.empty(rng.randrange(1, 4 * BLOCK), np.uint8)
            found = out[: open_reader(url).read_into(out, start)].tobytes()
            expected = expected[start : start + len(out)]
        if found != expected:
            raise ValueError(f"wrong bytes of {url}")


def upload(url: str, data: bytes) -> None:
    with AtomicFile(url) as file:
        file.write(data)


if __name__ == "__main__":
    main(sys.argv[1:])
