"""Pages of `report` and `compare` in a real browser: no overflow, no overlapping labels, legible text, no scripts."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from html import escape, unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fastpack

pytestmark = pytest.mark.slow

WIDTHS = (375, 800, 1400)  # pixels: a phone, a tablet, a desktop
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--enable-logging=stderr", "--dump-dom"),
]

# Frames of several widths, because windows cannot be as narrow as a phone. The result replaces the text of the body.
WRAPPER = """<!doctype html><meta charset="utf-8"><body>%s<script>
const luminance = (colour) => {
  const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
};
const backdrop = (element, view) => {
  const colour = view.getComputedStyle(element).backgroundColor;
  return /, 0\\)$|transparent/.test(colour) ? backdrop(element.parentElement, view) : colour;
};
const overlap = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
window.onload = () => {
  const found = [...document.querySelectorAll("iframe")].map((frame) => {
    const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement;
    const over = [], pale = [];
    for (const svg of page.querySelectorAll("svg[role=img]")) {
      const ticks = [...svg.querySelectorAll("text")].map((one) => [one.textContent, one.getBoundingClientRect()]);
      ticks.forEach(([a, x], i) => ticks.slice(i + 1).forEach(([b, y]) => overlap(x, y) && over.push(a + " " + b)));
    }
    const sticksOut = (one) => one.getBoundingClientRect().right > view.innerWidth + 0.5;
    const outside = [...page.querySelectorAll("body *")].filter((one) => !one.closest(".scroll") && sticksOut(one))
      .map((one) => one.outerHTML.slice(0, 80));
    const shown = "h1,h2,h3,p,dt,dd,td,th,li,caption,figcaption,footer,small,code,span,text,rect.f,circle.f";
    for (const one of page.querySelectorAll(shown)) {
      const style = view.getComputedStyle(one), drawn = one instanceof view.SVGElement;
      const background = backdrop(drawn ? one.closest("svg").parentElement : one, view);
      const ratio = contrast(drawn ? style.fill : style.color, background);
      if (ratio < (drawn && one.tagName !== "text" ? 3 : 4.5)) pale.push(one.outerHTML.slice(0, 80) + ratio);
    }
    return {
      width: view.innerWidth, wider: root.scrollWidth - view.innerWidth, height: root.scrollHeight, over, outside, pale,
      pictures: [...page.images].filter((one) => one.complete && one.naturalWidth > 0 && one.alt).length,
      unfocused: [...page.querySelectorAll("[tabindex]")].filter((one) => {
        one.focus({focusVisible: true});
        return page.activeElement !== one || view.getComputedStyle(one).outlineStyle === "none";
      }).length,
      ran: Boolean(view.attacked),
      background: view.getComputedStyle(page.body).backgroundColor,
      graphs: page.querySelectorAll("svg[role=img]").length,
    };
  });
  document.body.textContent = JSON.stringify(found);
};
</script></body>"""


def find_browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        reason = f"no browser ({', '.join(BROWSERS)}) is installed: the page of `report` is not tested"
        assert "chromium" not in os.environ.get("FASTPACK_REQUIRE", ""), reason
        pytest.skip(reason)
    return found


def problems_on_page(page: Path, folder: Path, scheme: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the problems that the script above finds at each width, and the console messages."""
    text = escape(page.read_text())
    frames = (f'<iframe width="{width}" height="900" frameborder="0" srcdoc="{text}"></iframe>' for width in WIDTHS)
    wrapper = folder / f"{scheme}.html"
    wrapper.write_text(WRAPPER.replace("%s", "".join(frames), 1))
    setting = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    command = [find_browser(), *FLAGS, setting, f"--user-data-dir={folder / scheme}", wrapper.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    body = re.search(r"<body>(.*)</body>", done.stdout, re.DOTALL)
    assert body is not None, done.stderr
    return json.loads(unescape(body[1])), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def make_page(folder: Path) -> Path:
    """Write a report on three sources with many files, long and unusual names, weights and warnings."""
    rng = np.random.default_rng(1)
    sources = []
    for name, n_files, mean in (("web pages", 70, 6.0), ("a" * 90, 9, 3.0), ("Ünïcode <b>", 3, 9.0)):
        (folder / name).mkdir(parents=True)
        for number in range(n_files):
            lengths = rng.lognormal(mean, 1.3, 40).astype(int) + 1
            tokens = rng.zipf(1.3, lengths.sum()).clip(2, 40_000).astype(np.uint16)
            tokens[np.cumsum(lengths) - 1] = 1
            np.save(folder / name / f"shard_{number:05d}_of_a_long_name.npy", tokens)
        sources.append(f"[[data.datasets]]\npath = '{folder / name}'\nweight = {mean}\n")
    (folder / "train.toml").write_text("\n".join(["[data]", *sources]))
    result = fastpack.report(folder / "train.toml", folder / "report.html", vocab_size=30_000)
    assert result.numbers is not None
    assert result.numbers["warnings"]
    return folder / "report.html"


def make_contents(folder: Path, images: Path) -> Path:
    """Write a report on texts that contain markup, by a field, and on images."""
    attack = "<script>window.attacked = 1</script><img src=x onerror='attacked = 1'>\n\u202e\u0627\u0644"
    rng = np.random.default_rng(2)
    words = ["word", "\u043c\u0438\u0440", attack, "x" * 300, "\u6771\u4eac"]
    texts = [" ".join(rng.choice(words, int(n))) for n in rng.integers(1, 60, 300)]
    rows = [{"text": text, "source": attack if number % 3 else "web"} for number, text in enumerate(texts)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 2))
    page = folder / "contents.html"
    fastpack.report([folder / "texts.jsonl", images], page, tokenizer="bytes", by="source", title=attack)
    return page


