"""The HTML page of a comparison."""

from __future__ import annotations

import os
from typing import Any

from fastpack.inspection.number_format import n_bytes, percent, short, whole
from fastpack.inspection.page_elements import fact_list, figure, name, page, section, table, tile_list
from fastpack.inspection.page_graphs import draw_two_lengths
from fastpack.io import AtomicFile, ExistencePolicy, PathLike

_MAX_TEXT = 400  # characters of an example or a warning


def write_page(numbers: dict[str, Any], output: PathLike, policy: ExistencePolicy) -> None:
    """Write the page for the numbers of `compare`."""
    with AtomicFile(output, policy=policy) as file:
        file.write(draw_comparison(numbers).encode())


def draw_comparison(numbers: dict[str, Any]) -> str:
    """Return the page for the numbers of `compare`."""
    first, second = numbers["first"], numbers["second"]
    parts = [_tiles(numbers), _warnings(numbers), _versions(numbers), _lengths(numbers), _examples(numbers)]
    title = " and ".join(os.path.basename(one["path"].rstrip("/")) for one in (first, second))
    return page(title, "fastpack compare", [*parts, _ids(numbers)])


def _tiles(numbers: dict[str, Any]) -> str:
    total = max(1, numbers["first"]["documents"], numbers["second"]["documents"])
    tiles = []
    for label in ("unchanged", "changed", "added", "removed"):
        value = numbers[label]
        tiles.append((label.capitalize(), short(value), f"{percent(value / total)} of documents"))
    return tile_list(tiles)


def _warnings(numbers: dict[str, Any]) -> str:
    warnings = list(numbers["warnings"])
    if not numbers["same_order"]:
        warnings.append("the documents that are in both versions are in another order")
    items = "".join(f"<li>{name(text, _MAX_TEXT)}</li>" for text in warnings)
    return section("What to know", "", f'<ul class="found">{items}</ul>') if items else ""


def _versions(numbers: dict[str, Any]) -> str:
    versions = [numbers["first"], numbers["second"]]
    amount = n_bytes if numbers["unit"] == "bytes" else whole
    rows = [["Documents", *(whole(one["documents"]) for one in versions)]]
    rows += [[numbers["unit"].capitalize(), *(amount(one["total"]) for one in versions)]]
    rows += [["Equal to an earlier document", *(whole(one["duplicates"]) for one in versions)]]
    labels = {"min": "Shortest", "median": "Median length", "mean": "Mean length", "p99": "99th percentile"}
    for key, label in {**labels, "max": "Longest"}.items():
        rows.append([label, *(whole((one["lengths"] or {}).get(key)) for one in versions)])
    by = numbers["matched_by"]
    paths = [(side.capitalize(), name(numbers[side]["path"])) for side in ("first", "second")]
    paths.append(("Matched by", "content" if by == "content" else f"the field {name(by)}"))
    grid = table("Totals", ["", "First", "Second"], rows)
    return section("The two versions", "", fact_list(paths, kind="facts wide") + grid)


def _lengths(numbers: dict[str, Any]) -> str:
    versions = [numbers["first"], numbers["second"]]
    if not all(one["bins"] for one in versions):
        return ""
    graph = draw_two_lengths(versions, numbers["unit"])
    text = f"Share of the documents by length, in {numbers['unit']}."
    return section("Length of documents", text, figure(graph, f"Length in {numbers['unit']}", ["first", "second"]))


def _examples(numbers: dict[str, Any]) -> str:
    items = []
    for one in numbers["examples"]:
        sides = [side for side in ("first", "second") if one[side] is not None]
        where = " and ".join(f"number {whole(one[side])} of the {side}" for side in sides)
        shown = [(side, one[f"{side}_text"]) for side in sides if one[f"{side}_text"] is not None]
        texts = "".join(f"<dt>{side.capitalize()}</dt><dd>{name(text, _MAX_TEXT)}</dd>" for side, text in shown)
        texts = f'<dl class="facts wide">{texts}</dl>' if texts else ""
        items.append(f"<li><strong>{one['change'].capitalize()}</strong>, {where}{texts}</li>")
    note = "The first of each kind, with their numbers in the version, from 0."
    return section("Documents that differ", note, f'<ul class="samples">{"".join(items)}</ul>') if items else ""


def _ids(numbers: dict[str, Any]) -> str:
    rows = []
    for one in numbers["ids"]:
        shown = "" if one["text"] is None else f' <code class="token">{name(one["text"])}</code>'
        change = one["second_share"] - one["first_share"]
        sign = "+" if change > 0 else "\u2212"
        rows.append(
            [
                f"{whole(one['id'])}{shown}",
                percent(one["first_share"]),
                percent(one["second_share"]),
                f"{sign}{percent(abs(change))}",
            ]
        )
    head = ["Token", "First", "Second", "Difference"]
    text = "Ids whose share of all tokens differs most."
    return section("Tokens", text, table("Shares of tokens", head, rows)) if rows else ""
