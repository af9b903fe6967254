"""Run Modalities 0.5.0 and fastpack on the same files; print their times and whether their bytes are equal.

    python asv_benchmarks/peers/modalities.py                       create an environment on the first run
    python asv_benchmarks/peers/modalities.py --peer-python PATH    use a Python that has modalities==0.5.0
    python asv_benchmarks/peers/modalities.py --write               write the table to the page with its markers
    python asv_benchmarks/peers/modalities.py --only pack --mib 64  select rows, use more text

Each side runs in its own interpreter, after imports and a warm-up on small inputs; rounds alternate, and the best round
of each side counts. CPU time is that of a process and its children, with one worker each. The exit code is 1 if a row
misses its target.
"""

from __future__ import annotations

import argparse
import filecmp
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from peers.command import find_python, machine, make_parser, publish, run_folder  # noqa: E402
from peers.inputs import MIB, make_inputs, make_tokenizers  # noqa: E402
from peers.processes import REQUIREMENTS, PeerFailure, Side  # noqa: E402
from peers.table import HEADER, Row  # noqa: E402
from peers.work import INDEX_RIGHT, Work, all_work  # noqa: E402

SECONDS_PER_ROUND = 0.2  # for operations that take less
TINY = 50_000

Best = dict[str, Any]


class Comparison:
    """Both sides and their folders: `folder`/modalities, `folder`/fastpack, and the inputs."""

    def __init__(self, folder: Path, peer_python: str, rounds: int, budget: float, timeout: float) -> None:
        self.folder, self.rounds, self.budget = folder, rounds, budget
        self.sides = {}
        for name, python in (("modalities", peer_python), ("fastpack", sys.executable)):
            (folder / name / "out").mkdir(parents=True)
            self.sides[name] = Side(name, python, folder / name, timeout, folder / f"{name}.log")

    def make_inputs(self, mib: float) -> None:
        make_tokenizers(self.folder / "tokenizers")
        make_inputs(self.folder / "inputs", int(mib * MIB), "../tokenizers")
        make_inputs(self.folder / "tiny", TINY, "../tokenizers")

    def start(self) -> None:
        for side in self.sides.values():
            side.start()

    def stop(self) -> None:
        for side in self.sides.values():
            side.stop()

    def rows(self, group: list[Work]) -> Iterator[Row]:
        """Measure the rows that share a measurement of the peer, alternating in each round; failures become notes."""
        best: dict[int, Best] = {}  # -1: the peer
        equal: dict[int, str] = {}
        failures: dict[int, str] = {}
        started = time.monotonic()
        for inputs, seconds in [("tiny", 0.0), *[("inputs", SECONDS_PER_ROUND)] * self.rounds]:
            if best and time.monotonic() - started > self.budget:
                break
            for i, work in [(-1, group[0]), *enumerate(group)]:
                if -1 in failures or i in failures:
                    continue
                try:
                    answer = self.sides["modalities" if i < 0 else "fastpack"].ask(work.request(inputs, seconds))
                except PeerFailure as failure:
                    failures[i] = str(failure)
                    continue
                if inputs == "inputs":
                    best[i] = min(best.get(i, answer), answer, key=lambda found: found["cpu"])
                    if i >= 0 and i not in equal:
                        equal[i] = self._equal(work, best[-1], answer)
        for i, work in enumerate(group):
            failure = failures.get(-1) or failures.get(i)
            if failure:
                yield Row(work.title, self._input(work), bar=work.bar, note=failure)
            else:
                yield self._row(work, best[-1], best[i], equal[i])

    def _row(self, work: Work, peer: Best, ours: Best, equal: str) -> Row:
        title = f"{work.title} ({ours['note']})" if work.title.endswith("engine auto") and ours["note"] else work.title
        times = (peer["cpu"], peer["wall"], ours["cpu"], ours["wall"])
        return Row(title, self._input(work), *times, work.bar, equal, work.equal)

    def _input(self, work: Work) -> str:
        if " " in work.source:
            return work.source
        return f"{work.source}, {(self.folder / 'inputs' / work.source).stat().st_size / MIB:.1f} MiB"

    def _equal(self, work: Work, peer: Best, ours: Best) -> str:
        if not work.out:
            return "yes" if peer["digest"] == ours["digest"] else "no"
        theirs, written = (self.folder / name / work.out for name in ("modalities", "fastpack"))
        if same_files(theirs, written):
            return "yes"
        right = work.operation == "merge" and self._is_right_merge(written, theirs, work)
        return INDEX_RIGHT if right else "no"

    def _is_right_merge(self, ours: Path, theirs: Path, work: Work) -> bool:
        """Return whether our documents equal those of the sources in order, and our tokens those of the peer."""
        import numpy as np

        from fastpack import PackedFile

        sources = work.request("inputs", 0)["sources"]
        documents = [d for path in sources for d in documents_of(self.folder / "fastpack" / path)]
        merged = documents_of(ours)
        equal = len(documents) == len(merged) and all(map(np.array_equal, documents, merged))
        with PackedFile(ours) as left, PackedFile(theirs) as right:
            return equal and np.array_equal(left.data, right.data)


