"""What all fuzz targets share: how inputs are changed, how one is run, and what must hold whatever it is.

A target hands bytes to a reader as a file and asserts that the reader says what an independent one does: either both
accept them and give the same values, or ours refuses them with a documented error that names the file and a place
inside it. `Target.run` adds what holds for all of them: no other exception, no memory out of proportion, no hang.
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
MAX_SECONDS = 20  # for one input of some kilobytes
MAX_GROWTH = 64 << 20  # bytes of memory for one input, beyond twice its size; NumPy's and PyYAML's first use included

# What length fields and counters are replaced with.
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 12, 127, 128, 255, 256, 511, 512, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32)
NUMBERS += (2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 12)
DECIMALS = (b"-1", b"0", b"00", b"4294967296", b"9223372036854775808", b"1" * 30, b"1e999", b"1_0", b"\xd9\xa1", b"")


class Edit(NamedTuple):
    """One change: which kind, where (65536 is the end), and a number the kind makes what it wants of."""

    kind: int
    place: int
    value: int


class Hang(BaseException):
    """One input took too long."""


@dataclass(frozen=True)
class Target:
    """A reader under test.

    seeds: small valid inputs. check: asserts what must hold for the bytes, with a folder of its own to write them to,
    and says whether they were accepted. tokens: what inputs of a textual format are spliced with. trace: functions of
    the twins, as (holder, name), by whose branches a coverage-guided fuzzer finds its way.
    """

    name: str
    seeds: Callable[[], list[bytes]]
    check: Callable[[bytes, Path], bool]
    tokens: tuple[bytes, ...] = ()
    trace: tuple[tuple[Any, str], ...] = ()
    max_bytes: int = 8192

    def run(self, data: bytes, folder: Path) -> bool:
        """Check one input, within bounds of time and memory."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with warnings.catch_warnings(), _time_limit():
            warnings.simplefilter("ignore")
            accepted = self.check(data, folder)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        assert grown <= MAX_GROWTH + 2 * len(data), f"{grown} bytes of memory for an input of {len(data)} bytes"
        return accepted

    def corpus(self) -> list[bytes]:
        """The seeds, and the inputs that once were found to be answered wrongly."""
        return self.seeds() + [path.read_bytes() for path in sorted((CORPUS / self.name).glob("*"))]

    def mutant(self, seeds: Sequence[bytes], edits: Sequence[Edit], first: int = 0) -> bytes:
        """A seed with these changes."""
        data = seeds[first % len(seeds)]
        for edit in edits:
            data = _changed(data, edit, seeds, self.tokens)[: self.max_bytes]
        return data


@contextmanager
def _time_limit() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
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
    """A folder in memory, where there is one: files are written for each input."""
    folder = tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def written(path: Path, data: bytes) -> Path:
    """A new file of these bytes; one of that name that is still mapped keeps its own."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path


def refused(error: Exception, path: Path, n_bytes: int) -> bool:
    """False, always; asserts that the error names the file and, where it has an offset, a place inside it."""
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
    """A token put in or in place of a word, or a decimal number in place of one."""
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
    """Every byte changed, dropped and doubled, every prefix, and numbers in place of every word."""
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
