"""The sandbox reads keys and attributes as Jinja2's own sandbox, which is slower."""

from __future__ import annotations

import pytest
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from fastpack.packing.conversations.sandbox import new_environment

MESSAGE = {
    "role": "user",
    "content": " a b ",
    "items": "an item",
    "strip": 1,
    "null": None,
    "inner": {"role": "deep", "keys": 2, "": "empty"},
    "calls": [{"function": {"name": "f"}}, {}],
}
EXPRESSIONS = [
    *("m.role", "m['role']", "m.inner.role", "m['inner']['role']", "m.inner['role']", "m['inner'].role", "m['']"),
    *("m.absent", "m['absent']", "m.absent is defined", "m.null", "m.null.x", "m.absent.x", "m['absent']['x']"),
    *("m.items", "m['items']", "m.items()", "m.inner.keys", "m.inner.keys() | list", "m.strip", "m['strip']"),
    *("m.content.strip()", "m.content.strip(' a')", "m.content['strip']()", "m.content.split(' ')[1]"),
    *("m.content.nope", "m.get('role')"),
    *("m.content.startswith(' ')", "m.content.replace('a', 'x').rstrip()", "'{0.__class__}'.format(m)", "'x'.strip"),
    *("m.content.__class__", "m['__class__']", "m.__class__", "m.pop('role')", "m.update({})", "m.calls.append(1)"),
    *("m.calls[0].function.name", "m.calls[1].function.name", "m.calls[5].x", "m.calls.x"),
    *("5 .real", "(m.calls | first).function['name']", "{'a': m.role}.a", "m[1]", "m[m.role]", "no.role", "m[:1]"),
]  # fmt: skip
LOOPS = [
    "{% for x in m.calls %}{{ loop.first }}{{ loop.last }}{{ loop.index }}{{ loop.index0 }}{% endfor %}",
    "{% for x in m.calls if x.function %}{{ x.function.name }}{{ loop.previtem }}{{ loop.__class__ }}{% endfor %}",
    "{% for first in m %}{{ m[first].role }}{% endfor %}{% set n = namespace(x=1) %}{{ n.x }}{% set n.x = m.role %}",
    "{% macro f(x, y=m.role) %}{{ x.inner.role }}{{ y }}{{ m.inner['role'] }}{% endmacro %}{{ f(m) }}{{ f(m, y=x.y) }}",
    "{% set a, b = m.role, m.inner.role %}{{ a ~ b }}{% if m.role == 'user' and m.absent != 'x' %}yes{% endif %}",
]


def outcome(environment: ImmutableSandboxedEnvironment, source: str) -> str:
    try:
        return environment.from_string(source).render(m=MESSAGE)
    except (TemplateError, SecurityError, TypeError, KeyError) as error:  # m[:1]: KeyError from Python 3.12 on
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("source", [*("{{ " + one + " }}" for one in EXPRESSIONS), *LOOPS])
def test_keys_and_attributes_are_those_of_jinja(source: str) -> None:
    own = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    expected, found = (outcome(one, source).split(" at 0x")[0] for one in (own, new_environment()))
    assert found == expected
