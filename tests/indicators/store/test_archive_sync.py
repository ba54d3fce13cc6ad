from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from tests.indicators.store import making
from tests.indicators.store.conftest import Place
from workbench.core.errors import InputError
from workbench.indicators.analysis.observations import load_observations
from workbench.indicators.store import archive_sync
from workbench.indicators.store.archive import Session, inspection_id, result_path, write_result, write_session
from workbench.indicators.store.archive_sync import SyncReport, sync_sessions
from workbench.indicators.store.sql_database import Database, open_database
from workbench.indicators.store.sql_queries import QUERIES, Filters, run_query
from workbench.indicators.store.sql_schema import PLANNED_CASE, RUN, SAMPLE

ROOT = Path(__file__).parents[3]
WRITER = """
import sys
from pathlib import Path
from workbench.indicators.store.sql_database import open_database
from workbench.indicators.store.archive_sync import sync_sessions
with open_database(sys.argv[1]) as database:
    report = sync_sessions([Path(sys.argv[2])], database)
print(report.synced, report.skipped, report.failed)
"""


def counts(report: SyncReport) -> tuple[int, int, int, int]:
    return report.processed, report.synced, report.skipped, report.failed


def rows(database: Database, table: Any) -> int:
    with database.transaction() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def answers(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Everything that can be asked."""
    found = {name: run_query(database, name).frame.to_dicts() for name in QUERIES if name != "values"}
    for row in found["indicators"]:
        name = f"{row['indicator']}@{row['indicator_version']}"
        found[name] = run_query(database, "values", Filters(indicator=name)).frame.to_dicts()
    return found


def test_every_run_becomes_a_row_and_a_second_sync_adds_none(tmp_path: Path, place: Place) -> None:
    making.archive(tmp_path / "a", runs=60)

    with open_database(place()) as database:
        first, second = sync_sessions([tmp_path / "a"], database), sync_sessions([tmp_path / "a"], database)

        assert counts(first) == (180, 180, 0, 0)
        assert counts(second) == (180, 0, 180, 0)
        assert (rows(database, RUN), rows(database, SAMPLE)) == (180, 360)


def test_the_database_holds_the_same_tables_as_the_archive(tmp_path: Path, place: Place) -> None:
    case = making.planned(making.PiScanned)
    session = making.archive(tmp_path / "a", making.session(cases=(making.planned(making.PiSorted), case)))
    failed = making.run(session, case, "control", 9, status="timeout", stdout={})
    write_result(tmp_path / "a", inspection_id(session.session_id, "control", case.label), 9, failed)
    expected = load_observations(tmp_path / "a")

    with open_database(place()) as database:
        sync_sessions([tmp_path / "a"], database)

        for name, frame in (("runs", expected.runs), ("observations", expected.values), ("checks", expected.checks)):
            found = run_query(database, name).frame
            assert found.sort(found.columns[:8]).equals(frame.sort(frame.columns[:8])), name


def test_a_database_made_anew_answers_the_same_whatever_the_order(tmp_path: Path, place: Place) -> None:
    making.archive(tmp_path / "a", making.session("s-1"))
    more = making.HARDWARE.model_copy(update={"memory_bytes": 7 << 30})
    making.archive(tmp_path / "b", making.session("s-2", hardware=more, cases=(making.planned(making.PiScanned),)))

    with open_database(place()) as one, open_database(place()) as other:
        sync_sessions([tmp_path / "a", tmp_path / "b"], one)
        sync_sessions([tmp_path / "b"], other)
        sync_sessions([tmp_path], other)

        assert answers(one) == answers(other)
        assert len(answers(one)["runs"]) == 24


def test_two_runs_that_happen_to_be_equal_stay_two(tmp_path: Path, place: Place) -> None:
    session = making.session()
    write_session(tmp_path, session)
    case = session.cases[0]
    same = making.run(session, case, "2.2.6", 0)
    for number in (0, 1):
        write_result(tmp_path, inspection_id("s-1", "2.2.6", case.label), number, same)

    with open_database(place()) as database:
        assert counts(sync_sessions([tmp_path], database)) == (2, 2, 0, 0)
        assert counts(sync_sessions([tmp_path], database)) == (2, 0, 2, 0)
        assert rows(database, RUN) == 2


def test_the_same_run_with_another_content_is_a_conflict(tmp_path: Path, place: Place) -> None:
    session = making.archive(tmp_path)
    changed = result_path(tmp_path, inspection_id("s-1", "2.2.6", session.cases[0].label), 1)

    with open_database(place()) as database:
        sync_sessions([tmp_path], database)
        # Spaces and the order of keys are no other content.
        changed.write_text(json.dumps(json.loads(changed.read_text()), indent=3, sort_keys=True))
        assert counts(sync_sessions([tmp_path], database)) == (12, 0, 12, 0)
        making.edit(changed, lambda document: document["stdout"]["@result"].update(elapsed_ms=77.0))
        report = sync_sessions([tmp_path], database)

        assert counts(report) == (12, 0, 11, 1)
        assert report.reasons == [(changed, "conflict: this run is stored with different content")]
        assert 77.0 not in run_query(database, "observations").frame["value"].to_list()


def edited(*where: str, **values: Any) -> Callable[[Path], None]:
    """A damage: these values set at this place of the document."""

    def change(document: dict[str, Any]) -> None:
        for key in where:
            document = document[key]
        document.update(values)

    return lambda path: making.edit(path, change)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.write_text("{"), "not valid JSON"),
        (lambda path: path.write_text('"a text"'), "not a result of this project"),
        (lambda path: path.write_bytes(b"\0" * (9 << 20)), "too large"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "not a regular file"),
        (edited("workbench", arm="control"), "run of another session"),
        (edited(format_version=99), "newer version"),
        (edited("stdout", "@parameters", n="many"), "n is 'many'"),
        (edited("stdout", "@parameters", n=2**70), "not of the declared type int"),
        (edited("stdout", "@result", ru_utime=-1), "@result has undeclared keys"),
        (edited("stdout", "@samples", elapsed_ms=["x"]), "not a number"),
        (edited("stdout", **{"@samples": [1]}), "@samples is not an object"),
        (edited("stdout", **{"@samples": {"elapsed_ms": [1.0] * 10_001}}), "too many samples"),
        (edited("stdout", "@checks", digest="half a pair: \ud800"), "value does not fit its column"),
        (edited("workbench", position=2**63), "value does not fit its column"),
    ],
)  # fmt: skip
def test_a_damaged_document_is_named_and_does_not_stop_the_rest(
    tmp_path: Path, damage: Callable[[Path], Any], reason: str
) -> None:
    session = making.archive(tmp_path)
    path = result_path(tmp_path, inspection_id("s-1", "2.2.6", session.cases[0].label), 2)
    damage(path)

    with open_database(tmp_path / "x.db") as database:
        report = sync_sessions([tmp_path], database)

        assert counts(report) == (12, 11, 0, 1)
        assert report.reasons[0][0] == path
        assert reason in report.reasons[0][1]
        assert rows(database, RUN) == 11


def test_texts_that_no_database_can_hold_are_kept_readable(tmp_path: Path, place: Place) -> None:
    bare = making.planned(making.PiSorted).model_copy(update={"declaration": {}, "indicator_version": "a\0b"})
    session = making.archive(tmp_path, making.session(cases=(bare,)))
    path = result_path(tmp_path, inspection_id("s-1", "2.2.6", session.cases[0].label), 0)
    making.edit(path, lambda one: one["stdout"]["@checks"].update(digest="a\0b"))
    with open_database(place()) as database:
        assert counts(sync_sessions([tmp_path], database)) == (12, 12, 0, 0)
        assert "a\N{REPLACEMENT CHARACTER}b" in run_query(database, "checks").frame["value"].to_list()


def test_what_the_session_did_not_plan_is_counted_as_failed(tmp_path: Path) -> None:
    making.archive(tmp_path)
    (tmp_path / "inspections" / "inspection-other").mkdir()
    odd = next((tmp_path / "inspections").glob("inspection-pisorted-*/results/0"))
    odd.rename(odd.with_name("01"))

    with open_database(tmp_path / "x.db") as database:
        report = sync_sessions([tmp_path], database)

    assert counts(report) == (13, 11, 0, 2)
    assert {reason for _, reason in report.reasons} == {
        "the inspection is not part of the session's plan",
        "not a run number",
    }


@pytest.mark.parametrize("text", ["{}", "[" * 100_000, '{"host": ' + "[" * 100_000, '{"format_version": 99}', "\xff"])
def test_a_damaged_session_is_only_counted_and_does_not_stop_the_others(tmp_path: Path, text: str) -> None:
    making.archive(tmp_path / "a")
    making.archive(tmp_path / "b", making.session("s-2"))
    (tmp_path / "a" / "session.json").write_text(text, encoding="latin-1")

    with open_database(tmp_path / "x.db") as database:
        report = sync_sessions([tmp_path], database)

    assert counts(report) == (13, 12, 0, 1)
    assert report.reasons[0][0] == tmp_path / "a" / "session.json"
    (tmp_path / "empty").mkdir()
    with open_database(tmp_path / "x.db") as database, pytest.raises(InputError, match="no session in this folder"):
        sync_sessions([tmp_path / "empty"], database)


def test_the_name_of_an_indicator_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    case = making.planned(making.PiSorted)
    forged = case.model_copy(update={"indicator": f"{tmp_path / 'evil.py'}:Evil", "declaration": {}})
    making.archive(tmp_path / "a", making.session(cases=(forged,)))

    with open_database(tmp_path / "x.db") as database:
        assert counts(sync_sessions([tmp_path / "a"], database)) == (1, 0, 0, 1)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["Mine@2", "", "a b", "größe", "x" * 64, 'Pi"; DROP TABLE run; --'])
def test_a_name_that_no_question_could_ask_for_is_refused(tmp_path: Path, name: str) -> None:
    forged = making.planned(making.PiSorted).model_copy(update={"indicator": name})
    making.archive(tmp_path, making.session(cases=(forged,)), runs=1)

    with open_database(tmp_path / "x.db") as database:
        report = sync_sessions([tmp_path], database)

        assert counts(report) == (1, 0, 0, 1)
        assert "not an indicator name" in report.reasons[0][1]
        assert run_query(database, "indicators").frame.height == 0


def test_runs_of_an_indicator_that_is_declared_nowhere_are_kept_with_a_note(tmp_path: Path) -> None:
    bare = making.planned(making.PiSorted).model_copy(update={"declaration": {}})
    making.archive(tmp_path / "a", making.session(cases=(bare,)))

    with open_database(tmp_path / "x.db") as database:
        report = sync_sessions([tmp_path / "a"], database)

    assert (report.synced, report.notes) == (
        12,
        [f"PiSorted@{bare.indicator_version}: no declaration, so its runs have no typed values"],
    )


def test_a_declaration_that_comes_later_types_the_runs_that_are_there(tmp_path: Path, place: Place) -> None:
    case = making.planned(making.PiSorted)
    bare = making.session(cases=(case.model_copy(update={"declaration": {}}),))
    making.archive(tmp_path / "a", bare)
    failed = making.run(bare, bare.cases[0], "control", 9, status="timeout", stdout={})
    write_result(tmp_path / "a", inspection_id("s-1", "control", case.label), 9, failed)
    making.archive(tmp_path / "b", making.session("s-2", cases=(case,)))
    wanted = Filters(indicator=case.indicator)

    with open_database(place()) as database:
        sync_sessions([tmp_path / "a"], database)
        later = sync_sessions([tmp_path / "b"], database)

        assert later.notes == [f"{case.indicator}@{case.indicator_version}: 12 run(s) have no typed values; "
                               "sync their folders again"]  # fmt: skip
        assert run_query(database, "values", wanted).frame.height == 12

        again = sync_sessions([tmp_path / "a"], database)

        assert (counts(again), again.typed, again.notes) == ((13, 0, 13, 0), 12, [])
        assert run_query(database, "values", wanted).frame.height == 24
        made_anew = sync_sessions([tmp_path], database)
        assert (counts(made_anew), made_anew.typed) == ((25, 0, 25, 0), 0)


def test_a_run_that_does_not_hold_what_is_declared_later_is_named(tmp_path: Path) -> None:
    case = making.planned(making.PiSorted)
    bare = making.session(cases=(case.model_copy(update={"declaration": {}}),))
    making.archive(tmp_path / "a", bare)
    odd = result_path(tmp_path / "a", inspection_id("s-1", "control", case.label), 1)
    edited("stdout", "@parameters", n="many")(odd)
    making.archive(tmp_path / "b", making.session("s-2", cases=(case,)))

    with open_database(tmp_path / "x.db") as database:
        sync_sessions([tmp_path / "a"], database)
        report = sync_sessions([tmp_path], database)

    assert (counts(report), report.typed) == ((24, 12, 11, 1), 11)
    assert report.reasons[0][0] == odd
    assert "n is 'many'" in report.reasons[0][1]


def test_a_session_that_waits_for_its_cluster_is_synced_after_it_was_collected(tmp_path: Path, place: Place) -> None:
    unknown = making.HARDWARE.model_copy(update={"key": "", "cpu_model": "not known yet"})
    write_session(tmp_path, making.session(hardware=unknown, backend="kubernetes", rounds_done=0))

    with open_database(place()) as database:
        report = sync_sessions([tmp_path], database)

        assert (counts(report), report.waiting, len(report.notes)) == ((0, 0, 0, 0), 1, 1)
        assert run_query(database, "sessions").frame.height == 0
        making.archive(tmp_path, making.session(backend="kubernetes", host={"node": 1}, cpus=(1,)))
        assert counts(sync_sessions([tmp_path], database)) == (12, 12, 0, 0)


def test_a_shipped_indicator_is_typed_without_a_declaration_in_the_session(tmp_path: Path) -> None:
    from workbench.indicators.shipped.indicator_classes import load_indicator

    planned = making.planned(load_indicator("sort"))
    bare = planned.model_copy(update={"declaration": {}})
    making.archive(tmp_path / "a", making.session(cases=(bare,)), runs=0)

    with open_database(tmp_path / "x.db") as database:
        sync_sessions([tmp_path / "a"], database)

        assert run_query(database, "indicators").frame["table_name"].to_list() == [
            f"pi_sort_{planned.indicator_version}"
        ]


def test_names_of_columns_and_tables_from_outside_are_only_names(tmp_path: Path, place: Place) -> None:
    case = making.planned(making.PiScanned)
    key = 'x"; DROP TABLE run; --'
    declaration = {"properties": {key: {"role": "result", "type": "number"}}, "required": [key]}
    forged = case.model_copy(update={"declaration": declaration, "metrics": (), "label": "'; --"})
    session = making.session(cases=(forged,))
    write_session(tmp_path, session)
    document = {"name": "PiX", "@parameters": {}, "@result": {key: 1.5}}
    one = making.run(session, forged, "2.2.6", 0, stdout=document)
    write_result(tmp_path, inspection_id("s-1", "2.2.6", forged.label), 0, one)

    with open_database(place()) as database:
        assert counts(sync_sessions([tmp_path], database)) == (1, 1, 0, 0)
        frame = run_query(database, "values", Filters(indicator=forged.indicator)).frame
        assert (frame.height, frame.row(0)[-1]) == (1, 1.5)
        assert rows(database, RUN) == 1


FORGED = making.arm("2.2.6", "2.2.6").model_copy(update={"packages": {"numpy": "9.9"}})


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (making.session(seed=2), "another plan has this id"),
        (making.session("s-2", arms=(FORGED,)), "another stack has this key"),
    ],
)
def test_another_session_of_the_same_id_or_stack_of_the_same_key_is_refused(
    tmp_path: Path, place: Place, other: Session, told: str
) -> None:
    making.archive(tmp_path / "a")
    making.archive(tmp_path / "b", other, runs=1)

    with open_database(place()) as database:
        sync_sessions([tmp_path / "a"], database)
        report = sync_sessions([tmp_path / "b"], database)

        assert told in report.reasons[0][1]
        assert counts(report) == (1, 0, 0, 1)
        assert run_query(database, "sessions").frame["session_id"].to_list() == ["s-1"]


def test_an_inspection_that_another_session_has_is_refused(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    making.archive(tmp_path / "a")
    making.archive(tmp_path / "b", making.session("s-2"))

    with open_database(place()) as database:
        sync_sessions([tmp_path / "a"], database)
        monkeypatch.setattr(archive_sync, "inspection_id", lambda _, arm, case: inspection_id("s-1", arm, case))
        report = sync_sessions([tmp_path / "b"], database)

        assert "another session has an inspection of this name" in report.reasons[0][1]
        assert run_query(database, "sessions").frame["session_id"].to_list() == ["s-1"]


def test_a_session_that_went_on_is_brought_up_to_date_with_what_it_skips(tmp_path: Path, place: Place) -> None:
    session = making.archive(tmp_path, runs=1)
    skipped = session.cases[0].model_copy(update={"skipped": {"control": "it lacks numpy"}})

    with open_database(place()) as database:
        sync_sessions([tmp_path], database)
        ended = {"rounds_done": 2, "ended_at": "2026-01-02T06:00:00+00:00", "stop_reason": "x", "cases": (skipped,)}
        making.archive(tmp_path, session.model_copy(update=ended), runs=2)

        assert counts(sync_sessions([tmp_path], database)) == (6, 3, 3, 0)
        row = run_query(database, "sessions").frame.row(0, named=True)
        assert (row["rounds_done"], row["stop_reason"], row["runs"]) == (2, "x", 6)
        with database.transaction() as connection:
            found = connection.execute(select(PLANNED_CASE.c.skipped)).scalar_one()
    assert json.loads(found) == {"control": "it lacks numpy"}


@pytest.mark.live
def test_writers_of_the_same_sessions_share_the_work_and_lose_nothing(tmp_path: Path, place: Place) -> None:
    target = place()
    for i in range(4):
        making.archive(tmp_path / str(i), making.session(f"s-{i}"), runs=25)

    command = [sys.executable, "-W", "error::ResourceWarning", "-c", WRITER, target, str(tmp_path)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen(command, **pipes, cwd=ROOT) for _ in range(4)]
    told = [writer.communicate(timeout=250) for writer in writers]

    found = [tuple(map(int, out.split())) for out, _ in told]
    assert all(synced + skipped == 300 and not failed for synced, skipped, failed in found), told
    assert sum(synced for synced, *_ in found) == 300
    with open_database(target) as database:
        assert (rows(database, RUN), rows(database, SAMPLE)) == (300, 600)
