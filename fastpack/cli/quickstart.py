"""`fastpack quickstart`: real text on this machine -> index -> pack -> shuffled training batches, with timings."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from fastpack.cli.options import Commands, at_least, new_command
from fastpack.cli.output import emit

if TYPE_CHECKING:
    from pathlib import Path

    from fastpack.datasets.packed_blocks import PackedMemMapDatasetContinuous

EOS_ID = 256  # of the built-in byte tokenizer
SUFFIXES = (".py", ".txt")


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `quickstart`."""
    parser = new_command(
        commands,
        "quickstart",
        run=run_quickstart,
        help="try fastpack on real text of this machine",
        about="Pack real text found on this machine, load it as training batches, and time each stage.",
        example="fastpack quickstart --keep corpus --seq-len 2048 --batch-size 32",
    )
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument(
        "directory",
        nargs="?",
        metavar="DIR",
        help="write the files here and keep them (default: a temporary folder, removed at the end)",
    )
    kept.add_argument("--keep", metavar="DIR", help="the same as DIR")
    parser.add_argument("--seq-len", type=at_least(1), default=2048, help="tokens per sample (2048)")
    parser.add_argument("--batch-size", type=at_least(1), default=32, help="samples per batch (32)")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of loading batches (3)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the shuffle (0)")
    return [parser]


class Stage(NamedTuple):
    """One line of the report; `rate` is in `rate_unit` per second."""

    stage: str
    amount: str
    seconds: float
    rate: float
    rate_unit: str

    def line(self) -> str:
        return f"{self.stage:<8} {self.amount:<44} {self.seconds:7.2f} s {self.rate:10,.1f} {self.rate_unit}"


def run_quickstart(args: argparse.Namespace) -> int:
    """Run all stages in the given folder, or in a temporary one that is removed at the end."""
    import tempfile
    from pathlib import Path

    kept = args.directory or args.keep
    if kept:
        return run_stages(args, Path(kept), kept=True)
    with tempfile.TemporaryDirectory(prefix="fastpack-quickstart-") as folder:
        return run_stages(args, Path(folder), kept=False)


def run_stages(args: argparse.Namespace, folder: Path, kept: bool) -> int:
    """Run all stages in `folder`; print one line each, or one JSON object."""
    corpus, index, packed = (folder / f"stdlib{suffix}" for suffix in (".jsonl", ".idx", ".pbin"))
    stages: list[Stage] = []

    def report(stage: Stage) -> None:
        stages.append(stage)
        if not (args.json or args.quiet):
            print(stage.line(), flush=True)

    report(gather(corpus))
    report(build_index(corpus, index))
    report(pack_corpus(corpus, index, packed))
    feed, ratio = feed_batches(packed, args)
    report(feed)
    paths = (corpus, index, packed)
    n_bytes = sum(path.stat().st_size for path in paths)
    files = {path.suffix[1:]: str(path.resolve()) for path in paths} if kept else None
    result = {"stages": [stage._asdict() for stage in stages], "memcpy_ratio": round(ratio, 3), "bytes": n_bytes}
    place = f"in {folder.resolve()}" if kept else "in a temporary folder, now removed (--keep DIR keeps them)"
    speed = f"batches at {ratio:.2f} x memcpy of the same arrays"
    emit(args, {**result, "files": files}, [f"{speed}; files of {n_bytes / 1e6:.1f} MB {place}"])
    return 0


def gather(target: Path) -> Stage:
    """Write the standard library's sources as JSON lines {"path", "text"}, one document per file."""
    import sysconfig
    from pathlib import Path

    import orjson

    from fastpack.io import AtomicFile

    started, documents = time.perf_counter(), 0
    root = Path(sysconfig.get_paths()["stdlib"])
    with AtomicFile(target) as file:
        for name, text in texts(root):
            file.write(orjson.dumps({"path": name, "text": text}) + b"\n")
            documents += 1
        n_bytes = file.tell()
    if documents == 0:
        raise FileNotFoundError(f"no {' or '.join(SUFFIXES)} files in {root}: this Python came without its sources")
    return _stage("gather", f"{documents:,} documents, {n_bytes / 1e6:.1f} MB", started, n_bytes / 1e6, "MB/s")


