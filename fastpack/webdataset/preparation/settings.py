"""Settings of `prepare_webdataset`: one frozen dataclass per concern, constructed from flags or Python arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from fastpack.webdataset.preparation import splits
from fastpack.webdataset.preparation.dataset_yaml import SampleTypeSpec
from fastpack.webdataset.preparation.media import MediaFilter
from fastpack.webdataset.preparation.splits import Compat, Ratio, Splits

MAX_DEFAULT_WORKERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSpec:
    """Assign the shards of a folder to splits; exactly one of `ratio`, `patterns` and `globs` is required.

    Parameters
    ----------
    ratio
        Three numbers for train, val and test, such as ``(8, 1, 1)``. They need not add up to 1.
    patterns
        (split, regular expression) pairs. An expression matches the start of a shard's path.
    globs
        (split, glob) pairs. A glob matches the whole path; ``*`` stops at a slash, ``**`` does not.
    shuffle
        Shuffle the shards (with a fixed seed) before they are split by ratio.
    exclude
        A regular expression. Shards in whose path it is found are left out of the dataset.
    compat
        ``"energon"``: split exactly as Energon 7.4.1, including the shards that its rounding loses.

    Raises
    ------
    ValueError
        If not exactly one way to split is given, or a ratio, an expression or `compat` is invalid.

    Examples
    --------
    >>> from fastpack.webdataset.preparation.settings import SplitSpec
    >>> SplitSpec(ratio=(1, 1, 0)).assign(["a.tar", "b.tar"])
    {'train': ['a.tar'], 'val': ['b.tar'], 'test': []}
    """

    ratio: Ratio | None = None
    patterns: Sequence[tuple[str, str]] = ()
    globs: Sequence[tuple[str, str]] = ()
    shuffle: bool = False
    exclude: str | None = None
    compat: Compat = None

    def __post_init__(self) -> None:
        if (self.ratio is not None) + bool(self.patterns) + bool(self.globs) != 1:
            raise ValueError("choose exactly one way to split the shards: split_ratio, split_parts or split_globs")
        if self.compat not in (None, "energon"):
            raise ValueError(f"unknown compat {self.compat!r}: the only choice is 'energon'")
        self.assign([])  # compiles the expressions

    def assign(self, shards: Sequence[str]) -> Splits:
        """Return the shards of each split.

        Parameters
        ----------
        shards
            Paths of the shards, relative to the folder.

        Returns
        -------
        dict
            The shards by split.
        """
        if self.ratio is not None:
            return splits.split_by_ratio(shards, self.ratio, shuffle=self.shuffle, compat=self.compat)
        if self.patterns:
            return splits.split_by_patterns(shards, self.patterns, compat=self.compat)
        return splits.split_by_globs(shards, self.globs)

    def warnings(self, shards: Sequence[str], assigned: Splits) -> list[str]:
        """Return warnings about empty splits and about shards in no split, or in several.

        Parameters
        ----------
        shards
            Paths of the shards, relative to the folder.
        assigned
            The result of `assign`.

        Returns
        -------
        list of str
            One warning each; empty if there are none.
        """
        if self.ratio is None:
            return splits.describe_problems(shards, assigned, list(assigned))
        shares = splits.check_ratio(self.ratio)
        expected = [split for split, share in zip(assigned, shares, strict=True) if share]
        warnings = splits.describe_problems(shards, assigned, expected)
        lost = splits.lost_by_energon(shards, self.ratio, shuffle=self.shuffle)
        if lost and self.compat is None:
            split = next(split for split, names in assigned.items() if lost[0] in names)
            warnings.append(
                f"at this ratio Energon's rounding leaves {splits.listed(lost)} out of every split; "
                f"here it is in {split}. --compat energon leaves it out as well"
            )
        return warnings


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSettings:
    """Control how the shards are walked.

    Parameters
    ----------
    num_workers
        Threads. By default one per processor, at most 16.
    force_overwrite
        Prepare a dataset again that has already been prepared.
    resume
        Continue a run that was interrupted or killed.
    walk_all
        Also walk shards that did not change since the last run.
    skip_bad_shards
        Leave damaged and empty shards out, with a warning, instead of raising an error.
    sample_tables
        Write the tables of samples into ``index.sqlite``. Training does not need them, lookup by key does. Without
        them, repeated keys are not detected.

    Raises
    ------
    ValueError
        If `num_workers` is below 1.

    Examples
    --------
    >>> from fastpack.webdataset import ExecutionSettings
    >>> ExecutionSettings(num_workers=4, resume=True).num_threads
    4
    """

    num_workers: int | None = None
    force_overwrite: bool = False
    resume: bool = False
    walk_all: bool = False
    skip_bad_shards: bool = False
    sample_tables: bool = True

    def __post_init__(self) -> None:
        if self.num_workers is not None and self.num_workers < 1:
            raise ValueError(f"num_workers must be at least 1, not {self.num_workers}")

    @property
    def num_threads(self) -> int:
        """Threads to use."""
        return self.num_workers or min(MAX_DEFAULT_WORKERS, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class PrepareSettings:
    """All settings of `prepare_webdataset`.

    Parameters
    ----------
    splits
        How the shards are split.
    sample_type
        Contents of ``dataset.yaml``. None: the file is not written.
    media
        Fields whose media metadata goes into the index (see `media_filter`). All shards are then walked.
    execution
        How the shards are walked.

    Examples
    --------
    >>> from fastpack.webdataset import PrepareSettings, SplitSpec
    >>> settings = PrepareSettings(SplitSpec(ratio=(8, 1, 1)))
    >>> settings.sample_type is None, settings.execution.sample_tables
    (True, True)
    """

    splits: SplitSpec
    sample_type: SampleTypeSpec | None = None
    media: MediaFilter | None = None
    execution: ExecutionSettings = field(default_factory=ExecutionSettings)
