"""Run every ratio of the asv suite once in this process and print it as the README's table.

    python asv_benchmarks/report.py             the table on stdout
    python asv_benchmarks/report.py --write     put it into README.md, between its two markers
    python asv_benchmarks/report.py --check     fail when a ratio is below its gate: TOLERANCE of its bar, or its own

The bars stand beside the benchmarks (`@row(...)`), the tolerance here: shared machines are noisy, and a change that
loses a third of the speed is what the gate is there to stop. A ratio that fails is measured twice more.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "asv_benchmarks" / "benchmarks"
START, END = "<!-- measured -->", "<!-- /measured -->"
TOLERANCE = 0.7
RETRIES = 2


@dataclass(frozen=True)
class Result:
    title: str
    parameter: str
    value: float
    unit: str
    bar: float
    gate: float

    @property
    def less_is_better(self) -> bool:
        return "less is better" in self.unit

    @property
    def passes(self) -> bool:
        return self.value <= self.gate if self.less_is_better else self.value >= self.gate

    def cells(self) -> list[str]:
        shown = f"{self.value:.2f}" if self.value < 10 else f"{self.value:,.0f}"
        return [self.title, self.parameter or "-", f"**{shown}** {self.unit}", f"{self.bar:g}"]


def suites() -> Iterator[type]:
    """Every benchmark class that holds ratios, in the order of their modules' names."""
    sys.path.insert(0, str(BENCHMARKS.parent))
    for path in sorted(BENCHMARKS.glob("*.py")):
        if path.stem not in ("__init__", "common"):
            module = importlib.import_module(f"benchmarks.{path.stem}")
            found = [value for value in vars(module).values() if inspect.isclass(value)]
            yield from (suite for suite in found if suite.__module__ == module.__name__ and tracks(suite))


def tracks(suite: type) -> list[str]:
    return [name for name, value in vars(suite).items() if name.startswith("track_") and hasattr(value, "bar")]


def parameters(suite: type) -> list[tuple[Any, ...]]:
    """The values of the suite's one parameter, each as the arguments of its methods."""
    values = getattr(suite, "params", None) or []
    if values and isinstance(values[0], (list, tuple)):  # asv takes a list of values, or a list of such lists
        (values,) = values
    return [(value,) for value in values] or [()]


def measure(suite: type, only: str, *, gated_only: bool) -> Iterator[Result]:
    for arguments in parameters(suite):
        names = [name for name in tracks(suite) if only in f"{suite.__module__}.{suite.__name__}.{name}"]
        if gated_only:
            names = [name for name in names if getattr(suite, name).gated]
        if not names:
            continue
        benchmark = suite()
        try:
            getattr(benchmark, "setup", lambda *_: None)(*arguments)
        except NotImplementedError as reason:  # asv's way of passing over a benchmark
            print(f"passed over {suite.__name__} {arguments}: {reason}", file=sys.stderr)
            continue
        for name in names:
            try:
                yield measured(benchmark, name, arguments)
            except NotImplementedError as reason:
                print(f"passed over {suite.__name__}.{name}: {reason}", file=sys.stderr)
        getattr(benchmark, "teardown", lambda *_: None)(*arguments)


def measured(benchmark: Any, name: str, arguments: tuple[Any, ...]) -> Result:
    track = getattr(benchmark, name)
    bar = track.bar[arguments[0]] if isinstance(track.bar, dict) else track.bar
    gate = bar * TOLERANCE if "less is better" not in track.unit else bar / TOLERANCE
    gate = gate if track.gate is None else track.gate
    for _ in range(1 + RETRIES):
        value = float(track(*arguments))
        result = Result(track.title, " ".join(map(str, arguments)), value, track.unit, float(bar), float(gate))
        if result.passes:
            break
    return result


def table(results: list[Result]) -> str:
    rows = [["what", "with", "measured", "bar"], ["---", "---", "---", "---"], *(result.cells() for result in results)]
    lines = ["| " + " | ".join(cells) + " |" for cells in rows]
    versions = f"Python {platform.python_version()}, numpy {version('numpy')}, numba {version('numba')}"
    return "\n".join([*lines, "", f"{processor()}; {versions}; CPU time, both sides interleaved in one process."])


def version(package: str) -> str:
    return str(importlib.import_module(package).__version__)


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def write_readme(text: str) -> None:
    path = ROOT / "README.md"
    head, rest = path.read_text().split(START)
    path.write_text(f"{head}{START}\n{text}\n{END}{rest.split(END)[1]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="benchmarks whose full name holds this text")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a ratio is too low")
    args = parser.parse_args()
    results = []
    for suite in suites():
        for result in measure(suite, args.only, gated_only=args.check and not args.write):
            print(f"{result.title} [{result.parameter}]: {result.value:.2f} {result.unit}", file=sys.stderr, flush=True)
            results.append(result)
    print(table(results))
    if args.write:
        write_readme(table(results))
    failed = [result for result in results if not result.passes]
    for result in failed:
        print(f"TOO SLOW: {result.title} [{result.parameter}]: {result.value:.2f} {result.unit}, gate {result.gate:g}")
    if not results:
        print("no benchmark ran", file=sys.stderr)
    return int(bool(args.check and failed) or not results)


if __name__ == "__main__":
    sys.exit(main())
