"""The samples of a WebDataset, as a curator looks at them: fields, splits, images, captions, durations."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np

from fastpack.analysis.document_lengths import LengthTable
from fastpack.errors import MissingExtra
from fastpack.escape import escape_text
from fastpack.webdataset.dataset import WebDataset
from fastpack.webdataset.images import open_image
from fastpack.webdataset.preparation.media import MediaFilter

LOOKED_AT = 300  # samples
_READ = 512 << 20  # bytes of samples
_THUMBNAILS, _PIXELS, _QUALITY = 12, 160, 70
_CAPTIONS = ("txt", "text", "caption", "cap")  # extensions
_SHAPES = (("tall", 0.8), ("square", 1.25), ("wide", 2.0), ("very wide", float("inf")))  # width / height up to
_CAPTION_CHARACTERS = 200


class _Samples:
    """What is gathered from the samples that are looked at."""

    def __init__(self, n_thumbnails: int) -> None:
        self.sizes: list[tuple[int, int]] = []
        self.formats: Counter[str] = Counter()
        self.captions: list[int] = []
        self.durations: dict[str, list[int]] = {"video": [], "audio": []}
        self.unreadable = self.looked_at = 0
        self.thumbnails: list[dict[str, Any]] = []
        self.warnings: dict[str, None] = {}
        self._left = n_thumbnails

    def add(self, sample: dict[str, Any]) -> None:
        self.looked_at += 1
        key = sample.pop("__key__")
        caption = None
        for name, data in sample.items():
            if name.rpartition(".")[2].lower() in _CAPTIONS:
                text = data.decode(errors="replace")
                self.captions.append(len(text.strip()))
                caption = escape_text(text[:_CAPTION_CHARACTERS]) if caption is None else caption
        for name, data in sample.items():
            self._add_media(key, name, data, caption)

    def _add_media(self, key: str, name: str, data: bytes, caption: str | None) -> None:
        media = MediaFilter("EXTENSION")
        if not media.accepts(f"{key}.{name}"):
            return
        try:
            found = media.describe(f"{key}.{name}", io.BytesIO(data))
        except MissingExtra as error:
            self.warnings[str(error)] = None
            return
        if found is None:
            self.unreadable += 1
            return
        kind, facts = found[0], _json(found[1])
        if kind == "image":
            self.sizes.append((facts["width"], facts["height"]))
            self.formats[facts["format"]] += 1
            if self._left and (picture := _thumbnail(data)) is not None:
                self._left -= 1
                named = {"key": key, "field": name, "width": facts["width"], "height": facts["height"]}
                self.thumbnails.append({**named, "caption": caption, "image": picture})
        for stream, seconds in self.durations.items():
            if (duration := facts.get(f"{stream}_duration")) is not None:
                seconds.append(round(1000 * duration))


def media_of(path: str, facts: dict[str, Any], seed: int, n_samples: int) -> dict[str, Any]:
    """Return the facts of `fastpack.inspection.curation.media_types.Media`, and "warnings".

    facts: of `inspect`. n_samples: 0 shows no pictures.
    """
    samples = _Samples(_THUMBNAILS if n_samples else 0)
    with closing(WebDataset(path, raw=True, io="pread")) as dataset:
        n_read = 0
        for number in np.random.default_rng(seed).permutation(len(dataset))[:LOOKED_AT].tolist():
            sample = dict(dataset[number])
            n_read += sum(len(data) for name, data in sample.items() if name != "__key__")
            samples.add(sample)
            if n_read > _READ:
                break
    return {
        "samples": facts["samples"],
        "looked_at": samples.looked_at,
        "fields": _fields(facts),
        "splits": _splits(facts),
        "images": _images(samples),
        "captions": _captions(samples.captions),
        "durations": _durations(samples.durations),
        "unreadable": samples.unreadable,
        "thumbnails": samples.thumbnails,
        "warnings": list(samples.warnings),
    }


def _json(text: str) -> dict[str, Any]:
    import orjson

    found: dict[str, Any] = orjson.loads(text)
    return found


def _thumbnail(data: bytes) -> str | None:
    """Return a small picture as a data URI; None if the image cannot be decoded."""
    try:
        with open_image(data, 3) as image:
            image.draft("RGB", (2 * _PIXELS, 2 * _PIXELS))
            picture = image.convert("RGB")
        picture.thumbnail((_PIXELS, _PIXELS))
        out = io.BytesIO()
        picture.save(out, "JPEG", quality=_QUALITY)
    except Exception:  # a decoder may raise any exception for a broken image
        return None
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"


def _fields(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": name, "count": found["count"], "missing": max(0, facts["samples"] - found["count"]), **_size(found)}
        for name, found in (facts["parts"] or {}).items()
    ]


def _size(found: dict[str, int]) -> dict[str, int]:
    return {"bytes": found["bytes"]}


def _splits(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, **found} for name, found in (facts["split"] or {}).items()]


def _summary(values: Sequence[int]) -> dict[str, float] | None:
    return LengthTable.of(np.array(values, np.int64)).summary()


def _images(samples: _Samples) -> dict[str, Any] | None:
    if not samples.sizes:
        return None
    shapes = dict.fromkeys((name for name, _ in _SHAPES), 0)
    for width, height in samples.sizes:
        shapes[next(name for name, limit in _SHAPES if width <= limit * height)] += 1
    return {
        "count": len(samples.sizes),
        "width": _summary([width for width, _ in samples.sizes]),
        "height": _summary([height for _, height in samples.sizes]),
        "shapes": [{"shape": name, "count": count} for name, count in shapes.items()],
        "formats": [{"format": name, "count": count} for name, count in samples.formats.most_common()],
    }


def _captions(lengths: Sequence[int]) -> dict[str, Any] | None:
    if not lengths:
        return None
    return {"count": len(lengths), "empty": sum(not n for n in lengths), "characters": _summary(lengths)}


def _durations(found: dict[str, list[int]]) -> list[dict[str, Any]]:
    return [
        {"kind": kind, "count": len(some), "total": sum(some) / 1000, "milliseconds": _summary(some)}
        for kind, some in found.items()
        if some
    ]
