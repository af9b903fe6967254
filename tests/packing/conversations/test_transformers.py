"""Tokens and masks are those of transformers' apply_chat_template, for templates of eight families."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

import fastpack

TAGS = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
FAMILIES = ("chatml", "deepseek", "gemma", "llama3", "mistral", "phi", "qwen", "zephyr")
TOKENIZERS = ("plain", "nfc", "trimmed", "metaspace")
BARE = (  # a conversation of an assistant's turn begins with a generation block
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}"
)


@pytest.fixture(scope="session")
def cases(golden: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((golden / "chat/cases.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="session")
def folders(cases: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folder of each tokenizer."""
    made = {}
    for name, description in cases["tokenizers"].items():
        made[name] = tmp_path_factory.mktemp(name)
        (made[name] / "tokenizer.json").write_text(json.dumps(description), encoding="utf-8")
        (made[name] / "tokenizer_config.json").write_text(json.dumps(cases["config"]), encoding="utf-8")
    return made


@pytest.mark.filterwarnings("ignore:.*no token counts in the loss")
@pytest.mark.parametrize("marked", [True, False], ids=["generation", "prefixes"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_tokens_and_masks_are_those_of_transformers(
    tmp_path: Path,
    golden: Path,
    cases: dict[str, Any],
    folders: dict[str, Path],
    tokenizer: str,
    family: str,
    marked: bool,
) -> None:
    template = (golden / f"chat/templates/{family}.jinja").read_text(encoding="utf-8")
    (tmp_path / "t.jinja").write_text(template if marked else TAGS.sub("", template), encoding="utf-8")
    source = tmp_path / "chats.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in cases["conversations"]), encoding="utf-8")
    result = fastpack.pack_conversations(
        source, tokenizer=folders[tokenizer], chat_template=tmp_path / "t.jinja", num_workers=1
    )
    key = (tokenizer, family, marked)
    answers = next(a for a in cases["answers"] if (a["tokenizer"], a["template"], a["marked"]) == key)["rows"]
    refused = [i for i, answer in enumerate(answers, 1) if answer is None or answer["mask"] is None]
    assert [skipped["line"] for skipped in result.skipped] == refused
    expected = [answer for answer in answers if answer is not None and answer["mask"] is not None]
    with fastpack.PackedFile(result.path) as file:
        assert [file[i].tolist() for i in range(len(file))] == [answer["tokens"] for answer in expected]
        mask = file.loss_mask
    assert mask is not None
    assert "".join(map(str, mask.astype(int).tolist())) == "".join(answer["mask"] for answer in expected)
    assert result.loss_tokens == sum(answer["mask"].count("1") for answer in expected)


@pytest.mark.filterwarnings("ignore:.*no token counts in the loss")
@pytest.mark.parametrize("marked", [True, False], ids=["generation", "prefixes"])
@pytest.mark.parametrize("family", [*FAMILIES, "bare"])
@pytest.mark.parametrize("tokenizer", ["plain", "metaspace"])
def test_the_live_library_agrees(
    tmp_path: Path, golden: Path, folders: dict[str, Path], tokenizer: str, family: str, marked: bool
) -> None:
    """The golden file was made by 4.57.6; here random conversations go through the installed version."""
    transformers = pytest.importorskip("transformers")
    if not transformers.__version__.startswith("4.57."):
        pytest.skip("transformers 5 renders and tokenises some conversations otherwise")
    template = BARE if family == "bare" else (golden / f"chat/templates/{family}.jinja").read_text(encoding="utf-8")
    template = template if marked else TAGS.sub("", template)
    (tmp_path / "t.jinja").write_text(template, encoding="utf-8")
    rng = random.Random(f"{family} {tokenizer}")
    rows = [random_conversation(rng) for _ in range(40)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    result = fastpack.pack_conversations(
        tmp_path / "a.jsonl", tokenizer=folders[tokenizer], chat_template=tmp_path / "t.jinja", num_workers=1
    )
    loaded = transformers.AutoTokenizer.from_pretrained(folders[tokenizer])
    options = {"chat_template": template, "return_dict": True, "return_assistant_tokens_mask": marked}
    skipped, packed = {entry["line"] for entry in result.skipped}, 0
    with fastpack.PackedFile(result.path) as file:
        mask = file.loss_mask
        assert mask is not None
        for line, row in enumerate(rows, 1):
            try:
                found = loaded.apply_chat_template(row["messages"], tools=row.get("tools"), **options)
            except Exception:
                assert line in skipped
                continue
            if line in skipped:
                assert not marked or not found["input_ids"]  # prefixes: the text of a turn is not known
                continue
            assert file[packed].tolist() == found["input_ids"]
            if marked:
                start, length = file.index[packed] // file.token_size_in_bytes
                assert mask[start : start + length].astype(int).tolist() == found["assistant_masks"]
            packed += 1
        assert packed == len(file) > 0


TEXTS = [
    "",
    " ",
    "Hi",
    " two  ",
    "line\n\nline\n",
    "Größe: 12 µm",
    "日本語 e\u0301 😀",
    "<|im_end|>",
    "</s> x",
    "<think>y</think>z",
]
CALL = {"type": "function", "function": {"name": "sum", "arguments": {"a": 1.5, "b": [2, "ü<>&'"]}}}


def random_conversation(rng: random.Random) -> dict[str, Any]:
    """Return a conversation with tools, reasoning, and a system prompt or without."""
    messages: list[dict[str, Any]] = []
    if rng.random() < 0.3:
        messages.append({"role": rng.choice(["system", "assistant"]), "content": rng.choice(TEXTS)})
    has_tools = rng.random() < 0.4
    for _ in range(rng.randint(1, 3)):
        messages.append({"role": "user", "content": " ".join(rng.choices(TEXTS, k=rng.randint(1, 4)))})
        if has_tools and rng.random() < 0.6:
            messages.append({"role": "assistant", "content": rng.choice([None, "Wait"]), "tool_calls": [CALL]})
            messages.append({"role": "tool", "content": rng.choice(TEXTS), "name": "sum"})
        answer = {"role": "assistant", "content": "".join(rng.choices(TEXTS, k=rng.randint(1, 4)))}
        if rng.random() < 0.3:
            answer["reasoning_content"] = rng.choice(TEXTS)
        messages.append(answer)
    tools = [{"type": "function", "function": {"name": "sum", "description": "<Add> & ü", "parameters": {}}}]
    return {"messages": messages, "tools": tools} if has_tools else {"messages": messages}
