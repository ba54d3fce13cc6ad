"""What a user may ask for, and how it is refused before anything is done."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from workbench.core.errors import ConfigError, InputError, WorkbenchError
from workbench.indicators.stacks import stack_request
from workbench.indicators.stacks.stack_request import (
    build_stack_request,
    parse_moment,
    parse_size,
    read_context,
    read_requirements,
)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        build_stack_request(free=("numpy",), decision="best", count=0, most=-1, seed=-1, surprise=1)
    assert [
        name for name in ("decision", "count", "most", "seed", "surprise") if f"{name}: " not in str(caught.value)
    ] == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "nothing to solve"),
        ({"free": ("a",), "decision": "dates"}, "needs --from"),
        ({"free": ("a",), "first_day": date(2024, 1, 1)}, "--from and --to are for --decision dates"),
        ({"free": ("a",), "no_limit": True, "before": datetime(2024, 1, 1, tzinfo=UTC)}, "choose one"),
        ({"free": ("a",), "decision": "dates", "first_day": date(2024, 1, 1), "no_limit": True}, "each day is a limit"),
        ({"free": ("a",), "decision": "bounds", "latest": 2, "step": "major"}, "--latest, --step"),
        ({"free": ("a\nb",)}, r"free\[0\]"),
        ({"free": ("a",) * 1001}, "more than 1000"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build_stack_request(**settings)


def test_requirements_are_read_without_comments(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("# all\n\nnumpy >= 1.24  # why\nsix==1.16\npandas ; python_version > '3'\n")
    assert read_requirements(path) == ("numpy >= 1.24", "six==1.16", "pandas ; python_version > '3'")


@pytest.mark.parametrize(
    "line",
    ["-r other.txt", "--index-url https://ann:s3cret@example.org", "-e .", "six==1.16 --hash=sha256:00"],
)
def test_an_option_in_the_requirements_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(f"numpy\n{line}\n")
    with pytest.raises(InputError, match="line 2") as caught:
        read_requirements(path)
    assert "s3cret" not in str(caught.value)


def test_unreadable_requirements_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_requirements(tmp_path / "absent.txt")
    (tmp_path / "latin.txt").write_bytes(b"numpy\n\xe9")
    with pytest.raises(InputError, match="not UTF-8"):
        read_requirements(tmp_path / "latin.txt")
    monkeypatch.setattr(stack_request, "MAX_FILE_BYTES", 4)
    (tmp_path / "large.txt").write_text("numpy\n")
    with pytest.raises(InputError, match="too large"):
        read_requirements(tmp_path / "large.txt")


def test_times_have_a_zone() -> None:
    assert parse_moment("2024-06-30T14:00:00+02:00", "").isoformat() == "2024-06-30T12:00:00+00:00"
    with pytest.raises(ConfigError, match="not a day or time"):
        parse_moment("0001-01-01T00:00:00+10:00", "--exclude-newer")
    assert parse_moment("2024-06-30T14:00:00", "").isoformat() == "2024-06-30T14:00:00+00:00"
    assert stack_request.compute_start_of_today().isoformat().endswith("T00:00:00+00:00")


@pytest.mark.parametrize("text", ["yesterday", "2024-13-01", ""])
def test_what_is_no_day_and_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="where: --exclude-newer"):
        parse_moment(text, "--exclude-newer")
    with pytest.raises(ConfigError, match="where: --from"):
        stack_request.parse_day(text, "--from")
    for size in ("", "GB", "-1GB", "1e9", "2 parsecs", "1" * 16):
        with pytest.raises(ConfigError, match="like 2GB"):
            parse_size(size)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("absent.json", "cannot read the context"),
        ('{"a":', "not JSON"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"python": {}}', "the stacks provide the python part"),
        ('{"environment": [{"name": "HUB_TOKEN", "value": "s3cret"}]}', "a secret cannot be part of the context"),
        ('{"script": "https://ann:s3cret@example.org/x.py"}', "a secret cannot be part of the context"),
    ],
)
def test_a_context_is_json_or_a_file_and_one_that_cannot_be_used_is_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "context.json").write_text('{"base": "fedora:32", "batch_size": 2}')
    expected = {"base": "fedora:32", "batch_size": 2}
    assert read_context('{"base": "fedora:32", "batch_size": 2}') == read_context(str(tmp_path / "context.json"))
    assert read_context(str(tmp_path / "context.json")) == expected
    with pytest.raises(WorkbenchError, match=said) as caught:
        read_context(text)
    assert caught.value.exit_code == 2
    assert "s3cret" not in str(caught.value)
