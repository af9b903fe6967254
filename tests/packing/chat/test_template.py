"""Chat templates: sandbox, error messages, and random choices from the generator of the job."""

from __future__ import annotations

import builtins
import random
from typing import Any

import pytest

from fastpack import MissingExtra
from fastpack.packing.chat.template import TemplateFault, compile_template

TURNS = [{"role": "user", "value": "hello"}]


def render(source: str, data: dict[str, Any] | None = None, messages: list[Any] | None = None) -> str:
    compiled = compile_template(source, data or {}, random.Random(0))
    return compiled(TURNS if messages is None else messages)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ''['__class__']['__mro__'] }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ ('' | attr('__class__')).__mro__ }}",
        "{{ messages.__class__.__init__.__globals__ }}",
        "{{ raise_exception.__globals__.json }}",
        "{{ lipsum.__globals__['os'].popen('id').read() }}",
        "{{ cycler.__init__.__globals__.os.system('id') }}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ '{a.__class__.__mro__}'.format_map({'a': 1}) }}",
        "{{ self.__init__.__globals__ }}",
        "{% set _ = messages.append({}) %}",
        "{% set _ = messages[0].update(role='x') %}",
        "{% set _ = messages.sort(key=cycler) %}",
        "{% set _ = chat_template_data.tools.clear() %}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{% for i in range(1000000000) %}x{% endfor %}",
        "{{ range(100001) | list }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 1 / 0 }}",
        "{{ open('/etc/passwd').read() }}",
        "{{ missing.attribute }}",
        "{{ raise_exception('roles must alternate') }}",
    ],
)
def test_hostile_or_failing_template_is_rejected(source: str) -> None:
    turns = [{"role": "user", "value": "hello"}]
    with pytest.raises(TemplateFault, match="the template failed: "):
        render(source, {"tools": [1]}, turns)
    assert turns == TURNS


@pytest.mark.parametrize(
    "source", ["{{ ''.__class__ }}", "{{ ''['__class__'] }}", "{{ '' | attr('__class__') }}", "{{ messages.__len__ }}"]
)
def test_object_attributes_render_as_empty(source: str) -> None:
    assert render(source) == ""


def test_error_contains_the_template_message() -> None:
    with pytest.raises(TemplateFault, match=r"^the template failed: only one system turn$"):
        render("{{ raise_exception('only one system turn') }}")
    with pytest.raises(TemplateFault, match="ZeroDivisionError: "):
        render("{{ 1 // 0 }}")
    with pytest.raises(TemplateFault, match="Range too big"):
        render("{{ range(10 ** 9) | length }}")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a\n{% for %}", "jinja2_chat_template: line 2: "),
        ("{{ x | nosuchfilter }}", "No filter named 'nosuchfilter'"),
        ("{{", "jinja2_chat_template: line 1: "),
        ("{% break %}", "unknown tag 'break'"),
    ],
)
def test_template_that_does_not_compile(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compile_template(source, {}, random.Random(0))


def test_blocks_are_trimmed() -> None:
    source = "  {% for t in messages %}\n{{ t.value }}\n  {% endfor %}\n{{ 1 }}\n{{ 2 }}\n"
    assert render(source) == "hello\n12"


def test_json_is_not_escaped_for_html() -> None:
    value = {"b": "<é&'\">", "a": [1.5, None]}
    assert render("{{ chat_template_data.v | tojson }}", {"v": value}) == '{"b": "<é&\'\\">", "a": [1.5, null]}'
    source = "{{ chat_template_data.v | tojson(ensure_ascii=True, separators=(',', ':'), sort_keys=True) }}"
    assert render(source, {"v": value}) == '{"a":[1.5,null],"b":"<\\u00e9&\'\\">"}'


def test_random_choices_use_the_given_generator() -> None:
    expected = random.Random(7)
    choices = [expected.choice("abcdef") for _ in range(3)]
    stream, before = random.Random(7), random.getstate()
    compiled = compile_template("{{ 'abcdef' | random }}", {}, stream)
    assert [compiled([]) for _ in range(3)] == choices
    assert stream.getstate() == expected.getstate()
    assert random.getstate() == before
    assert render("{{ [] | random }}") == ""


def test_missing_jinja_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refusing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "jinja2":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refusing)
    with pytest.raises(MissingExtra, match=r"pip install 'fastpack-llm\[chat\]'"):
        compile_template("", {}, random.Random(0))
