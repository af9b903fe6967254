"""The picture of the README is that of the recorded results, and is accessible."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).resolve().parents[1]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def chart() -> Iterator[Any]:
    sys.path.insert(0, str(ROOT / "asv_benchmarks"))
    import chart

    yield chart
    sys.path.remove(str(ROOT / "asv_benchmarks"))
    del sys.modules["chart"]


def test_the_picture_is_that_of_the_results(chart: Any) -> None:
    drawn = chart.draw(chart.FIGURES, json.loads(chart.RESULTS.read_text(encoding="utf-8")))
    assert chart.TARGET.read_text(encoding="utf-8") == drawn, "run python asv_benchmarks/chart.py"
    root = ET.fromstring(drawn)
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "title desc"
    title, description = (root.findtext(f"{SVG}{name}") for name in ("title", "desc"))
    assert title
    shown = {element.text for element in root.iter(f"{SVG}text")}
    for figure in chart.FIGURES:
        assert description is not None
        assert any(str(text).startswith(figure.title.partition("{")[0]) for text in shown)
        assert all(label in description and label in shown for label in figure.bars)
    assert not any(word in drawn for word in ("href", "url(", "@import", "@font-face"))
    assert "prefers-color-scheme: dark" in drawn


def test_bars_start_at_zero_and_are_linear(chart: Any) -> None:
    figure = chart.Figure("t", "n", "feed", {"a": ("x", "rate", 0), "fastpack": ("y", "rate", 0)})
    results = {"feed": {"rows": {"x": {"rate": [50.0]}, "y": {"rate": [200.0]}}}}
    _, *bars = ET.fromstring(chart.draw([figure], results)).iter(f"{SVG}rect")
    widths = [float(rect.get("width", "")) for rect in bars]
    assert widths[1] == pytest.approx(4 * widths[0])
    with pytest.raises(SystemExit, match=r"run peers/feed.py --write"):
        chart.draw([figure], {"feed": {"rows": {}}})
