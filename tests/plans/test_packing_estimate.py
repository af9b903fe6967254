"""Estimates from the distribution of lengths, compared with plans."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli

import fastpack
from fastpack.plans import packing_estimate

Corpus = Callable[..., Path]
LENGTHS = np.maximum(0, np.random.default_rng(0).lognormal(4, 1, 2000)).astype(int).tolist()


def test_estimates_are_the_numbers_of_plans(tmp_path: Path, corpus: Corpus) -> None:
    source = corpus(LENGTHS)
    found = fastpack.inspect(source, seq_lens=[64, 256])["packing"]
    assert [(row["algorithm"], row["long"]) for row in found[:5]] == [
        ("best_fit", "split"),
        ("best_fit", "truncate"),
        ("best_fit", "drop"),
        ("first_fit", "split"),
        ("none", "split"),
    ]
    assert len(found) == 10
    for row in found:
        options: dict[str, Any] = {"seq_length": row["seq_len"], "algorithm": row["algorithm"], "long": row["long"]}
        result = fastpack.plan(source, tmp_path / "a.plan", if_exists="overwrite", **options)
        assert row["left_out"] == result.n_truncated + result.n_dropped
        error = 0.02 if row["algorithm"] == "first_fit" else 0  # which depends on the order of documents
        assert row["rows"] == pytest.approx(result.n_rows, rel=error)
        assert row["padding_share"] == pytest.approx(result.padding_share, rel=1e-6, abs=error)
        if row["algorithm"] == "none":
            assert 0 < row["documents_cut"] <= result.n_cuts
        else:
            assert row["documents_cut"] == (row["long"] != "drop") * sum(n > row["seq_len"] for n in LENGTHS)


def test_large_corpora_are_sampled(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    source = corpus(LENGTHS * 5)
    whole = fastpack.inspect(source, seq_lens=[256])["packing"]
    monkeypatch.setattr(packing_estimate, "_MOST_PIECES", 4000)
    monkeypatch.setattr(packing_estimate, "_MOST_IN_ORDER", 2000)
    for row, exact in zip(fastpack.inspect(source, seq_lens=[256])["packing"], whole, strict=True):
        assert row["rows"] == pytest.approx(exact["rows"], rel=0.01)
        assert 0 <= row["padding_share"] < exact["padding_share"] + 0.01


def test_info_and_report_show_packing(tmp_path: Path, corpus: Corpus, cli: Cli) -> None:
    source = corpus(LENGTHS)
    text = cli("info", source, "--seq-len", 256).out
    assert "best_fit, truncate" in text
    assert "packed to length" in text
    rows = cli.json("report", source, "-o", tmp_path / "a.html")["packing"]
    assert rows[0]["best_fit_padding"] <= rows[0]["first_fit_padding"] < rows[0]["padding"]
    assert rows[0]["best_fit_rows"] <= rows[0]["first_fit_rows"]
    assert rows[0]["best_fit_cut"] == 0
    np.save(tmp_path / "a.npy", np.ones(50, np.uint16))
    assert cli.json("info", tmp_path / "a.npy", "--quick")["packing"] is None
