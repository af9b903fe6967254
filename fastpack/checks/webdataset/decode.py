"""Every sample of a WebDataset decoded, as a loader would; what cannot be is a finding."""

from __future__ import annotations

from fastpack.checks.findings import Finding, VerifyReport
from fastpack.datasets.webdataset.dataset import WebDataset
from fastpack.errors import FormatError, MissingExtra, UntrustedCode
from fastpack.files import AnyPath, Progress, size_of
from fastpack.formats import nvmeta


def decode_all(folder: AnyPath, report: VerifyReport, trust_code: bool, progress: Progress | None = None) -> None:
    """Add what cannot be decoded to the report, and how many samples could be.

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
    for i in range(len(dataset)):
        try:
            dataset[i]
            report.count(decoded=1)
        except FormatError as error:
            report.take(Finding.of(error))
        except (UntrustedCode, MissingExtra) as error:
            if str(error) not in skipped:
                skipped.add(str(error))
                report.add("warning", folder, None, str(error), "samples that can be decoded here")
        except Exception as error:
            notes = " ".join(getattr(error, "__notes__", ()))
            report.add("error", folder, None, f"{type(error).__name__}: {error} {notes}".strip(), "a sample")
        if progress is not None:
            progress(n_bytes * (i + 1) // len(dataset), n_bytes)
    dataset.close()
