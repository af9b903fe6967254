"""The graphs of a report's page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import unescape
from typing import Any

from fastpack.inspection.number_format import length, n_bytes, nice_top, percent, short, whole
from fastpack.inspection.svg import Plot, Tick, shares_bar

_MAX_TICKS = 7  # labels of the x axis that fit on a phone

_PER_CENT: Sequence[Tick] = tuple((k / 4, f"{k * 25}\u00a0%") for k in range(5))


def draw_lengths(lengths: dict[str, Any]) -> str:
    """Draw documents by length, on a logarithmic axis."""
    axis = _LogAxis(lengths["bins"])
    top, parts = nice_top(max(one["documents"] for one in lengths["bins"]))
    summary = lengths["summary"]
    plot = Plot(
        "lengths",
        "Histogram of the lengths of documents",
        f"{whole(lengths['documents'])} documents from {whole(summary['min'])} to {whole(summary['max'])} "
        f"{lengths['unit']}; half of them have up to {whole(summary['median'])}.",
        axis.ticks(),
        _counts(top, parts),
    )
    for one in lengths["bins"]:
        last = one["to"] - 1
        span = whole(one["from"]) if last == one["from"] else f"{whole(one['from'])} to {whole(last)}"
        label = f"{span} {lengths['unit']}: {whole(one['documents'])} documents"
        plot.bar(axis.place(one["from"]), axis.place(one["to"]), one["documents"] / top, label)
    return plot.render()


def draw_two_lengths(versions: Sequence[dict[str, Any]], unit: str) -> str:
    """Draw the shares of the documents of two versions by length, on one logarithmic axis."""
    shortest = min((one["bins"][0] for one in versions), key=lambda one: int(one["from"]))
    axis = _LogAxis([shortest, max((one["bins"][-1] for one in versions), key=lambda one: int(one["to"]))])
    lines = []
    for one in versions:
        points = [(axis.place(each["from"]), each["documents"] / one["documents"]) for each in one["bins"]]
        lines.append([*points, (axis.place(one["bins"][-1]["to"]), 0.0)])
    top, parts = nice_top(100 * max(y for line in lines for _, y in line))
    ticks = [(k / parts, percent(top * k / parts / 100)) for k in range(parts + 1)]
    medians = " and ".join(whole(one["lengths"]["median"]) for one in versions)
    title, said = "Lengths of the documents of both versions", f"The medians are {medians} {unit}."
    plot = Plot("lengths", title, said, axis.ticks(), ticks)
    for series, line in enumerate(lines):
        plot.line([(x, y * 100 / top) for x, y in line], series)
    return plot.render()


def draw_cumulative(lengths: dict[str, Any]) -> str:
    """Draw the cumulative share of documents, and of their tokens or bytes, by length."""
    axis = _LogAxis(lengths["bins"])
    documents, total = [(0.0, 0.0)], [(0.0, 0.0)]
    n_documents = n_total = 0
    for one in lengths["bins"]:
        n_documents, n_total = n_documents + one["documents"], n_total + one["total"]
        place = axis.place(one["to"])
        documents.append((place, n_documents / lengths["documents"]))
        total.append((place, n_total / lengths["total"]))
    said = ", ".join(
        f"up to {length(n)}: {percent(a)} of documents, {percent(b)} of {lengths['unit']}"
        for n, a, b in cumulative_at(lengths)
    )
    title = f"Share of documents and of {lengths['unit']} up to a length"
    plot = Plot("cumulative", title, said, axis.ticks(), _PER_CENT)
    plot.line(documents, 0)
    plot.line(total, 1)
    return plot.render()


def cumulative_at(lengths: dict[str, Any]) -> list[tuple[int, float, float]]:
    """Return (length, share of shorter documents, share of the total) at some powers of two."""
    bins = lengths["bins"]
    low, high = bins[0]["from"], bins[-1]["to"]
    powers = [1 << k for k in range(high.bit_length()) if low < 1 << k <= high]
    found = []
    for power in powers[:: max(1, -(-len(powers) // 8))]:
        below = [one for one in bins if one["to"] <= power]
        documents, total = sum(one["documents"] for one in below), sum(one["total"] for one in below)
        found.append((power, documents / lengths["documents"], total / lengths["total"]))
    return found


def draw_packing(rows: Sequence[dict[str, Any]]) -> str:
    """Draw the shares of kept, cut and padded tokens by sequence length."""
    places = [(k + 0.5) / len(rows) for k in range(len(rows))]
    ticks = [(place, length(row["seq_len"])) for place, row in zip(places, rows, strict=True)]
    said = "; ".join(
        f"{length(row['seq_len'])}: {percent(row['tokens_in_blocks'])} of tokens in whole blocks, "
        f"{percent(row['documents_cut'])} of documents cut, {percent(row['padding'])} padding"
        for row in rows
    )
    plot = Plot("packing", "Packing efficiency at sequence lengths", said, ticks, _PER_CENT)
    names = {"tokens_in_blocks": "of tokens in whole blocks", "documents_cut": "of documents cut", "padding": "padding"}
    for series, (key, label) in enumerate(names.items()):
        if rows[0][key] is None:
            continue
        points = [(place, row[key]) for place, row in zip(places, rows, strict=True)]
        plot.line(points, series)
        for point, row in zip(points, rows, strict=True):
            plot.dot(point, f"{length(row['seq_len'])}: {percent(row[key])} {label}", series)
    return plot.render()


def draw_ranks(ids: dict[str, Any]) -> str:
    """Draw the frequency of ids by rank, both axes logarithmic."""
    ranks = ids["ranks"]
    right = max(1.0, math.log10(ranks[-1]["rank"]))
    top = max(1, math.ceil(math.log10(ranks[0]["tokens"]) - 1e-9))
    step = -(-top // 5)
    y_ticks = [(k / top, short(10**k)) for k in range(0, top + 1, step)]
    x_ticks = [(k / right, short(10**k)) for k in range(int(right + 1e-9) + 1)]
    half = next(one["rank"] for one in ranks if one["share_so_far"] >= 0.5)
    plot = Plot(
        "ids",
        "How often token ids occur, by rank",
        f"{whole(ids['distinct'])} ids occur, the most frequent {whole(ranks[0]['tokens'])} times, the least frequent "
        f"{whole(ranks[-1]['tokens'])} times; about {whole(half)} of them make up half of all tokens.",
        x_ticks,
        y_ticks,
    )
    plot.line([(math.log10(one["rank"]) / right, math.log10(one["tokens"]) / top) for one in ranks], 0)
    return plot.render()


def draw_files(files: dict[str, Any], names: Sequence[str]) -> str:
    """Draw the size of each file in the colour of its dataset; names are already escaped."""
    bars, unit = files["bars"], files["unit"]
    highest = max(bar["size"] for bar in bars)
    if unit == "bytes":
        factor = 1024 ** max(0, int(math.log(max(1, highest), 1024)))
        top, parts = nice_top(highest / factor)
        top *= factor
        y_ticks = [(k / parts, n_bytes(top * k / parts)) for k in range(parts + 1)]
    else:
        top, parts = nice_top(highest)
        y_ticks = _counts(top, parts)
    per_bar, count = files["files_per_bar"], files["count"]
    x_ticks = [((k + 0.5) / len(bars), whole(k * per_bar + 1)) for k in _spread(len(bars))]
    said = f"{whole(count)} files, of {whole(files['summary']['min'])} to {whole(files['summary']['max'])} {unit}."
    plot = Plot("files", "Sizes of files", said, x_ticks, y_ticks, height=150)
    for k, (bar, name) in enumerate(zip(bars, names, strict=True)):
        size = n_bytes(bar["size"]) if unit == "bytes" else f"{whole(bar['size'])} tokens"
        plot.bar(k / len(bars), (k + 1) / len(bars), bar["size"] / top, f"{unescape(name)}: {size}", bar["source"] % 8)
    return plot.render()


def draw_shares(identity: str, what: str, parts: Sequence[tuple[str, float]]) -> str:
    """Draw a mixture as one divided bar; labels are already escaped."""
    named = [(f"{unescape(label)}: {percent(share)}", share) for label, share in parts]
    said = "; ".join(label for label, _ in named[:20])
    return shares_bar(identity, f"Shares of the datasets {what}", said, named)


def swatch(number: int) -> str:
    """Return a small square in the colour of a dataset."""
    square = f'<rect class="f s{number % 8}" width="10" height="10" rx="2"/>'
    return f'<svg width="10" height="10" class="swatch" aria-hidden="true">{square}</svg>'


def line_key(series: int) -> str:
    """Return a short line for a legend."""
    line = f'<line class="l s{series}" x1="0" x2="26" y1="5" y2="5"/>'
    return f'<svg width="26" height="10" aria-hidden="true">{line}</svg>'


class _LogAxis:
    """Positions of lengths on a logarithmic axis over bins; a length of 0 is one step before 1."""

    def __init__(self, bins: Sequence[dict[str, Any]]) -> None:
        self._low = self._log(bins[0]["from"])
        self._width = max(1e-9, self._log(bins[-1]["to"]) - self._low)

    def _log(self, value: int) -> float:
        return math.log2(value) if value > 0 else -1.0

    def place(self, value: int) -> float:
        return (self._log(value) - self._low) / self._width

    def ticks(self) -> list[Tick]:
        """Return powers of two, at most `_MAX_TICKS`."""
        first, last = math.ceil(max(0.0, self._low) - 1e-9), math.floor(self._low + self._width + 1e-9)
        step = max(1, -(-(last - first + 1) // _MAX_TICKS))
        start = -(-first // step) * step
        return [(self.place(1 << k), length(1 << k)) for k in range(start, last + 1, step)]


def _counts(top: float, parts: int) -> list[Tick]:
    return [(k / parts, short(top * k / parts)) for k in range(parts + 1)]


def _spread(n: int) -> list[int]:
    """Return some of 0 .. n - 1, evenly spaced."""
    step = max(1, -(-n // _MAX_TICKS))
    return list(range(0, n, step))
