"""A few seconds of the soak test; soak.py itself can run for hours and is not part of CI."""

from __future__ import annotations

import pytest
from soak import soak


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # small datasets, forks
def test_every_sample_of_every_epoch_occurs_once() -> None:
    tally = soak(5, seed=7, patience=0.15)
    assert min(tally.jobs, tally.attempts, tally.kills, tally.epochs) >= 1, tally
    assert tally.samples > 100
