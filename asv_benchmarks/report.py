"""Run every ratio of the asv suite once in this process and print the table of docs/measured.md.

    python asv_benchmarks/report.py             print the table
    python asv_benchmarks/report.py --write     write it to docs/measured.md; with --only,
                                                replace or add the rows that were measured
    python asv_benchmarks/report.py --check     fail if a ratio is below its gate

thresholds.toml contains targets ("bar") and gates with their reasons.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import platform
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_tables import markdown, write_between

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
THRESHOLDS = FOLDER / "thresholds.toml"
START, END = "<!-- measured -->", "<!-- /measured -->"
LESS = "less is better"  # in the unit of rows that are not ratios


@dataclass(frozen=True)
class Threshold:
    """Target and gate of one benchmark in thresholds.toml."""

    bar: float | dict[str, float]
    tolerance: float
    gate: float | dict[str, float] | None = None
    why: str = ""
    table: bool = False

    def bar_of(self, parameter: str) -> float:
        return float(self.bar[parameter] if isinstance(self.bar, dict) else self.bar)

    def gate_of(self, parameter: str, unit: str) -> float:
        if self.gate is not None:
            return float(self.gate[parameter] if isinstance(self.gate, dict) else self.gate)
        return self.bar_of(parameter) / self.tolerance if LESS in unit else self.bar_of(parameter) * self.tolerance


class Thresholds:
    """The contents of thresholds.toml: `of("file.Class.method")`, and the settings of CI."""

    def __init__(self, path: Path = THRESHOLDS) -> None:
        read = tomllib.loads(path.read_text())
        self.tolerance, self.retries, self.enough = read.pop("tolerance"), read.pop("retries"), read.pop("enough")
        self._rows = {
            f"{file}.{suite}.{track}": Threshold(tolerance=self.tolerance, **found)
            for file, suites in read.items()
            for suite, tracks in suites.items()
            for track, found in tracks.items()
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def of(self, name: str) -> Threshold:
        if name not in self._rows:
            raise SystemExit(f"{THRESHOLDS}: no bar for the benchmark {name}; add a line `{name}.bar = ...`")
        return self._rows[name]


@dataclass(frozen=True)
class Result:
    """One ratio; `values` contains all attempts, `value` is the best."""

    name: str
    title: str
    parameter: str
    values: tuple[float, ...]
    unit: str
    bar: float
    gate: float
    why: str = ""

    @property
    def value(self) -> float:
        return min(self.values) if LESS in self.unit else max(self.values)

    @property
    def passes(self) -> bool:
        return self.value <= self.gate if LESS in self.unit else self.value >= self.gate

    def cells(self) -> list[str]:
        shown = f"{self.value:.2f}" if self.value < 10 else f"{self.value:,.0f}"
        return [self.title, self.parameter or "-", f"**{shown}** {self.unit}", f"{self.bar:g}"]

    def complaint(self) -> str:
        """Return the message for a failed row: measured and expected values, and the next commands."""
        row = f"{self.name} [{self.parameter}]" if self.parameter else self.name
        attempts = ", ".join(f"{value:.3g}" for value in self.values)
        lines = [
            f"TOO SLOW: {row}: {self.title}",
            f"  measured   {self.value:.3g} {self.unit} (attempts: {attempts})",
            f"  gate       {self.gate:g}{f': {self.why}' if self.why else ''}",
            f"  bar        {self.bar:g}; both are in asv_benchmarks/thresholds.toml",
            f"  again      python asv_benchmarks/report.py --check --only '{row}'",
            f"  since when cd asv_benchmarks && asv continuous --factor 1.3 --bench '{self.name}' main HEAD",
        ]
        return "\n".join(lines)


def suites() -> Iterator[type]:
    """Return every benchmark class with ratios, in the order of their module names."""
    sys.path.insert(0, str(FOLDER))
    for path in sorted((FOLDER / "benchmarks").glob("*.py")):
        if path.stem not in ("__init__", "common"):
            module = importlib.import_module(f"benchmarks.{path.stem}")
            found = [value for value in vars(module).values() if inspect.isclass(value)]
            yield from (suite for suite in found if suite.__module__ == module.__name__ and tracks(suite))


def tracks(suite: type) -> list[str]:
    return [name for name, value in vars(suite).items() if name.startswith("track_") and hasattr(value, "title")]


def full_name(suite: type, track: str) -> str:
    return f"{suite.__module__.removeprefix('benchmarks.')}.{suite.__name__}.{track}"


def parameters(suite: type) -> list[tuple[Any, ...]]:
    """Return the values of the only parameter of the suite, each as the arguments of its methods."""
    values = getattr(suite, "params", None) or []
    if values and isinstance(values[0], (list, tuple)):  # asv accepts a list of values, or a list of such lists
        (values,) = values
    return [(value,) for value in values] or [()]


def shown(arguments: tuple[Any, ...]) -> str:
    return " ".join(map(str, arguments))


def measure(suite: type, thresholds: Thresholds, only: str, *, check: bool) -> Iterator[Result]:
    """Measure the rows whose name, with the parameter in brackets, contains `only`; skip table-only rows if `check`."""
    for arguments in parameters(suite):
        names = [name for name in tracks(suite) if only in f"{full_name(suite, name)} [{shown(arguments)}]"]
        names = [name for name in names if not (check and thresholds.of(full_name(suite, name)).table)]
        if not names:
            continue
        benchmark = suite()
        try:
            getattr(benchmark, "setup", lambda *_: None)(*arguments)
        except NotImplementedError as reason:  # asv's way to skip a benchmark
            print(f"passed over {suite.__name__} {arguments}: {reason}", file=sys.stderr)
            continue
        for name in names:
            try:
                yield measured(benchmark, name, arguments, thresholds, check=check)
            except NotImplementedError as reason:
                print(f"passed over {suite.__name__}.{name}: {reason}", file=sys.stderr)
        getattr(benchmark, "teardown", lambda *_: None)(*arguments)


def measured(
    benchmark: Any, name: str, arguments: tuple[Any, ...], thresholds: Thresholds, *, check: bool = False
) -> Result:
    """Measure a row, again while it is below its gate; with `check`, only until the result is clear."""
    track, parameter = getattr(benchmark, name), shown(arguments)
    threshold = thresholds.of(full_name(type(benchmark), name))
    bar, gate = threshold.bar_of(parameter), threshold.gate_of(parameter, track.unit)
    enough_at = importlib.import_module("benchmarks.common").enough_at
    values: tuple[float, ...] = ()
    for _ in range(1 + thresholds.retries):
        with enough_at(gate * thresholds.enough if check else float("inf")):
            values = (*values, float(track(*arguments)))
        row = full_name(type(benchmark), name), track.title, parameter, values, track.unit
        result = Result(*row, bar, gate, threshold.why)
        if result.passes:
            break
    return result


def table(results: list[Result]) -> str:
    cells = [["what", "with", "measured", "bar"], ["---"] * 4, *(result.cells() for result in results)]
    versions = f"Python {platform.python_version()}, numpy {version('numpy')}, numba {version('numba')}"
    return markdown(cells, f"{processor()}; {versions}; CPU time, both sides interleaved in one process.")


def version(package: str) -> str:
    try:
        return str(importlib.import_module(package).__version__)
    except ModuleNotFoundError:
        return "not installed"


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def write_page(results: list[Result], root: Path = ROOT, *, partial: bool = False) -> None:
    """Write the table of docs/measured.md; partial: only rows of `results`, others stay."""
    path = root / "docs" / "measured.md"
    write_between(path, merged(path.read_text(), results) if partial else table(results), START, END)


def merged(page: str, results: list[Result]) -> str:
    """Return the table of a page with other values in the rows of `results`, or with new rows at their places."""
    lines = page.partition(START)[2].partition(END)[0].strip().splitlines()
    old = [line.strip("| ").replace("\\|", "|").split(" | ") for line in lines if line.startswith("| ")]
    captions = [line for line in lines if line and not line.startswith("|")]
    places = [(getattr(suite, name).title, shown(arguments) or "-") for suite, arguments, name in all_rows()]
    head, rows = old[0], old[2:]
    for cells in (result.cells() for result in results):
        same = [at for at, row in enumerate(rows) if key(row) == key(cells)]
        later = set(places[places.index((cells[0], cells[1])) + 1 :])
        at = next((at for at, row in enumerate(rows) if (row[0], row[1]) in later), len(rows))
        rows[slice(same[0], same[0] + 1) if same else slice(at, at)] = [cells]
    here = table([]).strip().splitlines()[-1]
    if here != captions[0]:
        noted = [line.removesuffix(f": {here}") for line in captions[1:] if line.endswith(here)]
        titles = dict.fromkeys([*(noted[0].split("; ") if noted else []), *(result.title for result in results)])
        captions = [line for line in captions if not line.endswith(here)] + [f"{'; '.join(titles)}: {here}"]
    return markdown([head, ["---"] * 4, *rows], "\n\n".join(captions))


def key(cells: list[str]) -> tuple[str, str, str]:
    """Return what identifies a row: title, parameter and unit."""
    return cells[0], cells[1], cells[2].rpartition("** ")[2]


def all_rows() -> Iterator[tuple[type, tuple[Any, ...], str]]:
    """Return suite, parameters and name of every row, in the order in which they are measured."""
    for suite in suites():
        for arguments in parameters(suite):
            for name in tracks(suite):
                yield suite, arguments, name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="benchmarks whose full name, `name [parameter]`, contains this text")
    parser.add_argument("--write", action="store_true", help="put the table into docs/measured.md")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a ratio is below its gate")
    args = parser.parse_args()
    thresholds, results = Thresholds(), []
    for suite in suites():
        for result in measure(suite, thresholds, args.only, check=args.check and not args.write):
            print(f"{result.title} [{result.parameter}]: {result.value:.2f} {result.unit}", file=sys.stderr, flush=True)
            results.append(result)
    print(table(results))
    if args.write:
        write_page(results, partial=bool(args.only))
    failed = [result for result in results if not result.passes]
    for result in failed:
        print(result.complaint())
    if not results:
        print("no benchmark ran", file=sys.stderr)
    return int(bool(args.check and failed) or not results)


if __name__ == "__main__":
    sys.exit(main())
