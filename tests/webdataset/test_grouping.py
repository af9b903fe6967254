"""Random archives, read with WebDataset and compared with the grouping rules on top of Python's tarfile."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import WebDataset

KINDS = {
    "file": tarfile.REGTYPE,
    "old": tarfile.AREGTYPE,
    "cont": tarfile.CONTTYPE,
    "dir": tarfile.DIRTYPE,
    "link": tarfile.LNKTYPE,
}

fields = st.lists(
    st.tuples(
        st.sampled_from(["txt", "json", "seg.png", "", ".jpg", "p" * 120, "ü"]),
        st.binary(max_size=700),
        st.sampled_from(["file"] * 6 + ["old", "cont", "dir", "link", "ignored", "nameless"]),
    ),
    min_size=1,
    max_size=5,
)
archives = st.lists(st.tuples(st.sampled_from(["", "d/", "a.b/", "d/" * 70, "./"]), fields), min_size=1, max_size=6)


def write(path: Path, samples: Any, format: int) -> None:
    with tarfile.open(path, "w", format=format) as tar:
        for number, (folder, members) in enumerate(samples):
            for place, (field, data, kind) in enumerate([("first", b"1", "file"), *members]):
                name = {"ignored": f"__x__/{number}.{field}", "nameless": f"{folder}noext{place}"}.get(
                    kind, f"{folder}k{number}.{field}"
                )
                info = tarfile.TarInfo(name)
                # Cut at a slash, a long name in the old format reads as a folder, and its data as a damaged archive.
                info.type = KINDS.get(kind if kind != "old" or len(name) < 100 else "file", tarfile.REGTYPE)
                info.size = len(data) if kind not in ("dir", "link") else 0
                tar.addfile(info, io.BytesIO(data) if info.size else None)


def grouped(path: Path) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = []
    with tarfile.open(path) as tar:
        for info in tar:
            match = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", info.name)
            if not info.isfile() or re.match(r"^__[^/]*__($|/)", info.name) or not match:
                continue
            file = tar.extractfile(info)
            assert file is not None
            if not samples or samples[-1]["__key__"] != match[1]:
                samples.append({"__key__": match[1]})
            samples[-1][match[2]] = file.read()
    return samples


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@given(samples=archives)
def test_samples_match_the_grouping_rules(tmp_path_factory: Any, prepare: Any, format: int, samples: Any) -> None:
    folder = tmp_path_factory.mktemp("set")
    write(folder / "a.tar", samples, format)
    prepare(folder)
    expected = grouped(folder / "a.tar")
    assert list(WebDataset(folder, raw=True)) == expected
    again = WebDataset(folder, raw=True, io="pread")
    assert [again[i] for i in reversed(range(len(again)))] == expected[::-1]
    assert [again.get(sample["__key__"]) for sample in expected] == expected
