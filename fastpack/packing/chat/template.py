"""Chat templates: sandboxed Jinja2 with the two functions that the templates of language models use."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from fastpack.errors import MissingExtra

Render = Callable[[list[Any]], str]


class TemplateFault(ValueError):
    """The template failed on a conversation, or rejected it with `raise_exception`; the message has the reason."""


def compile_template(source: str, data: Mapping[str, Any], stream: random.Random) -> Render:
    """Return a function from a row's messages to its chat text; `data` is `chat_template_data` in the template.

    "}", newline, "{" in `source` is replaced by "}{", as in Modalities. Random choices of the template (the filter
    `random`, `lipsum`) use `stream`. Templates are untrusted: they can access neither unsafe attributes nor files,
    cannot change the messages, and ranges are limited.

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
        except Exception as error:  # any exception: the template can compute anything
            raise TemplateFault(f"the template failed: {type(error).__name__}: {error}") from error

    return render


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON without the HTML escapes of Jinja2's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _drawing_from(stream: random.Random, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with the global `random` replaced by `stream`; the global state is restored after each call."""

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
