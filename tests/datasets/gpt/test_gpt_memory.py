"""The memory that GPTDataset takes per document and per sample, and how soon it gives a batch; in a new process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from megatron_corpora import write_megatron

import fastpack

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs Linux's peak of resident memory"),
]

SCRIPT = """
import json, os, sys, time
import fastpack

def status(name):
    (value,) = [int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name + ":")]
    return value

warm_up, blend, length, n_samples = json.loads(sys.argv[1])
fastpack.GPTDataset.build(warm_up, 8, 1, (None, 0, 0), "1,0,0")[0].batch([0])
open("/proc/self/clear_refs", "w").write("5")  # the peak starts here
before, began, files = status("VmRSS"), time.process_time(), len(os.listdir("/proc/self/fd"))
dataset = fastpack.GPTDataset.build(blend, length, 1, (n_samples, 0, 0), "1,0,0")[0]
dataset.batch(range(8))
seconds, files = time.process_time() - began, len(os.listdir("/proc/self/fd")) - files
dataset.batch(range(len(dataset) - 8, len(dataset)))
print(json.dumps([status("VmHWM") - before, len(dataset), seconds, files]))
"""


def measure(folder: Path, blend: Any, length: int, n_samples: int | None) -> list[Any]:
    """Return the peak in bytes, the number of samples, the CPU seconds to the first batch, and open files."""
    write_megatron(str(folder / "small"), np.ones(1000, np.uint8), [100] * 10)
    words = json.dumps([str(folder / "small"), blend, length, n_samples])
    run = subprocess.run([sys.executable, "-c", SCRIPT, words], check=True, capture_output=True, text=True, timeout=300)
    found: list[Any] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("format", ["megatron", "datatrove"])
def test_ten_million_documents_take_less_than_20_bytes_each(tmp_path: Path, format: str) -> None:
    n_documents, length = 10_000_000, 2  # the mapped tokens count as well
    path, dtype = str(tmp_path / "corpus"), np.uint8 if format == "megatron" else np.uint16
    write_megatron(path, np.ones(n_documents * length, dtype), np.full(n_documents, length).tolist())
    if format != "megatron":
        path = str(tmp_path / "corpus.ds")
        fastpack.convert(tmp_path / "corpus", path, format=format)
    peak, n_samples, seconds, _ = measure(tmp_path, path, 4096, None)
    assert n_samples == (n_documents * length - 1) // 4096
    assert peak < 20 * n_documents
    assert seconds < 2


def test_samples_of_a_blend_take_4_bytes_each(tmp_path: Path) -> None:
    n_tokens, length, paths = 20_000_000, 2, [str(tmp_path / "one"), str(tmp_path / "other")]
    for path in paths:
        write_megatron(path, np.ones(n_tokens, np.uint8), [n_tokens // 1000] * 1000)
    n_samples = int(n_tokens / length / 1.006) * 2  # with the surplus, an epoch of each
    peak, found, _, _ = measure(tmp_path, [1, paths[0], 1, paths[1]], length, n_samples)
    assert found >= n_samples
    of_files = 2 * (n_tokens // length)
    assert peak - 2 * n_tokens < 4.2 * of_files  # without the mapped tokens


def test_a_thousand_files_open_in_a_second(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"corpus{k}") for k in range(1000)]
    for path in paths:
        write_megatron(path, np.arange(600, dtype=np.uint16), [60] * 10)
    blend = [item for path in paths for item in (1, path)]
    _, _, seconds, n_open = measure(tmp_path, blend, 64, 2000)
    assert seconds < 1
    assert n_open <= 64
