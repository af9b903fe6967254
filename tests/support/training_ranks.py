"""The script of each rank that torchrun starts for tests/loading/test_distributed.py.

    torchrun --standalone --nproc-per-node N training_ranks.py epochs DATA OUT
    torchrun ... training_ranks.py train DATA FOLDER --attempt NAME --batch-size B [--die-at 5,9] [--epochs 2]

The first token of a sample is its number.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import distributed

import fastpack
import fastpack.torch
from fastpack.torch import MemoryMappedDataset, MixtureDataset, PackedMemMapDatasetContinuous, StatefulDataLoader

WIDTH, EOS, SEED, SKIPPED = 6, 60_000, 11, 17
LARGE_WIDTH, LARGE_BATCH = 1024, 64
EVERY = 4  # steps between two checkpoints
WEIGHTS = {"mixture by size": None, "mixture": [1.0, 3.0], "mixture feistel": [1.0, 3.0]}
MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \d+ +(/\S+)")


def cases(data: Path, ranks: int, rank: int) -> Iterator[tuple[str, Any, Any, int]]:
    """Yield name, dataset, sampler and batch size."""
    plain = MemoryMappedDataset(data / "shards", WIDTH)
    packed = MemoryMappedDataset(data / "shards", WIDTH, pack_sequences=True, eos_token_id=EOS)
    file = PackedMemMapDatasetContinuous(data / "docs.pbin", "tokens", WIDTH, False, eos_token_id=EOS)
    datasets = [MemoryMappedDataset(data / "shards", WIDTH, pattern) for pattern in ("[01]*.npy", "2*.npy")]
    mixture = MixtureDataset(datasets, ["most", "rest"])
    who = (ranks, rank)
    yield "plain", plain, fastpack.DistributedSampler(plain, *who, seed=SEED), 4
    yield "packed", packed, fastpack.DistributedSampler(packed, *who, seed=SEED), 4
    yield "feistel", packed, fastpack.DistributedSampler(packed, *who, seed=SEED, order="feistel"), 4
    yield "filled up", plain, fastpack.DistributedSampler(plain, *who, seed=SEED, drop_last=False), 1
    yield "packed file", file, fastpack.DistributedSampler(file, *who, seed=SEED), 4
    resumable = fastpack.ResumableDistributedSampler(
        file, rank, ranks, shuffle=True, seed=SEED, drop_last=True, skip_num_global_samples=SKIPPED
    )
    yield "skipped", file, resumable, 4
    for name, weights in WEIGHTS.items():
        order = "feistel" if name.endswith("feistel") else "torch"
        sizes = [float(len(dataset)) for dataset in datasets]
        yield (
            name,
            mixture,
            fastpack.MixtureSampler(mixture.cumulative_sizes, weights or sizes, *who, seed=SEED, order=order),
            1,
        )


def epochs(args: argparse.Namespace) -> None:
    """Run two epochs of every case, one rank after the other in reverse order, so that no rank can wait for another."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    while rank + 1 < ranks and not (args.out / f"alone-{rank + 1}.json").exists():
        time.sleep(0.01)
    found: dict[str, Any] = {}
    for name, dataset, sampler, batch_size in cases(args.data, ranks, rank):
        loader = StatefulDataLoader(dataset, batch_size, sampler, outputs=("input_ids", "labels"))
        found[name] = [[batch["input_ids"][:, 0].tolist() for batch in loader] for _ in range(2)]
    assert not distributed.is_initialized()
    write(args.out / f"alone-{rank}.json", found)

    distributed.init_process_group("gloo")
    dataset = MemoryMappedDataset(args.data / "shards", WIDTH)
    sampler = fastpack.DistributedSampler(dataset, seed=SEED)  # takes its rank from torch.distributed
    assert (sampler.num_replicas, sampler.rank) == (ranks, rank)
    assert sampler.indices().tolist()[:3] == [int(dataset[i]["input_ids"][0]) for i in sampler.indices()[:3].tolist()]
    write(args.out / f"memory-{rank}.json", memory(args.data / "large"))
    distributed.destroy_process_group()


def memory(folder: Path) -> dict[str, Any]:
    """Return the mappings of the shards after all ranks and workers have read all of them."""
    halves = [MemoryMappedDataset(folder, LARGE_WIDTH, pattern) for pattern in ("[01]*.npy", "[23]*.npy")]
    mixture = MixtureDataset(halves, ["first", "second"])
    for _ in StatefulDataLoader(mixture, LARGE_BATCH):
        pass
    first, last = mixture[0], halves[1][0]  # the same mappings through another dataset
    assert len(first["input_ids"]) == len(last["input_ids"])
    workers = torch.utils.data.DataLoader(
        mixture, LARGE_BATCH, num_workers=1, collate_fn=lambda _: mapped(folder), drop_last=True
    )
    in_workers = list(workers)[-1]
    distributed.barrier()  # all ranks have mapped all shards
    found = {"here": mapped(folder), "worker": in_workers}
    distributed.barrier()
    return found


def mapped(folder: Path) -> dict[str, list[int]]:
    """Return for each file of `folder` its number of mappings, resident kilobytes and proportional kilobytes."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    name, end = "", ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if area := MAPPING.fullmatch(line):
            continues = area[3] == name and area[1] == end  # madvise of a range splits a mapping
            name, end = area[3], area[2]
            if Path(name).parent == folder:
                found[name][0] += not continues
        elif re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            name = ""
        elif line.startswith(("Rss:", "Pss:")) and Path(name).parent == folder:
            found[name][1 if line.startswith("Rss") else 2] += int(line.split()[1])
    return dict(found)


def train(args: argparse.Namespace) -> None:
    """Train in lockstep; log each step, and write a checkpoint every EVERY steps."""
    distributed.init_process_group("gloo")
    rank, restarts = distributed.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dataset = MemoryMappedDataset(args.data / "shards", WIDTH, pack_sequences=True, eos_token_id=EOS)
    loader = StatefulDataLoader(dataset, args.batch_size, fastpack.DistributedSampler(dataset, seed=SEED))
    saved = sorted((args.out / "checkpoints").glob("*.json"))
    step = 0
    if saved:  # the last step, of any rank
        state = json.loads(saved[-1].read_text())
        step = state["step"]
        loader.load_state_dict(state["loader"])
    dies_at = [int(number) for number in args.die_at.split(",") if number]
    log = (args.out / f"{args.attempt}-{restarts}-{rank}.jsonl").open("a", buffering=1)
    log.write(json.dumps({"begins": step, "ranks": distributed.get_world_size()}) + "\n")
    while (epoch := loader.state_dict()["epoch"]) < args.epochs:
        for batch in loader:
            log.write(json.dumps({"step": step, "epoch": epoch, "ids": batch["input_ids"][:, 0].tolist()}) + "\n")
            if dies_at[restarts : restarts + 1] == [step] and rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            distributed.all_reduce(batch["input_ids"].sum())  # stands for averaging gradients
            step += 1
            if step % EVERY == 0:
                write(
                    args.out / "checkpoints" / f"{step:06}-{rank}.json", {"step": step, "loader": loader.state_dict()}
                )
    distributed.destroy_process_group()


def write(path: Path, value: Any) -> None:
    """Write JSON atomically."""
    aside = path.with_suffix(".unfinished")
    aside.write_text(json.dumps(value))
    aside.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=("epochs", "train"))
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--attempt", default="0")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--die-at", default="", help="steps at which rank 1 kills itself, one for each start")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    {"epochs": epochs, "train": train}[args.job](args)


if __name__ == "__main__":
    main()
