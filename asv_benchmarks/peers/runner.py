"""One side of the comparison, in a separate interpreter: reads requests as JSON lines, measures, and answers.

    python runner.py modalities|fastpack

A request is {"operation", "inputs", "out", "seconds", ...}. The answer {"cpu", "wall", "calls"} contains means over as
many calls as fit into `seconds`, at least one. CPU time is that of the process and its children. Each side runs in its
own folder next to the inputs, with the same relative paths, so that files that contain paths can be equal.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
    del sys.path[0]  # the modalities.py there is not the package of that name

MAX_CALLS = 500
BLOCK, N_SAMPLES, BATCH = 2049, 2048, 32
Request = dict[str, Any]
Operation = Callable[[], Any]


def cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Modalities:
    """The operations of Modalities 0.5.0."""

    def __init__(self) -> None:
        from modalities import api
        from modalities.dataloader.create_instruction_tuning_data import create_instruction_tuning_data
        from modalities.dataloader.dataset import PackedMemMapDatasetContinuous

        self.api, self.chat, self.continuous_class = api, create_instruction_tuning_data, PackedMemMapDatasetContinuous
        self.policy = api.FileExistencePolicy.ERROR

    def index(self, request: Request) -> Operation:
        source, target = Path(request["source"]), Path(request["out"])
        return lambda: self.api.create_raw_data_index(source, target, self.policy)

    def pack(self, request: Request) -> Operation:
        return lambda: self.api.pack_encoded_data(json.loads(request["config"]), self.policy)

    def shuffle_tokenized(self, request: Request) -> Operation:
        source, target = Path(request["source"]), Path(request["out"])
        return lambda: self.api.shuffle_tokenized_data(source, target, 100, self.policy, 42)

    def shuffle_jsonl(self, request: Request) -> Operation:
        source, target = Path(request["source"]), Path(request["out"])
        return lambda: self.api.shuffle_jsonl_data(source, target, self.policy, 42)

    def chunk_tokenized(self, request: Request) -> Operation:
        sources, target = [Path(path) for path in request["sources"]], Path(request["out"])
        return lambda: self.api.create_shuffled_dataset_chunk(sources, target, 1, 3, self.policy, 42)

    def chunk_jsonl(self, request: Request) -> Operation:
        sources, target = [Path(path) for path in request["sources"]], Path(request["out"])
        return lambda: self.api.create_shuffled_jsonl_dataset_chunk(sources, target, 1, 3, self.policy, 42)

    def filter(self, request: Request) -> Operation:
        source, target = Path(request["source"]), Path(request["out"])
        return lambda: self.api.create_filtered_tokenized_dataset(source, is_kept, target, self.policy)

    def merge(self, request: Request) -> Operation:
        sources, target = [Path(path) for path in request["sources"]], Path(request["out"])
        return lambda: self.api.merge_packed_data_files(sources, target)

    def prepare_chat(self, request: Request) -> Operation:
        return lambda: self.chat(Path(request["config_path"]))

    def construct(self, request: Request) -> Operation:
        return lambda: self.continuous_class(Path(request["source"]), "tokens", BLOCK, True)

    def read(self, request: Request) -> Operation:
        dataset = self.construct(request)()
        order = sample_order(len(dataset))
        return lambda: [dataset[i]["tokens"] for i in order]

    def read_batches(self, request: Request) -> Operation:
        import numpy as np

        dataset = self.construct(request)()
        order = sample_order(len(dataset))
        batches = [order[i : i + BATCH] for i in range(0, len(order), BATCH)]
        return lambda: [np.stack([dataset[i]["tokens"] for i in batch]) for batch in batches]


class Fastpack:
    """The same operations of fastpack; additional keyword arguments are in the request's `options`."""

    def __init__(self) -> None:
        import fastpack

        # Imports of every command. The imports of the peer are not measured either.
        public = [*fastpack.__all__, *fastpack.modalities.__all__]
        self.fastpack = {name: getattr(fastpack, name) for name in public}
        self.note: str | None = None

    def index(self, request: Request) -> Operation:
        create = self.fastpack["create_raw_index"]
        return lambda: create(request["source"], request["out"], **request["options"])

    def pack(self, request: Request) -> Operation:
        pack = self.fastpack["pack_encoded_data"]

        def run() -> None:
            result = pack(json.loads(request["config"]), **request["options"])
            self.note = getattr(result, "engine", "") or None

        return run

    def shuffle_tokenized(self, request: Request) -> Operation:
        shuffle = self.fastpack["shuffle_tokenized_data"]
        return lambda: shuffle(request["source"], request["out"], 100, "error", 42)

    def shuffle_jsonl(self, request: Request) -> Operation:
        shuffle = self.fastpack["shuffle_jsonl_data"]
        return lambda: shuffle(request["source"], request["out"], "error", 42)

    def chunk_tokenized(self, request: Request) -> Operation:
        create = self.fastpack["create_shuffled_dataset_chunk"]
        return lambda: create(request["sources"], request["out"], 1, 3, "error", 42)

    def chunk_jsonl(self, request: Request) -> Operation:
        create = self.fastpack["create_shuffled_jsonl_chunk"]
        return lambda: create(request["sources"], request["out"], 1, 3, "error", 42)

    def filter(self, request: Request) -> Operation:
        create = self.fastpack["create_filtered_tokenized_dataset"]
        return lambda: create(request["source"], is_kept, request["out"], "error")

    def merge(self, request: Request) -> Operation:
        merge = self.fastpack["merge_packed_data"]
        return lambda: merge(request["sources"], request["out"], **request["options"])

    def prepare_chat(self, request: Request) -> Operation:
        prepare = self.fastpack["prepare_instruction_tuning_data"]
        return lambda: prepare(request["config_path"], **request["options"])

    def construct(self, request: Request) -> Operation:
        dataset = self.fastpack["PackedMemMapDatasetContinuous"]
        return lambda: dataset(request["source"], "tokens", BLOCK, True)

    def read(self, request: Request) -> Operation:
        dataset = self.construct(request)()
        order = sample_order(len(dataset))
        return lambda: [dataset[i]["tokens"] for i in order]

    def read_batches(self, request: Request) -> Operation:
        dataset = self.construct(request)()
        order = sample_order(len(dataset))
        batches = [order[i : i + BATCH] for i in range(0, len(order), BATCH)]
        return lambda: [dataset.batch(batch)["tokens"] for batch in batches]


