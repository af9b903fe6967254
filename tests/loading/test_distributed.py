"""Real ranks under torchrun: every sample once over all of them, nobody waits for anybody, ranks come and go.

`once`, of n samples on R ranks with batches of b: an epoch is cut to the first n // R // b * b * R samples of its order
(drop_last), each of which one rank has, once; or filled up to the next multiple of R from the order's beginning.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="ranks of a training run need torch, which is not installed")

import training_ranks as ranks_script  # noqa: E402
from training_ranks import EOS, LARGE_WIDTH, SEED, SKIPPED, WIDTH  # noqa: E402

from fastpack.datasets.permutations import FeistelOrder  # noqa: E402
from fastpack.tokens.pbin.packed_writer import PackedWriter  # noqa: E402

pytestmark = pytest.mark.slow

SHARDS = (300, 101, 204)  # samples of each; 605 leave a remainder on 2, 3 and 4 ranks
N = sum(SHARDS)
LARGE_SHARDS, LARGE_SAMPLES = 4, 1024


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards and a packed file whose sample i has the token i everywhere except at one EOS; and larger shards."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "shards").mkdir()
    (folder / "large").mkdir()
    samples = np.repeat(np.arange(N, dtype=np.uint16)[:, None], WIDTH, axis=1)
    samples[:, 2] = EOS
    for number, rows in enumerate(np.split(samples, np.cumsum(SHARDS)[:-1])):
        np.save(folder / "shards" / f"{number}.npy", rows.reshape(-1))
    with PackedWriter(folder / "docs.pbin", 2) as writer:
        writer.append(samples.reshape(-1))
    rng = np.random.default_rng(5)
    for number in range(LARGE_SHARDS):
        np.save(folder / "large" / f"{number}.npy", rng.integers(0, EOS, LARGE_SAMPLES * LARGE_WIDTH, dtype=np.uint16))
    return folder


def torchrun(
    n_ranks: int, job: str, data: Path, out: Path, *words: str, restarts: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run all ranks to completion, with `out` as their home and working directory."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_ranks)]
    command += ["--max-restarts", str(restarts), ranks_script.__file__, job, str(data), str(out), *words]
    home = out / "home"
    home.mkdir(exist_ok=True)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HOME": str(home), "PYTHONWARNINGS": "default"}
    env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # otherwise gloo finds the addresses of dead ranks after a restart
    return subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=120)


def torch_order(epoch: int) -> list[int]:
    order: list[int] = torch.randperm(N, generator=torch.Generator().manual_seed(SEED + epoch)).tolist()
    return order


def interleaved(parts: list[list[list[int]]]) -> list[int]:
    """Return the samples of all ranks' batches in the global order."""
    own = [list(chain(*batches)) for batches in parts]
    return list(chain(*zip(*own, strict=True)))


def files_below(folder: Path) -> dict[str, tuple[int, int]]:
    found = ((path, path.stat()) for path in folder.rglob("*"))
    return {str(path): (status.st_size, status.st_mtime_ns) for path, status in found}


