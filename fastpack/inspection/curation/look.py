"""The contents of all sources of a report: of token files and texts by document, of WebDatasets by sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastpack.analysis.file_facts import FileFacts
from fastpack.analysis.options import InspectOptions
from fastpack.inspection.curation.contents import Asked, contents_of
from fastpack.inspection.curation.duplicates import HashSample, across
from fastpack.inspection.curation.known_tokenizer import find_decoder
from fastpack.inspection.curation.media import media_of
from fastpack.inspection.curation.open_corpus import open_corpus
from fastpack.io import Progress
from fastpack.tokenizers.decode import TokenDecoder
from fastpack.tokens.formats import FORMATS

_TOKENS = frozenset(row.kind for row in FORMATS)
_TEXTS = frozenset(("jsonl", "parquet", "arrow", "csv", "tsv", "text"))
_SHOWN_SOURCES = 8  # whose documents are shown


class Source(NamedTuple):
    """One dataset of a report: path, name, and weight in the mixture (None: by its size)."""

    path: str
    name: str
    weight: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """What a report shows of the contents; see `fastpack.report`."""

    options: InspectOptions = field(default_factory=InspectOptions)
    tokenizer: str | None = None
    by: str | None = None
    seed: int = 0
    n_samples: int = 5


class Look:
    """The contents of sources. decoder: of the tokens, if all sources have one, as far as is known."""

    def __init__(
        self,
        looks: Looks,
        sources: Sequence[Source],
        measured: Sequence[FileFacts],
        progress: Sequence[Progress | None],
    ) -> None:
        self._looks = looks
        self._facts: list[dict[str, Any]] = []
        self._hashes: list[tuple[str, HashSample]] = []
        self.warnings: list[dict[str, str]] = []
        self.decoder: TokenDecoder | None = None
        if looks.by is not None and sources and not any(one.facts["kind"] in _TEXTS for one in measured):
            raise ValueError(f"no source has a field {looks.by!r}: shares by a field need text sources")
        for number, (source, one) in enumerate(zip(sources, measured, strict=True)):
            self._progress = progress[number]
            self._add(source, one, looks.n_samples if number < _SHOWN_SOURCES else 0)

    def facts(self, number: int) -> dict[str, Any]:
        """Return {"contents", "media"} of a source."""
        return self._facts[number] if self._facts else {"contents": None, "media": None}

    def across(self) -> dict[str, Any] | None:
        """Return how many documents are equal to one of an earlier source, among sources of one unit."""
        units = [unit for unit, _ in self._hashes]
        if len(units) < 2 or len(set(units)) > 1:
            return None
        repeated, n_documents = across([sample for _, sample in self._hashes])
        return {"documents": repeated, "share": repeated / max(1, n_documents)}

    def _add(self, source: Source, one: FileFacts, n_samples: int) -> None:
        kind, facts = one.facts["kind"], one.facts
        media = media_of(source.path, facts, self._looks.seed, n_samples) if kind == "webdataset" else None
        if media is not None:
            self.warnings += [self._warning(source, text) for text in media.pop("warnings")]
        contents = self._contents(source, facts, n_samples) if kind in _TOKENS | _TEXTS else None
        self._facts.append({"contents": contents, "media": media})

    def _contents(self, source: Source, facts: dict[str, Any], n_samples: int) -> dict[str, Any] | None:
        is_text = facts["kind"] in _TEXTS
        eos = None if is_text or facts["eos"] is None else facts["eos"]["id"]
        has_texts = facts["kind"] in ("jsonl", "text") or facts.get("text_field") is not None
        if not (has_texts if is_text else facts.get("documents") is not None or eos is not None):
            return None
        options, looks = self._looks.options, self._looks
        decoder = find_decoder(source.path, looks.tokenizer) if looks.tokenizer or not is_text else None
        if decoder is not None and not is_text and (facts["largest_id"] or 0) >= decoder.vocab_size:
            text = f"the tokenizer has {decoder.vocab_size:,} ids, the largest one here is {facts['largest_id']:,}"
            self.warnings.append(self._warning(source, f"{text}: it is another tokenizer, and no text is shown"))
            decoder = None
        self.decoder = self.decoder or (None if is_text else decoder)
        asked = Asked(eos, looks.by if is_text else None, decoder, looks.seed, n_samples)
        with open_corpus(
            source.path,
            eos_token_id=eos,
            dtype=options.dtype if facts["kind"] in ("shards", "olmo", "mds") else None,
            text_field=options.text_field,
            split_on=options.split_on if facts["kind"] == "text" else None,
            group=asked.group,
        ) as documents:
            contents, hashes = contents_of(documents, asked, self._progress)
        if not contents["documents"]:
            if contents["without_text"]:
                text = f"no row has a text in the field {options.text_field or 'text'!r}: name another (--text-field)"
                self.warnings.append(self._warning(source, text))
            return None
        self._hashes.append((contents["unit"], hashes))
        return contents

    def _warning(self, source: Source, text: str) -> dict[str, str]:
        return {"source": source.name, "severity": "warning", "text": text}
