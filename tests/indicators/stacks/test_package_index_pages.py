"""An index's page: both forms, fields that are not told, and pages that are none."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from tests.indicators.stacks.making import Made, html_page, json_page
from workbench.indicators.stacks import package_index
from workbench.indicators.stacks.package_index import Wheel, parse_page

AT = "https://example.org/simple/aaa/"
WHEELS = (
    Made("aaa", "1.0", requires_python=">=3.8"),
    Made("aaa", "1.1", yanked=True, uploaded="2024-06-30T10:20:30.5Z"),
    Made("aaa", "2.0", uploaded=None, tells_size=False, tells_hash=False),
)


def facts(wheel: Wheel) -> tuple[object, ...]:
    return (str(wheel.version), wheel.sha256, wheel.uploaded, wheel.yanked, wheel.requires_python, wheel.url)


def test_json_and_html_tell_the_same() -> None:
    as_json = parse_page(json_page(WHEELS, "/files/"), "application/vnd.pypi.simple.v1+json", AT)
    # It is known by its first byte when the server calls it something else.
    assert parse_page(json_page(WHEELS, "/files/"), "text/html", AT) == as_json
    as_html = parse_page(html_page(WHEELS, "/files/"), "text/html", AT)
    assert list(map(facts, as_json)) == list(map(facts, as_html))
    assert [wheel.size_bytes for wheel in as_json] == [len(WHEELS[0].content), len(WHEELS[1].content), None]
    assert [wheel.size_bytes for wheel in as_html] == [None, None, None]


def test_what_is_told_is_kept_and_what_is_not_is_null() -> None:
    first, second, third = parse_page(json_page(WHEELS, "/files/"), "application/json", AT)
    assert facts(first) == (
        "1.0",
        WHEELS[0].sha256,
        datetime(2020, 1, 1, tzinfo=UTC),
        False,
        ">=3.8",
        "https://example.org/files/aaa-1.0-py3-none-any.whl",
    )
    assert (second.yanked, second.uploaded) == (True, datetime(2024, 6, 30, 10, 20, 30, 500000, tzinfo=UTC))
    assert (third.sha256, third.uploaded, third.size_bytes) == (None, None, None)


def test_only_wheels_are_kept_a_yanked_one_may_have_a_reason_and_too_many_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = "".join(f'<a href="{name}">x</a>' for name in ("aaa-1.tar.gz", "aaa-1.exe", "aaa.whl", "a b.whl"))
    assert parse_page(page, "text/html", AT) == []
    document = json.loads(json_page(WHEELS[:1]))
    document["files"][0]["yanked"] = "broken on one platform"
    assert parse_page(json.dumps(document), "", AT)[0].yanked
    assert parse_page(html_page(WHEELS[:1]).replace("<a ", '<a data-yanked="broken" '), "", AT)[0].yanked
    monkeypatch.setattr(package_index, "MAX_FILES", 2)
    with pytest.raises(ValueError, match="more than 2 files"):
        parse_page(html_page(WHEELS), "text/html", AT)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "neither JSON nor HTML"),
        ("welcome", "neither JSON nor HTML"),
        ('{"files": 5}', "no list of files"),
        ("{", "Expecting"),
        ('{"a":' * 100_000, "nested too deeply"),
    ],
    ids=["a list", "plain text", "no list of files", "broken", "nested"],
)
def test_a_page_that_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_page(text, "", AT)


@pytest.mark.parametrize("time", [5, "0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00"])
def test_fields_of_another_type_and_times_outside_of_the_years_are_taken_as_not_told(time: object) -> None:
    entry = {"filename": WHEELS[0].file_name, "url": "x", "hashes": {"sha256": "F00"}, "size": "12"}
    files = [entry | {"upload-time": time}, "x", {"url": 1}, {"url": "y"}]
    (found,) = parse_page(json.dumps({"files": files}), "", AT)
    assert (found.sha256, found.size_bytes, found.uploaded, found.yanked) == (None, None, None, False)
