"""The sections of a report about the contents of its sources: samples, duplicates, odd documents, shares, media."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from fastpack.inspection.number_format import UNKNOWN, n_bytes, percent, short, whole
from fastpack.inspection.page_elements import fact_list, name, section, table, text_of
from fastpack.inspection.page_graphs import draw_shares, swatch

_MAX_SCRIPTS = 10
_PARTS = 8  # of the corpus in the table over its places
_KINDS = {
    "first": "The first",
    "random": "Random",
    "shortest": "The shortest",
    "longest": "The longest",
    "most repetitive": "The most repetitive of these and of 1,000 others, drawn at random",
}

Facts = dict[str, Any]


def draw_contents(numbers: Facts) -> Iterator[str]:
    """Yield the sections, of each source that has contents."""
    several = len(numbers["sources"]) > 1
    for number, source in enumerate(numbers["sources"]):
        suffix = f": {source['name']}" if several else ""
        if (contents := source["contents"]) is not None:
            yield _samples(contents, suffix)
            yield _odd(contents, suffix)
            yield _places(contents, suffix)
            yield _groups(contents, suffix, number)
            yield _scripts(contents, suffix)
            yield _files(contents, suffix)
        if (media := source["media"]) is not None:
            yield _fields(media, suffix)
            yield _images(media, suffix)
            yield _durations(media, suffix)


def _samples(contents: Facts, suffix: str) -> str:
    """Return the sample documents, by kind; the same document is shown once."""
    if not contents["samples"]:
        return ""
    items = []
    shown: set[int] = set()
    for why, label in _KINDS.items():
        for position, one in enumerate(one for one in contents["samples"] if one["why"] == why):
            heading = f"<h3>{label}</h3>" if position == 0 else ""
            items.append(f"<li>{heading}{_sample(one, one['number'] in shown)}</li>")
            shown.add(one["number"])
    note = ""
    if contents["samples"][0]["pieces"] is not None:
        note = "Shades mark the tokens. "
    elif contents["samples"][0]["ids"] is not None:
        note = "Ids of tokens: <code>--tokenizer</code> names the tokenizer that decodes them. "
    note += "Documents are numbered from 0; <code>--samples 0</code> shows none."
    return section(f"Sample documents{suffix}", note, f'<ol class="samples">{"".join(items)}</ol>')


def _sample(one: Facts, is_repeated: bool) -> str:
    packed = "" if one["compressed"] is None else f", compressed to {percent(one['compressed'])}"
    heading = f'<p class="soft">Document {whole(one["number"])}{packed}{", shown above" * is_repeated}</p>'
    if is_repeated:
        return heading
    if one["pieces"] is not None:
        spans = "".join(f"<span>{text_of(piece)}</span>" for piece in one["pieces"])
        body = f'<div class="said tokens">{spans}'
    elif one["ids"] is not None:
        body = f'<div class="said">{" ".join(map(str, one["ids"]))}'
    else:
        body = f'<div class="said">{text_of(one["text"])}'
    more = "" if one["is_whole"] else '<span class="soft"> … </span>'
    return f"{heading}{body}{more}</div>"


def _odd(contents: Facts, suffix: str) -> str:
    """Return duplicates, and documents that are empty, very long, or contain what they should not."""
    copies, unit, n_documents = contents["duplicates"], contents["unit"], contents["documents"]
    about = "About " if copies["sampled"] < 1 else ""
    share = f"{percent(copies['share'])} of the documents, {percent(copies['amount_share'])} of the {unit}"
    facts = [("Equal to an earlier document", f"{about}{whole(copies['documents'])} ({share})")]
    facts.append(("Empty documents", _of(contents["empty"], n_documents)))
    limit = (
        n_bytes(contents["very_long"]["limit"])
        if unit == "bytes"
        else f"{whole(contents['very_long']['limit'])} tokens"
    )
    facts.append((f"Of at least {limit}", _of(contents["very_long"]["documents"], n_documents)))
    if contents["without_text"]:
        facts.append(("Rows without a text", whole(contents["without_text"])))
    if (eos := contents["eos"]) is not None:
        facts.append(("EOS before the end", _within(eos["inside"], eos["documents"])))
        facts.append(("Without EOS at the end", _of(eos["documents_without"], n_documents)))
    if (controls := contents["controls"]) is not None:
        first = "" if controls["first"] is None else f", the first is number {whole(controls['first'])}"
        facts.append(("Control characters", _within(controls["count"], controls["documents"]) + first))
    note = "Equal documents are found by 64-bit hashes of their contents; empty ones are not counted as equal."
    if copies["sampled"] < 1:
        note += f" Estimated from {percent(copies['sampled'])} of the documents, those with the smallest hashes."
    rows = [
        [
            whole(group["first"]),
            whole(group["count"]),
            whole(group["length"]),
            UNKNOWN if group["text"] is None else f'<span class="name">{name(group["text"])}</span>',
        ]
        for group in copies["groups"]
    ]
    head = ["Number of the first", "Equal documents", f"{unit.capitalize()} of each", "Beginning"]
    groups = table("The largest groups of equal documents", head, rows) if rows else ""
    return section(f"Duplicates and odd documents{suffix}", note, fact_list(facts, kind="facts wide") + groups)


def _of(count: int, total: int) -> str:
    return whole(count) if not count else f"{whole(count)} ({percent(count / max(1, total))})"


def _within(count: int, documents: int) -> str:
    return f"{whole(count)} in {_documents(documents)}" if count else whole(count)


def _documents(count: int) -> str:
    return f"{whole(count)} document{'s' * (count != 1)}"


def _places(contents: Facts, suffix: str) -> str:
    """Return what changes from the start of the corpus to its end, in at most eight parts."""
    places, unit = contents["places"], contents["unit"]
    if len(places["parts"]) < 2:
        return ""
    rows = []
    for first, end, part in merged_places(places, contents["documents"] + contents["without_text"]):
        mean = part["amount"] / max(1, part["documents"])
        cells = [
            f"{whole(first)}\u00a0to\u00a0{whole(end - 1)}",
            short(mean),
            percent(part["duplicates"] / max(1, part["documents"])),
        ]
        cells += [percent(amount / max(1, part["amount"])) for amount in part.get("groups", ())]
        rows.append(cells)
    head = ["Documents", f"Mean length in {unit}", "Equal to an earlier one", *map(name, places["groups"])]
    note = "What changes from the start of the corpus to its end; a corpus that is shuffled has equal rows."
    if places["groups"]:
        note += f" Shares of the {unit} by {name(contents['groups']['field'])}."
    return section(f"Over the corpus{suffix}", note, table("From the start to the end", head, rows))


def merged_places(places: Facts, n_rows: int) -> Iterator[tuple[int, int, Facts]]:
    """Yield (first row, end, sums) of at most `_PARTS` parts of about the same number of rows."""
    parts = places["parts"]
    step = -(-len(parts) // _PARTS)
    for start in range(0, len(parts), step):
        some = parts[start : start + step]
        whole_part: Facts = {key: sum(one[key] for one in some) for key in ("documents", "amount", "duplicates")}
        if places["groups"]:
            whole_part["groups"] = [sum(column) for column in zip(*(one["groups"] for one in some), strict=True)]
        yield start * places["width"], min(n_rows, (start + len(some)) * places["width"]), whole_part


def _groups(contents: Facts, suffix: str, number: int) -> str:
    groups = contents["groups"]
    if groups is None:
        return ""
    amount = n_bytes if contents["unit"] == "bytes" else whole
    parts = [(name(one["value"]), one["share"]) for one in groups["values"]]
    bar = draw_shares(f"group-{number}", f"by {groups['field']}", parts)
    rows = [
        [
            f'<span class="name">{swatch(at)}{name(one["value"])}</span>',
            whole(one["documents"]),
            amount(one["amount"]),
            percent(one["share"]),
        ]
        for at, one in enumerate(groups["values"])
    ]
    head = ["Value", "Documents", contents["unit"].capitalize(), "Share"]
    text = f"{whole(groups['distinct'])} values of the field {name(groups['field'])}, the largest first."
    title = f"Shares by {groups['field']}{suffix}"
    return section(title, text, bar + table("Shares of the values", head, rows))


def _scripts(contents: Facts, suffix: str) -> str:
    text = contents["text"]
    if text is None:
        return ""
    facts = [(escape(one["script"]), percent(one["share"])) for one in text["scripts"][:_MAX_SCRIPTS]]
    if len(text["scripts"]) > _MAX_SCRIPTS:
        facts.append(("Others", percent(sum(one["share"] for one in text["scripts"][_MAX_SCRIPTS:]))))
    if text["bytes_per_token"] is not None:
        facts.insert(0, ("Bytes per token", f"{text['bytes_per_token']:.2f}"))
    note = (
        f"Of the beginnings of {_documents(text['documents'])} drawn at random, {n_bytes(text['bytes'])} of text: "
        "the share of the characters by Unicode script."
    )
    return section(f"Text{suffix}", note, fact_list(facts, kind="facts narrow"))


def _files(contents: Facts, suffix: str) -> str:
    files = contents["files"]
    if files["count"] < 2:
        return ""
    amount = n_bytes if contents["unit"] == "bytes" else whole
    rows = [
        [
            f'<span class="name">{name(one["name"])}</span>',
            whole(one["documents"]),
            amount(one["amount"]),
            percent(one["amount"] / max(1, contents["amount"])),
        ]
        for one in files["rows"]
    ]
    more = "" if files["count"] == len(rows) else f", the first {len(rows)}"
    head = ["File", "Documents", contents["unit"].capitalize(), "Share"]
    return section(f"Shares of the files{suffix}", f"{whole(files['count'])} files{more}.", table("Files", head, rows))


def _fields(media: Facts, suffix: str) -> str:
    rows = [
        [name(one["name"]), whole(one["count"]), _of(one["missing"], media["samples"]), n_bytes(one["bytes"])]
        for one in media["fields"]
    ]
    fields = table("Fields of the samples", ["Field", "Samples with it", "Missing", "On disk"], rows) if rows else ""
    rows = [[name(one["name"]), whole(one["shards"]), whole(one["samples"])] for one in media["splits"]]
    splits = table("Splits", ["Split", "Shards", "Samples"], rows) if rows else ""
    return section(f"Fields and splits{suffix}", "", fields + splits) if fields or splits else ""


def _looked_at(media: Facts) -> str:
    all_of_them = media["looked_at"] == media["samples"]
    return "all samples" if all_of_them else f"{whole(media['looked_at'])} samples drawn at random"


def _images(media: Facts, suffix: str) -> str:
    images, captions = media["images"], media["captions"]
    if images is None and captions is None:
        return ""
    facts: list[tuple[str, str]] = []
    if images is not None:
        facts += [
            ("Images", whole(images["count"])),
            *_range("Width", images["width"]),
            *_range("Height", images["height"]),
        ]
        facts += [(f"{one['shape'].capitalize()}", _of(one["count"], images["count"])) for one in images["shapes"]]
        facts += [(name(one["format"]), _of(one["count"], images["count"])) for one in images["formats"]]
    if captions is not None:
        facts += [("Captions", whole(captions["count"])), ("Empty captions", _of(captions["empty"], captions["count"]))]
        facts += _range("Characters of a caption", captions["characters"])
    if media["unreadable"]:
        facts.append(("Not readable", whole(media["unreadable"])))
    title = "Images" if captions is None else "Images and captions" if images is not None else "Captions"
    note = f"Of {_looked_at(media)}. Tall: width / height up to 0.8; square: up to 1.25; wide: up to 2."
    pictures = "".join(_thumbnail(one) for one in media["thumbnails"])
    shown = f'<ul class="pictures">{pictures}</ul>' if pictures else ""
    return section(
        f"{title}{suffix}",
        note if images else f"Of {_looked_at(media)}.",
        shown + fact_list(facts, kind="facts narrow"),
    )


def _range(label: str, summary: Facts | None, unit: str = "") -> Sequence[tuple[str, str]]:
    if summary is None:
        return ()
    return [(label, f"{whole(summary['min'])} to {whole(summary['max'])}, median {whole(summary['median'])}{unit}")]


def _thumbnail(one: Facts) -> str:
    size = f"{one['width']} by {one['height']}"
    said = one["caption"] or f"{one['key']}.{one['field']}, without a caption"
    caption = "" if one["caption"] is None else f"<br>{name(one['caption'])}"
    return (
        f'<li><figure><img src="{escape(one["image"])}" alt="{name(said)}">'
        f"<figcaption>{name(one['key'])}, {size}{caption}</figcaption></figure></li>"
    )


def _durations(media: Facts, suffix: str) -> str:
    if not media["durations"]:
        return ""
    rows = []
    for one in media["durations"]:
        summary = one["milliseconds"]
        seconds = [f"{summary[key] / 1000:,.2f}" for key in ("min", "p10", "median", "p90", "max")]
        rows.append([one["kind"].capitalize(), whole(one["count"]), f"{one['total'] / 3600:,.2f}", *seconds])
    head = ["Stream", "Files", "Hours", "Shortest, s", "10th percentile", "Median", "90th percentile", "Longest, s"]
    text = f"Of {_looked_at(media)}."
    return section(f"Durations{suffix}", text, table("Durations of audio and video", head, rows))
