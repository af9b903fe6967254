"""KempnerForge's sampler over several datasets, drawn by weight."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fastpack.loading import mixing
from fastpack.loading.mixture_epochs import MixtureEpochs
from fastpack.loading.mixture_history import MixtureHistory, rounded_shares
from fastpack.loading.mixture_sources import MixtureSources
from fastpack.loading.resume import json_fingerprint


class MixtureSampler(MixtureEpochs):
    """Draw each rank's sample numbers of a `MixtureDataset` by weight (exactly KempnerForge's, without torch).

    Parameters
    ----------
    cumulative_sizes
        [0, n0, n0 + n1, ...]: the `cumulative_sizes` of the dataset.
    weights
        One per dataset, >= 0. A share above a dataset's size repeats its samples in the same order.
    num_replicas, rank
        By default those of torch.distributed if it is initialized, else 1 and 0.
    shuffle
        Whether samples are shuffled, by seed and epoch.
    seed
        The seed, the same on every rank.
    drop_last
        Whether each dataset is cut to a multiple of the ranks, or extended to one by its own start.
    temperature
        1 uses the weights as they are; higher temperatures make them more equal, by a softmax of
        log(weight) / temperature.
    order
        "torch", or "feistel", which stores no array and can be read at any position (`at`). Shares and lengths are the
        same. One permutation per epoch selects the dataset and the draw of each position, one per dataset selects the
        sample of each draw. No dataset is too small for the ranks, and none loses a remainder.
    no_repeat
        Repeat no sample of a dataset before all of its samples were drawn, in the whole run: whatever weights are set,
        however many ranks resume it, and across epochs. The order is fastpack's own from the first step and is computed
        as for "feistel" (`order` must be "torch"). After every step each dataset has its share of the samples since the
        last change of weights, to within 1 sample for two datasets and 4 for any number of them.
    names
        The names of the datasets, for `remove_dataset`, weights by name, and `counts` of the loader.
    weight_by
        "samples", or "tokens": weights are shares of the tokens, where the samples of the datasets differ in length.
    tokens
        The tokens of each dataset, for weight_by="tokens".

    Attributes
    ----------
    probs : list of float
        The share of each dataset.
    target_counts : list of int
        This rank's samples of each dataset in an epoch.

    Raises
    ------
    ValueError
        If a weight is negative or all are 0, if names are not unique, if weight_by="tokens" lacks `tokens`, and, with
        `no_repeat`, if all datasets with a weight above 0 are empty.

    Warns
    -----
    UserWarning
        If a dataset is too small to give every rank a sample: it is left out (as in KempnerForge), and the epoch is
        shorter than `len()`. Not with order="feistel" or `no_repeat`.

    Notes
    -----
    `update_weights` takes effect at the next iteration, also in the middle of an epoch. Without `no_repeat` the list is
    drawn again, and samples that were drawn before are repeated.

    With `no_repeat`, `update_weights`, `add_dataset` and `remove_dataset` take effect at the next batch of a
    `StatefulDataLoader`; call them on every rank at the same step. Without a loader they take effect at the next
    iteration, whose position `set_skip` or `resume_at` determines. `state_dict` holds the datasets, the weights and the
    history of the shares, from which a resumed run computes the same order on any number of ranks; it takes precedence
    over the weights of the constructor. Setting the same weights again (replayed phases) changes nothing. The history
    in a state takes at most 3,400 bytes, which is enough for 100 arbitrary changes of 8 datasets: older changes are
    left out, which `trace` needs, but not resuming. An epoch is as long as all datasets together, also those that were
    removed. An iteration from the epoch's first sample starts the epoch again with the current weights.

    Examples
    --------
    >>> import fastpack
    >>> sampler = fastpack.MixtureSampler([0, 4, 10], weights=[1, 1], num_replicas=1, rank=0, no_repeat=True)
    >>> sampler.target_counts
    [5, 5]
    >>> numbers = list(sampler)
    >>> sorted(numbers)[:5]
    [0, 1, 2, 3, 3]
    """

    def __init__(
        self,
        cumulative_sizes: Sequence[int],
        weights: Sequence[float],
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
        temperature: float = 1.0,
        *,
        order: str = "torch",
        no_repeat: bool = False,
        names: Sequence[str] | None = None,
        weight_by: Literal["samples", "tokens"] = "samples",
        tokens: Sequence[int] | None = None,
    ) -> None:
        super().__init__(num_replicas, rank, order)
        if no_repeat and order != "torch":
            raise ValueError(
                f"no_repeat=True needs order='torch' (the default), got {order!r}: its own order takes no memory either"
            )
        mixing.check_weights(weights, "MixtureSampler(weights=...)")
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.no_repeat = no_repeat
        self.weight_by = weight_by
        self._sources = MixtureSources.of(cumulative_sizes, names, weight_by, tokens)
        self._n_original = len(self._sources.sizes)
        self._history: MixtureHistory | None = None  # from the first iteration on
        self._epoch_start = (0, 0)  # an epoch, and the samples of the run before it
        self._set_weights(weights, temperature)

    @property
    def names(self) -> list[str]:
        """The names of the datasets that are drawn from, in the order of the weights; empty if they have none."""
        return self._sources.active_names

    def update_weights(self, weights: Sequence[float] | Mapping[str, float], temperature: float = 1.0) -> None:
        """Use other weights from the next iteration on, or with no_repeat from the loader's next batch on.

        Parameters
        ----------
        weights
            As for the constructor, without the datasets that were removed; or by name, which keeps other weights.
        temperature
            As for the constructor.

        Raises
        ------
        ValueError
            As for the constructor, or if the number of weights is not that of the datasets, or a name is unknown.

        Examples
        --------
        >>> import fastpack
        >>> sampler = fastpack.MixtureSampler([0, 4, 10], [1, 1], 1, 0, no_repeat=True, names=["web", "books"])
        >>> sampler.update_weights({"books": 3})
        >>> sampler.probs
        [0.25, 0.75]
        """
        if isinstance(weights, Mapping):
            weights = self._sources.by_name(weights, self.weights)
        if len(weights) != len(self._sources.active):
            raise ValueError(f"Expected {len(self._sources.active)} weights, got {len(weights)}")
        mixing.check_weights(weights, "MixtureSampler.update_weights")
        self._set_weights(weights, temperature)

    def add_dataset(self, name: str, size: int, weight: float, *, tokens: int | None = None) -> None:
        """Draw from another dataset, whose samples follow those of the last one; needs no_repeat=True.

        A dataset that was removed continues where it stopped.

        Parameters
        ----------
        name
            Its name.
        size
            Its number of samples. A `MixtureDataset` must contain it from the start.
        weight
            Its weight; the other weights stay as they are.
        tokens
            Its number of tokens, for weight_by="tokens".

        Raises
        ------
        ValueError
            Without no_repeat or names, for a name in use, a negative weight, or a removed dataset of another size.
        """
        self._check_changeable("add_dataset")
        mixing.check_weights([weight, 1.0], "MixtureSampler.add_dataset")
        sources = self._sources.with_source(name, size, tokens)
        self._use(sources, sources.inserted(self.weights, name, weight), self.temperature)

    def remove_dataset(self, name: str) -> None:
        """Draw no more from a dataset; the other weights stay as they are. Needs no_repeat=True.

        Parameters
        ----------
        name
            Its name.

        Raises
        ------
        ValueError
            Without no_repeat or names, for an unknown name, or if no weight above 0 is left.
        """
        self._check_changeable("remove_dataset")
        place = self._sources.place(name)
        weights = [*self.weights[:place], *self.weights[place + 1 :]]
        mixing.check_weights(weights, "MixtureSampler.remove_dataset: without it")
        self._use(self._sources.without(name), weights, self.temperature)

    def _check_changeable(self, method: str) -> None:
        if not self.no_repeat or not self._sources.names:
            raise ValueError(f"{method} needs MixtureSampler(..., no_repeat=True, names=[...])")

    def _use(self, sources: MixtureSources, weights: Sequence[float], temperature: float) -> None:
        """Replace the datasets and their weights, or raise ValueError and keep them."""
        before, self._sources = self._sources, sources
        try:
            self._set_weights(weights, temperature)
        except ValueError:
            self._sources = before
            raise

    def _set_weights(self, weights: Sequence[float], temperature: float) -> None:
        probs = self._sources.probabilities(weights, temperature)
        if self.no_repeat:
            self._shares = rounded_shares(self._sources.shares(probs))
        self.weights, self.temperature, self.probs = list(weights), temperature, probs
        if self.no_repeat:
            self.num_samples = self._sources.available(self.num_replicas, self.drop_last)
            self.revision += 1
            return
        self.num_samples = sum(self.target_counts)
        lost = self.num_samples - self._length_of(self.rank, self.num_replicas, self.target_counts)
        if lost > 0:
            warnings.warn(
                f"datasets of sizes {self.sizes} over {self.num_replicas} ranks: one is too small to give rank "
                f"{self.rank} a sample, so {lost} of its {self.num_samples} samples an epoch are not drawn",
                stacklevel=3,
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the state, as JSON values.

        Returns
        -------
        dict
            "epoch", "seed", "num_replicas" and "rank"; with `no_repeat` also "mixture": the weights, the datasets that
            were added and removed, and the history of the shares.
        """
        state = super().state_dict()
        return {**state, "mixture": self._mixture_state()} if self.no_repeat else state

    def _mixture_state(self, whole: bool = False) -> dict[str, Any]:
        """Return the weights, the datasets that were added and removed, and the history of the shares; or all of it."""
        return {
            **json_fingerprint({"weights": self.weights, "temperature": self.temperature}),
            **self._sources.state(self._n_original),
            "epoch_start": list(self._epoch_start),
            "history": self._known_history().encoded(whole),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the epoch and, with no_repeat, the datasets, their weights and the history of the shares.

        Parameters
        ----------
        state
            A state of `state_dict`.
        """
        super().load_state_dict(state)
        if not self.no_repeat:
            return
        self._history, self._epoch_start = None, (0, 0)
        if (mixture := state.get("mixture")) is not None:
            sources = self._sources.restored(mixture, self._n_original)
            self._use(sources, mixture["weights"], mixture["temperature"])
            epoch, start = mixture["epoch_start"]
            self._epoch_start = (epoch, start)
            self._history = MixtureHistory.decoded(mixture["history"], self.seed, self.shuffle)
