"""The HTML page of a report, which loads no other files."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from fastpack.inspection import page_graphs as graphs
from fastpack.inspection.curation.contents_page import draw_contents
from fastpack.inspection.number_format import UNKNOWN, length, n_bytes, percent, short, whole
from fastpack.inspection.page_elements import fact_list, figure, name, page, pair, section, table, tile_list

_MAX_SOURCES = 40  # rows of a table, which bounds the size of the page
_SHOWN_WARNINGS = 12
_MAX_WARNING = 600  # characters of a warning


def draw_page(numbers: dict[str, Any], title: str) -> str:
    """Return the page for the numbers of `report`."""
    sections = [
        _warnings(numbers),
        _sources(numbers),
        _lengths(numbers),
        _cumulative(numbers),
        *draw_contents(numbers),
        _loss(numbers),
        _packing(numbers),
        _ids(numbers),
        _mixture(numbers),
        _files(numbers),
    ]
    return page(title, "fastpack report", [_tiles(numbers), *sections])


def _tiles(numbers: dict[str, Any]) -> str:
    lengths, ids = numbers["lengths"], numbers["ids"]
    tiles = []
    if numbers["tokens"] is not None:
        tiles.append(("Tokens", short(numbers["tokens"]), whole(numbers["tokens"])))
    if numbers["documents"] is not None:
        tiles.append((_items(numbers), short(numbers["documents"]), whole(numbers["documents"])))
    if lengths is not None:
        median = lengths["summary"]["median"]
        tiles.append(
            (
                "Median length",
                _amount(median, lengths["unit"]),
                f"longest {_amount(lengths['summary']['max'], lengths['unit'])}",
            )
        )
    if ids is not None:
        tiles.append(("Largest id", whole(ids["largest"]), f"{whole(ids['distinct'])} ids occur"))
    if numbers["loss_tokens"] is not None:
        share = percent(numbers["loss_tokens"] / max(1, numbers["tokens"] or 0))
        tiles.append(("In the loss", share, f"{whole(numbers['loss_tokens'])} tokens"))
    n_files = numbers["files"]["count"]
    tiles.append(("On disk", n_bytes(numbers["bytes"]), f"{whole(n_files)} file{'s' * (n_files != 1)}"))
    return tile_list(tiles)


def _items(numbers: dict[str, Any]) -> str:
    """Return the word for its documents."""
    kinds = {source["kind"] for source in numbers["sources"]}
    names = {"jsonl": "Lines", "idx": "Entries", "webdataset": "Samples"}
    return names.get(kinds.pop(), "Documents") if len(kinds) == 1 else "Documents"


def _amount(number: float, unit: str) -> str:
    return n_bytes(number) if unit == "bytes" else short(number)


def _warnings(numbers: dict[str, Any]) -> str:
    found = numbers["warnings"][:_SHOWN_WARNINGS]
    if not found:
        return section("What is odd", "Nothing: no trap was found in these data.")
    several = len(numbers["sources"]) > 1
    items = []
    for one in found:
        where = f"<strong>{name(one['source'])}:</strong> " if several else ""
        kind = "Error: " if one["severity"] == "error" else ""
        items.append(f'<li class="{escape(one["severity"])}">{where}{kind}{name(one["text"], _MAX_WARNING)}</li>')
    left = len(numbers["warnings"]) - len(found) + numbers["warnings_left_out"]
    more = f'<p class="soft">And {whole(left)} more: <code>fastpack verify</code> lists them.</p>' if left else ""
    return section("What is odd", "", f'<ul class="found">{"".join(items)}</ul>{more}')


def _sources(numbers: dict[str, Any]) -> str:
    sources = numbers["sources"]
    if len(sources) == 1:
        one = sources[0]
        facts = [("Path", name(one["path"])), ("Kind", escape(one["kind"]))]
        facts += _eos(one["eos"]) if one["unit"] == "tokens" else []
        return section("The dataset", "", fact_list(facts, kind="facts wide"))
    rows = [
        [
            f'<span class="name">{name(one["name"])}</span>',
            escape(one["kind"]),
            whole(one["documents"]),
            whole(one["tokens"]),
            n_bytes(one["bytes"]),
            whole(one["files"]),
        ]
        for one in sources[:_MAX_SOURCES]
    ]
    text = f"{whole(len(sources))} of them" + _limited(len(sources))
    if (across := numbers["across"]) is not None:
        share = percent(across["share"])
        text += f" {whole(across['documents'])} documents ({share}) are equal to one of an earlier dataset."
    head = ["Name", "Kind", "Documents", "Tokens", "On disk", "Files"]
    return section("The datasets", text, table("What each dataset holds", head, rows))


def _limited(n_rows: int) -> str:
    return f"; the first {_MAX_SOURCES} are shown." if n_rows > _MAX_SOURCES else "."


def _eos(eos: dict[str, Any] | None) -> list[tuple[str, str]]:
    if eos is None:
        return [("End of document", "not known: give --eos-token-id")]
    facts = [("End of document", f"token {whole(eos['id'])}"), ("Known from", escape(eos["from"]))]
    if eos["tokens"] is not None:
        facts.append(("Its share", f"{percent(eos['share'])} of all tokens"))
    return facts


def _lengths(numbers: dict[str, Any]) -> str:
    lengths = numbers["lengths"]
    if lengths is None:
        text = (
            "Not known: nothing says where documents end. <code>--eos-token-id</code> names the token that ends them."
        )
        return section("Length of documents", text) if numbers["tokens"] else ""
    summary, unit = lengths["summary"], lengths["unit"]
    labels = {"min": "Shortest", **{f"p{k}": f"{k}{end} percentile" for k, end in ((1, "st"), (10, "th"), (25, "th"))}}
    labels |= {
        "median": "Median",
        "mean": "Mean",
        **{f"p{k}": f"{k}th percentile" for k in (75, 90, 99)},
        "max": "Longest",
    }
    facts = [(label, whole(summary[key])) for key, label in labels.items()]
    note = "" if lengths["of"] == len(numbers["sources"]) else " Only datasets whose documents are known are counted."
    return section(
        "Length of documents",
        f"How many documents have which length, in {unit}.{note}",
        pair(graphs.draw_lengths(lengths), f"Length in {unit}, each step of the axis twice the one before", facts),
    )


def _cumulative(numbers: dict[str, Any]) -> str:
    lengths = numbers["lengths"]
    if lengths is None or not lengths["total"]:
        return ""
    unit = lengths["unit"]
    facts = [
        (f"Up to {length(n)}", f"{percent(documents)} / {percent(total)}")
        for n, documents, total in graphs.cumulative_at(lengths)
    ]
    keys = ["documents", unit]
    return section(
        f"Where the {unit} are",
        f"Which share of the documents, and of all {unit}, is in documents up to a length.",
        pair(graphs.draw_cumulative(lengths), f"Length of documents in {unit}", facts, keys, f"documents / {unit}"),
    )


def _loss(numbers: dict[str, Any]) -> str:
    masked = [source for source in numbers["sources"] if source["loss_tokens"] is not None]
    if not masked:
        return ""
    rows = []
    for one in masked[:_MAX_SOURCES]:
        turns, tokens = one["turns_per_document"] or {}, one["loss_per_document"] or {}
        share = percent(one["loss_tokens"] / max(1, one["tokens"]))
        cells = (whole(some.get(key)) for some in (turns, tokens) for key in ("mean", "median", "max"))
        rows.append([f'<span class="name">{name(one["name"])}</span>', whole(one["loss_tokens"]), share, *cells])
    head = ["Name", "Tokens that count", "Share", "Turns per document, mean", "Median", "Most"]
    head += ["Tokens that count per document, mean", "Median", "Most"]
    text = f"Which tokens train the model: those that the loss mask counts{_limited(len(masked))}"
    return section("Tokens in the loss", text, table("A turn is a run of tokens that count", head, rows))


def _packing(numbers: dict[str, Any]) -> str:
    rows = numbers["packing"]
    if rows is None:
        return ""
    shown = [
        [
            length(row["seq_len"]),
            whole(row["blocks"]),
            percent(row["tokens_in_blocks"]),
            percent(row["documents_cut"]),
            percent(row["padding"]),
            percent(row["cut_off"]),
            whole(row["best_fit_rows"]),
            percent(row["best_fit_padding"]),
            whole(row["first_fit_rows"]),
            percent(row["first_fit_padding"]),
            percent(row["best_fit_cut"]),
        ]
        for row in rows
    ]
    head = ["Length", "Blocks", "Tokens in blocks", "Documents cut", "Padding", "Cut off"]
    head += ["Rows, best fit", "Padding", "Rows, first fit", "Padding", "Documents cut by both"]
    caption = (
        "Padding and what is cut off: with one document a row instead of blocks. Best and first fit: as `fastpack "
        "plan` packs, first fit in random order"
    )
    grid = table(caption, head, shown)
    keys = ["tokens in whole blocks", "documents cut", "padding, one document a row"]
    known = rows[0]["documents_cut"] is not None
    graph = figure(graphs.draw_packing(rows), "Sequence length in tokens", keys if known else keys[:1])
    return section(
        "Packing at sequence lengths",
        "Blocks of one length are cut from all tokens of a file; what is left at its end is dropped.",
        graph + grid,
    )


def _ids(numbers: dict[str, Any]) -> str:
    ids = numbers["ids"]
    if ids is None:
        return ""
    covered = ids["distinct_in_vocabulary"] / ids["counted_below"]
    what = "of the vocabulary" if ids["vocab_size"] else f"of the ids below {whole(ids['counted_below'])}"
    facts = [
        ("Ids that occur", whole(ids["distinct"])),
        ("Vocabulary", whole(ids["vocab_size"])),
        ("Share that occurs", percent(covered)),
        ("Largest id", whole(ids["largest"])),
        *((_token(one), percent(one["share"])) for one in ids["top"]),
    ]
    if ids["outside"]:
        facts.insert(4, ("Tokens that are no ids", whole(ids["outside"])))
    return section(
        "Token ids",
        f"{percent(covered)} {what} occur at least once. Ids of natural text fall in a nearly straight line.",
        pair(graphs.draw_ranks(ids), "Ids by rank, the most frequent first (both axes logarithmic)", facts),
    )


def _token(one: dict[str, Any]) -> str:
    """Return a token as text, with its id, or only the id."""
    number = f"id {whole(one['id'])}"
    return number if one["text"] is None else f'<code class="token">{name(one["text"])}</code> <small>{number}</small>'


def _mixture(numbers: dict[str, Any]) -> str:
    mixture = numbers["mixture"]
    if mixture is None:
        return ""
    parts, weighted = mixture["parts"], any(part["weight"] is not None for part in mixture["parts"])
    bars = [_shares("mixture-size", "by size", [(part["name"], part["share"]) for part in parts])]
    if weighted:
        bars.append(_shares("mixture-weight", "in training", [(part["name"], part["weight"] or 0.0) for part in parts]))
    head = ["Name", mixture["unit"].capitalize(), "Share by size", *(["Share in training", "Seen"] if weighted else [])]
    rows = []
    for number, part in enumerate(parts[:_MAX_SOURCES]):
        row = [f'<span class="name">{graphs.swatch(number)}{name(part["name"])}</span>']
        row += [n_bytes(part["size"]) if mixture["unit"] == "bytes" else whole(part["size"]), percent(part["share"])]
        if weighted:
            row += [percent(part["weight"]), UNKNOWN if part["repeat"] is None else f"{part['repeat']:,.2f} times"]
        rows.append(row)
    seen = " Seen: how often a dataset comes round while as many samples are drawn as there are." if weighted else ""
    grid = table("Shares of the datasets", head, rows)
    text = f"Which dataset what is read comes from{_limited(len(parts))}{seen}"
    return section("Mixture", text, f'<ul class="bars">{"".join(bars)}</ul>{grid}')


def _shares(identity: str, what: str, parts: Sequence[tuple[str, float]]) -> str:
    named = [(name(label), share) for label, share in parts]
    return f"<li>{what}{graphs.draw_shares(identity, what, named)}</li>"


def _files(numbers: dict[str, Any]) -> str:
    files = numbers["files"]
    if files["count"] < 2:
        return ""
    unit, summary = files["unit"], files["summary"]
    labels = {"min": "Smallest", "median": "Median", "mean": "Mean", "max": "Largest"}
    facts = [("Files", whole(files["count"]))]
    facts += [
        (label, n_bytes(summary[key]) if unit == "bytes" else whole(summary[key])) for key, label in labels.items()
    ]
    each = "A bar a file" if files["files_per_bar"] == 1 else f"A bar is the mean of {files['files_per_bar']:,} files"
    graph = graphs.draw_files(files, [name(bar["name"]) for bar in files["bars"]])
    return section(
        "Files", f"{each}, in {unit}, in the order in which they are read.", pair(graph, "Number of the file", facts)
    )
