"""What all samples have: keys and sources, with the names of Megatron-Energon."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

from fastpack.io import AnyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceInfo:
    """Origin of a sample.

    Parameters
    ----------
    dataset_path
        The folder of the dataset.
    index
        Number of the sample in its split, or a name if it was read by name.
    shard_name
        The shard, relative to the folder.
    file_names
        Names of the files in the tar.

    Examples
    --------
    >>> from fastpack.webdataset import SourceInfo
    >>> source = SourceInfo(dataset_path="/data/web", index=0, shard_name="0.tar", file_names=("cat.jpg", "cat.txt"))
    >>> source.shard_name
    '0.tar'
    """

    dataset_path: AnyPath
    index: int | str
    shard_name: str
    file_names: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Sample:
    """Base class of samples.

    Parameters
    ----------
    __key__
        The key of the sample.
    __restore_key__
        Identifies the sample in its dataset.
    __subflavors__
        Labels of the dataset.
    __sources__
        Where the sample comes from.

    Examples
    --------
    >>> from fastpack.webdataset import Sample
    >>> sample = Sample(__key__="a", __restore_key__=("Webdataset", 0))
    >>> sample.__key__
    'a'
    """

    __key__: str
    __restore_key__: tuple[str | int | tuple[Any, ...], ...]
    __subflavors__: dict[str, Any] | None = None
    __sources__: tuple[SourceInfo, ...] | None = None

    @classmethod
    def derive_from(cls, base_sample: Sample, **kwargs: Any) -> Self:
        """Make a sample of this type with the dunder fields of another sample.

        Parameters
        ----------
        base_sample
            The other sample.
        **kwargs
            The remaining fields; they override those of `base_sample`.

        Returns
        -------
        Sample
            The new sample.

        Examples
        --------
        >>> from fastpack.webdataset import Sample, TextSample
        >>> base = Sample(__key__="a", __restore_key__=("Webdataset", 0))
        >>> sample = TextSample.derive_from(base, text="hello")
        >>> sample.__key__, sample.text
        ('a', 'hello')
        """
        return cls(**{name: getattr(base_sample, name) for name in BASE_FIELDS} | kwargs)


BASE_FIELDS = tuple(field.name for field in fields(Sample))


class CrudeSample(dict[str, Any]):
    """The decoded fields of a sample by name, with its dunder keys; the input of a cooker.

    Examples
    --------
    >>> from fastpack.webdataset import CrudeSample
    >>> CrudeSample({"__key__": "a", "txt": "hello"})["txt"]
    'hello'
    """
