"""What a job needs to know to turn the rows of its sources into conversations, their text, and loss masks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from fastpack.errors import spoken

Loss: TypeAlias = Literal["assistant", "last", "all"]
LOSSES: tuple[Loss, ...] = ("assistant", "last", "all")


@dataclass(frozen=True, kw_only=True)
class ChatSettings:
    """How to read conversations and render them.

    template: the source of the chat template. tool_template: that for conversations with tools, if it is another one.
    messages_field: the key of the messages, None to recognise it. tools_field: the key of the tools. loss: which tokens
    count. preference: which conversation of a preference pair to pack.
    """

    template: str
    tool_template: str | None = None
    messages_field: str | None = None
    tools_field: str = "tools"
    loss: Loss = "assistant"
    preference: Literal["chosen", "rejected"] | None = None

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"{spoken('loss')}: found {self.loss!r}, expected one of {', '.join(LOSSES)}")

    def both_sides(self) -> dict[str, ChatSettings]:
        """Return the settings of the chosen and of the rejected conversations."""
        return {name: replace(self, preference=name) for name in ("chosen", "rejected")}
