"""The raw index of a JSONL file compared with `wc -l`, which only counts lines, and with json.loads on each line."""

from __future__ import annotations

import itertools
import json
import os
import resource
import shutil
import tempfile
from pathlib import Path

import numpy as np

from fastpack import create_raw_index, kernels

from .common import CORPUS_SEED, ratio, row

KINDS = ("long", "short", "escaped")
WORDS_PER_LINE = {"long": (300, 560), "short": (4, 9), "escaped": (300, 560)}


def jsonl_block(kind: str, n_bytes: int) -> bytes:
    """Return at least `n_bytes` of JSON lines: long (2 to 4 kB), short (60 bytes), or long with ASCII escapes.

    The words are random letters, of which one in a hundred is not ASCII.
    """
    rng = np.random.default_rng(CORPUS_SEED)
    letters = list("abcdefghijklmnopqrstuvwxyz" * 4 + "é")
    words = ["".join(rng.choice(letters, int(rng.integers(2, 11)))) for _ in range(5000)]
    lines: list[bytes] = []
    done = 0
    while done < n_bytes:
        chosen = rng.integers(0, len(words), int(rng.integers(*WORDS_PER_LINE[kind])))
        document = {"id": len(lines), "text": " ".join(words[i] for i in chosen)}
        lines.append(json.dumps(document, ensure_ascii=kind == "escaped").encode() + b"\n")
        done += len(lines[-1])
    return b"".join(lines)


def cpu_of_this_and_its_children() -> float:
    """Return the CPU time in seconds; a child counts after it was waited for."""
    both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


class RawIndex:
    """One file of each kind; each call writes an index, as for a user."""

    n_bytes = 256 << 20
    block_bytes = 4 << 20
    timeout = 300

    def setup(self, kind: str) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.source = self.folder / "text.jsonl"
        block = jsonl_block(kind, min(self.block_bytes, self.n_bytes))
        with open(self.source, "wb") as file:
            for _ in range(self.n_bytes // len(block)):
                file.write(block)
        self.targets = (self.folder / f"{number}.idx" for number in itertools.count())
        kernels.use("cython")  # the backend of the command line

    def teardown(self, _kind: str) -> None:
        shutil.rmtree(self.folder)


class AgainstWc(RawIndex):
    params = ["long", "short"]
    param_names = ["lines"]

    @row("Raw index without JSON check, written to a file", "x wc -l")
    def track_newline_index(self, _kind: str) -> float:
        def count_lines() -> None:
            silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
            child = os.posix_spawnp("wc", ["wc", "-l", str(self.source)], os.environ, file_actions=silent)
            _, status = os.waitpid(child, 0)
            assert status == 0

        def index() -> None:
            create_raw_index(self.source, next(self.targets), validate=False)

        return ratio(index, count_lines, clock=cpu_of_this_and_its_children)


class AgainstJson(RawIndex):
    params = list(KINDS)
    param_names = ["lines"]
    n_bytes = 32 << 20

    @row("Raw index with JSON check, written to a file", "x json.loads")
    def track_validated_index(self, _kind: str) -> float:
        def parse() -> None:
            with open(self.source, "rb") as file:
                for line in file:
                    json.loads(line)

        def index() -> None:
            create_raw_index(self.source, next(self.targets))

        return ratio(index, parse, rounds=7, clock=cpu_of_this_and_its_children)


class Kernels:
    """One MiB in the CPU cache."""

    params = [list(kernels.BACKENDS), ["long", "short"]]
    param_names = ["backend", "lines"]

    def setup(self, backend: str, kind: str) -> None:
        kernels.use(backend)
        kernels.warm()
        self.data = np.frombuffer(jsonl_block(kind, 1 << 20), np.uint8)
        self.out = np.empty((32_768, 2), np.int64)
        n_rows, _, _ = kernels.index_lines(self.data, 0, 0, self.out)
        self.rows = self.out[:n_rows].copy()
        self.verdict = np.empty(n_rows, np.uint8)

    def time_index_lines(self, _backend: str, _kind: str) -> None:
        kernels.index_lines(self.data, 0, 0, self.out)

    def time_count_newlines(self, _backend: str, _kind: str) -> None:
        kernels.count_newlines(self.data)

    def time_validate_json_rows(self, _backend: str, _kind: str) -> None:
        kernels.validate_json_rows(self.data, self.rows, self.verdict)
