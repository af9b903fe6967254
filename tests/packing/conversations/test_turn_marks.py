"""The text that a turn adds follows from one rendering, and is the same as from renderings of every prefix."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastpack.packing.conversations.rendering import ChatTemplate
from fastpack.packing.conversations.sandbox import TemplateFault

TAGS = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
SAY = "<{{ m.role }}>{{ m.content }};"
LOOP = "{% for m in messages %}" + SAY + "{% endfor %}"
ASK = "{% if add_generation_prompt %}<assistant>{% endif %}"
MARKED = {  # templates whose prefixes are known from one rendering of most conversations
    "plain": LOOP + ASK,
    "first": "{% for m in messages %}" + SAY + "{{ '^' if loop.first }}{{ loop.index0 }}{% endfor %}" + ASK,
    "system": "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{{ messages[0]['content'] }}|"
    "{% else %}{% set rest = messages %}{% endif %}{% for m in rest %}" + SAY + "{% endfor %}" + ASK,
    "choice": "{% set rest = messages[1:] if messages[0].role == 'system' else messages %}"
    "{% for m in rest %}" + SAY + "{% endfor %}" + ASK,
    "second": "{{ messages[1].role }}" + LOOP + ASK,
    "tool": "{% for m in messages %}" + SAY + "{% if m.role == 'tool' and (loop.last or messages[loop.index0 + 1].role"
    " != 'tool') %}!{% endif %}{% endfor %}" + ASK,
    "count": "{% set n = namespace(c=0) %}{% for m in messages %}{% set n.c = n.c + 1 %}"
    + SAY
    + "{{ n.c }}{% endfor %}",
    "defined": "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
    + LOOP
    + ASK,
    "macro": "{% macro say(m) %}" + SAY + "{% endmacro %}{% for m in messages %}{{ say(m) }}{% endfor %}" + ASK,
    "inner": "{% for m in messages %}<{{ m.role }}>{% for c in m.content %}{{ c }}{{ ',' if not loop.last }}"
    "{% endfor %};{% endfor %}" + ASK,
    "joiner": "{% set comma = joiner(',') %}{% for m in messages %}" + SAY + "{{ comma() }}{% endfor %}" + ASK,
    "raise": "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}"
    + SAY
    + "{% endfor %}",
}
OTHER = {  # templates whose prefixes have to be rendered
    "last": "{% for m in messages %}" + SAY + "{{ '' if loop.last else '+' }}{% endfor %}" + ASK,
    "prompt in the loop": "{% for m in messages %}" + SAY + "{% if loop.last and add_generation_prompt %}<assistant>"
    "{% endif %}{% endfor %}",
    "prompt first": "{{ 'P' if add_generation_prompt }}" + LOOP,
    "length": "{{ messages | length }}" + LOOP + ASK,
    "end of messages": LOOP + ASK + "{{ messages[-1].role }}",
    "message before": "{% for m in messages %}" + SAY + "{{ messages[loop.index0 - 1].role }}{% endfor %}" + ASK,
    "alias": "{% set all = messages %}{{ (all | last).role }}{% for m in all %}" + SAY + "{% endfor %}" + ASK,
    "alias of alias": "{% set a = messages %}{% set b = a %}{% for m in b %}" + SAY + "{% endfor %}{{ b | length }}",
    "two loops": LOOP + "{% for m in messages[1:] %}" + SAY + "{% endfor %}" + ASK,
    "names of the loop": "{% for m in messages %}{% set l = loop %}" + SAY + "{{ l.last }}{% endfor %}" + ASK,
    "next": "{% for m in messages %}" + SAY + "{{ loop.nextitem is defined }}{{ loop.revindex }}{% endfor %}" + ASK,
    "inner loop": "{% for m in messages %}{% for k in messages %}{{ k.role[0] }}{% endfor %}{% endfor %}" + ASK,
    "inside": "{% if true %}" + LOOP + "{% endif %}" + ASK,
    "filtered": "{% for m in messages if m.content %}" + SAY + "{% endfor %}" + ASK,
    "break": "{% for m in messages %}{% if loop.index == 3 %}{% break %}{% endif %}" + SAY + "{% endfor %}",
    "state": "{% set n = namespace(r='') %}{% for m in messages %}{% set n.r = m.role %}" + SAY + "{% endfor %}"
    "{% if add_generation_prompt and n.r == 'user' %}<assistant>{% endif %}",
    "variable": "{% set first = messages[0].role %}" + LOOP + "{{ '<assistant>' if add_generation_prompt and first == "
    "'user' }}",
    "assigned": "{% set messages = messages[::-1] %}" + LOOP + ASK,
    "else": "{% for m in messages[1:] %}" + SAY + "{% else %}nothing{% endfor %}" + ASK,
    "macro of messages": "{% macro n() %}{{ messages | length }}{% endmacro %}"
    "{% for m in messages %}{{ n() }}{% endfor %}",
}
REFUSED = {  # templates that add other text at the end, or another prompt than the start of a turn
    "end": LOOP + ASK + "{% if not add_generation_prompt %}.{% endif %}",
    "always": LOOP + "<assistant>",
    "prompt": LOOP + "{% if add_generation_prompt %}<model>{% endif %}",
}
ALL = MARKED | OTHER | REFUSED
ROLES = st.sampled_from(["user", "assistant", "assistant", "tool"])
MESSAGE = st.fixed_dictionaries({"role": ROLES, "content": st.text("a<>;+", max_size=3)})
CHATS = st.builds(
    lambda system, chat, end: [*({"role": "system", "content": "s"} for _ in range(system)), *chat, end],
    st.integers(0, 1),
    st.lists(MESSAGE, max_size=6),
    st.builds(lambda text: {"role": "assistant", "content": text}, st.text("a<>;", max_size=3)),
)
ANSWERS = [{"role": "assistant", "content": str(number)} for number in range(5)]


def spans_of_prefixes(template: ChatTemplate, messages: list[Any]) -> list[tuple[int, int]] | None:
    """Return the spans of the assistant's turns from renderings of prefixes; None if these do not begin the text."""
    text, spans = template.render(messages), []
    for turn, message in enumerate(messages):
        if message["role"] == "assistant":
            before, through = template.render(messages[:turn], prompt=True), template.render(messages[: turn + 1])
            if not (text.startswith(through) and through.startswith(before)):
                return None
            spans.append((len(before), len(through)))
    return [(start, end) for start, end in spans if start < end]


