"""Small batches, so that files of a few lines need several."""

from __future__ import annotations

import pytest

from fastpack.packing import packing_pipeline
from fastpack.tokenizers.bytes_tokenizer import BytesTokenizer
from fastpack.tokenizers.hf_tokenizer import HFTokenizer


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack small files in several batches, and hence in worker processes."""
    monkeypatch.setattr(packing_pipeline, "MIN_BATCH_BYTES", 4096)
    monkeypatch.setattr(packing_pipeline, "MAX_BATCH_BYTES", 8192)
    monkeypatch.setattr(BytesTokenizer, "worker_bytes", 4096)
    monkeypatch.setattr(HFTokenizer, "worker_bytes", 4096)
