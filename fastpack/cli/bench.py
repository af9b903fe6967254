"""`fastpack bench`: the speed of batches of the user's data, compared with memcpy."""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from fastpack.cli.options import Commands, at_least, new_command
from fastpack.cli.output import emit, say, warnings_as_messages
from fastpack.cli.tables import Table

if TYPE_CHECKING:
    from pathlib import Path

SLICE_BATCHES = 8  # at least, so that the two prefetched batches have little effect
PROBES = 256


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `bench`."""
    parser = new_command(
        commands,
        "bench",
        run=run_bench,
        help="measure how fast your data become training batches",
        about="Measure how fast your data become training batches here, against memcpy and torch's DataLoader.",
        example="fastpack bench shards/ --seq-len 4096 --eos-token-id 2",
    )
    parser.add_argument(
        "path",
        metavar="PATH",
        help="a packed file (.pbin), a folder of .npy or .bin shards, a manifest (.fpm), a packing plan (.plan), "
        "or a token file of another format",
    )
    parser.add_argument("--seq-len", type=at_least(1), default=2048, help="tokens per sample (2048)")
    parser.add_argument("--batch-size", type=at_least(1), default=32, help="samples per batch (32)")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each measurement takes (3)")
    parser.add_argument("--eos-token-id", type=int, help="find documents by this token: doc_ids and masked labels too")
    parser.add_argument("--file-pattern", help="which files of the folder (default: *.npy, or *.bin if there are none)")
    return [parser]


class Speed(NamedTuple):
    """Tokens per second, and per second of CPU time of all threads."""

    tokens_per_second: float
    tokens_per_cpu_second: float

    @classmethod
    def of(cls, n_tokens: int, seconds: float, cpu_seconds: float) -> Speed:
        return cls(round(n_tokens / max(seconds, 1e-9)), round(n_tokens / max(cpu_seconds, 1e-9)))


def run_bench(args: argparse.Namespace) -> int:
    """Measure cold, warm, memcpy and torch's loader; print one line each, or one JSON object."""
    from fastpack import kernels

    if args.kernels is None:
        say(args, "compiling the Numba kernels, unless they are in its cache (--kernels cython needs none of this)")
        kernels.warm()
    with warnings_as_messages(args, "warning: "), _open(args) as dataset:
        n_samples, seq_len = len(dataset), dataset.seq_length if _is_plan(args) else args.seq_len
    if n_samples == 0:
        raise ValueError(f"{args.path} holds no sample of {args.seq_len + 1} tokens: choose a shorter --seq-len")
    args = argparse.Namespace(**(vars(args) | {"batch_size": min(args.batch_size, n_samples), "seq_len": seq_len}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # repeated each time the data are opened
        return _report(args)


def _report(args: argparse.Namespace) -> int:
    from fastpack import kernels

    cold, resident = measure_cold(args)
    with _open(args) as dataset:
        warm, memcpy = measure_warm(dataset, args)
        result: dict[str, Any] = {
            "path": args.path,
            "samples": len(dataset),
            "seq_len": args.seq_len,
            "batch_size": args.batch_size,
            "outputs": list(_outputs(args)),
            "kernels": kernels.backend(),
            "warm": warm._asdict(),
            "cold": cold._asdict() | {"in_cache_before": resident},
            "memcpy": memcpy._asdict(),
            "memcpy_ratio": round(warm.tokens_per_cpu_second / memcpy.tokens_per_cpu_second, 3),
        }
        peer = measure_torch(dataset, args)
    result["torch"] = peer._asdict() if peer else None
    if peer is None:
        say(args, "torch is not installed: its DataLoader was not measured")
    rows = [
        ("fastpack, files in memory", warm, f"{result['memcpy_ratio']:.2f} x memcpy"),
        ("fastpack, files dropped from memory", cold, f"{resident:.0%} of them stayed"),
        ("memcpy of the same arrays", memcpy, ""),
    ]
    if peer is not None:
        ratio = warm.tokens_per_cpu_second / peer.tokens_per_cpu_second
        rows.append(("torch DataLoader, sample by sample", peer, f"fastpack is {ratio:,.1f} x"))
    cells = [(name, *(f"{value / 1e6:,.1f}" for value in speed), remark) for name, speed, remark in rows]
    lines = [
        f"{name:<35} {wall:>10} Mtok/s {cpu:>10} Mtok/s of CPU{remark and ', '}{remark}"
        for name, wall, cpu, remark in cells
    ]
    emit(args, result, lines, lambda: [Table(("", "Mtok/s", "Mtok/s of CPU", ""), cells, frozenset({1, 2}))])
    return 0


def measure_cold(args: argparse.Namespace) -> tuple[Speed, float]:
    """Measure the first batches after the OS was asked to drop the files, and the share that it kept in memory.

    It keeps what others have mapped or not written back yet, and what a file system without this notion holds.
    """
    files = _files(args)
    for path in files:
        with open(path, "rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    resident = share_in_cache(files)
    with _open(args) as dataset:
        batches, loader = _batches(dataset, args)
        speed, _ = _run(batches, args.seconds, args.batch_size * args.seq_len, once=len(loader))
        loader.close()
    return speed, resident


def measure_warm(dataset: Any, args: argparse.Namespace) -> tuple[Speed, Speed]:
    """Measure the loader and copying its arrays in alternating slices, so that both see the same load."""
    import numpy as np

    _touch(dataset, args)
    batches, loader = _batches(dataset, args)
    first = next(batches)
    spare = {name: array.copy() for name, array in first.items()}

    def copies() -> Iterator[Any]:
        while True:
            for name, array in first.items():
                np.copyto(spare[name], array)
            yield spare

    copier, n_tokens = copies(), args.batch_size * args.seq_len
    total, slices = {"ours": [0, 0.0, 0.0], "copy": [0, 0.0, 0.0]}, max(1, round(args.seconds / 0.2))
    for _ in range(slices):
        for side, source, share in (("ours", batches, 0.8), ("copy", copier, 0.2)):
            _, spent = _run(source, args.seconds / slices * share, n_tokens)
            total[side] = [before + now for before, now in zip(total[side], spent, strict=True)]
    loader.close()
    ours, copied = (Speed.of(int(tokens), seconds, cpu) for tokens, seconds, cpu in total.values())
    return ours, copied


def measure_torch(dataset: Any, args: argparse.Namespace) -> Speed | None:
    """Measure torch's DataLoader over single samples; None without torch."""
    from fastpack.errors import MissingExtra

    try:
        from fastpack.torch import sample_by_sample
    except MissingExtra:
        return None
    batches = sample_by_sample(dataset, args.batch_size)
    speed, _ = _run(batches, args.seconds, args.batch_size * args.seq_len)
    return speed


def _run(
    batches: Iterator[Any], seconds: float, n_tokens: int, once: int | None = None
) -> tuple[Speed, tuple[int, float, float]]:
    """Take batches for some time (`once`: at most this many); return the speed and (tokens, seconds, CPU seconds)."""
    taken, cpu, started = 0, time.process_time(), time.perf_counter()
    least = SLICE_BATCHES if once is None else min(SLICE_BATCHES, once)
    while taken < least or time.perf_counter() - started < seconds:
        next(batches)
        taken += 1
        if taken == once:
            break
    spent = taken * n_tokens, time.perf_counter() - started, time.process_time() - cpu
    return Speed.of(*spent), spent


def _batches(dataset: Any, args: argparse.Namespace) -> tuple[Iterator[Any], Any]:
    """Return shuffled batches of all epochs, and their loader."""
    from fastpack.loading.loader import StatefulDataLoader
    from fastpack.loading.sampler import DistributedSampler

    loader = StatefulDataLoader(dataset, args.batch_size, DistributedSampler(dataset, 1, 0), outputs=_outputs(args))

    def endless() -> Iterator[Any]:
        while True:
            yield from loader

    return endless(), loader


def _outputs(args: argparse.Namespace) -> tuple[str, ...]:
    has_documents = args.eos_token_id is not None or _is_plan(args)
    return ("input_ids", "labels", "doc_ids") if has_documents else ("input_ids", "labels")


def _touch(dataset: Any, args: argparse.Namespace) -> None:
    """Read every file once, at most for the duration of a measurement."""
    deadline = time.monotonic() + max(args.seconds, 1.0)
    for path in _files(args):
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 24) and time.monotonic() < deadline:
                pass
    dataset.batch(range(0, len(dataset), max(1, len(dataset) // 1000)), ("input_ids",))


def _files(args: argparse.Namespace) -> list[Path]:
    from pathlib import Path

    from fastpack.tokens.manifest.manifest_file import is_manifest
    from fastpack.tokens.manifest.manifest_shards import open_shards

    path = Path(args.path)
    if _is_plan(args):
        from fastpack.plans.plan_file import PlanFile

        sources = PlanFile(path).open_sources()
        return sorted({Path(segment.path) for tokens in sources for segment in tokens.segments()})
    if _is_other_format(args):
        from fastpack.tokens.formats import open_tokens

        with open_tokens(path) as tokens:
            return sorted({Path(segment.path) for segment in tokens.segments()})
    if is_manifest(path):
        return [Path(shard.path) for shard in open_shards(path, _pattern(args))]
    return sorted(path.glob(_pattern(args))) if path.is_dir() else [path]


def _is_plan(args: argparse.Namespace) -> bool:
    """Return whether PATH is a packing plan, by its name."""
    path: str = args.path
    return path.endswith(".plan")


def _is_other_format(args: argparse.Namespace) -> bool:
    """Return whether PATH is a token file of another system."""
    from fastpack.io import as_path
    from fastpack.tokens.formats import formats_of

    return any(row.kind not in ("pbin", "shards", "manifest") for row in formats_of(as_path(args.path)))


def _pattern(args: argparse.Namespace) -> str:
    """Return the pattern of the files of a folder or manifest: of the first suffix that occurs."""
    from glob import escape, glob

    from fastpack.tokens.manifest.manifest_file import Manifest, is_manifest

    pattern: str | None = args.file_pattern
    if pattern is None and is_manifest(args.path):
        names = Manifest(args.path).names()
        suffix = next((one for one in (".npy", ".bin") if any(name.endswith(one) for name in names)), ".pbin")
        return f"{'**/' * any('/' in name for name in names)}*{suffix}"
    return pattern or ("*.npy" if glob(os.path.join(escape(args.path), "*.npy")) else "*.bin")


def _open(args: argparse.Namespace) -> Any:
    """Open PATH as a dataset of windows of --seq-len + 1 tokens, or of the rows of a plan."""
    if _is_plan(args):
        from fastpack.datasets.planned import PlannedDataset

        return PlannedDataset(args.path)
    from fastpack.tokens.manifest.manifest_file import is_manifest

    is_named = is_manifest(args.path) and not _pattern(args).endswith(".pbin")
    if is_named or (os.path.isdir(args.path) and not _is_other_format(args)):
        from fastpack.datasets.flat_windows import MemoryMappedDataset

        packed = args.eos_token_id is not None
        return MemoryMappedDataset(args.path, args.seq_len + 1, _pattern(args), packed, args.eos_token_id)
    from fastpack.datasets.packed_blocks import PackedMemMapDatasetContinuous

    return PackedMemMapDatasetContinuous(args.path, "tokens", args.seq_len + 1, True, eos_token_id=args.eos_token_id)


def share_in_cache(files: list[Path]) -> float:
    """Return the share of sampled positions of the files that are in memory."""
    import random

    rng, probe = random.Random(0), bytearray(1)
    sized = [(path, path.stat().st_size) for path in files if path.stat().st_size]
    hits = 0
    for _ in range(PROBES if sized else 0):
        path, size = rng.choice(sized)
        with open(path, "rb", buffering=0) as file:
            try:
                os.preadv(file.fileno(), [probe], rng.randrange(size), os.RWF_NOWAIT)
                hits += 1
            except BlockingIOError:
                pass
            except OSError:  # a file system without support: count it as in memory
                hits += 1
    return hits / PROBES if sized else 0.0
