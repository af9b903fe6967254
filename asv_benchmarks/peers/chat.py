"""Run transformers' apply_chat_template in a loop and `fastpack chat` on the same conversations; compare every token.

    python asv_benchmarks/peers/chat.py                       create an environment for transformers on the first run
    python asv_benchmarks/peers/chat.py --peer-python PATH    use a Python that has transformers 4.57
    python asv_benchmarks/peers/chat.py --write               write the table to the page with its markers
    python asv_benchmarks/peers/chat.py --scale 0.1           a quick check

Of transformers, only the loop is measured: reading the lines, and the ids of each conversation, without its mask. Of
fastpack, the whole process and its children, with imports, the choice of an engine, and the mask. Rounds alternate, and
the best round of each side counts. Masks are compared where the template has generation blocks. The exit code is 1 if a
row misses its target.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from peers.chat_inputs import make_chat_tokenizer, make_conversations  # noqa: E402
from peers.command import HERE, ROOT, find_python, machine, make_parser, publish, run_folder  # noqa: E402
from peers.table import shown  # noqa: E402

REQUIREMENTS = ("transformers>=4.57,<4.58", "jinja2", "numpy")
TEMPLATES = ROOT / "tests" / "golden" / "chat" / "templates"
GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
HEADER = (
    "template",
    "conversations",
    "transformers CPU",
    "fastpack CPU",
    "CPU ratio",
    "at least",
    "tokens equal",
    "masks",
)
BAR = 4


@dataclass(frozen=True)
class Chats:
    """A file of conversations; answer: the median number of characters of an answer."""

    title: str
    n: int
    answer: int
    most_answers: int = 4


SHORT = Chats("short answers", 24_000, 200)
LONG = Chats("long answers", 9_000, 800)
TURNS = Chats("up to 40 answers", 2_500, 200, 40)


@dataclass(frozen=True)
class Work:
    """A template with or without its generation blocks, a tokenizer, conversations."""

    family: str
    marked: bool
    vocabulary: str
    chats: Chats

    @property
    def title(self) -> str:
        return f"{self.family}, {'generation blocks' if self.marked else 'prefixes'}, {self.vocabulary} entries"


ALL_WORK = (
    Work("chatml", False, "32k", SHORT),
    Work("qwen", False, "128k", SHORT),
    Work("qwen", True, "128k", SHORT),
    Work("llama3", True, "128k", LONG),
    Work("llama3", False, "32k", TURNS),
)


class Comparison:
    """Both sides, and their files in `folder`."""

    def __init__(self, folder: Path, peer_python: str, rounds: int, scale: float) -> None:
        self.folder, self.peer_python, self.rounds, self.scale = folder, peer_python, rounds, scale
        self.environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise modules can be compiled in every run

    def row(self, work: Work) -> tuple[list[str], str | None]:
        """Measure one row; return its cells, and the target that it misses."""
        template = self.folder / f"{work.family}-{work.marked}.jinja"
        source = (TEMPLATES / f"{work.family}.jinja").read_text(encoding="utf-8")
        template.write_text(source if work.marked else GENERATION.sub("", source), encoding="utf-8")
        tokenizer, chats = self._tokenizer(work.vocabulary), self._chats(work.chats)
        theirs, ours = [], []
        for _ in range(self.rounds):
            theirs.append(self._loop(tokenizer, template, chats, "mask" if work.marked else "tokens"))
            ours.append(self._chat(tokenizer, template, chats))
        peer, own = min(one["cpu"] for one in theirs), min(one["cpu"] for one in ours)
        tokens, masks = self._equal(work.marked)
        n = sum(1 for _ in chats.open("rb"))
        size = f"{n:,} with {work.chats.title}, {chats.stat().st_size / 1e6:.0f} MB"
        cells = [work.title, size, f"{shown(peer)} s", f"{shown(own)} s", f"**{shown(peer / own)}x**", f"{BAR}x"]
        cells += ["yes" if tokens else "no", "-" if masks is None else "equal" if masks else "differ"]
        wrong = not tokens or masks is False
        return cells, "other tokens or masks" if wrong else f"{shown(peer / own)}x" if peer / own < BAR else None

    def _tokenizer(self, name: str) -> Path:
        folder = self.folder / name
        if not folder.exists():
            make_chat_tokenizer(folder, name)
        return folder

    def _chats(self, chats: Chats) -> Path:
        path = self.folder / f"{chats.title.replace(' ', '-')}.jsonl"
        if not path.exists():
            make_conversations(path, max(1, round(chats.n * self.scale)), chats.answer, chats.most_answers)
        return path

    def _loop(self, tokenizer: Path, template: Path, chats: Path, wanted: str) -> dict[str, float]:
        loop = [self.peer_python, str(HERE / "chat_loop.py"), *map(str, (tokenizer, template, chats)), "peer", wanted]
        found: dict[str, float] = json.loads(self._run(loop))
        return found

    def _chat(self, tokenizer: Path, template: Path, chats: Path) -> dict[str, float]:
        launch = [sys.executable, "-I", "-S", str(HERE / "launch.py"), "report.json"]
        options = ["--tokenizer", str(tokenizer), "--chat-template", str(template), "-o", "ours.pbin"]
        options += ["--num-workers", "1", "--if-exists", "overwrite", "--no-progress"]
        self._run([*launch, sys.executable, "-P", "-m", "fastpack", "chat", str(chats), *options])
        found: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        if found["code"]:
            raise SystemExit(f"fastpack chat ended with {found['code']}")
        return found

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")
        return done.stdout

    def _equal(self, marked: bool) -> tuple[bool, bool | None]:
        """Return whether all tokens and lengths are equal, and all masks if the template has generation blocks."""
        import numpy as np

        from fastpack import PackedFile

        with PackedFile(self.folder / "ours.pbin") as file, np.load(self.folder / "peer.npz") as peer:
            lengths = file.index[:, 1] // file.token_size_in_bytes
            tokens = np.array_equal(file.data, peer["tokens"]) and np.array_equal(lengths, peer["lengths"])
            return tokens, np.array_equal(file.loss_mask, peer["mask"]) if marked else None


def run(args: argparse.Namespace) -> list[tuple[list[str], str | None]]:
    """Measure the selected rows; print each one when it is finished, then the table."""
    python, rows = find_python(args, REQUIREMENTS, torch=False), []
    with run_folder(args) as folder:
        comparison = Comparison(folder, python, args.rounds, args.scale)
        for work in ALL_WORK:
            if args.only in work.title:
                rows.append(comparison.row(work))
                print(" | ".join(rows[-1][0]), file=sys.stderr, flush=True)
    footer = (
        f"{machine()}; byte-level BPE tokenizers of Python's standard library. "
        f"CPU seconds, the best of {args.rounds} rounds, the sides taking turns: of transformers 4.57 the loop alone, "
        "without the mask; of fastpack the whole process of one worker, with its start and the mask."
    )
    publish(args, "chat", HEADER, [cells for cells, _ in rows], footer)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, "transformers-4.57", "about 200 MB", rounds=2)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the numbers of conversations (default: 1)")
    rows = run(args := parser.parse_args(argv))
    failed = [(cells[0], failure) for cells, failure in rows if failure is not None]
    for title, failure in failed if args.scale >= 1 else []:
        print(f"NOT KEPT: {title}: {failure}, expected at least {BAR}x", file=sys.stderr)
    return int(not rows or (args.scale >= 1 and bool(failed)))


if __name__ == "__main__":
    sys.exit(main())
