"""File names of an instruction-tuning data set: Modalities' names, each with the configuration's hash."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class PartitionNames(NamedTuple):
    """The files of one partition."""

    jsonl: Path
    idx: Path
    pbin: Path
    pbin_config: Path


class OutputNames:
    """The folder `<folder of dst>/<src stem>_<hash>/`, the copy of the configuration, and the files of partitions."""

    def __init__(self, src_path: Path, dst_path: Path, digest: str) -> None:
        self.folder = dst_path.parent / f"{src_path.stem}_{digest}"
        self.config = self.folder / f"instruction_chat_template_config.{digest}.yaml"
        self._dst_path, self._digest = dst_path, digest

    def of(self, partition: str) -> PartitionNames:
        """Return `<dst stem>_<partition>.<hash><dst suffix>`, and the same with `.idx` and `.pbin` as last suffix."""
        jsonl = self.folder / f"{self._dst_path.stem}_{partition}.{self._digest}{self._dst_path.suffix}"
        config = self.folder / f"pbin_config_{partition}.{self._digest}.yaml"
        return PartitionNames(jsonl, jsonl.with_suffix(".idx"), jsonl.with_suffix(".pbin"), config)
