"""Write docs/images/compared.svg: three figures of peers/results.json, in which the comparisons keep their results.

    python asv_benchmarks/chart.py

The file is one picture for light and dark pages, needs no network, and says its figures to screen readers. Bars start
at zero and are linear. A figure whose comparison has not been run with --write is an error.
"""

from __future__ import annotations

import functools
import html
import json
import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "peers" / "results.json"
TARGET = HERE.parent / "docs" / "images" / "compared.svg"
WIDTH, LABELS, VALUES, BAR, GAP, HEAD, MARGIN = 760, 290, 110, 20, 7, 40, 20
STYLE = """
svg { color-scheme: light dark; font: 14px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif }
.back { fill: #fff; stroke: #d5d9de } text { fill: #1b1f24 } .head { font-weight: 600; font-size: 15px }
.bar { fill: #8b949e } .own { fill: #1f6feb } .name { font-weight: 600 } .note { fill: #57606a }
@media (prefers-color-scheme: dark) {
  .back { fill: #15181c; stroke: #3a3f46 } text { fill: #e6e8eb } .bar { fill: #6e7681 } .own { fill: #58a6ff }
  .note { fill: #9aa3ad }
}
"""
OURS = "fastpack"


@dataclass(frozen=True)
class Figure:
    """A figure of the comparison `job`: bars maps labels to the keys that lead to a value of its rows.

    title: with the names of other results of the comparison in braces.
    """

    title: str
    note: str
    job: str
    bars: dict[str, tuple[str | int, ...]]
    unit: str = ""

    def values(self, results: dict[str, Any]) -> dict[str, float]:
        """Return the value of each label."""
        try:
            rows = results[self.job]["rows"]
            return {label: functools.reduce(operator.getitem, keys, rows) for label, keys in self.bars.items()}
        except KeyError as error:
            raise SystemExit(f"no {error} in {RESULTS}: run peers/{self.job}.py --write") from None


RATE = "samples_per_cpu_second"
FIGURES = (
    Figure(
        "Tokenise and write {megabytes:.0f} MB of text, CPU seconds of the whole process",
        "shorter is better",
        "tokenise",
        {
            "datatrove": ("datatrove, JsonlReader and DocumentTokenizer", "theirs", "cpu"),
            "megatron-core, preprocess_data": ("megatron-core, loop of preprocess_data", "theirs", "cpu"),
            "nanoGPT, HF datasets": ("nanoGPT's prepare.py, datasets.map", "theirs", "cpu"),
            OURS: ("datatrove, JsonlReader and DocumentTokenizer", "ours", "cpu"),
        },
        " s",
    ),
    Figure(
        "Rows with document boundaries for a training loop, per CPU second",
        "longer is better",
        "feed",
        {
            "torch DataLoader, no workers": ("packed: torch DataLoader, vectorised by the user, 0", RATE),
            "torch DataLoader, 2 workers": ("packed: torch DataLoader, vectorised by the user, 2", RATE),
            "megatron-core, no workers": ("packed: megatron-core, reset_position_ids, 0", RATE),
            OURS: ("packed: fastpack, 0", RATE),
        },
    ),
    Figure(
        "Resume at sample {at:,}, CPU seconds to the next batch",
        "shorter is better",
        "resume",
        {
            "torch DataLoader, dropping batches": ("torch DataLoader, batches read and dropped", "first", 0),
            "torchdata StatefulDataLoader": ("torchdata StatefulDataLoader", "first", 0),
            "mosaicml-streaming": ("mosaicml-streaming, StreamingDataLoader", "first", 0),
            OURS: ("fastpack, order of torch", "first", 0),
        },
        " s",
    ),
)


def formatted(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def draw(figures: Sequence[Figure], results: dict[str, Any]) -> str:
    """Return the picture."""
    parts, sentences, y = [], [], MARGIN
    for figure in figures:
        values, title = figure.values(results), figure.title.format(**results[figure.job])
        texts = {label: formatted(value) + figure.unit for label, value in values.items()}
        listed = ", ".join(f"{label} {text}" for label, text in texts.items())
        sentences.append(f"{title} ({figure.note}): {listed}.")
        parts.append(text(MARGIN, y + 16, title, "head"))
        parts.append(text(WIDTH - MARGIN, y + 16, figure.note, "note", "end"))
        y += HEAD - GAP
        for label, value in values.items():
            own = label == OURS
            length = max(2.0, (WIDTH - LABELS - VALUES - MARGIN) * value / max(values.values()))
            parts.append(text(LABELS - 10, y + 15, label, "name" if own else "", "end"))
            kind = "own" if own else "bar"
            parts.append(f'<rect class="{kind}" x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3"/>')
            parts.append(text(LABELS + length + 8, y + 15, texts[label], "name" if own else ""))
            y += BAR + GAP
        y += MARGIN
    box = f'viewBox="0 0 {WIDTH} {y}" role="img" aria-labelledby="title desc"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {box}>
<title id="title">fastpack compared with what people use</title>
<desc id="desc">{html.escape(" ".join(sentences))}</desc>
<style>{STYLE}</style>
<rect class="back" x="0.5" y="0.5" width="{WIDTH - 1}" height="{y - 1}" rx="8"/>
{chr(10).join(parts)}
</svg>
"""


def text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}"{style}>{html.escape(words)}</text>'


def main() -> int:
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw(FIGURES, json.loads(RESULTS.read_text())), encoding="utf-8")
    print(TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
