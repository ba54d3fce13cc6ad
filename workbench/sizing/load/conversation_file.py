"""Recorded conversations: each turn is sent with the messages before it as they were, whatever the service answers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workbench.core.data_files import read_json_documents
from workbench.core.errors import InputError
from workbench.sizing.load.client_messages import Reply

MAX_BYTES = 512 << 20
MAX_CONVERSATIONS = 200_000
# Roles as the OpenAI API and ShareGPT spell them.
_USERS, _ASSISTANTS, _SYSTEMS = ("user", "human"), ("assistant", "gpt", "chatgpt", "bard"), ("system", "developer")
Turn = tuple[str, str]
"""What the user says, and what was answered; empty after the last turn where the file ends with the user."""


def read_conversations(path: Path) -> list[list[Turn]]:
    """Read conversations from a JSON list or JSON lines: `messages` (role, content), or ShareGPT's `conversations`.

    What a system message says stands before the first turn. Two messages of one role after each other are one.

    Raises
    ------
    InputError
        The file has another form, or no turn of a user.
    """
    documents = read_json_documents(path, noun="file of conversations", max_bytes=MAX_BYTES)
    conversations = [turns for document, place in documents if (turns := _read_turns(document, place))]
    if not 1 <= len(conversations) <= MAX_CONVERSATIONS:
        allowed = f"1 to {MAX_CONVERSATIONS:,} with a turn of a user"
        raise InputError("no conversations, or too many", where=path, found=len(conversations), allowed=allowed)
    return conversations


def _read_turns(document: Any, where: str) -> list[Turn]:
    messages = document
    if isinstance(document, dict):
        messages = document.get("messages", document.get("conversations"))
    if not isinstance(messages, list):
        raise InputError("not a conversation", where=where, allowed="messages, or conversations (ShareGPT), as a list")
    system = ""
    turns: list[Turn] = []
    for message in messages:
        role = message.get("role", message.get("from")) if isinstance(message, dict) else None
        content = message.get("content", message.get("value")) if isinstance(message, dict) else None
        if not isinstance(content, str) or role not in (*_USERS, *_ASSISTANTS, *_SYSTEMS):
            found = (
                f"role {role}"
                if role not in (*_USERS, *_ASSISTANTS, *_SYSTEMS)
                else f"content {type(content).__name__}"
            )
            raise InputError("not a message", where=where, found=found[:60], allowed="a role and a text")
        if role in _SYSTEMS:
            system = f"{system}\n{content}".strip()
        elif role in _USERS:
            said = content if turns or not system else f"{system}\n{content}"
            if turns and not turns[-1][1]:
                turns[-1] = (f"{turns[-1][0]}\n{said}", "")
            else:
                turns.append((said, ""))
        elif turns:
            turns[-1] = (turns[-1][0], f"{turns[-1][1]}\n{content}".strip())
    return turns


def iterate_conversations(conversations: Sequence[Sequence[Turn]], seed: str) -> Iterator[tuple[int, Sequence[Turn]]]:
    """Conversations without end, shuffled in each pass, with the number of their first turn in the file."""
    starts = list(itertools.accumulate((len(turns) for turns in conversations), initial=0))
    for lap in itertools.count():
        order = list(range(len(conversations)))
        random.Random(f"{seed}/{lap}").shuffle(order)  # noqa: S311 - not used for secrets
        yield from ((starts[place], conversations[place]) for place in order)


class RecordedSession:
    """A user who goes through conversations; `history` are the turns before, as they were recorded."""

    def __init__(self, conversations: Iterator[tuple[int, Sequence[Turn]]]) -> None:
        self._conversations = conversations
        self._first_item, self._turns = next(conversations)
        self._place = 0

    @property
    def history(self) -> list[Turn]:
        """Turns before this one."""
        return list(self._turns[: self._place])

    @property
    def next_message(self) -> tuple[int, str]:
        """Number and text of what the user says now."""
        return self._first_item + self._place, self._turns[self._place][0]

    def add_reply(self, prompt: str, reply: Reply) -> None:
        """Go on; after the last turn, or a failure, comes the next conversation."""
        del prompt
        self._place += 1
        if self._place >= len(self._turns) or reply.outcome != "ok":
            self._first_item, self._turns = next(self._conversations)
            self._place = 0
