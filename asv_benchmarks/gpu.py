"""Measure how long training steps wait for data on a GPU, and the rate of copies to it.

    python asv_benchmarks/gpu.py [--device cuda] [--steps 300] [--rows 16] [--length 4096] [--workers 4] [--write]

Two loaders deliver the same packed rows (input_ids, labels, doc_ids): fastpack's with device=, and torch's DataLoader
with pinned memory and worker processes, whose batches are copied with non_blocking=True. Each is timed with a null step
and with matrix products of `--step-ms` milliseconds. A step's wait is the time between the end of the previous step and
the moment when its batch can be used, in the stream of the step. The copy rate of a null step is compared with plain
copies of one pinned buffer of the same size. Runs alternate between the loaders; the table shows medians.

`--write` puts the table, with the name of the GPU, into docs/measured.md. `--device cpu` checks the script without a
GPU; its times say nothing about one, and it does not write them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from markdown_tables import markdown, write_between

import fastpack
import fastpack.torch

PAGE = Path(__file__).parents[1] / "docs" / "measured.md"
EOS = 0
ROUNDS = 5
WARM_UP = 20


class Marks:
    """Points in time of the stream of the training step, in milliseconds."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"

    def mark(self) -> Any:
        if not self.on_gpu:
            return time.perf_counter() * 1000
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, first: Any, second: Any) -> float:
        return first.elapsed_time(second) if self.on_gpu else second - first

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()


def fastpack_batches(dataset: Any, options: argparse.Namespace, widen: bool = False) -> Iterator[Any]:
    sampler = fastpack.DistributedSampler(dataset, 1, 0, seed=1)
    loader = fastpack.torch.StatefulDataLoader(dataset, options.rows, sampler, device=options.device, widen=widen)
    return chain.from_iterable(repeat(loader))


def torch_batches(dataset: Any, options: argparse.Namespace) -> Iterator[Any]:
    loader: Any = torch.utils.data.DataLoader(
        dataset,
        options.rows,
        shuffle=True,
        drop_last=True,
        num_workers=options.workers,
        pin_memory=torch.device(options.device).type == "cuda",
        persistent_workers=options.workers > 0,
    )
    for batch in chain.from_iterable(repeat(loader)):
        yield {name: tensor.to(options.device, non_blocking=True) for name, tensor in batch.items()}


def make_step(device: torch.device, milliseconds: float, marks: Marks) -> Callable[[], object]:
    """Return work for the device of about this duration."""
    if not milliseconds:
        return lambda: None
    matrix = torch.randn(2048 if marks.on_gpu else 64, 2048 if marks.on_gpu else 64, device=device)
    for _ in range(3):
        first = marks.mark()
        for _ in range(10):
            matrix @ matrix
        last = marks.mark()
        marks.synchronize()
    n_products = max(1, round(milliseconds / (marks.between(first, last) / 10)))
    return lambda: [matrix @ matrix for _ in range(n_products)]


def waits(batches: Iterator[Any], step: Callable[[], object], n_steps: int, marks: Marks) -> tuple[float, float]:
    """Return the mean wait of a step in microseconds, and the batches per second."""
    for _ in islice(batches, WARM_UP):
        step()
    pairs = []
    marks.synchronize()
    start = time.perf_counter()
    for _ in range(n_steps):
        ended = marks.mark()
        batch = next(batches)
        pairs.append((ended, marks.mark()))
        step()
        del batch
    marks.synchronize()
    seconds = time.perf_counter() - start
    return statistics.fmean(marks.between(*pair) for pair in pairs) * 1000, n_steps / seconds


def memcpy_rate(n_bytes: int, device: torch.device, marks: Marks) -> float:
    """Return bytes per second of plain copies of one pinned buffer."""
    source = torch.empty(n_bytes, dtype=torch.uint8, pin_memory=marks.on_gpu)
    target = torch.empty(n_bytes, dtype=torch.uint8, device=device)
    rates = []
    for _ in range(ROUNDS):
        first = marks.mark()
        for _ in range(50):
            target.copy_(source, non_blocking=True)
        last = marks.mark()
        marks.synchronize()
        rates.append(50 * n_bytes / marks.between(first, last) * 1000)
    return statistics.median(rates)


def measure(options: argparse.Namespace) -> str:
    device = torch.device(options.device)
    marks = Marks(device)
    with tempfile.TemporaryDirectory() as folder:
        random = np.random.default_rng(0)
        n_rows = max(2 * options.rows, 2**26 // (options.length + 1) if marks.on_gpu else 0)
        tokens = random.integers(1, 50_000, n_rows * (options.length + 1)).astype(np.uint16)
        tokens[random.random(len(tokens)) < 1 / 800] = EOS
        np.save(f"{folder}/tokens.npy", tokens)
        dataset = fastpack.torch.MemoryMappedDataset(folder, options.length + 1, pack_sequences=True, eos_token_id=EOS)
        return table(dataset, options, marks)


def table(dataset: Any, options: argparse.Namespace, marks: Marks) -> str:
    device = torch.device(options.device)
    loaders = {
        "fastpack": fastpack_batches(dataset, options),
        "fastpack, widened": fastpack_batches(dataset, options, widen=True),
        f"DataLoader, {options.workers} workers": torch_batches(dataset, options),
    }
    n_bytes = 3 * 8 * options.rows * options.length
    plain = memcpy_rate(n_bytes, device, marks)
    name = torch.cuda.get_device_name(device) if marks.on_gpu else "CPU (only a check of this script)"
    cells = [["loader", "step", "wait per step, us", "batches/s", "copied, share of the plain rate"], ["---"] * 5]
    for milliseconds in (0.0, options.step_ms):
        step = make_step(device, milliseconds, marks)
        found: dict[str, list[tuple[float, float]]] = {loader: [] for loader in loaders}
        for _ in range(ROUNDS):
            for loader, batches in loaders.items():
                found[loader].append(waits(batches, step, options.steps, marks))
        for loader, rounds in found.items():
            wait, rate = (statistics.median(column) for column in zip(*rounds, strict=True))
            wire = n_bytes / 2 if loader.endswith("widened") else n_bytes
            share = "" if milliseconds else f"{rate * wire / plain:.2f}"
            cells.append([loader, f"{milliseconds:g} ms", f"{wait:.0f}", f"{rate:.0f}", share])
    batch = f"batches of {options.rows} x {options.length} tokens, {n_bytes / 1e6:.1f} MB as int64"
    return markdown(cells, f"{name}, torch {torch.__version__}; {batch}; plain copy: {plain / 1e9:.2f} GB/s.")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--write", action="store_true", help="put the table into docs/measured.md")
    options = parser.parse_args()
    if torch.device(options.device).type == "cuda" and not torch.cuda.is_available():
        print(f"gpu.py: torch {torch.__version__} finds no CUDA device", file=sys.stderr)
        return 1
    found = measure(options)
    print(found)
    if options.write and torch.device(options.device).type == "cuda":
        write_between(PAGE, found, "<!-- gpu -->", "<!-- /gpu -->")
    return 0


if __name__ == "__main__":
    sys.exit(main())