def is_kept(number: int) -> bool:
    return number % 3 != 0


def sample_order(n_samples: int) -> list[int]:
    """Return random sample numbers, equal for both sides."""
    return [i * 7919 % n_samples for i in range(N_SAMPLES)]


def measure(operation: Operation, out: str, seconds: float) -> dict[str, float]:
    """Return means over the calls that fit into `seconds`; old output is removed outside the measurement."""
    cpu = wall = 0.0
    calls = 0
    while not calls or (wall < seconds and calls < MAX_CALLS):
        remove(out)
        cpu_before, wall_before = cpu_seconds(), time.perf_counter()
        result = operation()
        wall += time.perf_counter() - wall_before
        cpu += cpu_seconds() - cpu_before
        del result
        calls += 1
    return {"cpu": cpu / calls, "wall": wall / calls, "calls": calls}


def remove(out: str) -> None:
    if os.path.isdir(out):
        shutil.rmtree(out)
    elif out and os.path.exists(out):
        os.unlink(out)


def digest(result: Any) -> str:
    """Return the digest of the returned values and dtypes, for operations that write no file."""
    found = hashlib.sha256()
    for array in result if isinstance(result, list) else []:
        found.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def answer(side: Any, request: Request) -> dict[str, Any]:
    operation = getattr(side, request["operation"])(request)
    measured: dict[str, Any] = measure(operation, request["out"], request["seconds"])
    if not request["out"]:
        measured["digest"] = digest(operation())
    return {**measured, "note": getattr(side, "note", None)}


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep output of the peer out of the answers
    cpu, wall = cpu_seconds(), time.perf_counter()
    side = {"modalities": Modalities, "fastpack": Fastpack}[sys.argv[1]]()
    ready = {"cpu": cpu_seconds() - cpu, "wall": time.perf_counter() - wall, "python": sys.version.split()[0]}
    print(json.dumps(ready), file=replies, flush=True)
    for line in sys.stdin:
        try:
            reply = answer(side, json.loads(line))
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
