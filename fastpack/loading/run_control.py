"""What a training loop may ask of its run, and change in it, at any step: the base class of the loader."""

from __future__ import annotations

import threading
from typing import Any

from fastpack.loading.progress import Progress, SourceCount
from fastpack.loading.run_description import describe_run


class RunControl:
    """Counts and skips of a loader's run."""

    dataset: Any
    sampler: Any
    _lock: threading.RLock
    _progress: Progress

    def counts(self) -> dict[str, SourceCount]:
        """Return what each source has delivered to all ranks so far; nothing is communicated.

        Exact at every step and after every resume: batches that were produced ahead and skipped steps do not count.

        Returns
        -------
        dict
            By the name of the source, {"samples", "tokens", "epochs"}: tokens are those of whole rows, padding included
            (0 if samples are no rows of tokens), epochs are samples as a share of the source. A dataset that is no
            mixture is one source, "dataset".

        Raises
        ------
        ValueError
            For a mixture without names, or without `no_repeat`.
        """
        with self._lock:
            return self._progress.counts(self.dataset)

    def skip(self, *, steps: tuple[int, int]) -> None:
        """Do not deliver these global steps; call it on every rank, before the steps.

        Skipped steps consume their samples and keep their numbers: the other steps stay what they are. Skips are part
        of the state. In this process they also apply after `load_state_dict`, so they may be set before or after it.

        Parameters
        ----------
        steps
            The first and the last step, inclusive, counted from 0 over the run (see `step`). Steps that were delivered
            are skipped if an earlier state is loaded.

        Raises
        ------
        ValueError
            If the range is empty or begins below 0.
        """
        with self._lock:
            self._progress.skip(*steps)

    @property
    def step(self) -> int:
        """The number of the next global step of the run: the batches of a rank so far, skipped ones included."""
        return self._progress.step

    def describe(self) -> dict[str, Any]:
        """Return a JSON document from which, with the data files, `fastpack.trace` reconstructs any batch so far.

        It contains the arguments and fingerprints of the datasets, the order, the history of a mixture, the changes of
        the number of ranks, and skips. Save it next to each checkpoint: a mixture whose weights change at every step
        keeps only its newest changes. Every version of the format stays readable.

        Returns
        -------
        dict
            JSON values; the format is described in the documentation ("Operating a long run").

        Raises
        ------
        ValueError
            If the dataset or the sampler is not one of fastpack, or an argument of the dataset is a function.
        """
        with self._lock:
            return describe_run(self.dataset, self.sampler, self._progress.state(), [])
