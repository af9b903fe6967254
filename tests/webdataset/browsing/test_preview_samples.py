"""Preview of samples: texts, and images drawn with characters."""

from __future__ import annotations

import io
import itertools
import json
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastpack.cli import main
from fastpack.escape import escape_text
from fastpack.webdataset.browsing.preview_samples import MAX_CHARACTERS, draw, preview


def picture(colour: object, size: tuple[int, int] = (40, 20), mode: str = "RGB", kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, colour).save(out, kind)  # type: ignore[arg-type]
    return out.getvalue()


def test_the_first_samples(prepared: Path) -> None:
    samples = list(itertools.islice(preview(prepared), 2))
    assert [sample["key"] for sample in samples] == ["train_part_00_0", "train_part_00_1"]
    fields = {field["name"]: field for field in samples[0]["parts"]}
    assert list(fields) == ["jpg", "txt", "json", "mask.png"]
    assert (fields["jpg"]["kind"], fields["jpg"]["bytes"], fields["jpg"]["format"]) == ("image", 631, "JPEG")
    assert fields["json"]["text"].startswith('{"caption"')
    assert [sample["key"] for sample in preview(prepared, ["val"])] == ["val_v-1_0", "val_v-1_1"]


@pytest.mark.parametrize(
    ("colour", "mode", "letter"),
    [
        ((0, 0, 0), "RGB", " "),
        ((255, 255, 255), "RGB", "@"),
        (128, "L", "+"),
        ((9, 9, 9, 0), "RGBA", " "),
        (1, "1", "@"),
    ],
)
def test_uniform_images(colour: object, mode: str, letter: str) -> None:
    lines = draw(picture(colour, mode=mode), 20, 10, "letters")
    assert set("".join(lines)) == {letter}
    assert {len(line) for line in lines} == {20}
    assert len(lines) == 5


def test_blocks_have_the_colours_of_the_image() -> None:
    image = Image.new("RGB", (1, 2))
    image.putpixel((0, 0), (1, 2, 3))
    image.putpixel((0, 1), (4, 5, 6))
    out = io.BytesIO()
    image.save(out, "PNG")
    assert draw(out.getvalue(), 1, 1, "blocks") == ["\x1b[38;2;1;2;3;48;2;4;5;6m▀\x1b[0m"]


@given(
    st.tuples(st.integers(1, 300), st.integers(1, 300)),
    st.integers(1, 50),
    st.integers(1, 20),
    st.sampled_from(["blocks", "letters"]),
)
def test_drawn_images_fit(size: tuple[int, int], columns: int, rows: int, how: str) -> None:
    lines = draw(picture((10, 200, 30), size), columns, rows, how)  # type: ignore[arg-type]
    widths = {line.count("▀") if how == "blocks" else len(line) for line in lines}
    assert len(lines) <= rows
    assert len(widths) == 1
    assert 1 <= widths.pop() <= columns


UNPRINTABLE = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}  # Unicode categories


@given(st.text())
def test_control_characters_are_escaped(text: str) -> None:
    shown = escape_text(text)
    assert not {unicodedata.category(letter) for letter in shown if letter not in "\n\u200c\u200d"} & UNPRINTABLE
    assert escape_text("a\x1b[2J\tü\n") == "a\\u001b[2J\\tü\n"


def test_kinds_of_fields(make: Callable[..., Path]) -> None:
    long = "日" * 2000
    members = {
        "txt": long.encode(),
        "bin": b"\0\1\2",
        "latin": "é".encode("latin-1"),
        "cls": b"7",
        "jpg": b"none",
        "empty": b"",
        "cut": b"x" * (4 * MAX_CHARACTERS - 1) + "é".encode() + b"y" * 10,
    }
    folder = make({"a.tar": [(f"k.{name}", data) for name, data in members.items()]}, {"train": ["a.tar"]})
    (sample,) = preview(folder)
    fields = {field["name"]: field for field in sample["parts"]}
    assert {name: field["kind"] for name, field in fields.items()} == {
        "txt": "text",
        "bin": "bytes",
        "latin": "bytes",
        "cls": "text",
        "jpg": "image",
        "empty": "text",
        "cut": "text",
    }
    assert fields["txt"]["text"] == "日" * MAX_CHARACTERS + "..."
    assert "UnidentifiedImageError" in fields["jpg"]["error"]
    assert (fields["cls"]["text"], fields["empty"]["text"]) == ("7", "")


def test_command_line(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preview", str(prepared)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("0: train_part_00_0\n  jpg: 631 bytes, ")
    assert out.count("\n  txt: ") == 3
    assert "\x1b" not in out
    assert main(["preview", str(prepared), "-n", "50", "--split-part", "test", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [sample["key"] for sample in found["samples"]] == ["val_v-2_0", "val_v-2_1", "val_v-2_2"]
    assert "data" not in found["samples"][0]["parts"][0]
    assert main(["preview", str(prepared), "--split-part", "absent"]) == 1
    assert main(["preview", str(prepared / "absent")]) == 1
    capsys.readouterr()
    assert main(["preview", str(prepared), "-n", "1", "--rows", "0"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 7


@pytest.mark.parametrize(("answers", "shown"), [([""] * 30, 19), (["y", "n"], 2), ([], 1)])
def test_a_terminal_shows_one_sample_at_a_time(
    prepared: Path, monkeypatch: pytest.MonkeyPatch, answers: list[str], shown: int
) -> None:
    out = io.StringIO()
    out.isatty = lambda: True  # type: ignore[method-assign]
    given_answers = iter(answers)

    def ask(prompt: str) -> str:
        try:
            return next(given_answers)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", ask)
    assert main(["preview", str(prepared), "--rows", "2"]) == 0
    assert out.getvalue().count("  jpg: ") == shown


def test_without_pillow(prepared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert main(["preview", str(prepared), "-n", "1"]) == 0
    assert "fastpack-llm[media]" in capsys.readouterr().out


def test_a_broken_image_is_reported(make: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    data = picture((1, 2, 3), (200, 200), kind="JPEG")
    folder = make({"a.tar": [("k.jpg", data[:700])]}, {"train": ["a.tar"]})
    assert main(["preview", str(folder)]) == 0
    assert "not shown: OSError: image file is truncated" in capsys.readouterr().out


def test_start_skips_samples(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preview", str(prepared), "--split-part", "val", "--start", "1", "--rows", "0"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line[0] != " "] == ["1: val_v-1_1"]
    assert main(["preview", str(prepared), "--split-part", "val", "--start", "2"]) == 1
    assert "has no sample 2: it has 2, counted from 0" in capsys.readouterr().err
