"""From a question to its stacks, by the real uv, on an index of our own: offline, exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.indicators.stacks.making import SMALL, Form, Made, Served
from workbench.core.child_process import CommandResult
from workbench.core.errors import ConfigError, RunFailedError
from workbench.indicators.stacks import stack_solver, uv_tool
from workbench.indicators.stacks.stack_request import build_stack_request
from workbench.indicators.stacks.stack_sets import StackSet, format_stack_set
from workbench.indicators.stacks.uv_tool import Sources

Serve = Callable[..., Served]
BEFORE = datetime(2021, 1, 1, tzinfo=UTC)


def make(**settings: Any) -> StackSet:
    free_choice = settings.get("decision") not in ("dates", "bounds")
    usual: dict[str, Any] = {"before": BEFORE} | ({"step": "patch"} if free_choice else {})
    return stack_solver.solve_request(build_stack_request(**usual | settings))


def names(stacks: StackSet) -> list[str]:
    return [stack.name for stack in stacks.stacks]


def test_a_grid_gives_its_stacks_and_keeps_what_cannot_be_with_the_reason(small: Sources) -> None:
    found = make(free=("aaa", "bbb"))
    assert names(found) == ["aaa 2.0, bbb 2.0", "aaa 1.1, bbb 1.0", "aaa 1.0, bbb 1.0"]
    assert found.stacks[0].versions == {"aaa": "2.0", "bbb": "2.0", "ccc": "1.0"}
    assert [one.point for one in found.rejected] == ["aaa 2.0, bbb 1.0", "aaa 1.1, bbb 2.0", "aaa 1.0, bbb 2.0"]
    assert found.rejected[0].reason.startswith("Because")
    assert "1.0 depends on aaa<2" in found.rejected[0].reason
    assert (found.seed, found.merged, found.exclude_newer) == (None, 0, "2021-01-01T00:00:00Z")


def test_a_lock_has_the_hashes_of_the_wheels_and_no_place(small: Sources) -> None:
    (found,) = make(free=("ccc",)).stacks
    assert found.lock == f"ccc==1.0 \\\n    --hash=sha256:{SMALL[-1].sha256}\n"
    assert found.download_bytes == len(SMALL[-1].content)
    (package,) = found.packages
    assert (package.newest_upload, package.yanked) == ("2020-01-01T00:00:00Z", False)


def test_the_same_question_gives_the_same_bytes_without_a_host_a_path_or_a_time_of_day(
    small: Sources, tmp_path: Path
) -> None:
    chosen = make(free=("aaa", "bbb"), decision="random", count=1).seed
    assert chosen is not None, "a seed that was not given is chosen and told"
    for settings in ({"free": ("aaa", "bbb")}, {"free": ("aaa", "bbb"), "decision": "random", "seed": chosen}):
        text = format_stack_set(make(**settings))
        assert text == format_stack_set(make(**settings))
        assert ("file:" in text, str(tmp_path) in text) == (False, False)
        assert text.count("T00:00:00Z") == text.count('Z"')


def test_drawing_goes_on_until_there_are_as_many_stacks_as_wanted_and_too_few_are_said(small: Sources) -> None:
    found = make(free=("aaa", "bbb"), decision="random", count=3, seed=1)
    assert sorted(names(found)) == ["aaa 1.0, bbb 1.0", "aaa 1.1, bbb 1.0", "aaa 2.0, bbb 2.0"]
    two = make(free=("aaa", "bbb"), decision="random", count=2, seed=1)
    assert [stack.key for stack in two.stacks] == [stack.key for stack in found.stacks[:2]]
    assert two.notes == ()
    found = make(free=("aaa", "bbb"), decision="random", count=5, seed=1)
    assert found.notes == ("3 of 5 wanted stacks: 6 of 6 points were tried",)


def test_bounds_are_the_ends_of_what_is_allowed_one_lock_is_one_stack_and_steps_are_the_newest(small: Sources) -> None:
    found = make(free=("aaa>=1.1,<2",), decision="bounds")
    assert names(found) == ["aaa 1.1"]
    assert (found.merged, found.stacks[0].origin) == (2, ("lowest", "lowest-direct", "highest"))
    assert names(make(free=("aaa",), decision="latest", latest=1)) == ["aaa 2.0"]
    assert names(make(free=("aaa",), decision="latest", step="major")) == ["aaa 2.0", "aaa 1.1"]
    found = make(free=("bbb",), decision="bounds")
    assert {stack.origin: stack.versions for stack in found.stacks} == {
        ("lowest",): {"aaa": "1.0", "bbb": "1.0"},
        ("lowest-direct",): {"aaa": "1.1", "bbb": "1.0"},
        ("highest",): {"aaa": "2.0", "bbb": "2.0", "ccc": "1.0"},
    }


def test_requirements_hold_for_every_stack_and_without_free_packages_are_one(small: Sources) -> None:
    found = make(free=("aaa",), requirements=("bbb", "aaa<2"))
    assert [stack.versions for stack in found.stacks] == [{"aaa": "1.1", "bbb": "1.0"}, {"aaa": "1.0", "bbb": "1.0"}]
    assert found.requirements == ("bbb", "aaa<2")
    assert names(make(requirements=("bbb",))) == ["bbb 2.0"]
    # One of another Python may be missing on the index.
    assert names(make(free=("ccc",), requirements=("nope ; python_version < '3'",))) == ["ccc 1.0"]


def test_days_give_what_was_there_then(serve: Serve) -> None:
    uploads = {"1.0": "2021-03-01T00:00:00Z", "1.1": "2021-05-01T00:00:00Z", "1.2": "2021-05-01T00:00:01Z"}
    serve([Made("aaa", version, uploaded=uploaded) for version, uploaded in uploads.items()])
    days = {"decision": "dates", "first_day": date(2021, 2, 1), "last_day": date(2021, 5, 2), "every": "month"}
    found = make(free=("aaa",), before=None, **days)
    origins = {stack.name: stack.origin for stack in found.stacks}
    assert origins == {"aaa 1.0": ("before 2021-04-01", "before 2021-05-01")}
    # Of the first of February there is nothing yet; neither on the day at which it begins.
    assert [one.point for one in found.rejected] == ["before 2021-02-01", "before 2021-03-01"]
    assert found.options == {"first_day": "2021-02-01", "last_day": "2021-05-02", "every": "month"}


def test_a_file_added_to_an_old_version_later_changes_no_lock(serve: Serve) -> None:
    old = Made("aaa", "1.0", uploaded="2020-06-01T00:00:00Z")
    served = serve([old])
    first = make(free=("aaa",))
    later = serve([old, replace(old, tag="py2.py3-none-any", uploaded="2022-01-01T00:00:00Z")])
    assert later.url != served.url
    assert format_stack_set(make(free=("aaa",))) == format_stack_set(first)
    both = make(free=("aaa",), before=datetime(2023, 1, 1, tzinfo=UTC))
    assert [len(stack.packages[0].hashes) for stack in both.stacks] == [2]


def test_a_lock_has_no_hashes_of_files_that_do_not_fit(serve: Serve) -> None:
    wheels = [Made("aaa", "1.0", tag=tag) for tag in ("cp312-cp312-manylinux_2_17_x86_64", "cp312-cp312-win_amd64")]
    serve(wheels)
    found = make(free=("aaa",), python="3.12", platform="windows")
    assert found.platform == "win_amd64"
    assert found.stacks[0].packages[0].hashes == (f"sha256:{wheels[1].sha256}",)
    # An index without hashes gets those of its files.
    serve([silent := Made("aaa", "1.0", tells_hash=False)])
    assert make(free=("aaa",)).stacks[0].packages[0].hashes == (f"sha256:{silent.sha256}",)


def test_a_yanked_version_is_solved_only_when_pinned(serve: Serve) -> None:
    serve([Made("aaa", "1.0"), Made("aaa", "1.1", yanked=True)])
    assert names(make(free=("aaa",))) == ["aaa 1.0"]
    (pinned,) = make(free=("aaa==1.1",)).stacks
    assert pinned.packages[0].yanked


@pytest.mark.parametrize("form", ["json", "html"])
def test_without_upload_times_there_is_no_limit_and_that_is_said(serve: Serve, form: Form) -> None:
    serve([Made("aaa", "1.0", uploaded=None)], form)
    found = make(free=("aaa",), before=None)
    assert (names(found), found.exclude_newer) == (["aaa 1.0"], None)
    assert "the index has none for aaa" in found.notes[0]


def test_a_dependency_without_upload_time_lifts_the_limit_unless_it_was_asked_for(serve: Serve) -> None:
    serve([Made("aaa", "1.0", ("zzz",)), Made("zzz", "1.0", uploaded=None)])
    found = make(free=("aaa",), before=None)
    assert [stack.versions for stack in found.stacks] == [{"aaa": "1.0", "zzz": "1.0"}]
    assert found.exclude_newer is None
    assert "none for zzz" in found.notes[0]
    found = make(free=("aaa",))
    assert (len(found.stacks), len(found.rejected)) == (0, 1)
    assert found.notes == ("1 file without upload time was skipped: zzz-1.0-py3-none-any.whl",)


@pytest.mark.parametrize(
    "settings", [{"before": BEFORE}, {"before": None, "decision": "dates", "first_day": date(2020, 1, 1)}]
)
def test_a_limit_that_would_drop_all_files_is_refused(serve: Serve, settings: dict[str, Any]) -> None:
    serve([Made("aaa", "1.0", uploaded=None)])
    with pytest.raises(ConfigError, match="has no upload times"):
        make(free=("aaa",), **settings)


def test_a_limit_that_drops_some_files_is_kept_and_they_are_named(serve: Serve) -> None:
    serve([Made("aaa", "1.0"), Made("aaa", "1.1", uploaded=None)])
    found = make(free=("aaa",), decision="bounds")
    assert [stack.versions for stack in found.stacks] == [{"aaa": "1.0"}]
    assert found.notes == ("1 file without upload time was skipped: aaa-1.1-py3-none-any.whl",)
    assert names(make(free=("aaa",), before=None)) == ["aaa 1.1", "aaa 1.0"]


def test_what_the_limit_is_is_said(small: Sources) -> None:
    found = make(free=("ccc",), before=datetime(2999, 1, 1, tzinfo=UTC))
    assert found.notes == ("the limit is in the future: locks may change until then",)
    found = make(free=("ccc",), before=None, no_limit=True)
    assert found.exclude_newer is None
    assert "no limit on upload times" in found.notes[0]
    # Without a wish it is the begin of today.
    assert str(make(free=("ccc",), before=None).exclude_newer).endswith("T00:00:00Z")
    days = {"decision": "dates", "first_day": date(2021, 1, 1), "last_day": date(2999, 1, 1)}
    with pytest.raises(ConfigError, match="day is in the future"):
        make(free=("ccc",), before=None, **days)


def test_too_many_points_are_counted_and_refused_before_anything_is_solved(
    small: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert names(make(free=("aaa", "bbb"), most=5, count=2)) == ["aaa 2.0, bbb 2.0", "aaa 1.1, bbb 1.0"]
    monkeypatch.setattr(stack_solver, "solve_points", None)
    with pytest.raises(ConfigError, match=r"aaa matches\n.*\n  found: 3 versions with a wheel.*1.0 to 2.0"):
        make(free=("aaa>5",))
    with pytest.raises(ConfigError, match=r"^too many points: 6\n  where: aaa: 3 versions, bbb: 2 versions"):
        make(free=("aaa", "bbb"), most=5)


def test_a_stack_that_is_too_large_is_rejected_by_name(small: Sources) -> None:
    found = make(free=("aaa", "bbb==2.0"), max_download_bytes=3000)
    assert names(found) == []
    assert "above --max-download" in found.rejected[0].reason
    assert found.rejected[0].point == "aaa 2.0, bbb 2.0"


def test_an_index_that_dies_while_solving_ends_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    served = serve(SMALL)
    made = stack_solver.build_stack_plan(build_stack_request(free=("bbb",), step="patch", before=BEFORE))
    served.answers["/simple/bbb/"] = (500, "broken")
    with pytest.raises(RunFailedError, match="uv could not solve a stack") as caught:
        stack_solver.solve_stack_plan(made)
    assert served.url.split("/")[2] not in str(caught.value)


def test_progress_counts_points(small: Sources) -> None:
    told: list[tuple[int, int]] = []
    request = build_stack_request(free=("aaa", "bbb"), step="patch", before=BEFORE, decision="random", count=3, seed=1)
    stack_solver.solve_request(request, progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == list(range(1, len(told) + 1))
    assert all(done <= total for done, total in told)


def test_a_solution_that_tells_no_hash_is_refused(small: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_solver.PackageIndex, "list_files", lambda *_: [])
    monkeypatch.setattr(uv_tool, "run_uv", lambda *_, **__: CommandResult(0, "aaa==1.0\n", ""))
    with pytest.raises(RunFailedError, match="has no known hash"):
        make(free=("aaa",))


def test_a_flat_folder_of_wheels_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_NO_INDEX", "1")
    for one in SMALL:
        (tmp_path / one.file_name).write_bytes(one.content)
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    found = make(free=("aaa", "bbb"), before=None)
    assert names(found) == ["aaa 2.0, bbb 2.0", "aaa 1.1, bbb 1.0", "aaa 1.0, bbb 1.0"]
