"""Cookers: functions that make samples from crude samples, as in Megatron-Energon's task encoders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastpack.webdataset.base_sample import BASE_FIELDS, SourceInfo


@dataclass(frozen=True)
class Cooker:
    """A function that makes a sample from a crude sample, for datasets with certain subflavors.

    Parameters
    ----------
    cook
        The function.
    has_subflavors
        Subflavors that the dataset must have. None: every dataset.

    Examples
    --------
    >>> from fastpack.webdataset import Cooker
    >>> cooker = Cooker(lambda crude: crude["txt"].upper(), has_subflavors={"lang": "en"})
    >>> cooker.is_match({"lang": "en", "web": True}), cooker.is_match({})
    (True, False)
    >>> cooker.cook({"txt": "hello"})
    'HELLO'
    """

    cook: Callable[[Any], Any]
    has_subflavors: Mapping[str, Any] | None = None

    def is_match(self, subflavors: Mapping[str, Any]) -> bool:
        """Return whether a dataset with these subflavors has all subflavors that the cooker requires.

        Parameters
        ----------
        subflavors
            The subflavors of a dataset.

        Returns
        -------
        bool
            Whether they match.
        """
        return all(
            name in subflavors and subflavors[name] == value for name, value in (self.has_subflavors or {}).items()
        )


def choose_cooker(cookers: Iterable[Any], subflavors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return the function of the first matching cooker; a plain function matches every dataset.

    Any object with `cook` and `is_match` is accepted. Raises ValueError if none matches, and for cookers that need
    Energon's cache or file stores.
    """
    for cooker in cookers:
        if not hasattr(cooker, "cook"):
            return _checked(cooker)
        if cooker.is_match(subflavors):
            return _checked(cooker.cook)
    raise ValueError(f"no cooker matches the subflavors {dict(subflavors)!r}")


def _checked(cook: Any) -> Callable[[Any], Any]:
    if not callable(cook):
        raise TypeError(f"a {type(cook).__name__} is not a cooker: pass a function of a crude sample")
    if getattr(cook, "__cooker_need_cache__", False) or getattr(cook, "__cooker_need_primary__", False):
        raise ValueError("cookers that need Energon's cache or file stores are not supported")
    function: Callable[[Any], Any] = cook
    return function


def basic_sample_keys(
    crude_sample: Mapping[str, Any], additional_source_info: tuple[SourceInfo, ...] = ()
) -> dict[str, Any]:
    """Return the dunder fields that a cooked sample takes from its crude sample.

    Parameters
    ----------
    crude_sample
        The crude sample.
    additional_source_info
        Sources to append to ``__sources__``.

    Returns
    -------
    dict
        The fields by name.

    Examples
    --------
    >>> from fastpack.webdataset import basic_sample_keys
    >>> basic_sample_keys({"__key__": "a", "__restore_key__": ("Webdataset", 0), "txt": "hello"})
    {'__key__': 'a', '__restore_key__': ('Webdataset', 0)}
    """
    kept = {name: crude_sample[name] for name in BASE_FIELDS if name in crude_sample}
    if additional_source_info:
        kept["__sources__"] = (*crude_sample["__sources__"], *additional_source_info)
    return kept
