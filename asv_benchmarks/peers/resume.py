"""Resume within an epoch with fastpack and with what people use; compare the time to the first batch, and the batch.

    python asv_benchmarks/peers/resume.py                       create an environment for the peers on the first run
    python asv_benchmarks/peers/resume.py --peer-python PATH    use a Python that has them
    python asv_benchmarks/peers/resume.py --write               write the table to the page with its markers
    python asv_benchmarks/peers/resume.py --at 50000            a quick check

A run stops after `--at` samples of an epoch of six fifths as many, saves its state, and gives one more batch. A new
process loads the state; its first batch must be that one. Where the state is nothing but the number of samples, only a
run that stops after `--check-at` samples is really made and compared, because some systems need minutes for more.
fastpack runs in this Python, which needs torch. Linux only. The exit code is 1 if a batch differs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from peers.command import find_python, machine, make_parser, publish, run_folder  # noqa: E402
from peers.feed import ENVIRONMENT, REQUIREMENTS, write_tokens  # noqa: E402
from peers.loop_runs import OURS, Loops, seconds  # noqa: E402
from peers.table import shown  # noqa: E402

LENGTH, BATCH = 64, 64
TITLES = {
    "TorchDiscard": "torch DataLoader, batches read and dropped",
    "TorchSkip": "torch DataLoader, accelerate's skip_first_batches",
    "Torchdata": "torchdata StatefulDataLoader",
    "Litdata": "litData, StreamingDataLoader",
    "Mosaicml": "mosaicml-streaming, StreamingDataLoader",
    "Megatron": "megatron-core, index files exist",
    "Grain": "Grain, MapDataset",
    OURS: "fastpack, order of torch",
    "FastpackFeistel": "fastpack, computed order",
}
WHY = {
    "Megatron": "maps the order that its first run wrote to files; fastpack computes torch's order again",
}
HEADER = (
    *("loop", "state to first batch, CPU / wall", "CPU ratio", "whole process, CPU / wall"),
    *("next batch is the right one", "note"),
)


def resumed(loops: Loops, loop: str, at: int, rounds: int) -> dict[str, Any]:
    """Return the best figures of a loop at a sample, and whether the batch there is right."""
    state = str(loops.folder / f"{loop}.state")
    stopped = loops.ask(loop, "stop", at=at, state=state, run=False)
    found = [loops.ask(loop, "resume", state=state) for _ in range(rounds)]
    digests = [answer["digest"] for answer in found]
    return {
        "first": [min(a["first"][k] - a["imports"][k] for a in found) for k in (0, 1)],
        "process": [min(a["first"][k] for a in found) for k in (0, 1)],
        "is_right": stopped["digest"] is None or all(digest == stopped["digest"] for digest in digests),
        "is_run": stopped["digest"] is not None,
        "versions": stopped["versions"],
    }


def is_right(loops: Loops, loop: str, at: int) -> bool:
    """Return whether a run that really stops after `at` samples continues with the batch that follows."""
    state = str(loops.folder / f"{loop}.checked")
    stopped = loops.ask(loop, "stop", at=at, state=state, run=True)
    return bool(loops.ask(loop, "resume", state=state)["digest"] == stopped["digest"])


def measure(loops: Loops, loop: str, at: int, check_at: int, rounds: int) -> dict[str, Any]:
    """Return the figures of a loop, after its files are written."""
    loops.ask(loop, "prepare")
    found = resumed(loops, loop, at, rounds)
    found["checked_at"] = at if found["is_run"] else check_at
    if not found["is_run"]:
        found["is_right"] = is_right(loops, loop, check_at)
    return found


def cells(loop: str, found: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    ratio = found["first"][0] / ours["first"][0]
    return [
        TITLES[loop],
        seconds(found["first"]),
        "" if loop.startswith(OURS) else f"**{shown(ratio)}x**",
        seconds(found["process"]),
        f"{'yes' if found['is_right'] else 'no'}, at {found['checked_at']:,}",
        WHY.get(loop, "") if ratio < 1 else "",
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, ENVIRONMENT, "about 6 GB")
    parser.add_argument("--at", type=int, default=5_000_000, help="samples before the stop (default: 5 million)")
    parser.add_argument("--check-at", type=int, default=100_032, help="samples of a run that is really made")
    args = parser.parse_args(argv)
    at, check_at = (number // BATCH * BATCH for number in (args.at, min(args.at, args.check_at)))
    python = find_python(args, REQUIREMENTS)
    selected = [loop for loop, title in TITLES.items() if loop.startswith(OURS) or args.only in title]
    with run_folder(args) as folder:
        write_tokens(folder, at * 6 // 5, LENGTH)
        loops = Loops("token_loops", python, folder, length=LENGTH, batch=BATCH, workers=0, packed=False)
        found = {}
        for loop in selected:
            found[loop] = measure(loops, loop, at, check_at, args.rounds)
            print(TITLES[loop], found[loop], file=sys.stderr, flush=True)
    rows = [cells(loop, one, found[OURS]) for loop, one in found.items()]
    versions = sorted({f"{name} {version}" for one in found.values() for name, version in one["versions"].items()})
    footer = (
        f"{machine()}; {', '.join(versions)}. Sample {at:,} of an epoch of {at * 6 // 5:,} shuffled rows of {LENGTH} "
        f"tokens, batches of {BATCH}, no worker processes, files in the page cache. The rows are short, which favours "
        "loops that read the rows they drop. From the saved state to the first batch of a new process, without "
        f"imports; the whole process has them. The best of {args.rounds} rounds. The right batch is that of a run that "
        "did not stop, compared at this sample."
    )
    publish(args, "resume", HEADER, rows, footer, {"rows": {TITLES[k]: v for k, v in found.items()}, "at": at})
    return int(not all(one["is_right"] for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
