"""Cookers: functions that make samples of crude ones, as Megatron-Energon's task encoders use them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastpack.webdataset.samples import BASE_FIELDS, SourceInfo


@dataclass(frozen=True)
class Cooker:
    """A function of a crude sample, for the datasets that have these subflavors (None: for all)."""

    cook: Callable[[Any], Any]
    has_subflavors: Mapping[str, Any] | None = None

    def is_match(self, subflavors: Mapping[str, Any]) -> bool:
        """Whether a dataset of these subflavors has all that this cooker wants, with the same values."""
        return all(
            name in subflavors and subflavors[name] == value for name, value in (self.has_subflavors or {}).items()
        )


def choose_cooker(cookers: Iterable[Any], subflavors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """The function of the first cooker that matches; a plain function is a cooker for all. ValueError for none.

    Anything with `cook` and `is_match` will do; but ValueError for those that want Energon's cache or file stores.
    """
    for cooker in cookers:
        if not hasattr(cooker, "cook"):
            return _checked(cooker)
        if cooker.is_match(subflavors):
            return _checked(cooker.cook)
    raise ValueError(f"no cooker is for the subflavors {dict(subflavors)!r}")


def _checked(cook: Any) -> Callable[[Any], Any]:
    if not callable(cook):
        raise TypeError(f"a {type(cook).__name__} is no cooker: a function of a crude sample is")
    if getattr(cook, "__cooker_need_cache__", False) or getattr(cook, "__cooker_need_primary__", False):
        raise ValueError("a cooker that needs Energon's cache or file stores cannot be used here")
    function: Callable[[Any], Any] = cook
    return function


def basic_sample_keys(
    crude_sample: Mapping[str, Any], additional_source_info: tuple[SourceInfo, ...] = ()
) -> dict[str, Any]:
    """The dunder fields that a cooked sample takes over from the crude one, sources added behind its own."""
    kept = {name: crude_sample[name] for name in BASE_FIELDS if name in crude_sample}
    if additional_source_info:
        kept["__sources__"] = (*crude_sample["__sources__"], *additional_source_info)
    return kept
