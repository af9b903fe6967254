"""Decode every sample of a WebDataset as a loader would, and report what cannot be decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any

from fastpack.analysis.findings import Finding, VerifyReport
from fastpack.analysis.options import VerifyOptions
from fastpack.errors import FormatError, MediaError, MissingExtra, UntrustedCode
from fastpack.io import AnyPath, size_of
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.av_decoder import AVDecoder
from fastpack.webdataset.dataset import WebDataset

_BATCH = 32  # that a thread decodes at a time


def decode_all(folder: AnyPath, report: VerifyReport, look: VerifyOptions) -> None:
    """Add what cannot be decoded to the report, in order, and how many samples could be.

    Kinds of parts that run code, or need what is not installed, are warnings, once for each kind of message. Of
    `look.split_parts` those that have shards are decoded; None: all shards.
    """
    try:
        datasets = _datasets(folder, look)
    except FormatError as error:
        report.take(Finding.of(error))
        return
    except (UntrustedCode, ValueError, OSError) as error:
        path = nvmeta.meta_path(folder, look.dataset_config)
        report.add("error", path, None, str(error), "a dataset that can be loaded")
        return
    n_bytes = sum(size_of(folder / shard) for shard in nvmeta.read_info(folder))
    n_samples = sum(map(len, datasets))
    skipped: set[str] = set()
    done = 0
    for n_more, errors in chain.from_iterable(_decoded(dataset, look.threads) for dataset in datasets):
        report.count(decoded=n_more - len(errors))
        for failure in errors:
            if not (isinstance(failure, (UntrustedCode, MissingExtra)) and str(failure) in skipped):
                skipped.add(str(failure))
                _report(failure, folder, report)
        done += n_more
        if look.progress is not None:
            look.progress(n_bytes * done // n_samples, n_bytes)
    for dataset in datasets:
        dataset.close()


def _datasets(folder: AnyPath, look: VerifyOptions) -> list[WebDataset]:
    splits: list[str | None] = [None]
    if look.split_parts is not None:
        split = nvmeta.read_split(folder, look.split_config)
        left = {name: set(shards).difference(split.exclude) for name, shards in split.shards.items()}
        splits = [name for name in look.split_parts if left.get(name)]
    return [
        WebDataset(
            folder,
            name,
            trust_code=look.trust_code,
            split_config=look.split_config,
            dataset_config=look.dataset_config,
            io="pread",
        )
        for name in splits
    ]


def _decoded(dataset: WebDataset, threads: int) -> Iterator[tuple[int, list[Exception]]]:
    """Decode all samples in batches, in order; yield (number of samples, errors) of each batch."""
    pieces = (range(start, min(start + _BATCH, len(dataset))) for start in range(0, len(dataset), _BATCH))
    waiting: deque[Future[tuple[int, list[Exception]]]] = deque()
    with ThreadPoolExecutor(threads, "fastpack-decode") as pool:
        try:
            for piece in pieces:
                waiting.append(pool.submit(_decode, dataset, piece))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


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
    """Decode the first frames of audio and video, which decoding a sample only opens."""
    if isinstance(value, AVDecoder):
        value.check()
    elif is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            _check_media(getattr(value, one.name))
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
