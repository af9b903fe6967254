"""Tokens and masks are those of transformers' apply_chat_template, for templates of eight families."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import fastpack

TAGS = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
FAMILIES = ("chatml", "deepseek", "gemma", "llama3", "mistral", "phi", "qwen", "zephyr")
TOKENIZERS = ("plain", "nfc", "trimmed", "metaspace")


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


@pytest.mark.parametrize("family", ["chatml", "qwen"])
@pytest.mark.parametrize("marked", [True, False], ids=["generation", "prefixes"])
def test_the_live_library_agrees(
    tmp_path: Path, golden: Path, folders: dict[str, Path], family: str, marked: bool
) -> None:
    """The golden file was made by 4.57.6; its later versions render and tokenise conversations alike."""
    transformers = pytest.importorskip("transformers")
    source = (golden / f"chat/templates/{family}.jinja").read_text(encoding="utf-8")
    source = source if marked else TAGS.sub("", source)
    (tmp_path / "t.jinja").write_text(source, encoding="utf-8")
    messages = [{"role": "user", "content": "Größe?"}, {"role": "assistant", "content": "12 µm"}]
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": messages}), encoding="utf-8")
    result = fastpack.pack_conversations(
        tmp_path / "a.jsonl", tokenizer=folders["plain"], chat_template=tmp_path / "t.jinja", num_workers=1
    )
    loaded = transformers.AutoTokenizer.from_pretrained(folders["plain"])
    found = loaded.apply_chat_template(
        messages, chat_template=source, return_dict=True, return_assistant_tokens_mask=marked
    )
    with fastpack.PackedFile(result.path) as file:
        assert file[0].tolist() == found["input_ids"]
        if marked:
            assert file.loss_mask is not None
            assert file.loss_mask.astype(int).tolist() == found["assistant_masks"]
