"""Graphs as inline SVG that fills the available width: horizontal units are percent, so text keeps its size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

TOP, BOTTOM = 22, 26  # pixels above the plot for the top label, and below it for labels of the x axis
_EDGE = 0.95  # labels further to the right are aligned with the border
_INSET = 0.12  # share of the width for the labels of the y axis
_FINE = 1000  # units across the box in which lines are drawn

Tick = tuple[float, str]  # position on the axis, 0 to 1, and label
Point = tuple[float, float]  # x from the left and y from the bottom, 0 to 1


@dataclass(slots=True)
class Plot:
    """A plot of bars and lines on one grid; positions are shares of the plot, 0 to 1, y upwards.

    name: letters, unique on the page. title, description: for screen readers. height: of the plot, in pixels. Colours
    are the classes s0 to s7 of the page's style sheet.
    """

    name: str
    title: str
    description: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    height: int = 200
    _shapes: list[str] = field(default_factory=list)

    def bar(self, start: float, end: float, height: float, label: str, series: int = 0) -> None:
        """Add a bar from `start` to `end`, with a narrow gap next to it; label: tooltip."""
        if height <= 0:
            return
        gap = min(0.0025, (end - start) * 0.12)
        n_pixels = max(1.0, height * self.height)
        self._shapes.append(
            f'<rect class="f s{series}" x="{_across(start + gap)}" y="{_number(TOP + self.height - n_pixels)}" '
            f'width="{_percent((end - start - 2 * gap) * (1 - _INSET))}" height="{_number(n_pixels)}">'
            f"<title>{escape(label)}</title></rect>"
        )

    def line(self, points: Sequence[Point], series: int = 0) -> None:
        """Add a line through points."""
        places = " ".join(f"{_number(x * _FINE)},{_number((1 - y) * self.height)}" for x, y in points)
        self._shapes.append(
            f'<svg x="{_across(0)}" y="{TOP}" width="{_percent(1 - _INSET)}" height="{self.height}" '
            f'viewBox="0 0 {_FINE} {self.height}" '
            f'preserveAspectRatio="none" aria-hidden="true" overflow="visible">'
            f'<polyline class="l s{series}" points="{places}" vector-effect="non-scaling-stroke"/></svg>'
        )

    def dot(self, at: Point, label: str, series: int = 0) -> None:
        """Add a dot; label: tooltip."""
        x, y = _across(at[0]), _number(TOP + (1 - at[1]) * self.height)
        self._shapes.append(
            f'<circle class="f s{series}" cx="{x}" cy="{y}" r="4"><title>{escape(label)}</title></circle>'
        )

    def render(self) -> str:
        """Return the SVG element."""
        whole = TOP + self.height + BOTTOM
        parts = [
            f'<svg role="img" aria-labelledby="{self.name}-t {self.name}-d" width="100%" height="{whole}">',
            f'<title id="{self.name}-t">{escape(self.title)}</title>',
            f'<desc id="{self.name}-d">{escape(self.description)}</desc>',
            *self._grid(),
            *self._shapes,
            *self._labels(),
            "</svg>",
        ]
        return "\n".join(parts)

    def _grid(self) -> Iterator[str]:
        for place, _ in self.y_ticks:
            y, kind = _number(TOP + (1 - place) * self.height), "axis" if place == 0 else "grid"
            yield f'<line class="{kind}" x1="0" x2="100%" y1="{y}" y2="{y}"/>'

    def _labels(self) -> Iterator[str]:
        for place, label in self.y_ticks:
            if place > 0:
                y = _number(TOP + (1 - place) * self.height - 5)
                yield f'<text class="tick" x="0" y="{y}">{escape(label)}</text>'
        for place, label in self.x_ticks:
            side = "end" if place > _EDGE else "middle"
            x, foot = _across(place), TOP + self.height
            yield f'<line class="axis" x1="{x}" x2="{x}" y1="{foot}" y2="{foot + 5}"/>'
            yield f'<text class="tick" x="{x}" y="{foot + 19}" text-anchor="{side}">{escape(label)}</text>'


def shares_bar(name: str, title: str, description: str, parts: Sequence[tuple[str, float]]) -> str:
    """Return a horizontal bar divided into (label, share), in the colours of series 0, 1, ..."""
    shapes, start = [], 0.0
    for number, (label, share) in enumerate(parts):
        gap = 0.002 if share > 0.01 else 0.0
        shapes.append(
            f'<rect class="f s{number % 8}" x="{_percent(start)}" y="0" width="{_percent(max(0.0, share - gap))}" '
            f'height="28"><title>{escape(label)}</title></rect>'
        )
        start += share
    return "\n".join(
        [
            f'<svg role="img" aria-labelledby="{name}-t {name}-d" width="100%" height="28">',
            f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(description)}</desc>',
            *shapes,
            "</svg>",
        ]
    )


def _across(place: float) -> str:
    """Return a position in the plot in percent of the total width."""
    return _percent(_INSET + place * (1 - _INSET))


def _percent(share: float) -> str:
    return f"{_number(share * 100)}%"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
