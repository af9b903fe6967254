"""Writes tests/golden/megatron_core/gpt_samples.json: what megatron-core's GPTDataset returns for random arguments.

Run by hand, where megatron-core and pybind11 are installed: PYTHONPATH=tests/support python
tests/golden/make_megatron_samples.py. Made with megatron-core 0.16.1. Each entry has the arguments, and for each split
the number of samples and the SHA-256 of all of them (`megatron_corpora.digest`).
"""

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from megatron_corpora import digest, random_configuration, write_corpora

TESTS = Path(__file__).resolve().parents[1]
SEEDS = range(1000, 1048)


def main() -> None:
    sys.path.insert(0, str(TESTS / "datasets" / "gpt"))
    from test_megatron_core import built_by_megatron

    entries = []
    for seed in SEEDS:
        configuration = random_configuration(seed)
        with tempfile.TemporaryDirectory() as folder:
            built = built_by_megatron(configuration, write_corpora(configuration, Path(folder)))
            splits = [
                None
                if split is None
                else {"n_samples": len(split), "sha256": digest(split[k] for k in range(len(split)))}
                for split in built
            ]
        entries.append({"configuration": asdict(configuration), "splits": splits})
    path = TESTS / "golden" / "megatron_core" / "gpt_samples.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n")


if __name__ == "__main__":
    main()
