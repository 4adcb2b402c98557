"""The settings of `nanomsg`."""

from __future__ import annotations

from dataclasses import dataclass

from polycast.declare import setting


def check_separator(text: str) -> None:
    size = len(text.encode())
    if size != 1:
        raise ValueError(f"expected one byte, found {size}; any ASCII character will do")


@dataclass(frozen=True, slots=True)
class NanomsgSettings:
    message_bytes: int = setting(1024 * 1024, "maximum size of a message", low=1)
    separator: str = setting("|", "the character between topic and payload in a message", parse=check_separator)
