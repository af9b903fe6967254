"""Statistics of lengths and ids, against plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack.analysis import document_lengths as module
from fastpack.analysis.document_lengths import DocumentStatistics, LengthCounter, LengthTable
from fastpack.analysis.token_ids import IdCounter
from fastpack.inspection.histogram import draw_histogram

LENGTHS = st.lists(st.one_of(st.integers(0, 40), st.integers(0, 3000), st.integers(0, 1 << 40)), max_size=40)


@given(parts=st.lists(LENGTHS, max_size=4), pending=st.integers(1, 50))
def test_counting_in_blocks_equals_counting_at_once(
    parts: list[list[int]], pending: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PENDING", pending)
    counter = LengthCounter()
    for part in parts:
        counter.add(np.array(part, np.int64))
    lengths = sorted(itertools.chain(*parts))
    for table in (counter.table(), LengthTable.merged(LengthTable.of(np.array(part, np.int64)) for part in parts)):
        assert np.repeat(table.values, table.counts).tolist() == lengths
        assert (table.documents, table.total) == (len(lengths), sum(lengths))


@given(lengths=LENGTHS.filter(bool))
def test_summary(lengths: list[int]) -> None:
    found = LengthTable.of(np.array(lengths)).summary()
    assert found is not None
    assert (found["min"], found["max"]) == (min(lengths), max(lengths))
    for name, percent in {"p1": 1, "p10": 10, "p25": 25, "median": 50, "p75": 75, "p90": 90, "p99": 99}.items():
        assert found[name] == sorted(lengths)[-(-percent * len(lengths) // 100) - 1]


def test_no_documents_have_no_summary_and_no_bins() -> None:
    empty = LengthTable.of(np.array([], np.int64))
    assert (empty.summary(), empty.bins(), list(draw_histogram([], 80, plain=False))) == (None, [], [])


@given(lengths=LENGTHS.filter(bool), per_octave=st.sampled_from([1, 2, 4]))
def test_bins_contain_all_documents(lengths: list[int], per_octave: int) -> None:
    bins = LengthTable.of(np.array(lengths)).bins(per_octave)
    for one in bins:
        inside = [length for length in lengths if one.start <= length < one.end]
        assert (one.documents, one.total) == (len(inside), sum(inside))
    assert sum(one.documents for one in bins) == len(lengths)
    assert bins[0].documents
    assert bins[-1].documents
    assert [one.end for one in bins[:-1]] == [one.start for one in bins[1:]]
    assert all(one.end <= max(2 * one.start, 1) for one in bins)


@given(lengths=LENGTHS, length=st.integers(1, 5000))
def test_beyond_and_missing(lengths: list[int], length: int) -> None:
    table = LengthTable.of(np.array(lengths, np.int64))
    assert table.beyond(length) == sum(max(0, one - length) for one in lengths)
    assert table.missing(length) == sum(max(0, length - one) for one in lengths)


@given(lengths=st.lists(st.integers(0, 60), max_size=30), seq_len=st.integers(1, 40))
def test_documents_that_blocks_cut(lengths: list[int], seq_len: int) -> None:
    documents = DocumentStatistics([seq_len])
    ends = np.cumsum(np.array(lengths, np.int64))
    documents.add(ends - lengths, np.array(lengths, np.int64))
    cut = sum(
        len({at // seq_len for at in range(end - n, end)}) > 1 for end, n in zip(ends.tolist(), lengths, strict=True)
    )
    assert documents.cut[seq_len] == cut


@given(
    dtype=st.sampled_from(["u1", "u2", "u4", "i4", "i8"]),
    values=st.lists(st.one_of(st.integers(0, 127), st.integers(-5, 1 << 21)), max_size=50),
)
def test_ids_are_counted(dtype: str, values: list[int]) -> None:
    info = np.iinfo(dtype)
    tokens = [value for value in values if info.min <= value <= info.max]
    counter, other = IdCounter(), IdCounter()
    counter.add(np.array(tokens[:20], dtype))
    other.add(np.array(tokens[20:], dtype))
    counter.merge(other)
    good = [token for token in tokens if 0 <= token < 1 << 20]
    assert counter.outside == len(tokens) - len(good)
    assert {k: n for k, n in enumerate(counter.counts.tolist()) if n} == {k: good.count(k) for k in good}


def test_counts_do_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastpack.analysis.token_ids._MAX_RECENT", 1000)  # 2^32 tokens take too long
    monkeypatch.setattr("fastpack.analysis.token_ids._BLOCK_TOKENS", 300)
    rng, counter = np.random.default_rng(0), IdCounter()
    small, large = rng.integers(0, 50, 2500, dtype=np.uint16), rng.integers(0, 100_000, 2500, dtype=np.uint32)
    for tokens in (small, large, small):
        counter.add(tokens)
    both = np.concatenate([small, small, large])
    np.testing.assert_array_equal(counter.counts, np.bincount(both))
    counter.add(small)
    np.testing.assert_array_equal(counter.counts, np.bincount(np.concatenate([both, small])))


def test_histogram_as_text() -> None:
    bins = LengthTable.of(np.array([1] * 90 + [2] + [9] * 30)).bins()
    lines = list(draw_histogram(bins, 60, plain=True))
    assert [line.split()[0] for line in lines] == ["1", "2", "4", "8"]
    assert lines[0].endswith("74.4%  " + "#" * lines[0].count("#"))
    assert [line.count("#") for line in lines] == [lines[0].count("#"), 1, 0, round(lines[0].count("#") / 3)]
    assert max(map(len, lines)) <= 60
    assert {letter for line in draw_histogram(bins, 60, plain=False) for letter in line if not letter.isascii()} <= set(
        "█▏▎▍▌▋▊▉"
    )
