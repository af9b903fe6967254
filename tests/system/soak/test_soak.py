"""Some seconds of the soak: see soak.py, which runs for hours and not in CI."""

from __future__ import annotations

import pytest
from soak import soak


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # small datasets; forks
def test_every_sample_of_every_epoch_comes_once() -> None:
    tally = soak(5, seed=7, patience=0.15)
    assert min(tally.jobs, tally.attempts, tally.kills, tally.epochs) >= 1, tally
    assert tally.samples > 100
