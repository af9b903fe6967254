"""Seeded WebDataset shards and JSON lines: pictures, captions, and metadata as from a crawl."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SEED = 20_261_121
N_PICTURES = 24
BLOCK = 512
QUALITY = 85


@dataclass(frozen=True)
class Shards:
    """Tars of one kind: `n_shards` with `n_samples` each, with the fields picture (about that many bytes), txt, json.

    picture_bytes: 0 for none. counts: the numbers of shards in train, val and test for the split `ratio`.
    """

    name: str
    n_shards: int
    n_samples: int
    picture_bytes: int
    has_text: bool
    ratio: str
    counts: tuple[int, int, int]

    @property
    def fields(self) -> tuple[str, ...]:
        return (*(["jpg"] if self.picture_bytes else []), *(["txt"] if self.has_text else []), "json")

    def scaled(self, scale: float) -> Shards:
        """Return the same with `scale` times the samples, at least two per shard."""
        n_samples = max(2, round(self.n_samples * scale))
        names = (self.name, self.n_shards, n_samples, self.picture_bytes, self.has_text, self.ratio, self.counts)
        return Shards(*names)

    def key(self, shard: int, sample: int) -> str:
        return f"{shard:05d}{sample:07d}"

    def caption(self, shard: int, sample: int) -> str:
        """Return the deterministic caption of a sample."""
        words = sources()
        n_words = 6 + (sample * 7 + shard) % 30
        first = (sample * 7919 + shard * 104_729) % (len(words) - n_words)
        return " ".join(words[first : first + n_words])

    def file_name(self, shard: int) -> str:
        return f"shard-{shard:05d}.tar"


ALL_SHARDS = (
    Shards("small", 8, 5_000, 3_000, True, "8,1,1", (6, 1, 1)),
    Shards("text", 1, 100_000, 0, True, "1,0,0", (1, 0, 0)),
    Shards("pictures", 4, 1_000, 300_000, False, "2,1,1", (2, 1, 1)),
)
N_LINES = 600_000

_words: list[str] = []


def sources() -> list[str]:
    """Return words of the texts of the standard library."""
    if not _words:
        folder = Path(os.__file__).parent
        for path in sorted(folder.glob("*.py")):
            _words.extend(path.read_text(encoding="utf-8", errors="ignore").split())
    return _words


def make_shards(folder: Path, shards: Shards) -> None:
    """Create `folder` and write the tars of `shards` to it."""
    folder.mkdir(parents=True)
    pictures = make_pictures(shards.picture_bytes) if shards.picture_bytes else []
    for number in range(shards.n_shards):
        with (folder / shards.file_name(number)).open("wb") as file:
            for name, data in members(shards, number, pictures):
                info = tarfile.TarInfo(name)
                info.size, info.mtime, info.uname = len(data), 1_700_000_000, "bigdata"
                file.write(info.tobuf(tarfile.GNU_FORMAT))
                file.write(data + bytes(-len(data) % BLOCK))
            file.write(bytes(-file.tell() % tarfile.RECORDSIZE or tarfile.RECORDSIZE))


def members(shards: Shards, number: int, pictures: list[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the members of one tar."""
    for sample in range(shards.n_samples):
        key, caption = shards.key(number, sample), shards.caption(number, sample)
        picture = pictures[(sample * 31 + number) % len(pictures)] if pictures else b""
        about = {"caption": caption, "url": f"https://example.org/{key}", "similarity": sample % 997 / 997}
        contents = {
            "jpg": picture,
            "txt": caption.encode(),
            "json": json.dumps({**about, "sha256": hashlib.sha256(picture or caption.encode()).hexdigest()}).encode(),
        }
        for field in shards.fields:
            yield f"{key}.{field}", contents[field]


def make_pictures(n_bytes: int) -> list[bytes]:
    """Return JPEG files of about `n_bytes` on average: gradients with noise."""
    side = int(n_bytes**0.5)
    for _ in range(3):  # try a size, measure the result, improve the size
        pictures = list(pictures_of(side, np.random.default_rng(SEED)))
        mean = sum(map(len, pictures)) / len(pictures)
        side = max(16, int(side * (n_bytes / mean) ** 0.5))
    return pictures


def pictures_of(side: int, rng: np.random.Generator) -> Iterator[bytes]:
    from PIL import Image

    for _ in range(N_PICTURES):
        shape = (side, int(side * rng.uniform(0.8, 1.4)), 3)
        slope = np.linspace(*rng.integers(0, 200, 2), shape[1])[None, :, None]
        noise = rng.normal(0, rng.uniform(20, 40), shape)
        out = io.BytesIO()
        Image.fromarray(np.clip(slope + noise, 0, 255).astype(np.uint8)).save(out, "JPEG", quality=QUALITY)
        yield out.getvalue()


def make_lines(path: Path, n_lines: int) -> None:
    """Write JSON lines of log-normal length, about 250 bytes on average."""
    rng = np.random.default_rng(SEED)
    text = "".join(c for c in " ".join(sources()) if c.isprintable() and c not in '"\\').encode()
    lengths = np.maximum(5, rng.lognormal(5.0, 0.8, n_lines)).astype(np.int64).tolist()
    starts = rng.integers(0, len(text) - 100_000, n_lines).tolist()
    with path.open("wb") as file:
        for i, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            cut = text[start : start + length].decode("utf-8", "ignore").encode()
            file.write(b'{"id": %d, "text": "%b"}\n' % (i, cut))
