"""Chat messages and other values on their way into a template: checked, and copied into plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isobit.errors import InputError

MAX_DEPTH = 64


def check_messages(messages: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Copies of the messages with "content" as one text.

    Raises InputError for anything but a non-empty list of messages, each with a "role" (a text) and a "content":
    a text, a list of text parts, or None in a message that says something else, such as tool calls.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise InputError(f"the messages are a {type(messages).__name__}, expected a list of messages")
    if not messages:
        raise InputError("the list of messages is empty, expected at least one message")
    return [_check_message(message, f"message {number}") for number, message in enumerate(messages)]


def plain_data(value: object, place: str, depth: int = 0) -> object:
    """A copy made of None, bool, int, float, str, list and dict only; InputError naming the place of others."""
    if depth > MAX_DEPTH:
        raise InputError(f"{place} is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, str):
        return _check_text(value, place)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {
            _check_key(key, place): plain_data(item, f"{place}[{key!r:.40}]", depth + 1) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [plain_data(item, f"{place}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise InputError(f"{place} is a {type(value).__name__}, expected plain data such as JSON holds")


def _check_message(message: object, place: str) -> dict[str, object]:
    if not isinstance(message, Mapping):
        raise InputError(f"{place} is a {type(message).__name__}, expected a mapping with 'role' and 'content'")
    copy = {_check_key(key, place): plain_data(value, f"{place}, {key!r}") for key, value in message.items()}
    role = copy.get("role")
    if not isinstance(role, str) or not role:
        raise InputError(f"{place} has the role {role!r:.60}, expected a text such as 'user'")
    content = copy.get("content")
    if content is None:
        if len(copy.keys() - {"role", "content"}) == 0:
            raise InputError(f"{place} has no 'content', expected a text")
    else:
        copy["content"] = _join_parts(content, place)
    return copy


def _join_parts(content: object, place: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InputError(f"{place} has a content of type {type(content).__name__}, expected a text")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text":
            raise InputError(f"{place} has a content part of type {kind!r:.60}; only 'text' is supported")
        text = part.get("text")
        if not isinstance(text, str):
            raise InputError(f"{place} has a text part whose 'text' is of type {type(text).__name__}")
        texts.append(text)
    return "".join(texts)


def _check_key(key: object, place: str) -> str:
    if not isinstance(key, str):
        raise InputError(f"{place} has the key {key!r:.40} of type {type(key).__name__}, expected a text")
    return _check_text(key, place)


def _check_text(text: str, place: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{place} holds a lone surrogate at position {error.start}, which is no character; read the input as UTF-8"
        ) from None
    return str(text)