def documents_of(path: Path) -> list[Any]:
    from fastpack import PackedFile

    with PackedFile(path) as file:
        return [file[i].copy() for i in range(len(file))]


def same_files(left: Path, right: Path) -> bool:
    """Return whether two files, or all files in two folders, have equal names and bytes."""
    if left.is_dir() and right.is_dir():
        names = [{path.relative_to(root) for path in root.rglob("*") if path.is_file()} for root in (left, right)]
        return names[0] == names[1] and all(filecmp.cmp(left / name, right / name, shallow=False) for name in names[0])
    return left.is_file() and right.is_file() and filecmp.cmp(left, right, shallow=False)


def footer(sides: dict[str, Side], rounds: int) -> str:
    imports = ", ".join(f"{name} {side.ready['cpu']:.1f} s" for name, side in sides.items())
    peer_python = sides["modalities"].ready["python"]
    return (
        f"{machine()}, the peer's {peer_python}; seconds per call, the best of "
        f"up to {rounds} alternating rounds; one worker each; without imports, whose CPU time is: {imports}."
    )


def run(args: argparse.Namespace) -> list[Row]:
    """Measure the selected rows; print each one when it is finished, then the table."""
    selected = [work for work in all_work() if args.only in f"{work.title} {work.source}"]
    python, rows = find_python(args, REQUIREMENTS), []
    with run_folder(args) as folder:
        comparison = Comparison(folder, python, args.rounds, args.budget, args.timeout)
        try:
            comparison.start()
            comparison.make_inputs(args.mib)
            for _, group in itertools.groupby(selected, key=lambda work: work.shared):
                for row in comparison.rows(list(group)):
                    rows.append(row)
                    print(" | ".join(row.cells()), file=sys.stderr, flush=True)
            conditions = footer(comparison.sides, args.rounds)
        finally:
            comparison.stop()
    results = {"rows": [row.as_json() for row in rows]}
    publish(args, "modalities", HEADER, [row.cells() for row in rows], conditions, results)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, "modalities-0.5.0", "about 500 MB")
    parser.add_argument("--mib", type=float, default=16.0, help="size of the text and of the packed files in MiB")
    parser.add_argument(
        "--budget", type=float, default=40.0, help="seconds per row after which no further round starts"
    )
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds for one answer; the peer can deadlock")
    args = parser.parse_args(argv)
    rows = run(args)
    failed = [row for row in rows if row.failure]
    for row in failed:
        print(f"NOT KEPT: {row.title} [{row.input}]: {row.failure}", file=sys.stderr)
    return int(bool(failed) or not rows)


if __name__ == "__main__":
    sys.exit(main())