def texts(root: Path) -> Iterator[tuple[str, str]]:
    """Yield relative path and text of every UTF-8 source file, sorted, without installed packages."""
    from pathlib import Path

    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - {"site-packages", "dist-packages", "__pycache__"})
        for name in sorted(names):
            if name.endswith(SUFFIXES):
                path = Path(folder, name)
                try:
                    text = path.read_bytes().decode()
                except (UnicodeDecodeError, OSError):
                    continue  # the standard library's tests include files in other encodings
                if text:
                    yield path.relative_to(root).as_posix(), text


def build_index(corpus: Path, index: Path) -> Stage:
    """Index the corpus, and check that every line is JSON."""
    from fastpack.documents.create_index import create_raw_index

    started = time.perf_counter()
    result = create_raw_index(corpus, index, if_exists="overwrite")
    amount = f"{result.entries:,} lines, {result.bytes / 1e6:.1f} MB checked"
    return _stage("index", amount, started, result.bytes / 1e6, "MB/s")


def pack_corpus(corpus: Path, index: Path, packed: Path) -> Stage:
    """Tokenise as bytes and pack, with 2 bytes per token."""
    from fastpack.packing.pack import pack

    started = time.perf_counter()
    result = pack(corpus, packed, tokenizer="bytes", index_path=index, num_workers=1, if_exists="overwrite")
    for skipped in result.skipped:
        print(f"skipped line {skipped['line']}: {skipped['reason']}", file=sys.stderr)
    amount = f"{result.documents:,} documents, {result.tokens / 1e6:.1f} Mtok"
    return _stage("pack", amount, started, result.tokens / 1e6, "Mtok/s")


def feed_batches(packed: Path, args: argparse.Namespace) -> tuple[Stage, float]:
    """Load shuffled batches for some time; return the stage, and its speed divided by that of memcpy.

    The copies are timed between the batches, so that both sides see the same machine.
    """
    import numpy as np

    from fastpack import kernels
    from fastpack.datasets.packed_blocks import PackedMemMapDatasetContinuous

    if args.kernels == "numba":
        kernels.warm(token_dtypes=("uint16",))
    with PackedMemMapDatasetContinuous(packed, "tokens", args.seq_len + 1, True, eos_token_id=EOS_ID) as dataset:
        n_rows = min(args.batch_size, len(dataset))
        names = ("input_ids", "labels", "doc_ids")
        out = {name: np.zeros((n_rows, args.seq_len), np.int64) for name in names}
        spare = {name: array.copy() for name, array in out.items()}
        batches, feeding, copying = 0, 0.0, 0.0
        started = time.perf_counter()
        for rows in shuffled(dataset, n_rows, args.seed):
            before = time.perf_counter()
            dataset.fill(rows, out)
            between = time.perf_counter()
            for name in names:
                np.copyto(spare[name], out[name])
            feeding += between - before
            copying += time.perf_counter() - between
            batches += 1
            if time.perf_counter() - started >= args.seconds:
                break
    n_tokens = batches * n_rows * args.seq_len
    amount = f"{batches:,} of [{n_rows}, {args.seq_len}] x 3 int64, {kernels.backend()}"
    return Stage("batches", amount, round(feeding, 4), round(n_tokens / feeding / 1e6, 1), "Mtok/s"), copying / feeding


def shuffled(dataset: PackedMemMapDatasetContinuous, n_rows: int, seed: int) -> Iterator[Any]:
    """Yield batches of sample numbers, each epoch in a new order, without the last partial batch."""
    import numpy as np

    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(dataset))
        for first in range(0, len(order) - n_rows + 1, n_rows):
            yield order[first : first + n_rows]


def _stage(name: str, amount: str, started: float, quantity: float, rate_unit: str) -> Stage:
    seconds = time.perf_counter() - started
    return Stage(name, amount, round(seconds, 4), round(quantity / seconds, 1), rate_unit)
