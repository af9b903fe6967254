"""Mutation and execution of inputs, and the checks that all fuzz targets share.

A target writes bytes to a file, reads it, and compares the result with that of an independent reader: either both
accept the bytes with equal values, or ours raises a documented error with the file name and an offset inside the
file. `Target.run` adds the checks for all targets: no other exception, no excessive memory, no hang.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from fastpack.errors import FormatError

GOLDEN = Path(__file__).parents[2] / "golden"
CORPUS = Path(__file__).parent / "corpus"
MAX_SECONDS = 20  # per input of some kilobytes
# bytes of memory per input, in addition to twice its size; includes the imports of NumPy and PyYAML
MAX_GROWTH = 64 << 20

# Replacements of length fields and counters.
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 12, 127, 128, 255, 256, 511, 512, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32)
NUMBERS += (2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 12)
DECIMALS = (b"-1", b"0", b"00", b"4294967296", b"9223372036854775808", b"1" * 30, b"1e999", b"1_0", b"\xd9\xa1", b"")


class Edit(NamedTuple):
    """One change: its type, its place (65536 is the end), and a value whose meaning depends on the type."""

    kind: int
    place: int
    value: int


class Hang(BaseException):
    """An input took too long."""


@dataclass(frozen=True)
class Target:
    """A reader under test.

    seeds: small valid inputs. check: checks the behaviour for the bytes, in a given folder; returns whether they were
    accepted. tokens: strings to insert into inputs of a text format. trace: functions of the Python implementation, as
    (holder, name), whose branches guide a coverage-guided fuzzer.
    """

    name: str
    seeds: Callable[[], list[bytes]]
    check: Callable[[bytes, Path], bool]
    tokens: tuple[bytes, ...] = ()
    trace: tuple[tuple[Any, str], ...] = ()
    max_bytes: int = 8192

    def run(self, data: bytes, folder: Path) -> bool:
        """Check one input with limits on time and memory; return whether it was accepted."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with warnings.catch_warnings(), _time_limit():
            warnings.simplefilter("ignore")
            accepted = self.check(data, folder)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        assert grown <= MAX_GROWTH + 2 * len(data), f"{grown} bytes of memory for an input of {len(data)} bytes"
        return accepted

    def corpus(self) -> list[bytes]:
        """Return the seeds and the inputs that failed before."""
        return self.seeds() + [path.read_bytes() for path in sorted((CORPUS / self.name).glob("*"))]

    def mutant(self, seeds: Sequence[bytes], edits: Sequence[Edit], first: int = 0) -> bytes:
        """Return a seed with these changes."""
        data = seeds[first % len(seeds)]
        for edit in edits:
            data = _changed(data, edit, seeds, self.tokens)[: self.max_bytes]
        return data


@contextmanager
def _time_limit() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang(f"no answer in {MAX_SECONDS} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@contextmanager
def working_folder() -> Iterator[Path]:
    """Yield a temporary folder, in memory if possible, because each input is written to a file."""
    folder = tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def written(path: Path, data: bytes) -> Path:
    """Write a new file; an old file of this name that is still mapped keeps its contents."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path


def refused(error: Exception, path: Path, n_bytes: int) -> bool:
    """Assert that the error contains the file name and that its offset, if any, is inside the file; return False."""
    assert str(path) in str(error) or path.name in str(error), repr(error)
    if isinstance(error, FormatError):
        assert 0 <= error.offset <= n_bytes, (error.offset, n_bytes)
    return False


def _changed(data: bytes, edit: Edit, seeds: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    kind, place, value = edit
    at = place * (len(data) + 1) // 65536
    if tokens and kind % 2:
        return _changed_text(data, at, value, tokens)
    byte = data[at : at + 1] or b"\0"
    number = NUMBERS[value % len(NUMBERS)]
    other = seeds[value % len(seeds)]
    run = 1 + value % 40
    changes: tuple[Callable[[], bytes], ...] = (
        lambda: data[:at] + bytes([byte[0] ^ 1 << value % 8]) + data[at + 1 :],
        lambda: data[:at] + bytes([value % 256]) + data[at + 1 :],
        lambda: data[:at],
        lambda: data[:at] + data[at + run :],
        lambda: data[:at] + data[at : at + run] + data[at:],
        lambda: data[:at] + (b"\0", b"\xff")[value % 2] * run + data[at + run :],
        lambda: data[:at] + number.to_bytes(9, "little")[: 1 << value // 64 % 4] + data[at + (1 << value // 64 % 4) :],
        lambda: data[:at] + number.to_bytes(9, "big")[-(1 << value // 64 % 4) :] + data[at + (1 << value // 64 % 4) :],
        lambda: data[:at] + bytes([(byte[0] + (1, 255)[value % 2]) % 256]) + data[at + 1 :],
        lambda: data[:at] + other[value // 256 % (len(other) + 1) :],
        lambda: data[:at] + data[value // 256 % (len(data) + 1) :][:run] + data[at + run :],
    )
    return changes[kind // 2 % len(changes)]()


def _changed_text(data: bytes, at: int, value: int, tokens: Sequence[bytes]) -> bytes:
    """Insert a token, replace text with it, or replace a decimal number."""
    token, run = tokens[value % len(tokens)], value // 256 % 12
    if value // 4096 % 4:
        return data[:at] + token + data[at + run :]
    digits = [i for i in range(at, len(data)) if 48 <= data[i] < 58]
    if not digits:
        return data[:at] + token * (1 + run) + data[at:]
    end = digits[0]
    while end < len(data) and 48 <= data[end] < 58:
        end += 1
    return data[: digits[0]] + DECIMALS[value // 16 % len(DECIMALS)] + data[end:]


def structured(seed: bytes, step: int = 1) -> Iterator[bytes]:
    """Yield `seed` with every byte changed, deleted and doubled, every prefix, and numbers in place of every word."""
    for at in range(0, len(seed), step):
        byte = seed[at]
        for other in {0, 255, byte ^ 1, byte ^ 128, (byte + 1) % 256, (byte - 1) % 256} - {byte}:
            yield seed[:at] + bytes([other]) + seed[at + 1 :]
        yield seed[:at] + seed[at + 1 :]
        yield seed[: at + 1] + seed[at:]
        yield seed[:at]
    for at in range(0, max(0, len(seed) - 3), 4 * step):
        for number in NUMBERS:
            yield seed[:at] + number.to_bytes(9, "little")[:8] + seed[at + 8 :]
            yield seed[:at] + (number % 2**32).to_bytes(4, "big") + seed[at + 4 :]


def random_edits(source: random.Random) -> list[Edit]:
    return [
        Edit(source.randrange(64), source.randrange(65536), source.getrandbits(30))
        for _ in range(1 + min(int(source.expovariate(0.7)), 12))
    ]
