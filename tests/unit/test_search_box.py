"""The search box of the dashboard: words with a colon are filters, the rest is text."""

from __future__ import annotations

import pytest

from dibs.errors import InvalidValue
from dibs.model.task import State
from dibs.server.dashboard.search import TaskListQuery, TaskQuery, format_text, parse_search


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("state:failed queue:mail some text", {"state": "failed", "queue": "mail", "text": "some text"}),
        ('type:"send email" worker:w-1', {"type": "send email", "worker": "w-1"}),
        ("#12", {"id": "12"}),
        (" 12 ", {"id": "12"}),
        ('"12"', {"text": "12"}),
        ('"state:failed"', {"text": "state:failed"}),
        ("id:12 last:hour", {"id": "12", "within": "hour"}),
        ("mystate:failed", {"text": "mystate:failed"}),
        ("http://example.com/a?b", {"text": "http://example.com/a?b"}),
        ("a state:failed b", {"state": "failed", "text": "a b"}),
        ("text:abc def", {"text": "abc def"}),
        ('a text:"b  c" state:failed d', {"state": "failed", "text": "a b  c d"}),
        ("id:#12", {"id": "12"}),
        ('type:a"b"', {"type": 'a"b"'}),
        ("group:acme limit:mail-api", {"group": "acme", "with_limit": "mail-api"}),
        ("state:", {"text": "state:"}),
        ("12 13", {"text": "12 13"}),
        ("", {}),
        ("   ", {}),
    ],
)
def test_the_search_box_is_parsed_into_filters_and_text(words: str, said: dict[str, str]) -> None:
    assert parse_search(words) == said


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "12",
        "#12",
        "state:failed",
        '"quoted"',
        'a "b" c',
        "type:x y",
        "type:x type:y",
        'type:""',
        "id:x",
        '"',
        "<b>",
    ],
)
def test_a_formatted_search_is_parsed_into_the_same_search(text: str) -> None:
    assert parse_search(format_text(text)) == {"text": text}


def test_words_in_the_search_box_precede_chosen_filters() -> None:
    asked = TaskListQuery(q="state:failed order", state=State.PENDING, queue="mail").parsed()
    assert asked == TaskListQuery(state=State.FAILED, queue="mail", text="order")
    assert asked.address() == "/tasks?state=failed&queue=mail&text=order"


@pytest.mark.parametrize("words", ["state:broken", "last:year", "within:x"])
def test_an_unknown_word_is_refused_with_the_list_of_known_words(words: str) -> None:
    with pytest.raises(InvalidValue, match="is not a") as refused:
        TaskListQuery(q=words).parsed()
    assert "Use one of" in (refused.value.hint or "")


@pytest.mark.parametrize("words", ["queue:a queue:b", "queue:a queue:a", "last:day within:day", "text:a text:b"])
def test_the_same_word_twice_is_refused(words: str) -> None:
    with pytest.raises(InvalidValue, match="is written twice") as refused:
        parse_search(words)
    assert "once" in (refused.value.hint or "")


@pytest.mark.parametrize("words", ["id:abc", "id:1.5", 'id:""', 'queue:""', 'state:failed text:""'])
def test_an_invalid_word_is_refused_and_never_ignored(words: str) -> None:
    with pytest.raises(InvalidValue, match=r"is not a|has no value") as refused:
        parse_search(words)
    assert refused.value.hint


def test_a_page_of_a_search_links_to_the_pages_before() -> None:
    first = TaskListQuery(state=State.FAILED)
    assert first.newer() is None
    assert first.older(90) == "/tasks?state=failed&cursor=90&trail=0"
    second = TaskListQuery(state=State.FAILED, cursor=90, trail="0")
    third = TaskListQuery(state=State.FAILED, cursor=40, trail="0.90")
    assert second.older(40) == third.address(cursor=40, trail="0.90")
    assert third.newer() == second.address(cursor=90, trail="0")
    assert second.newer() == first.address()
    assert TaskListQuery(cursor=40, trail="<script>").newer() == "/tasks"


def test_a_query_is_formatted_in_the_words_of_the_search_box() -> None:
    words = TaskQuery(state=State.FAILED, type="send email", text="a").as_text()
    assert parse_search(words) == {"state": "failed", "type": "send email", "text": "a"}
