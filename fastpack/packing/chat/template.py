"""Chat templates: Jinja2 in a sandbox, with the two functions that the templates of language models use."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from fastpack.errors import MissingExtra

Render = Callable[[list[Any]], str]


class TemplateFault(ValueError):
    """The template failed on a conversation, or refused it by `raise_exception`; the message says why."""


def compile_template(source: str, data: Mapping[str, Any], stream: random.Random) -> Render:
    """A function from a row's messages to its chat text; `data` is `chat_template_data` in the template.

    A closing brace, a newline and an opening brace in `source` are joined, as Modalities does. What the template draws
    at random (the filter `random`, `lipsum`) comes from `stream`. Templates are untrusted: they reach neither
    attributes that lead out of their values nor files, cannot change the messages, and a range has an end.

    Raises ValueError for a template that cannot be compiled, MissingExtra without Jinja2; the function raises
    TemplateFault.
    """
    try:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment
        from jinja2.utils import generate_lorem_ipsum
    except ImportError:
        raise MissingExtra("jinja2", "chat", "a chat template") from None

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = raise_exception
    environment.filters["random"] = _drawing_from(stream, environment.filters["random"])
    environment.globals["lipsum"] = _drawing_from(stream, generate_lorem_ipsum)
    try:
        template = environment.from_string(source.replace("}\n{", "}{"))
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"jinja2_chat_template: line {error.lineno}: {error.message}") from None
    except (jinja2.TemplateError, RecursionError, OverflowError, SyntaxError) as error:
        raise ValueError(f"jinja2_chat_template: {type(error).__name__}: {error}") from None

    def render(messages: list[Any]) -> str:
        try:
            return template.render(messages=messages, chat_template_data=data)
        except jinja2.TemplateError as error:
            raise TemplateFault(f"the template failed: {error.message}") from error
        except MemoryError:
            raise
        except Exception as error:  # any: the template computes whatever it likes
            raise TemplateFault(f"the template failed: {type(error).__name__}: {error}") from error

    return render


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the escapes for HTML that Jinja2's own filter writes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _drawing_from(stream: random.Random, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which draws from the global `random`, drawing from `stream`; the global state is as it was after."""

    @functools.wraps(function)
    def drawing(*args: Any, **kwargs: Any) -> Any:
        before = random.getstate()
        random.setstate(stream.getstate())
        try:
            return function(*args, **kwargs)
        finally:
            stream.setstate(random.getstate())
            random.setstate(before)

    return drawing