@pytest.mark.parametrize("n_ranks", [2, *(pytest.param(n, marks=pytest.mark.long) for n in (3, 4))])
def test_ranks_share_an_epoch_without_waiting(n_ranks: int, data: Path, tmp_path: Path) -> None:
    """The ranks run one after another, without a process group, and write nothing."""
    before = files_below(data)
    done = torchrun(n_ranks, "epochs", data, tmp_path)
    assert done.returncode == 0, done.stderr
    assert files_below(data) == before
    assert not list((tmp_path / "home").iterdir())
    found = [json.loads((tmp_path / f"alone-{rank}.json").read_text()) for rank in range(n_ranks)]
    for epoch in range(2):
        got = {name: interleaved([rank[name][epoch] for rank in found]) for name in found[0]}
        cut = N // n_ranks // 4 * 4 * n_ranks
        order = torch_order(epoch)
        for name in ("plain", "packed", "packed file"):
            assert got[name] == order[:cut], name
        assert got["filled up"] == order + order[: -N % n_ranks]
        assert got["skipped"] == order[SKIPPED:][: (N - SKIPPED) // n_ranks // 4 * 4 * n_ranks]
        assert got["feistel"] == FeistelOrder(N, SEED, epoch).take(0, 1, N).tolist()[:cut]
        for batches in chain(*(rank[name][epoch] for rank in found for name in ("plain", "feistel"))):
            assert len(batches) == 4
        for name, weights in ranks_script.WEIGHTS.items():
            check_mixture(got[name], weights, n_ranks)
    check_memory([json.loads((tmp_path / f"memory-{rank}.json").read_text()) for rank in range(n_ranks)], data)


def check_mixture(got: list[int], weights: list[float] | None, n_ranks: int) -> None:
    """Shares are as requested; no sample of a dataset is repeated before all available ones were drawn."""
    sizes = [SHARDS[0] + SHARDS[1], SHARDS[2]]
    shares = np.array(weights or sizes, float) / sum(weights or sizes)
    counts, length = Counter(got), len(got)
    assert N - 2 * n_ranks < length <= N  # each dataset is cut to a multiple of the ranks
    for share, first, end in zip(shares, (0, sizes[0]), (sizes[0], N), strict=True):
        times = [counts[number] for number in range(first, end)]
        assert abs(sum(times) - share * length) <= n_ranks
        most = -(-sum(times) // ((end - first) // n_ranks * n_ranks))
        assert max(times) <= most
        assert sum(count < most - 1 for count in times) < n_ranks  # those that were cut off
        if weights is None:
            assert max(times) == 1


def check_memory(ranks: list[dict[str, Any]], data: Path) -> None:
    """One mapping per file and process, and one copy in memory for all processes."""
    names = sorted(map(str, (data / "large").iterdir()))
    for rank in ranks:
        for place in ("here", "worker"):
            assert {name: n for name, (n, _, _) in rank[place].items()} == dict.fromkeys(names, 1)
    one_copy = sum(Path(name).stat().st_size for name in names) / 1024
    resident, shared = (sum(row[column] for rank in ranks for row in rank["here"].values()) for column in (1, 2))
    assert resident > 0.9 * len(ranks) * one_copy  # every rank has read every page
    assert shared <= 1.1 * one_copy


def lines_of(folder: Path, attempt: str, n_ranks: int) -> list[list[dict[str, Any]]]:
    """Return the samples of each rank; of a killed rank those before its end."""
    logs = [folder / f"{attempt}-{rank}.jsonl" for rank in range(n_ranks)]
    return [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]


def test_killed_ranks_are_resumed_by_other_numbers_of_ranks(data: Path, tmp_path: Path) -> None:
    """4 ranks, one killed; 2 ranks, one killed and restarted by torchrun; then 3: two epochs without loss."""
    (tmp_path / "checkpoints").mkdir()
    plan = [("a", 4, 3, "5", 0), ("b", 2, 6, "14,31", 1), ("c", 3, 4, "", 0)]  # 12 samples a step
    attempts: list[tuple[str, int]] = []
    for name, n_ranks, batch_size, die_at, restarts in plan:
        words = ["--attempt", name, "--batch-size", str(batch_size), "--die-at", die_at, "--epochs", "2"]
        done = torchrun(n_ranks, "train", data, tmp_path, *words, restarts=restarts)
        assert (done.returncode == 0) == (die_at == ""), done.stderr
        assert not die_at or "SIGKILL" in done.stderr or "-9" in done.stderr
        attempts += [(f"{name}-{restart}", n_ranks) for restart in range(restarts + 1)]
    logs = [lines_of(tmp_path, *attempt) for attempt in attempts]
    begins = [{lines[0]["begins"] for lines in log} for log in logs]
    assert begins == [{0}, {4}, {12}, {28}]
    assert [log[0][0]["ranks"] for log in logs] == [4, 2, 2, 3]
    steps: dict[tuple[int, int], list[int]] = {}
    for log, following in zip(logs, [*begins[1:], {sys.maxsize}], strict=True):
        for line in chain(*(lines[1:] for lines in log)):
            if line["step"] < min(following):  # the steps after the checkpoint are repeated
                steps.setdefault((line["epoch"], line["step"]), []).extend(line["ids"])
    whole = [torch_order(0), torch_order(1)]
    n_steps = N // 4 * 4 // 12
    assert sorted(steps) == [(step // n_steps, step) for step in range(2 * n_steps)]
    for (epoch, step), ids in steps.items():
        first = 12 * (step - epoch * n_steps)
        assert sorted(ids) == sorted(whole[epoch][first : first + 12]), f"epoch {epoch}, step {step}"
