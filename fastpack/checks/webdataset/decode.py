"""Every sample of a WebDataset decoded, as a loader would; what cannot be is a finding."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from fastpack.checks.findings import Finding, VerifyReport
from fastpack.datasets.webdataset.dataset import WebDataset
from fastpack.errors import FormatError, MissingExtra, UntrustedCode
from fastpack.files import AnyPath, Progress, size_of
from fastpack.formats import nvmeta

_AT_ONCE = 32  # samples that a thread decodes at a time


def decode_all(
    folder: AnyPath, report: VerifyReport, trust_code: bool, threads: int = 1, progress: Progress | None = None
) -> None:
    """Add what cannot be decoded to the report, in order, and how many samples could be.

    Kinds of parts that run code, or need what is not installed, are warnings, once for each kind of message.
    """
    try:
        dataset = WebDataset(folder, trust_code=trust_code, io="pread")
    except FormatError as error:
        report.take(Finding.of(error))
        return
    except (UntrustedCode, ValueError, OSError) as error:
        report.add("error", nvmeta.meta_path(folder, "dataset.yaml"), None, str(error), "a dataset that can be loaded")
        return
    n_bytes = sum(size_of(folder / shard) for shard in nvmeta.read_info(folder))
    skipped: set[str] = set()
    done = 0
    for n_samples, errors in _decoded(dataset, threads):
        report.count(decoded=n_samples - len(errors))
        for failure in errors:
            if not (isinstance(failure, (UntrustedCode, MissingExtra)) and str(failure) in skipped):
                skipped.add(str(failure))
                _report(failure, folder, report)
        done += n_samples
        if progress is not None:
            progress(n_bytes * done // len(dataset), n_bytes)
    dataset.close()


def _decoded(dataset: WebDataset, threads: int) -> Iterator[tuple[int, list[Exception]]]:
    """Of some samples after the other, how many they are and what went wrong."""
    pieces = (range(start, min(start + _AT_ONCE, len(dataset))) for start in range(0, len(dataset), _AT_ONCE))
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
            dataset[number]
        except Exception as error:
            errors.append(error.with_traceback(None))  # it would hold the sample
    return len(numbers), errors


def _report(error: Exception, folder: AnyPath, report: VerifyReport) -> None:
    if isinstance(error, FormatError):
        report.take(Finding.of(error))
    elif isinstance(error, (UntrustedCode, MissingExtra)):
        report.add("warning", folder, None, str(error), "samples that can be decoded here")
    else:
        notes = " ".join(getattr(error, "__notes__", ()))
        report.add("error", folder, None, f"{type(error).__name__}: {error} {notes}".strip(), "a sample")
