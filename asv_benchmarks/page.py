"""asv plugin: `asv publish` also writes html/index.html, a page that needs no network.

The page of asv loads jQuery, Flot and Bootstrap from other servers. This page is one file: a chart per benchmark over
the commits, with the target (dashed) and the gate (dotted) of thresholds.toml. The page of asv is next to it as
html/explore.html.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asv.publishing import OutputPublisher
from asv.results import iter_results
from report import Threshold, Thresholds

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 220, 56, 12, 12, 26  # size and margins of a chart
STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --back: #fff; --line: #d5d9de; --faint: #667; --gate: #c2410c }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e8eb; --back: #15181c; --line: #3a3f46; --faint: #9aa3ad; --gate: #fb923c }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 0 auto;
  max-width: 1360px; padding: 1rem }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 520px), 1fr)); gap: 1rem }
section { border: 1px solid var(--line); border-radius: 6px; padding: .75rem; min-width: 0 }
h1 { font-size: 1.4rem } h2 { font-size: 1rem; margin: 0 } code, small { color: var(--faint); overflow-wrap: anywhere }
svg { width: 100%; height: auto } svg text { font-size: 11px; fill: var(--faint) } .grid { stroke: var(--line) }
.bar { stroke: var(--faint); stroke-dasharray: 6 4 } .gate { stroke: var(--gate); stroke-dasharray: 2 3 }
.late { color: var(--gate) } ul { list-style: none; margin: .25rem 0 0; padding: 0 }
"""
COLOURS = ("#2563eb", "#16a34a", "#9333ea", "#d97706", "#0891b2", "#db2777", "#65a30d", "#64748b")


@dataclass
class Line:
    """The values of one benchmark with one parameter on one machine, by the number of the commit."""

    label: str
    parameter: str
    points: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Chart:
    name: str
    title: str
    unit: str
    lines: list[Line]
    threshold: Threshold | None  # None: a plain time

    def bars(self) -> list[float]:
        return sorted({self.threshold.bar_of(line.parameter) for line in self.lines}) if self.threshold else []

    def gates(self) -> list[float]:
        if self.threshold is None:
            return []
        return sorted({self.threshold.gate_of(line.parameter, self.unit) for line in self.lines})

    def late(self, line: Line) -> bool:
        """Return whether the last value of the line is beyond its gate."""
        if self.threshold is None:
            return False
        gate, value = self.threshold.gate_of(line.parameter, self.unit), line.points[max(line.points)]
        return value > gate if "less is better" in self.unit else value < gate


class OfflinePage(OutputPublisher):
    name, button_label, description, order = "offline", "Offline", "One page without a network", 99

    @classmethod
    def publish(cls, conf: Any, _repo: Any, benchmarks: Any, _graphs: Any, revisions: dict[str, int]) -> None:
        folder = Path(conf.html_dir)
        found = charts(list(iter_results(conf.results_dir)), benchmarks, revisions, Thresholds())
        (folder / "index.html").rename(folder / "explore.html")
        commits = {number: commit for commit, number in revisions.items()}
        (folder / "index.html").write_text(page(conf.project, found, commits), encoding="utf-8")


def charts(results: list[Any], benchmarks: Any, revisions: dict[str, int], thresholds: Thresholds) -> list[Chart]:
    """Return a chart for every benchmark with a finite value at a known commit; ratios first."""
    machines = {result.params["machine"] for result in results}
    found = []
    for name, benchmark in sorted(dict(benchmarks).items()):
        lines: dict[str, Line] = {}
        for result in results:
            if name not in result.get_result_keys(benchmarks) or result.commit_hash not in revisions:
                continue
            combinations = parameters(benchmark["params"])
            values = result.get_result_value(name, benchmark["params"]) or []
            for parameter, value in zip(combinations, values, strict=False):
                if value is not None and math.isfinite(value):
                    machine = result.params["machine"] if len(machines) > 1 else ""
                    label = " ".join(filter(None, (parameter, machine))) or name.rsplit(".", 1)[-1]
                    line = lines.setdefault(label, Line(label, parameter))
                    line.points[revisions[result.commit_hash]] = value
        if lines:
            threshold = thresholds.of(name) if name in thresholds else None
            title = benchmark.get("pretty_name") or name
            found.append(Chart(name, title, benchmark.get("unit") or "", list(lines.values()), threshold))
    return sorted(found, key=lambda chart: chart.threshold is None)


def parameters(params: list[list[str]]) -> list[str]:
    """Return all combinations of the parameter values, in the order of asv, as one text each."""
    combinations = [""]
    for values in params:
        combinations = [f"{head} {value.strip(chr(39))}".strip() for head in combinations for value in values]
    return combinations


def page(project: str, charts: list[Chart], commits: dict[int, str]) -> str:
    sections = "\n".join(section(chart, commits) for chart in charts)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(project)}: benchmarks</title><link rel="icon" href="data:,"><style>{STYLE}</style></head>
<body><h1>{html.escape(project)}: benchmarks over {len(commits)} commits</h1>
<p>Ratios come first: the speed of fastpack divided by that of a limit or a peer, measured in one process. Higher is
better, unless the unit says otherwise. Dashed: the target. Dotted: the gate. Then plain times, which are comparable on
one machine only.
<a href="explore.html">asv's own page</a> needs a network.</p>
<main>
{sections}
</main></body></html>
"""


def section(chart: Chart, commits: dict[int, str]) -> str:
    items = []
    for line, colour in zip(chart.lines, COLOURS * len(chart.lines), strict=False):
        last = max(line.points)
        mark = ' <strong class="late">beyond its gate</strong>' if chart.late(line) else ""
        items.append(
            f'<li><span style="color:{colour}">&#9632;</span> {html.escape(line.label)}: '
            f"<strong>{line.points[last]:.3g}</strong> at {commits[last][:8]}{mark}</li>"
        )
    head = f"<h2>{html.escape(chart.title)}</h2><small>{html.escape(chart.unit)}</small> <code>{chart.name}</code>"
    return f"<section>{head}\n{svg(chart, commits)}\n<ul>{''.join(items)}</ul></section>"


def svg(chart: Chart, commits: dict[int, str]) -> str:
    """Draw the lines over the commits with a value, from zero up."""
    numbers = sorted({number for line in chart.lines for number in line.points})
    shown = [value for line in chart.lines for value in line.points.values()]
    top = 1.1 * max([*shown, *chart.bars()]) or 1.0
    step = (WIDTH - LEFT - RIGHT) / max(1, len(numbers) - 1)
    x = {number: LEFT + step * place for place, number in enumerate(numbers)}

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top

    def level(value: float, kind: str) -> str:
        return f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'

    parts = []
    for value in (0, top / 2, top):
        parts.append(level(value, "grid"))
        parts.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    parts += [level(value, "bar") for value in chart.bars()] + [level(value, "gate") for value in chart.gates()]
    for number, anchor in {numbers[0]: "start", numbers[-1]: "end"}.items():
        parts.append(f'<text x="{x[number]:.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{commits[number][:8]}</text>')
    for line, colour in zip(chart.lines, COLOURS * len(chart.lines), strict=False):
        points = [(x[number], y(value)) for number, value in sorted(line.points.items())]
        joined = " ".join(f"{left:.1f},{height:.1f}" for left, height in points)
        parts.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{left:.1f}" cy="{height:.1f}" r="3" fill="{colour}"/>' for left, height in points]
    label = html.escape(f"{chart.title} over {len(numbers)} commits")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
