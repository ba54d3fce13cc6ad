"""Messages by kind: numbers and ids that differ do not divide them, what is equal stays, and none is lost."""

from __future__ import annotations

import random

import pytest

from workbench.core.message_kinds import MessageKinds


@pytest.mark.parametrize(
    ("messages", "shown"),
    [
        (["no model m2 at port 8000"] * 3, "no model m2 at port 8000"),
        (["after 300 ms", "after 12.5 ms"], "after <n> ms (such as 300)"),
        (["at 10.0.0.1:80", "at 10.0.0.2:80"], "at <n> (such as 10.0.0.1:80)"),
        (["req_01XFDUDYJgAACzvn", "req_01CSHPZ23vMkwFh2"], "req_<id> (such as 01XFDUDYJgAACzvn)"),
        (
            ["id 5c0ffee1-0000-4000-8000-00000000abcd, try 1", "id 9a8b7c6d-1111-4111-9111-0123456789ab, try 1"],
            "id <id>, try 1 (such as 5c0ffee1-0000-4000-8000-00000000abcd)",
        ),
        (["<object at 0x7f00aa>", "<object at 0x12>"], "<object at <id>> (such as 0x7f00aa)"),
        (["limit 4096, asked 5000", "limit 4096, asked 99999"], "limit 4096, asked <n> (such as 5000)"),
    ],
)  # fmt: skip
def test_messages_that_differ_in_numbers_and_ids_are_one_kind(messages: list[str], shown: str) -> None:
    kinds = MessageKinds()
    for message in messages:
        kinds.add("failed", message)
    assert kinds.count_by_text() == {f"failed: {shown}": len(messages)}


def test_another_status_and_other_words_are_other_kinds() -> None:
    kinds = MessageKinds()
    messages = [("http_error 503", "busy"), ("http_error 429", "busy"), ("http_error 429", "full"), ("cut", "")]
    for title, message in messages:
        kinds.add(title, message)
    assert list(kinds.count_by_text()) == [
        "http_error 503: busy",
        "http_error 429: busy",
        "http_error 429: full",
        "cut",
    ]


def test_a_long_message_that_is_cut_at_its_end_is_one_kind() -> None:
    kinds = MessageKinds()
    for tokens in (7, 5000, 123456):
        kinds.add("http_error 400", (f"asked for {tokens} tokens: " + "please send a shorter text " * 20)[:200])
    assert len(kinds) == 1


def test_kinds_of_several_processes_are_one_and_what_was_given_stays() -> None:
    here, there, all_kinds = MessageKinds(), MessageKinds(), MessageKinds()
    here.add("failed", "request 1 of 9")
    there.add("failed", "request 2 of 9")
    for kind in (*here, *there, *there):
        all_kinds.merge(kind)
    assert all_kinds.count_by_text() == {"failed: request <n> of 9 (such as 1)": 3}
    assert here.count_by_text() == {"failed: request 1 of 9": 1}


def test_of_many_kinds_none_is_lost_and_their_number_is_bounded() -> None:
    kinds, rng = MessageKinds(max_kinds=5), random.Random(4)
    messages = ["".join(rng.choices("abcdefgh", k=12)) for _ in range(200)]
    for message in messages:
        kinds.add(rng.choice(("failed", "cut")), message)
    counts = kinds.count_by_text()
    assert counts.total() == 200
    assert len(counts) == 7
    assert {"failed: other messages", "cut: other messages"} < counts.keys()