def make_comparison(folder: Path) -> Path:
    old, new = folder / "old.jsonl", folder / "new.jsonl"
    for path, last in ((old, "<script>window.attacked = 1</script>"), (new, "y " * 400)):
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("same", last, f"only {path.name}")))
    fastpack.compare(old, new, output=folder / "comparison.html")
    return folder / "comparison.html"


def write_images(folder: Path) -> Path:
    (folder / "images").mkdir()
    with tarfile.open(folder / "images" / "0.tar", "w") as tar:
        for number, size in enumerate(((30, 90), (300, 40), (64, 64))):
            data = io.BytesIO()
            Image.new("RGB", size, (60 * number, 90, 200)).save(data, "PNG")
            for name, content in (("png", data.getvalue()), ("txt", b"<b>a caption</b> " + b"long" * 30)):
                member = tarfile.TarInfo(f"{number}.{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    fastpack.prepare(folder / "images", split_ratio=(1, 0, 0), sample_type="CrudeWebdataset")
    return folder / "images"


@pytest.mark.parametrize(("kind", "graphs", "pictures"), [("mixture", 7, 0), ("contents", 5, 3), ("comparison", 1, 0)])
def test_in_a_browser(tmp_path: Path, kind: str, graphs: int, pictures: int) -> None:
    find_browser()
    if kind == "mixture":
        page = make_page(tmp_path / "data")
    elif kind == "contents":
        page = make_contents(tmp_path, write_images(tmp_path))
    else:
        page = make_comparison(tmp_path)
    papers = set()
    for scheme in ("light", "dark"):
        frames, console = problems_on_page(page, tmp_path, scheme)
        assert console == []
        assert [frame["width"] for frame in frames] == list(WIDTHS)
        for frame in frames:
            assert frame["wider"] <= 0
            assert (frame["graphs"], frame["pictures"], frame["unfocused"]) == (graphs, pictures, 0)
            assert not frame["ran"]
            assert (frame["over"], frame["outside"], frame["pale"]) == ([], [], [])
            papers.add((scheme, frame["background"]))
        assert frames[0]["height"] > frames[-1]["height"]
    assert len(papers) == 2
    assert len({colour for _, colour in papers}) == 2
