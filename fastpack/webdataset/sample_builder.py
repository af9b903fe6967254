"""Build the samples of a `WebDataset` from their stored fields: decode, then map to a sample type or cook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastpack.errors import FastpackError, FormatError
from fastpack.io import AnyPath
from fastpack.webdataset.base_sample import CrudeSample, SourceInfo
from fastpack.webdataset.cooking import choose_cooker
from fastpack.webdataset.decoding import Decoder
from fastpack.webdataset.metadata import DATASET_CONFIG, meta_path
from fastpack.webdataset.open_shards import RawSample, Samples
from fastpack.webdataset.sample_definition import Definition, read_definition


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderOptions:
    """Options of `WebDataset` that decide how samples are built.

    dataset_config: None if no definition is read. decoder_options: only those that the caller passed.
    """

    raw: bool
    dataset_config: str | None
    trust_code: bool
    subflavors: Mapping[str, Any]
    part_filter: Callable[[str], bool] | None
    cookers: tuple[Any, ...]
    decoder: Callable[[str, bytes], Any] | None
    decoder_options: Mapping[str, Any]


class SampleBuilder:
    """Builds samples from stored fields, as `dataset.yaml` and the options say.

    wanted: selects the stored fields to read, None for all. sample_type: None for raw and crude samples.
    Raises what `read_definition` raises, and ValueError for options that conflict.
    """

    def __init__(
        self, folder: AnyPath, samples: Samples, options: BuilderOptions, decoder_type: type[Decoder] = Decoder
    ) -> None:
        self._folder, self._samples, self._raw = folder, samples, options.raw
        definition = _definition(folder, options)
        self.wanted, self.sample_type = definition.wanted, definition.sample_type
        self.subflavors = {**definition.subflavors, **options.subflavors}
        self._make_fields = definition.make_fields
        self._cook: Callable[[Any], Any] | None = None
        if options.cookers:
            if options.raw or self.sample_type is not None:
                raise ValueError("cookers are only for crude datasets")
            self._cook = choose_cooker(options.cookers, self.subflavors)
        self._decode = _decoder(definition, options, decoder_type)

    def build(self, stored: RawSample, position: int) -> Any:
        """Return the sample at `position`, given its stored fields."""
        if self._raw:
            return {"__key__": stored.key, **stored.fields}
        values = {name: self.value(stored, name, position) for name in stored.fields}
        source = SourceInfo(
            dataset_path=self._folder, index=position, shard_name=stored.shard, file_names=tuple(stored.file_names)
        )
        dunders = {"__restore_key__": ("Webdataset", position), "__sources__": (source,)}
        values = {"__key__": stored.key, "__shard__": stored.shard, **values, **dunders}
        if self.sample_type is None:
            crude = CrudeSample(values, __subflavors__=self.subflavors)
            return crude if self._cook is None else self._cook(crude)
        assert self._make_fields is not None
        try:
            fields = self._make_fields(values)
        except Exception as error:
            error.add_note(self._location(stored, position))
            raise
        return self.sample_type(**{"__key__": stored.key, **fields, **dunders, "__subflavors__": self.subflavors})

    def value(self, stored: RawSample, name: str, position: int) -> Any:
        """Return the decoded value of a field; its bytes for raw samples or without a decoder."""
        data = stored.fields[name]
        if self._raw or self._decode is None:
            return data
        try:
            return self._decode(name, data)
        except (FastpackError, MemoryError) as error:
            error.add_note(self._location(stored, position))
            raise
        except Exception as error:
            found = f"field {name!r} of sample {stored.key!r} that cannot be decoded ({type(error).__name__}: {error})"
            expected = f"{name.rpartition('.')[2]} data"
            raise FormatError(self._samples.path(position), stored.offsets[name], found, expected) from error

    def _location(self, stored: RawSample, position: int) -> str:
        return f"in sample {stored.key!r} of {self._samples.path(position)}"


def _definition(folder: AnyPath, options: BuilderOptions) -> Definition:
    definition, name = Definition(), options.dataset_config
    if name is not None and (name != DATASET_CONFIG or meta_path(folder, name).exists()):
        definition = read_definition(folder, name, options.trust_code)
    if options.part_filter is not None:
        if definition.sample_type is not None:
            raise ValueError(
                "part_filter is only for raw and crude samples: the sample type of this dataset selects its fields"
            )
        definition.wanted = options.part_filter
    return definition


def _decoder(
    definition: Definition, options: BuilderOptions, decoder_type: type[Decoder]
) -> Callable[[str, bytes], Any] | None:
    """Return the decoder; None if `dataset.yaml` disables decoding."""
    given = options.decoder_options
    if options.decoder is not None:
        if given:
            name = next(iter(given))
            raise ValueError(f"{name} is an option of fastpack's decoder: pass either options or a decoder")
        return options.decoder
    if definition.decoder is None and not given:
        return None
    return decoder_type(**{**(definition.decoder or {}), **given}, trust_code=options.trust_code)
