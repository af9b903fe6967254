"""`WebDataset`: samples of a prepared WebDataset, or of a JSONL file, by number and by key."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, SupportsIndex

import numpy as np

from fastpack.datasets.base import Dataset, Indices
from fastpack.datasets.permutations import FeistelOrder, TorchGenerator
from fastpack.display import facts
from fastpack.errors import FastpackError, FormatError
from fastpack.io import PathLike, as_path, is_remote
from fastpack.item_numbers import item_number
from fastpack.webdataset.cooking import choose_cooker
from fastpack.webdataset.crude_jsonl import JsonLines
from fastpack.webdataset.decoding import Decoder
from fastpack.webdataset.metadata import meta_path
from fastpack.webdataset.open_shards import Io, RawSample, Samples, TarShards, split_name
from fastpack.webdataset.sample_definition import Definition, parts_filter, read_definition
from fastpack.webdataset.samples import CrudeSample, SourceInfo
from fastpack.webdataset.selection import LineKeys, TarKeys, select

_AHEAD = 64  # samples that are asked for before the first of them is read, in an order that is not the tars'


class WebDataset(Dataset):
    """The samples of a WebDataset that Energon or `fastpack prepare` prepared, decoded: `[i]`, also from the end.

    `[i]` and `get(key)` are of the type that dataset.yaml names (`CaptioningSample`, ...; arrays are NumPy's), or crude
    where it says so or is not there: dicts of decoded parts. Iterating goes through them in order, `iterate(shuffle=
    True)` shuffled. Under a loader, give a collate_fn that makes a batch of a list of samples.

    path: the folder with `.nv-meta`, or a `.jsonl` file with its `.jsonl.idx`, whose lines are crude samples of one
    part `json`. split_part: a part that split.yaml names; None: all shards, in the order of .info.json. Samples that
    split.yaml excludes are not there (Energon skips them too, and counts them in its length).

    raw: samples are dicts of `__key__` and undecoded parts, whatever dataset.yaml says. image_decode: what images
    become, see `Decoder`; float32 [3, H, W] from 0 to 1 by default. av_decode: what audio and video become: an
    `AVDecoder` ("AVDecoder", default), decoded tensors ("torch", with video_decode_audio the audio of videos too), or a
    container of the package av ("pyav"). max_decoded_bytes: how large a part may be once decoded (default: 1 GiB). What
    is not given of these is as dataset.yaml's `decoder` says. decoder: a function (part, bytes) -> value in place of
    all this. trust_code: run what sample_loader, part_filter and sample types of other modules say, and decode kinds of
    parts that run code (pkl, pickle, pyd, pth); UntrustedCode without it. subflavors: added to those of dataset.yaml.
    part_filter: names of the parts to be read, or a function of a name, of raw and crude samples. cookers: of crude
    samples, the first that matches the subflavors makes a sample of each. split_config, dataset_config: other names for
    split.yaml and dataset.yaml. io: "mmap", or "pread", with which a shard that shrinks is an error instead of the end
    of the process (and 64 files at most are open).

    Pickles as paths, needs one read a sample, and may be used by several threads and after a fork. Raises
    FileNotFoundError where nothing was prepared, ValueError for a part that split.yaml does not have, FormatError, a
    ValueError, for whatever else is wrong, of a sample when it is asked for: with the file, the byte and the sample.
    """

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
        options: dict[str, Any] = {
            "image_decode": image_decode,
            "av_decode": av_decode,
            "video_decode_audio": video_decode_audio,
            "max_decoded_bytes": max_decoded_bytes,
        }
        self._decoding = ({name: value for name, value in options.items() if value is not None}, decoder)
        self._trust_code, self._dataset_config = trust_code, dataset_config
        self._given_subflavors, self._cookers = dict(subflavors or {}), tuple(cookers)
        self._part_filter = None if part_filter is None else parts_filter(part_filter)
        self._is_jsonl = self.path.suffix == ".jsonl" and self.path.is_file()
        self._samples, self._keys, self._excluded = self._find(split_config, "pread" if is_remote(path) else io)
        self._shifted = [position - k for k, position in enumerate(self._excluded)]
        self._total = len(self._samples) - len(self._excluded)
        self._attach()

    def _find(self, split_config: str, io: Io) -> tuple[Samples, TarKeys | LineKeys, list[int]]:
        """All samples, their keys, and the positions of those that are left out."""
        if self._is_jsonl:
            lines = JsonLines(self.path, io)
            return lines, LineKeys(lines), []
        selection = select(self.path, self.split_part, split_config)
        shards = TarShards(self.path, selection.names, selection.counts, io)
        keys = TarKeys(self.path, selection, shards)
        return shards, keys, keys.excluded(selection).tolist()

    def _attach(self) -> None:
        """What is not pickled: functions may come from files."""
        self._definition = self._define()
        self.sample_type = self._definition.sample_type
        self.subflavors = {**self._definition.subflavors, **self._given_subflavors}
        self._cook: Callable[[Any], Any] | None = None
        if self._cookers:
            if self.raw or self.sample_type is not None:
                raise ValueError("cookers are for the samples of crude datasets")
            self._cook = choose_cooker(self._cookers, self.subflavors)
        given, decoder = self._decoding
        if decoder is not None and given:
            raise ValueError(f"{next(iter(given))} is for fastpack's own decoder: give one or the other")
        options = self._definition.decoder
        if given:
            options = {**(options or {}), **given}
        self._decode = decoder if options is None or decoder is not None else self._make_decoder(options)

    def _make_decoder(self, options: Mapping[str, Any]) -> Callable[[str, bytes], Any]:
        return Decoder(**options, trust_code=self._trust_code)

    def _define(self) -> Definition:
        definition = Definition()
        is_there = meta_path(self.path, self._dataset_config).exists() or self._dataset_config != "dataset.yaml"
        if not (self.raw or self._is_jsonl) and is_there:
            definition = read_definition(self.path, self._dataset_config, self._trust_code)
        if self._part_filter is not None:
            if definition.sample_type is not None:
                raise ValueError(
                    "part_filter is for raw and crude samples: this dataset's type says which parts it needs"
                )
            definition.wanted = self._part_filter
        return definition

    def __getitem__(self, index: SupportsIndex) -> Any:
        return self._sample(self._position(index))

    def _position(self, index: SupportsIndex) -> int:
        """The position among all samples, excluded ones too."""
        self._check_open()
        i = item_number(index)
        if not -self._total <= i < self._total:
            raise IndexError(f"index {i} out of range for {self._total} samples")
        i %= self._total
        return i + bisect_right(self._shifted, i) if self._excluded else i

    def _sample(self, position: int, key: str | None = None) -> Any:
        """The sample at a position, where one with this key is to be, if it is given."""
        raw = self._samples.read(position, self._definition.wanted)
        if key is not None:
            self._check_key(raw.key, key)
        return {"__key__": raw.key, **raw.parts} if self.raw else self._made(raw, position)

    def _made(self, raw: RawSample, position: int) -> Any:
        decode = self._decode
        parts = raw.parts
        if decode is not None:
            parts = {part: self._decoded(decode, raw, position, part) for part in parts}
        source = SourceInfo(
            dataset_path=self.path, index=position, shard_name=raw.shard, file_names=tuple(raw.file_names)
        )
        dunders = {"__restore_key__": ("Webdataset", position), "__sources__": (source,)}
        values = {"__key__": raw.key, "__shard__": raw.shard, **parts, **dunders}
        if self.sample_type is None:
            crude = CrudeSample(values, __subflavors__=self.subflavors)
            return crude if self._cook is None else self._cook(crude)
        assert self._definition.make_fields is not None
        try:
            fields = self._definition.make_fields(values)
        except Exception as error:
            error.add_note(self._where(raw, position))
            raise
        return self.sample_type(**{"__key__": raw.key, **fields, **dunders, "__subflavors__": self.subflavors})

    def _decoded(self, decode: Callable[[str, bytes], Any], raw: RawSample, position: int, part: str) -> Any:
        try:
            return decode(part, raw.parts[part])
        except (FastpackError, MemoryError) as error:
            error.add_note(self._where(raw, position))
            raise
        except Exception as error:
            found = f"part {part!r} of sample {raw.key!r} that cannot be decoded ({type(error).__name__}: {error})"
            expected = f"{part.rpartition('.')[2]} data"
            raise FormatError(self._samples.path(position), raw.offsets[part], found, expected) from error

    def _where(self, raw: RawSample, position: int) -> str:
        return f"in sample {raw.key!r} of {self._samples.path(position)}"

    def key(self, index: SupportsIndex) -> str:
        """The key of sample `index`, of which only the headers are read. Errors as of `[i]`."""
        return self._samples.key(self._position(index))

    def index(self, key: str) -> int:
        """The number of the sample with this key, of several the first. KeyError.

        Looked up in index.sqlite. Where a dataset has none (Energon before 6), the first call reads all headers.
        """
        position = self._position_of(key)
        self._check_key(self._samples.key(position), key)
        return position - bisect_left(self._excluded, position)

    def _position_of(self, key: str) -> int:
        """The position that the index has for a key."""
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
            raise FormatError(index, 0, f"a place for {key!r} where {found!r} is", "the shards that were prepared")

    def get(self, key: str) -> Any:
        """The sample with this key, as `[i]` gives it. KeyError for one that is not in this part of the dataset."""
        return self._sample(self._position_of(key), key)

    def get_file(self, name: str) -> Any:
        """One part of a sample by the name it has in the tar, `<key>.<part>`, decoded, or as bytes with `raw`.

        Of a part that is there twice the last, as `[i]` has it. KeyError.
        """
        names = split_name(name)
        if names is None:
            raise KeyError(f"{name} is no name of a sample's part")
        position = self._position_of(names[0])
        raw = self._samples.read(position, names[1].__eq__)
        self._check_key(raw.key, names[0])
        if not raw.parts:
            raise KeyError(name)
        if self.raw or self._decode is None:
            return raw.parts[names[1]]
        return self._decoded(self._decode, raw, position, names[1])

    def __iter__(self) -> Iterator[Any]:
        return self.iterate()

    def iterate(
        self, *, shuffle: bool = False, seed: int = 0, epoch: int = 0, order: Literal["torch", "feistel"] = "torch"
    ) -> Iterator[Any]:
        """The samples, one by one, in order or shuffled: as `DistributedSampler` for one rank with the same options.

        order: "torch" is torch.randperm's, seeded by seed + epoch, and takes 4 bytes a sample; "feistel" is another one
        that takes none. A loader with that sampler gives the same, and can be stopped and resumed.
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
            starts = range(0, self._total, _AHEAD)
            blocks = (feistel.take(start, 1, min(_AHEAD, self._total - start)) for start in starts)
        return self._in_blocks(blocks)

    def _in_blocks(self, blocks: Iterator[Any]) -> Iterator[Any]:
        for block in blocks:
            self.will_need(block)
            yield from map(self.__getitem__, block.tolist())

    def will_need(self, indices: Indices) -> None:
        """Have the system read these samples in the background, where they are not in memory: for those that come soon.

        From the first call that found some on the disk, mapped shards count as read at random. Raises IndexError.
        """
        self._samples.will_need([self._position(i) for i in np.asarray(indices).tolist()])

    def check_unchanged(self) -> None:
        """FormatError when a shard that is open is not the file it was (2 us a shard); a loader asks every epoch."""
        self._samples.check_unchanged()

    def close(self) -> None:
        super().close()
        self._samples.close()
        self._keys.close()

    def __getstate__(self) -> dict[str, Any]:
        made = ("_definition", "_cook", "_decode", "sample_type", "subflavors")
        return {name: value for name, value in vars(self).items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._attach()
