"""Read samples of the same tar shards with webdataset and with fastpack; compare rates, memory and samples.

    python asv_benchmarks/peers/media.py                       create an environment for webdataset on the first run
    python asv_benchmarks/peers/media.py --peer-python PATH    use a Python that has webdataset and torch
    python asv_benchmarks/peers/media.py --write               write the table to the page with its markers
    python asv_benchmarks/peers/media.py --scale 0.1           a quick check

Each run is a new process that iterates all samples, shuffled, in batches; media_loops.py contains the loops. The
systems take turns, and the best round counts. A further run of each compares all fields of all samples, in any order.
Linux only. The exit code is 1 if samples differ. energon.py compares the preparation of such shards with Energon.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from peers.command import find_python, machine, make_parser, publish, run_folder  # noqa: E402
from peers.feed import ENVIRONMENT, REQUIREMENTS  # noqa: E402
from peers.loop_runs import OURS, Loops, best, seconds  # noqa: E402
from peers.table import shown  # noqa: E402
from peers.tars import ALL_SHARDS, Shards, make_shards  # noqa: E402

BATCH = 32
SIZES = {"small": 0.5, "pictures": 0.1}  # of the shards of tars.py
HEADER = (
    *("samples", "loop", "worker processes", "samples per CPU second", "CPU ratio", "samples per second", "memory"),
    *("first batch, CPU / wall", "of which imports", "samples equal"),
)


@dataclass(frozen=True)
class Case:
    loop: str
    decoded: bool
    workers: int = 0

    @property
    def settings(self) -> dict[str, Any]:
        return {"decoded": self.decoded, "workers": self.workers}


CASES = [Case(*case) for decoded in (False, True) for case in (("Webdataset", decoded), ("Webdataset", decoded, 2))]
CASES += [Case(OURS, decoded) for decoded in (False, True)]


def whole_batches(shards: Shards, scale: float) -> Shards:
    """Return a part of the shards that gives whole batches only."""
    n_samples = SIZES[shards.name] * scale * shards.n_samples
    return replace(shards, n_samples=max(1, round(n_samples / BATCH)) * BATCH)


def read(shards: Shards, python: str, folder: Path, rounds: int) -> dict[Case, dict[str, Any]]:
    """Return the best figures of all loops over shards of one kind."""
    make_shards(folder / "shards", shards)
    loops = Loops("media_loops", python, folder, batch=BATCH)
    loops.ask(OURS, "prepare", decoded=False, workers=0)
    answers = loops.measure([(case.loop, case.settings) for case in CASES], "measure", rounds)
    checked = [loops.ask(case.loop, "check", **case.settings) for case in CASES]
    ours = {case.decoded: one["digest"] for case, one in zip(CASES, checked, strict=True) if case.loop == OURS}
    return {
        case: {**best(some), "memory": one["memory"], "versions": one["versions"]}
        | {"is_equal": one["digest"] == ours[case.decoded]}
        for case, some, one in zip(CASES, answers, checked, strict=True)
    }


def cells(title: str, case: Case, found: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    ratio = ours["samples_per_cpu_second"] / found["samples_per_cpu_second"]
    return [
        f"{title}, {'decoded' if case.decoded else 'undecoded'}",
        "fastpack" if case.loop == OURS else "webdataset",
        str(case.workers),
        f"{found['samples_per_cpu_second']:,.0f}",
        "" if case.loop == OURS else f"**{shown(ratio)}x**",
        f"{found['samples_per_second']:,.0f}",
        f"{found['memory'] / 1e6:.0f} MB",
        *(seconds(found[name]) for name in ("first", "imports")),
        "yes" if found["is_equal"] else "no",
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, ENVIRONMENT, "about 300 MB")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the numbers of samples (default: 1)")
    args = parser.parse_args(argv)
    python, rows, results, versions = find_python(args, REQUIREMENTS), [], {}, set()
    for shards in (whole_batches(shards, args.scale) for shards in ALL_SHARDS if shards.name in SIZES):
        fields = f"{shards.picture_bytes // 1000} KB {', '.join(shards.fields)}"
        title = f"{shards.n_shards * shards.n_samples:,} of {fields}"
        if args.only not in title:
            continue
        with run_folder(args) as folder:
            found = read(shards, python, folder, args.rounds)
        ours = {case.decoded: one for case, one in found.items() if case.loop == OURS}
        for case, one in sorted(found.items(), key=lambda pair: pair[0].decoded):
            rows.append(cells(title, case, one, ours[case.decoded]))
            results[", ".join(rows[-1][:3])] = one
            versions |= {f"{name} {version}" for name, version in one["versions"].items()}
    footer = (
        f"{machine()}; {', '.join(sorted(versions))}. All samples once, in batches of {BATCH}, files in the page "
        "cache. webdataset shuffles the shards and a buffer of 1,000 samples; fastpack shuffles all samples, and needs "
        "an index, which `fastpack prepare` makes. Decoded: pictures as uint8 [H, W, 3], texts as str, json as "
        "objects. Samples per second: from opening to the last sample, without imports; CPU is that of all processes "
        "and threads. Memory: of all processes, without mapped files. First batch: of a new process. The best of "
        f"{args.rounds} rounds, the systems taking turns."
    )
    publish(args, "media", HEADER, rows, footer, {"rows": results})
    return int(not rows or not all(one["is_equal"] for one in results.values()))


if __name__ == "__main__":
    sys.exit(main())
