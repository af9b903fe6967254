"""`WebDataset`: random access to the samples of a prepared WebDataset, or of a JSONL file."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, SupportsIndex

import numpy as np
import numpy.typing as npt

from fastpack.datasets.base import Dataset, Indices
from fastpack.datasets.permutations import FeistelOrder, TorchGenerator
from fastpack.display import facts
from fastpack.errors import FormatError
from fastpack.io import PathLike, as_path, is_remote
from fastpack.item_numbers import item_number
from fastpack.webdataset.crude_jsonl import JsonLines
from fastpack.webdataset.decoding import Decoder
from fastpack.webdataset.metadata import meta_path
from fastpack.webdataset.open_shards import Io, Samples, TarShards, split_name
from fastpack.webdataset.sample_builder import BuilderOptions, SampleBuilder
from fastpack.webdataset.sample_definition import fields_filter
from fastpack.webdataset.selection import LineKeys, TarKeys, select

_AHEAD = 64  # samples that are prefetched before the first of them is read, in shuffled order


class WebDataset(Dataset):
    """Random access to the decoded samples of a prepared WebDataset.

    ``dataset[i]`` and ``dataset.get(key)`` return samples of the type in ``dataset.yaml`` (`CaptioningSample`, ...)
    with NumPy arrays. If the type is ``CrudeWebdataset``, or there is no ``dataset.yaml``, a sample is a dict of
    decoded fields. Samples that ``split.yaml`` excludes are left out. (Energon skips them as well, but counts them in
    its length.)

    Parameters
    ----------
    path
        The folder with ``.nv-meta``, or a ``.jsonl`` file with its ``.jsonl.idx``, whose lines are crude samples with
        the single field ``json``.
    split_part
        A split in ``split.yaml``, such as ``"train"``. None: all shards, in the order of ``.info.json``.
    raw
        Return dicts of ``__key__`` and undecoded fields, whatever ``dataset.yaml`` says.
    image_decode
        What images become, such as ``"torchrgb"`` (default): float32 [3, H, W] from 0 to 1. See `Decoder`.
    av_decode
        What audio and video become: ``"AVDecoder"`` (default), an `AVDecoder`; ``"torch"``, decoded tensors;
        ``"pyav"``, a container of the package av.
    video_decode_audio
        With ``av_decode="torch"``: also decode the audio of videos.
    max_decoded_bytes
        Maximum size of a decoded field. The default is 1 GiB, for audio and video 16 GiB.
    decoder
        A function (field name, bytes) -> value that replaces the decoder and its options. Options that are not given
        are those of ``decoder`` in ``dataset.yaml``.
    trust_code
        Run the code that ``sample_loader``, ``part_filter`` and sample types of other modules name, and decode fields
        that run code (pkl, pickle, pyd, pth).
    subflavors
        Added to those of ``dataset.yaml``.
    part_filter
        For raw and crude samples: the names of the fields to read, or a function of a name.
    cookers
        For crude samples: the first cooker that matches the subflavors makes the samples. See `Cooker`.
    split_config, dataset_config
        Other names for ``split.yaml`` and ``dataset.yaml``.
    io
        ``"mmap"``, or ``"pread"``, with which a shard that shrinks is an error instead of a crash. At most 64 files are
        open with ``"pread"``.

    Raises
    ------
    FileNotFoundError
        If the dataset is not prepared.
    ValueError
        If `split_part` is not in ``split.yaml``, or options conflict.
    FormatError
        If a file is damaged; for a sample, when it is read. The error names the file, the byte and the sample.
    UntrustedCode
        If code would have to run, without `trust_code`.

    Notes
    -----
    Pickles as paths. A sample is one read. Safe to use from several threads and after a fork. With a loader, pass a
    collate_fn that makes a batch of a list of samples.

    Examples
    --------
    >>> import io, json, tarfile, tempfile
    >>> import fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with tarfile.open(f"{folder.name}/0.tar", "w") as tar:
    ...     for name, data in (("a.json", b'{"n": 1}'), ("a.txt", b"one"), ("b.json", b'{"n": 2}'), ("b.txt", b"two")):
    ...         info = tarfile.TarInfo(name)
    ...         info.size = len(data)
    ...         tar.addfile(info, io.BytesIO(data))
    >>> _ = fastpack.prepare(folder.name, split_ratio=(1, 0, 0), sample_type="TextSample", field_map={"text": "txt"})
    >>> dataset = fastpack.WebDataset(folder.name, "train")
    >>> len(dataset), dataset[0].text, dataset.get("b").text
    (2, 'one', 'two')
    >>> fastpack.WebDataset(folder.name, raw=True)[-1]
    {'__key__': 'b', 'json': b'{"n": 2}', 'txt': b'two'}
    >>> dataset.close()
    >>> folder.cleanup()
    """

    _decoder_type = Decoder
    _subject = "path"
    _shown = facts(samples="_total", split_part="split_part", raw="raw", sample_type="sample_type", closed="_closed")

    def __init__(
        self,
        path: PathLike,
        split_part: str | None = None,
        raw: bool = False,
        *,
        image_decode: str | None = None,
        av_decode: str | None = None,
        video_decode_audio: bool | None = None,
        max_decoded_bytes: int | None = None,
        decoder: Callable[[str, bytes], Any] | None = None,
        trust_code: bool = False,
        subflavors: Mapping[str, Any] | None = None,
        part_filter: Callable[[str], bool] | Iterable[str] | None = None,
        cookers: Iterable[Any] = (),
        split_config: str = "split.yaml",
        dataset_config: str = "dataset.yaml",
        io: Io = "mmap",
    ) -> None:
        if io not in ("mmap", "pread"):
            raise ValueError(f"io is {io!r}: choose mmap or pread")
        self.path, self.split_part, self.raw = as_path(path), split_part, raw
        self._is_jsonl = self.path.suffix == ".jsonl" and self.path.is_file()
        decoder_options: dict[str, Any] = {
            "image_decode": image_decode,
            "av_decode": av_decode,
            "video_decode_audio": video_decode_audio,
            "max_decoded_bytes": max_decoded_bytes,
        }
        self._options = BuilderOptions(
            raw=raw,
            dataset_config=None if raw or self._is_jsonl else dataset_config,
            trust_code=trust_code,
            subflavors=dict(subflavors or {}),
            part_filter=None if part_filter is None else fields_filter(part_filter),
            cookers=tuple(cookers),
            decoder=decoder,
            decoder_options={name: value for name, value in decoder_options.items() if value is not None},
        )
        self._samples, self._keys, self._excluded = self._find(split_config, "pread" if is_remote(path) else io)
        self._shifted = [position - k for k, position in enumerate(self._excluded)]
        self._total = len(self._samples) - len(self._excluded)
        self._attach()

    def _find(self, split_config: str, io: Io) -> tuple[Samples, TarKeys | LineKeys, list[int]]:
        """Return all samples, their keys, and the positions of the excluded ones."""
        if self._is_jsonl:
            return (lines := JsonLines(self.path, io)), LineKeys(lines), []
        selection = select(self.path, self.split_part, split_config)
        shards = TarShards(self.path, selection.names, selection.counts, io)
        keys = TarKeys(self.path, selection, shards)
        return shards, keys, keys.excluded(selection).tolist()

    def _attach(self) -> None:
        """Restore what is not pickled; functions may come from files."""
        self._builder = SampleBuilder(self.path, self._samples, self._options, self._decoder_type)
        self.sample_type, self.subflavors = self._builder.sample_type, self._builder.subflavors

    def _identity(self) -> bytes:
        shards = self._samples
        return repr((shards.names, shards.counts, self._excluded)).encode() if isinstance(shards, TarShards) else b""

    def __getitem__(self, index: SupportsIndex) -> Any:
        return self._sample(self._position(index))

    def _position(self, index: SupportsIndex) -> int:
        """Return the position among all samples, including excluded ones."""
        self._check_open()
        i = item_number(index)
        if not -self._total <= i < self._total:
            raise IndexError(f"index {i} out of range for {self._total} samples")
        i %= self._total
        return i + bisect_right(self._shifted, i) if self._excluded else i

    def _sample(self, position: int, key: str | None = None) -> Any:
        """Read the sample at `position`; if `key` is given, check that it matches."""
        stored = self._samples.read(position, self._builder.wanted)
        if key is not None:
            self._check_key(stored.key, key)
        return self._builder.build(stored, position)

    def key(self, index: SupportsIndex) -> str:
        """Return the key of a sample; only headers are read.

        Parameters
        ----------
        index
            Number of the sample; negative numbers count from the end.

        Returns
        -------
        str
            The key.

        Raises
        ------
        IndexError
            If there is no such sample.
        FormatError
            If the shard is damaged.
        """
        return self._samples.key(self._position(index))

    def _sample_names(self, index: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
        return [{"key": self.key(number)} for number in index.tolist()]

    def index(self, key: str) -> int:
        """Return the number of the sample with this key, the first of several.

        The key is looked up in ``index.sqlite``. If there is none (Energon before 6), the first call reads all headers.

        Parameters
        ----------
        key
            The key of a sample.

        Returns
        -------
        int
            The number of the sample.

        Raises
        ------
        KeyError
            If the split has no such sample.
        """
        position = self._position_of(key)
        self._check_key(self._samples.key(position), key)
        return position - bisect_left(self._excluded, position)

    def _position_of(self, key: str) -> int:
        """Return the position of a key in the index."""
        self._check_open()
        position = self._keys.position(key)
        i = bisect_left(self._excluded, position)
        if i < len(self._excluded) and self._excluded[i] == position:
            raise KeyError(f"{key} is excluded by the split file")
        if position >= len(self._samples):
            self._check_key("", key)
        return position

    def _check_key(self, found: str, key: str) -> None:
        if found != key:
            index = meta_path(self.path, "index.sqlite")
            raise FormatError(index, 0, f"the location of {key!r} where {found!r} is", "the shards that were prepared")

    def get(self, key: str) -> Any:
        """Return the sample with this key, as ``dataset[i]`` does.

        Parameters
        ----------
        key
            The key of a sample.

        Returns
        -------
        object
            The sample.

        Raises
        ------
        KeyError
            If the split has no such sample.
        FormatError
            If the shard is damaged, or does not match the index.
        """
        return self._sample(self._position_of(key), key)

    def get_file(self, name: str) -> Any:
        """Return one field of a sample by its file name in the tar, ``<key>.<field>``.

        Parameters
        ----------
        name
            The file name. If a sample has the field twice, the last one is returned, as in ``dataset[i]``.

        Returns
        -------
        object
            The decoded value; bytes for a raw dataset.

        Raises
        ------
        KeyError
            If there is no such sample or field.
        FormatError
            If the shard is damaged.
        """
        names = split_name(name)
        if names is None:
            raise KeyError(f"{name} is not the name of a field, <key>.<field>")
        position = self._position_of(names[0])
        stored = self._samples.read(position, names[1].__eq__)
        self._check_key(stored.key, names[0])
        if not stored.fields:
            raise KeyError(name)
        return self._builder.value(stored, names[1], position)

    def __iter__(self) -> Iterator[Any]:
        return self.iterate()

    def iterate(
        self, *, shuffle: bool = False, seed: int = 0, epoch: int = 0, order: Literal["torch", "feistel"] = "torch"
    ) -> Iterator[Any]:
        """Iterate over the samples, in order or shuffled.

        The order is that of `DistributedSampler` with one rank and the same options. A loader with that sampler yields
        the same samples, and can be stopped and resumed.

        Parameters
        ----------
        shuffle
            Shuffle the samples.
        seed, epoch
            Select the permutation.
        order
            ``"torch"``: the permutation of torch.randperm, seeded with ``seed + epoch``; 4 bytes per sample.
            ``"feistel"``: another permutation, which needs no memory.

        Returns
        -------
        Iterator
            The samples.

        Raises
        ------
        ValueError
            If `order` is unknown.
        """
        if order not in ("torch", "feistel"):
            raise ValueError(f"order is {order!r}: choose torch or feistel")
        self._check_open()
        if not shuffle:
            return (self[i] for i in range(self._total))
        if order == "torch":
            permutation = TorchGenerator(seed + epoch).permutation(self._total)
            blocks = (permutation[start : start + _AHEAD] for start in range(0, self._total, _AHEAD))
        else:
            feistel = FeistelOrder(self._total, seed, epoch)
            blocks = (feistel.take(k, 1, min(_AHEAD, self._total - k)) for k in range(0, self._total, _AHEAD))
        return self._in_blocks(blocks)

    def _in_blocks(self, blocks: Iterator[Any]) -> Iterator[Any]:
        for block in blocks:
            self.will_need(block)
            yield from map(self.__getitem__, block.tolist())

    def will_need(self, indices: Indices) -> None:
        """Hint the operating system to prefetch these samples.

        Returns immediately; does nothing if they are in memory or prefetching is not supported. After the first call
        that finds samples on disk, mapped shards are advised as randomly accessed.

        Parameters
        ----------
        indices
            Numbers of samples that will be read soon.

        Raises
        ------
        IndexError
            If there is no such sample.
        """
        self._samples.will_need([self._position(i) for i in np.asarray(indices).tolist()])

    def check_unchanged(self) -> None:
        """Check that the open shards have not been replaced or modified (2 us per shard).

        Raises
        ------
        FormatError
            If a shard has another size, modification time or inode than when it was opened.
        """
        self._samples.check_unchanged()

    def close(self) -> None:
        """Close all files; the dataset cannot be used afterwards."""
        super().close()
        self._samples.close()
        self._keys.close()

    def __getstate__(self) -> dict[str, Any]:
        derived = ("_builder", "sample_type", "subflavors")
        return {name: value for name, value in vars(self).items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._attach()
