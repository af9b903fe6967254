"""What is known of the rows of a plan when they are written."""

from __future__ import annotations

from typing import NamedTuple

from fastpack.plans.balance import Costs


class WrittenRows(NamedTuple):
    """The rows of a plan, in the order in which they are stored, after those that one document fills.

    Attributes
    ----------
    n_rows, n_segments
        Number of rows, and of pieces of documents in them.
    n_skipped
        Number of rows that one document fills that are in no group of even cost.
    n_even
        Number of rows, from the first on, that make up groups of even cost with the others that one document fills.
    even_costs
        Costs of the rows at the start of these: those of the first shard.
    other_costs
        Costs of the rows after them; both are empty unless the plan is balanced.
    """

    n_rows: int
    n_segments: int
    n_skipped: int
    n_even: int
    even_costs: Costs
    other_costs: Costs
