"""Decode every sample of a WebDataset as a loader would, and report the samples that cannot be decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain
from typing import Any

from fastpack.analysis.findings import Finding, VerifyReport
from fastpack.analysis.options import VerifyOptions
from fastpack.errors import FormatError, MediaError, MissingExtra, UntrustedCode
from fastpack.io import AnyPath, size_of
from fastpack.io.threads import in_order
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.av_decoder import AVDecoder
from fastpack.webdataset.dataset import WebDataset
from fastpack.webdataset.selection import splits_with_shards

_BATCH = 32  # samples per task of a thread


def decode_all(folder: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    """Add the samples that cannot be decoded to the report, in order, and the number of decoded samples.

    A field that runs code or needs a package that is not installed is a warning, once per message. Of
    `options.split_parts`, those with shards are decoded; None: all shards.
    """
    try:
        datasets = _datasets(folder, options)
    except FormatError as error:
        report.take(Finding.of(error))
        return
    except (UntrustedCode, ValueError, OSError) as error:
        path = nvmeta.meta_path(folder, options.dataset_config)
        report.add("error", path, None, str(error), "a dataset that can be loaded")
        return
    n_bytes = sum(size_of(folder / shard) for shard in nvmeta.read_info(folder))
    n_samples = sum(map(len, datasets))
    skipped: set[str] = set()
    done = 0
    for n_tried, errors in chain.from_iterable(_decoded(dataset, options.threads) for dataset in datasets):
        report.count(decoded=n_tried - len(errors))
        for failure in errors:
            if not (isinstance(failure, (UntrustedCode, MissingExtra)) and str(failure) in skipped):
                skipped.add(str(failure))
                _report(failure, folder, report)
        done += n_tried
        if options.progress is not None:
            options.progress(n_bytes * done // n_samples, n_bytes)
    for dataset in datasets:
        dataset.close()


def _datasets(folder: AnyPath, options: VerifyOptions) -> list[WebDataset]:
    return [
        WebDataset(
            folder,
            name,
            trust_code=options.trust_code,
            split_config=options.split_config,
            dataset_config=options.dataset_config,
            io="pread",
        )
        for name in splits_with_shards(folder, options.split_parts, options.split_config)
    ]


def _decoded(dataset: WebDataset, threads: int) -> Iterator[tuple[int, list[Exception]]]:
    """Decode all samples in batches, in order; yield (number of samples, errors) of each batch."""
    batches = (range(start, min(start + _BATCH, len(dataset))) for start in range(0, len(dataset), _BATCH))
    return in_order(partial(_decode, dataset), batches, threads)


def _decode(dataset: WebDataset, numbers: range) -> tuple[int, list[Exception]]:
    errors: list[Exception] = []
    for number in numbers:
        try:
            sample = dataset[number]
            try:
                _check_media(sample)
            except MediaError as error:
                error.add_note(f"in sample {dataset.key(number)!r}")
                raise
        except Exception as error:
            errors.append(error.with_traceback(None))  # the traceback would keep the sample alive
    return len(numbers), errors


def _check_media(value: Any) -> None:
    """Decode the first frames of audio and video; decoding the sample only opens them."""
    if isinstance(value, AVDecoder):
        value.check()
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            _check_media(getattr(value, field.name))
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            _check_media(item)


def _report(error: Exception, folder: AnyPath, report: VerifyReport) -> None:
    if isinstance(error, FormatError):
        report.take(Finding.of(error))
    elif isinstance(error, (UntrustedCode, MissingExtra)):
        report.add("warning", folder, None, str(error), "samples that can be decoded here")
    else:
        notes = " ".join(getattr(error, "__notes__", ()))
        report.add("error", folder, None, f"{type(error).__name__}: {error} {notes}".strip(), "a sample")