@settings(max_examples=30, deadline=None)
@given(chats=st.lists(CHATS, min_size=2, max_size=3))
@example(chats=[ANSWERS[:2], ANSWERS])
@pytest.mark.parametrize("name", ALL)
def test_spans_are_those_of_rendered_prefixes(name: str, chats: list[list[Any]]) -> None:
    source = ALL[name]
    template, reference = ChatTemplate(source, {}), ChatTemplate(source, {})
    for messages in chats:
        assert outcome(template, messages) == expected(reference, messages)


@pytest.mark.parametrize("family", ["chatml", "deepseek", "gemma", "llama3", "mistral", "phi", "qwen", "zephyr"])
@settings(max_examples=20, deadline=None)
@given(chats=st.lists(CHATS, min_size=2, max_size=3))
def test_spans_of_templates_of_models(golden: Path, family: str, chats: list[list[Any]]) -> None:
    source = TAGS.sub("", (golden / f"chat/templates/{family}.jinja").read_text(encoding="utf-8"))
    template, reference = (ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}) for _ in range(2))
    for messages in chats:
        assert outcome(template, messages) == expected(reference, messages)


def outcome(template: ChatTemplate, messages: list[Any]) -> Any:
    try:
        return template.render_spans(messages, None, "assistant")[1]
    except TemplateFault as fault:
        return None if "renders the messages" in str(fault) else str(fault)


def expected(template: ChatTemplate, messages: list[Any]) -> Any:
    try:
        return spans_of_prefixes(template, messages)
    except TemplateFault as fault:
        return str(fault)


@pytest.mark.parametrize("name", [*MARKED, *OTHER])
def test_prefixes_are_rendered_only_where_they_have_to_be(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    template, chat = ChatTemplate(ALL[name], {}), [{"role": "system", "content": "s"}]
    for number in range(50):
        chat += [{"role": "user", "content": "q"}, {"role": "assistant", "content": f"answer {number}"}]
    outcome(template, chat)
    calls = []
    render = ChatTemplate.render

    def counted(*args: Any, **options: Any) -> str:
        calls.append(args)
        return render(*args, **options)

    monkeypatch.setattr(ChatTemplate, "render", counted)
    outcome(template, chat)
    assert bool(calls) == (name in OTHER)
