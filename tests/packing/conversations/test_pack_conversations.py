"""Conversations of every form and source become token files with masks; what cannot be packed is listed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import fastpack
from fastpack.packing import packing_pipeline
from fastpack.packing.pack_result import ChatResult

TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
)
MARKED = "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }};"
MARKED += "{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}"


def chat(*contents: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)]


def write(folder: Path, rows: list[Any], template: str = TEMPLATE) -> Path:
    (folder / "t.jinja").write_text(template, encoding="utf-8")
    source = folder / "chats.jsonl"
    lines = (row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows)
    source.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return source


def pack(source: Path | list[Path], **options: Any) -> ChatResult:
    folder = (source if isinstance(source, Path) else source[0]).parent
    given = {"tokenizer": "bytes", "chat_template": folder / "t.jinja", "num_workers": 1, **options}
    return fastpack.pack_conversations(source, folder / "o.pbin", **given)


def read(path: str | Path) -> list[tuple[str, str]]:
    """Return the text of each conversation of a file of bytes, and the text that counts."""
    with fastpack.PackedFile(path) as file:
        mask, documents = file.loss_mask, []
        assert mask is not None
        for start, length in (file.index // 2).tolist():
            tokens, counted = file.tokens(start, start + length), mask[start : start + length]
            documents.append((bytes(tokens.tolist()).decode(), bytes(tokens[counted].tolist()).decode()))
    return documents


@pytest.mark.parametrize(
    ("row", "kind", "text"),
    [
        ({"messages": chat("x", "y")}, "messages", "u:x;a:y;"),
        ({"conversation": [{"role": "system", "content": "s"}, *chat("x", "y")]}, "messages", "s:s;u:x;a:y;"),
        ({"conversations": [{"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}]}, "sharegpt", "u:x;a:y;"),
        ({"system": "s", "conversations": [{"from": "gpt", "value": "y"}]}, "sharegpt", "s:s;a:y;"),
        ({"prompt": "x", "completion": "y"}, "pairs", "u:x;a:y;"),
        ({"prompt": chat("x"), "completion": [{"role": "assistant", "content": "y"}]}, "pairs", "u:x;a:y;"),
        ({"instruction": "x", "input": "in", "output": "y"}, "pairs", "u:x\n\nin;a:y;"),
    ],
)
def test_forms_are_recognised(tmp_path: Path, row: Any, kind: str, text: str) -> None:
    result = pack(write(tmp_path, [row]))
    assert result.recognised == {kind: 1}
    assert read(result.path) == [(text, "y;")]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": [{"role": "robot", "content": "x"}]}, 'message 1: unknown role "robot"'),
        ({"conversations": [{"from": "robot", "value": "x"}]}, 'message 1: unknown role "robot"'),
        ({"messages": chat("x", "y", "z")}, "truncated: the last message is of the role user"),
        ({"messages": []}, "a conversation without messages"),
        ({"messages": "x"}, "'messages' is \"x\", expected a list of messages"),
        ({"messages": [{"role": "assistant"}]}, "message 1: no content"),
        ({"text": "x"}, 'no conversation among its keys ["text"]'),
        ({"messages": chat("x", "y"), "tools": "{"}, "'tools' is not JSON"),
        ({"messages": chat("x", "\ud800")}, r"the lone surrogate \ud800 cannot be encoded"),
        ({"messages": chat("x", "never")}, "the template failed: no"),
        ({"conversations": [{"from": "function_call", "value": "x"}]}, "message 1: the function_call is not JSON"),
        ([1], "found [1], expected a JSON object"),
    ],
)
def test_a_conversation_that_cannot_be_packed_is_left_out(tmp_path: Path, row: Any, reason: str) -> None:
    template = "{% if messages[-1].content == 'never' %}{{ raise_exception('no') }}{% endif %}" + TEMPLATE
    rows = [{"messages": chat("x", "y")}, json.dumps(row), {"messages": chat("x", "y")}]
    source = write(tmp_path, rows, template)
    result = pack(source)
    ((line, found),) = [(skipped["line"], skipped["reason"]) for skipped in result.skipped]
    assert (line, result.documents) == (2, 2)
    assert reason in found
    with pytest.raises(ValueError, match="line 2 at byte"):
        pack(source, on_error="raise", if_exists="overwrite")


@pytest.mark.parametrize(
    "message",
    [
        '{"role": "assistant", "content": "a", "n": 123456789012345678901234567890}',
        '{"role": "assistant", "content": "a", "n": [-0, 1e400, 1.0, 18446744073709551616, NaN]}',
        '{"role": "user", "content": "\\u0000\\/\\u00e9", "role": "assistant", "content": "b"}',
        '{"role": "assistant", "content": "a", "x": {"deep": {"n": 99999999999999999999}}, "y": true}',
        '{"role": "assistant", "content": 36893488147419103232}',
    ],
)
@pytest.mark.parametrize("tools", ["null", "[]", '[{"max": 18446744073709551617}]'])
def test_rows_are_read_as_by_the_json_module(tmp_path: Path, message: str, tools: str) -> None:
    row = f'{{"messages": [{message}], "tools": {tools}}}'
    result = pack(write(tmp_path, [row], "{{ messages | tojson }}{{ tools | tojson }}"), loss="all")
    expected = json.dumps(json.loads(f"[{message}]"), ensure_ascii=False) + json.dumps(json.loads(tools))
    assert read(result.path) == [(expected, expected)]


def test_a_line_that_is_cut_is_left_out(tmp_path: Path) -> None:
    rows = [{"messages": chat("x", "y")}, '{"messages": [{"ro']
    with pytest.warns(UserWarning, match="faulty line"):
        result = pack(write(tmp_path, rows))
    assert [skipped["line"] for skipped in result.skipped] == [2]


@pytest.mark.parametrize("template", [TEMPLATE, MARKED], ids=["prefixes", "generation"])
@pytest.mark.parametrize(("loss", "counted"), [("assistant", "y;z;"), ("last", "z;"), ("all", "u:x;a:y;u:w;a:z;")])
def test_the_tokens_that_count(tmp_path: Path, template: str, loss: str, counted: str) -> None:
    result = pack(write(tmp_path, [{"messages": chat("x", "y", "w", "z")}], template), loss=loss)
    assert read(result.path) == [("u:x;a:y;u:w;a:z;", counted)]
    assert result.loss_tokens == len(counted)


def test_a_template_whose_prefixes_differ_is_refused_except_for_the_last_turn(tmp_path: Path) -> None:
    shortened = "{% for m in messages %}{{ m.role[0] }}:{{ m.content if loop.last else '-' }};{% endfor %}"
    shortened += "{% if add_generation_prompt %}a:{% endif %}"
    source = write(tmp_path, [{"messages": chat("x", "y")}, {"messages": chat("x", "y", "w", "z")}], shortened)
    result = pack(source)
    assert [skipped["line"] for skipped in result.skipped] == [1, 2]
    assert "renders the messages up to number 2 otherwise" in result.skipped[0]["reason"]


def test_a_template_that_marks_nothing_is_a_warning(tmp_path: Path) -> None:
    empty = "{% generation %}{% endgeneration %}{{ messages[0].content }}"
    with pytest.warns(fastpack.DataWarning, match="no token counts in the loss"):
        pack(write(tmp_path, [{"messages": chat("x", "y")}], empty))


def test_fields_and_tools(tmp_path: Path) -> None:
    template = "{{ tools | tojson if tools else '' }}" + TEMPLATE
    row = {"dialog": chat("x", "y"), "functions": json.dumps([{"name": "ü"}]), "messages": []}
    result = pack(write(tmp_path, [row], template), messages_field="dialog", tools_field="functions")
    assert read(result.path) == [('[{"name": "ü"}]u:x;a:y;', "y;")]


def test_tool_calls_of_sharegpt(tmp_path: Path) -> None:
    call = json.dumps({"name": "f", "arguments": {"a": 1}})
    turns = [{"from": "human", "value": "x"}, {"from": "function_call", "value": call}]
    turns += [{"from": "observation", "value": "2"}, {"from": "gpt", "value": "y"}]
    template = (
        "{% for m in messages %}{{ m.role }}{{ m.tool_calls | tojson if m.tool_calls }}{{ m.content }};{% endfor %}"
    )
    result = pack(write(tmp_path, [{"conversations": turns}], template), loss="all")
    ((text, _),) = read(result.path)
    expected = 'assistant[{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}];'
    assert text == f"userx;{expected}tool2;assistanty;"


ROWS = [{"messages": chat(f"question {i}", "ä" * (i % 7) + "y"), "id": i} for i in range(40)]
ROWS[3]["messages"] = chat("cut")


@pytest.mark.parametrize("kind", ["jsonl.gz", "parquet", "arrow", "saved", "glob"])
def test_every_source_gives_the_same_file(tmp_path: Path, kind: str) -> None:
    expected = pack(write(tmp_path, ROWS))
    other = tmp_path / "other"
    other.mkdir()
    (other / "t.jinja").write_text(TEMPLATE)
    table = pa.Table.from_pylist(ROWS)
    source: Any = other / f"chats.{kind}"
    if kind == "jsonl.gz":
        source.write_bytes(gzip.compress((tmp_path / "chats.jsonl").read_bytes()))
    elif kind == "parquet":
        pq.write_table(table, source, row_group_size=7)
    elif kind == "arrow":
        with pa.ipc.new_file(source, table.schema) as file:
            file.write_table(table, 7)
    elif kind == "saved":
        source = other / "saved"
        source.mkdir()
        with pa.ipc.new_stream(source / "data-00000-of-00001.arrow", table.schema) as stream:
            stream.write_table(table, 7)
    else:
        pq.write_table(table.slice(0, 11), other / "1.parquet")
        pq.write_table(table.slice(11), other / "2.parquet")
        source = f"{other}/*.parquet"
    result = fastpack.pack_conversations(
        source, other / "o.pbin", tokenizer="bytes", chat_template=other / "t.jinja", num_workers=1
    )
    assert Path(result.path).read_bytes() == Path(expected.path).read_bytes()
    assert Path(f"{result.path}.mask").read_bytes() == Path(f"{expected.path}.mask").read_bytes()
    assert [skipped["line"] for skipped in result.skipped] == [4]


def test_missing_fields_of_parquet_are_not_there_and_null_content_is(tmp_path: Path) -> None:
    calls = [{"name": "f"}]
    rows = [{"messages": [{"role": "assistant", "content": None, "tool_calls": calls}]}, {"messages": chat("x", "y")}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    template = "{% for m in messages %}{{ m.keys() | list }}{{ m.content is none }}{% endfor %}"
    (tmp_path / "t.jinja").write_text(template)
    result = pack(tmp_path / "a.parquet", loss="all")
    keys, calls_keys = "['role', 'content']False", "['content', 'role', 'tool_calls']True"
    found = [text for text, _ in read(result.path)]
    assert sorted(found[0]) == sorted(calls_keys)
    assert sorted(found[1]) == sorted(keys * 2)


def test_a_table_without_conversations_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "a.parquet")
    (tmp_path / "t.jinja").write_text(TEMPLATE)
    with pytest.raises(
        ValueError, match=r"no conversations in its columns text: expected messages, .* messages_field names another"
    ):
        pack(tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("prompt,completion\nx,y\n")
    with pytest.raises(
        ValueError, match="conversations are read from JSON Lines, Parquet and Arrow files, not from csv"
    ):
        pack(tmp_path / "a.csv")


def trained(folder: Path) -> Path:
    """Train a byte-level BPE in a folder with a chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["</s>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator([TEMPLATE, MARKED, "question answer " * 9], trainer)
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "chat_template": MARKED}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("bpe"))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.text(max_size=12), min_size=1, max_size=5), min_size=1, max_size=5))
def test_the_counted_tokens_are_those_of_the_turns(
    tmp_path_factory: pytest.TempPathFactory, bpe: Path, chats: list[list[str]]
) -> None:
    folder = tmp_path_factory.mktemp("chats")
    rows = [{"messages": chat(*(text for one in turns for text in ("q", one)))} for turns in chats]
    result = pack(write(folder, rows, MARKED), tokenizer=bpe)
    tokenizer = Tokenizer.from_file(str(bpe / "tokenizer.json"))
    with fastpack.PackedFile(result.path) as file:
        mask = file.loss_mask
        assert mask is not None
        for row, (start, length) in zip(rows, (file.index // 2).tolist(), strict=True):
            tokens, counted = file.tokens(start, start + length), mask[start : start + length]
            text = "".join(f"{m['role'][0]}:{m['content']};" for m in row["messages"])
            assert tokens.tolist() == tokenizer.encode(text, add_special_tokens=False).ids
            assert counted.astype(int).tolist() == marked(tokenizer.encode(text, add_special_tokens=False), row)


def marked(encoding: Any, row: Any) -> list[int]:
    """Return the mask that `char_to_token` gives for the turns of the assistant."""
    mask, end = [0] * len(encoding), 0
    for message in row["messages"]:
        start = end + 2
        end = start + len(message["content"]) + 1
        if message["role"] == "assistant":
            first, last = encoding.char_to_token(start), encoding.char_to_token(end - 1)
            for i in range(first, last + 1):
                mask[i] = 1
    return mask


def test_workers_write_the_same_bytes(tmp_path: Path, bpe: Path, small_batches: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(packing_pipeline, "CHAT_WORKER_BYTES", 4096)
    source = write(tmp_path, ROWS * 20, MARKED)
    one = pack(source, tokenizer=bpe)
    before = [Path(one.path + suffix).read_bytes() for suffix in ("", ".mask")]
    two = pack(source, tokenizer=bpe, num_workers=2, if_exists="overwrite")
    assert [Path(two.path + suffix).read_bytes() for suffix in ("", ".mask")] == before
    assert vars(one) == vars(two)


@pytest.mark.parametrize("engine", ["tokenizers", "gigatoken", "tiktoken"])
def test_engines_write_the_same_bytes(tmp_path: Path, bpe: Path, engine: Any) -> None:
    source = write(tmp_path, ROWS, MARKED)
    reference = pack(source, tokenizer=bpe)
    before = [Path(reference.path + suffix).read_bytes() for suffix in ("", ".mask")]
    result = pack(source, tokenizer=bpe, engine=engine, if_exists="overwrite")
    assert result.engine == engine
    assert [Path(result.path + suffix).read_bytes() for suffix in ("", ".mask")] == before


def test_an_interrupted_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path, ROWS)
    whole = pack(source)
    expected = [Path(whole.path + suffix).read_bytes() for suffix in ("", ".mask")]
    for name in ("MIN_BATCH_BYTES", "MAX_BATCH_BYTES"):
        monkeypatch.setattr(packing_pipeline, name, 300)
    monkeypatch.setattr(packing_pipeline, "CHECKPOINT_SECONDS", -1)

    def stop(done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    Path(whole.path).unlink()
    with pytest.raises(KeyboardInterrupt):
        pack(source, resume=True, progress=stop)
    result = pack(source, resume=True)
    assert 0 < result.resumed_documents < result.documents
    assert [Path(result.path + suffix).read_bytes() for suffix in ("", ".mask")] == expected
    assert (result.loss_tokens, result.turns, result.recognised) == (whole.loss_tokens, whole.turns, whole.recognised)
    assert pack(source, resume=True).kept_existing


@pytest.mark.parametrize("format", ["npy", "bin", "megatron", "datatrove", "olmo", "llmc", "nanogpt", "litdata", "mds"])
def test_every_format_has_its_mask(tmp_path: Path, format: Any) -> None:
    from fastpack.tokens.loss_mask import open_loss_mask

    source = write(tmp_path, ROWS)
    with fastpack.PackedFile(pack(source).path) as file:
        expected = file.loss_mask
    assert expected is not None
    out = tmp_path / "out"
    out.mkdir()
    suffix = {"npy": ".npy", "bin": ".bin", "datatrove": ".ds", "olmo": ".npy", "llmc": ".bin", "nanogpt": ".bin"}
    result = fastpack.pack_conversations(
        source,
        out / f"o{suffix.get(format, '')}",
        tokenizer="bytes",
        chat_template=tmp_path / "t.jinja",
        format=format,
        num_workers=1,
    )
    dtype = "uint16" if format in ("bin", "olmo") else None
    with fastpack.open_tokens(result.path, format=format, dtype=dtype) as tokens:
        mask = open_loss_mask(tokens)
        assert mask is not None
        assert mask.read(0, tokens.n_tokens).tolist() == expected.tolist()


def test_preference_pairs_are_two_aligned_files(tmp_path: Path) -> None:
    rows = [
        {"prompt": "x", "chosen": "yes", "rejected": "no"},
        {"chosen": chat("x", "yes"), "rejected": chat("x", "no", "cut")},
        {"chosen": chat("x", "yes"), "rejected": chat("x", "no")},
    ]
    result = pack(write(tmp_path, rows))
    assert result.rejected is not None
    assert [Path(one.path).name for one in (result, result.rejected)] == ["o.chosen.pbin", "o.rejected.pbin"]
    assert read(result.path) == [("u:x;a:yes;", "yes;")] * 2
    assert read(result.rejected.path) == [("u:x;a:no;", "no;")] * 2
    assert [one["line"] for one in result.skipped] == [one["line"] for one in result.rejected.skipped] == [2]


def test_templates_of_the_tokenizer(tmp_path: Path, bpe: Path) -> None:
    folder = trained(tmp_path / "tokenizer")
    source = write(tmp_path, [{"messages": chat("x", "y")}, {"messages": chat("x", "y"), "tools": [{}]}])
    config = json.loads((folder / "tokenizer_config.json").read_text())
    entries = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": entries}))

    def texts(template: str | None = None) -> list[str]:
        options = {"tokenizer": folder, "chat_template": template, "if_exists": "overwrite", "loss": "all"}
        result = pack(source, **options)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        with fastpack.PackedFile(result.path) as file:
            return [tokenizer.decode(file[i].tolist()) for i in range(len(file))]

    assert texts() == ["D", "T"]
    assert texts("tool_use") == ["T", "T"]
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates/short.jinja").write_text("S")
    with pytest.raises(ValueError, match=r"the tokenizer has several templates \(short\)"):
        texts()
    (folder / "chat_template.jinja").write_text("J")
    assert texts() == ["J", "J"]
    assert texts("short") == ["S", "S"]
    with pytest.raises(ValueError, match="'absent' is no file, and the tokenizer's templates are default, short"):
        texts("absent")
    (folder / "chat_template.jinja").write_text("{% for %}")
    with pytest.raises(ValueError, match="the chat template: line 1"):
        texts()


def test_a_tokenizer_without_a_template_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path, [{"messages": chat("x", "y")}])
    with pytest.raises(ValueError, match="chat_template is needed: the tokenizer has no chat template"):
        pack(source, chat_template=None)
    with pytest.raises(ValueError, match="loss: found 'some', expected one of assistant, last, all"):
        pack(source, loss="some")


def test_ids_of_added_tokens_decide_the_token_size(tmp_path: Path) -> None:
    """254 words and two added tokens need two bytes."""
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(254)} | {"?": 254}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<a>", "<b>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    source = write(
        tmp_path, [{"messages": chat("w1", "w2")}], "{{ messages[0].content }} <b> {{ messages[1].content }}"
    )
    result = pack(source, tokenizer=tmp_path, loss="all")
    with fastpack.PackedFile(result.path) as file:
        assert file[0].tolist() == [1, 256, 2]
        assert file.token_size_in_bytes == 2
        assert np.all(file.loss_mask)
