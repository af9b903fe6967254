"""Chat templates: sandboxed Jinja2 with the two functions that the templates of language models use."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from typing import Any

from fastpack.packing.conversations.sandbox import TemplateFault as TemplateFault
from fastpack.packing.conversations.sandbox import compile_source, new_environment, template_faults

Render = Callable[[list[Any]], str]


def compile_template(source: str, data: Mapping[str, Any], stream: random.Random) -> Render:
    """Return a function from a row's messages to its chat text; `data` is `chat_template_data` in the template.

    "}", newline, "{" in `source` is replaced by "}{", as in Modalities. Random choices of the template (the filter
    `random`, `lipsum`) use `stream`. Templates are untrusted: they can access neither unsafe attributes nor files,
    cannot change the messages, and ranges are limited.

    Raises ValueError for a template that cannot be compiled, MissingExtra without Jinja2; the function raises
    TemplateFault.
    """
    environment = new_environment()
    from jinja2.utils import generate_lorem_ipsum

    environment.filters["random"] = _drawing_from(stream, environment.filters["random"])
    environment.globals["lipsum"] = _drawing_from(stream, generate_lorem_ipsum)
    template = compile_source(environment, source.replace("}\n{", "}{"), "jinja2_chat_template")

    def render(messages: list[Any]) -> str:
        with template_faults():
            return template.render(messages=messages, chat_template_data=data)

    return render


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
