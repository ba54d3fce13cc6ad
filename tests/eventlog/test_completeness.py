"""Logs with holes: what is missing is said, what is there is booked right, and a whole log raises no alarm."""

from __future__ import annotations

import gzip
import json
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.eventlog.conftest import LOGS, OTHERS, OWN
from workbench.eventlog.codecs import decode_blocks
from workbench.eventlog.completeness import SHUTDOWN_MS, Ledger, describe_holes
from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.eventlog.sources import list_logs
from workbench.speedup.attribution.application_profile import Profile, build_profile

LINES = (LOGS / "small" / "three_queries").read_bytes().splitlines(keepends=True)
EVENTS = [json.loads(line) for line in LINES]
# Between two queries: three parts of one log.
PARTS = LINES[:30], LINES[30:104], LINES[104:]
Damage = Callable[[dict[str, Any]], bool]


def said(folder: Path) -> list[str]:
    return describe_holes(read_event_logs(folder).completeness)


def roll(folder: Path, *numbers: str | int, app: str = "app-1") -> Path:
    """Some of the three files of a roll; "2.compact" is one that was compacted."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"appstatus_{app}").write_bytes(b"")
    for number in map(str, numbers):
        first, _, suffix = number.partition(".")
        content = PARTS[int(first) - 1] if not suffix else LINES[:6]
        (folder / f"events_{first}_{app}{suffix and '.' + suffix}").write_bytes(b"".join([*LINES[:1], *content]))
    return folder


def part(number: int, context: int = 77) -> bytes:
    """A part of a Databricks rollover."""
    start = {"Event": "DBCEventLoggingListenerMetadata", "Spark Version": "3.5.0", "Rollover Number": number}
    return json.dumps(start | {"SparkContext Id": context}).encode() + b"\n" + b"".join(PARTS[number])


def databricks(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    return folder


WHOLE = {"eventlog-2026-05-28--20-00": part(0), "eventlog-2026-05-28--21-00": part(1), "eventlog": part(2)}


@pytest.mark.parametrize("path", [*OWN, *OTHERS])
def test_a_whole_log_has_no_hole(path: Path, facts_of: Callable[[Path], EventLogFacts]) -> None:
    found = describe_holes(facts_of(path).completeness)
    known = {  # as a plain reading of their lines has them
        "malformed_json_eventlog.zstd": ["the log lacks the application's properties"],
        "tasks_executors_fail_compressed_eventlog.zstd": ["the start of 5 jobs", "stage 143"],
    }.get(path.name, [])
    assert len(found) == len(known)
    assert all(sentence.startswith(start) for sentence, start in zip(found, known, strict=True))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ((1, 2, 3), None),
        ((1, 3), "file 2 of the roll: missing, and there are files up to number 3"),
        ((2, 3), "file 1 of the roll: missing, and there are files up to number 3"),
        (
            ("2.compact", 3),
            "files 1 to 2 of the roll: they were compacted: work that had finished in them was discarded",
        ),
    ],
)
def test_files_of_a_roll_are_numbered(files: tuple[str | int, ...], expected: str | None, tmp_path: Path) -> None:
    folder = roll(tmp_path / "eventlog_v2_app-1", *files)
    assert (expected in said(folder)) if expected else (said(folder) == [])
    facts = read_event_logs(folder)
    assert facts.applications["status"].to_list() == ["incomplete" if expected else "complete"]
    profile = build_profile(facts)
    assert profile.verdict == ("invalid" if expected else "valid")
    if expected:
        # No idle time and no share is made of a hole, and it stands first.
        assert "no stage ran" not in profile.answer
        assert profile.overview["slot_use_share"].item() is None
        assert profile.queries["task_time_share"].null_count() == profile.queries.height


def test_applications_in_one_flat_folder_are_told_apart(tmp_path: Path) -> None:
    roll(tmp_path, 1, 2, 3, app="app-1")
    roll(tmp_path, 1, 3, app="app-2")
    facts = read_event_logs(tmp_path)
    assert [Path(path).name for path in facts.logs["path"]] == [f"{tmp_path.name}#app-{n}" for n in (1, 2)]
    assert facts.logs["n_files"].to_list() == [3, 2]
    assert facts.completeness["log_id"].unique().to_list() == [1]
    assert read_event_logs(f"{tmp_path}#app-2").logs["n_files"].to_list() == [2]


@pytest.mark.parametrize(
    ("files", "n_queries", "expected"),
    [
        (WHOLE, 6, []),
        ({name: WHOLE[name] for name in WHOLE if name != "eventlog-2026-05-28--21-00"}, 4, ["part 1 of the rollover"]),
        ({name: WHOLE[name] for name in WHOLE if not name.endswith("20-00")}, 3, ["part 0 of the rollover"]),
        # Under other names: by the numbers in their first lines.
        ({"eventlog-2026-05-28--20-00.gz": part(2), "eventlog.x": part(0), "eventlog-2.json.gz": part(1)}, 6, []),
        ({f"eventlog-2026-05-28--2{n}-00": part(n) for n in range(3)}, 6, []),
        (WHOLE | {"eventlog-2026-05-28--21-00.bak": part(1)}, 6, []),
        (WHOLE | {"eventlog-2026-05-28--21-00.bak": part(1)[:-200]}, 6, ["eventlog-2026-05-28--21-00.bak: skipped"]),
        (WHOLE | {"eventlog-2026-05-28--22-00": b""}, 6, ["eventlog-2026-05-28--22-00: skipped: it is empty"]),
    ],
    ids=["whole", "hole", "no first", "other names", "all dated", "copy", "two of a number", "empty"],
)
def test_parts_of_a_rollover_are_ordered_by_their_first_lines(
    files: dict[str, bytes], n_queries: int, expected: list[str], tmp_path: Path
) -> None:
    folder = databricks(tmp_path / "driver" / "770077", files)
    facts = read_event_logs(folder)
    assert facts.logs.height == 1
    assert facts.sql_executions.height == n_queries
    assert facts.applications["spark_version"].to_list() == ["3.5.0"]
    assert facts.logs["n_late_task_ends"].item() == 0
    found = describe_holes(facts.completeness)
    assert [any(sentence.startswith(start) for sentence in found) for start in expected] == [True] * len(expected)
    assert bool(found) == bool(expected)


def test_parts_of_two_contexts_are_two_logs(tmp_path: Path) -> None:
    other = {f"eventlog-2026-06-0{n + 1}--20-00": part(n, context=88) for n in range(3)}
    facts = read_event_logs(databricks(tmp_path / "770077", WHOLE | other))
    assert facts.logs["n_files"].to_list() == [3, 3]
    assert facts.completeness.height == 0


def drop(*conditions: Damage) -> list[bytes]:
    return [
        line for line, event in zip(LINES, EVENTS, strict=True) if not any(condition(event) for condition in conditions)
    ]


def test_parts_of_two_contexts_in_one_file_are_said_to_be_mixed(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(part(0) + part(1) + part(0, 78))
    assert said(tmp_path)[:1] == ["context 77, context 78: parts of several applications are mixed"]
    (tmp_path / "log").write_bytes(part(0) + part(1))
    assert not any("mixed" in sentence for sentence in said(tmp_path))


def is_(name: str, **ids: int) -> Damage:
    """An event of this name with these ids; blanks stand for underscores."""

    def has(event: dict[str, Any]) -> bool:
        info = event.get("Stage Info", event)
        return event["Event"].endswith(name) and all(info.get(key.replace("_", " ")) == ids[key] for key in ids)

    return has


@pytest.mark.parametrize(
    ("damage", "expected", "is_bounded"),
    [
        ([is_("TaskEnd", Stage_ID=3)], "3 of 3 planned tasks have no end in the log (stage 3)", True),
        ([is_("TaskEnd", Stage_ID=3), is_("TaskStart", Stage_ID=3)], "3 of 3 planned tasks have no end", True),
        ([is_("SQLExecutionEnd", executionId=4)], "the end of query 4 is not in the log", False),
        ([is_("SQLExecutionStart", executionId=4)], "the start of query 4 is not in the log", False),
        ([is_("StageCompleted", Stage_ID=3)], "the end of 1 stage is not in the log (stage 3)", False),
        ([is_("JobStart", Job_ID=3)], "the start of 1 job is not in the log", False),
        ([is_("JobEnd", Job_ID=3)], "the end of 1 job is not in the log (job 3)", False),
        ([is_("EnvironmentUpdate")], "the log lacks the application's properties", False),
        ([is_("ExecutorAdded")], "tasks ran on executors driver, whose start is not in the log", False),
        ([is_("AdaptiveExecutionUpdate")], "97 metrics of plans are in no plan of the log", False),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_events_that_were_dropped_are_counted_and_named(
    damage: list[Damage], expected: str, is_bounded: bool, tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(b"".join(drop(*damage)))
    found = said(tmp_path)
    assert any(sentence.startswith(expected) for sentence in found), found
    profile = build_profile(read_event_logs(tmp_path))
    assert profile.verdict == "invalid"
    assert set(found) <= set(profile.reasons)
    overview = profile.overview.row(0, named=True)
    whole = build_profile(read_event_logs(LOGS / "small" / "three_queries")).overview.row(0, named=True)
    assert (overview["task_time_high_s"] is not None) == is_bounded
    if is_bounded:
        assert overview["task_time_s"] < whole["task_time_s"] <= overview["task_time_high_s"]


def test_numbers_that_spark_gives_without_gaps_show_what_is_missing(tmp_path: Path) -> None:
    # All of the query 3 with its jobs and stages; and not the numbers of a log that somebody made.
    (tmp_path / "log").write_bytes(b"".join(LINES[:30] + LINES[52:]))
    found = said(tmp_path)
    assert found[0] == "4 of 26 tasks are not in the log: their numbers are missing"
    assert [sentence.split(" not")[0] for sentence in found[1:]] == ["query 3"]


def test_what_is_no_roll_and_no_rollover_is_read_too(tmp_path: Path) -> None:
    content = b"".join(LINES)
    (tmp_path / "app::1").write_bytes(content)
    assert read_event_logs(tmp_path / "app::1").sql_executions.height == 6
    with zipfile.ZipFile(tmp_path / "eventLogs-app.zip", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("local-1", content)
        made.writestr("eventlog_v2_app-1/events_1_app-1", b"".join(PARTS[0]))
        made.writestr("eventlog_v2_app-1/events_3_app-1", b"".join(PARTS[2]))
    facts = read_event_logs(tmp_path / "eventLogs-app.zip")
    assert sorted(facts.logs["n_files"]) == [1, 2]
    assert len(list_logs(str(tmp_path))) == 3
    assert facts.completeness.filter(kind="file").height == 1


def test_one_bad_log_costs_the_others_nothing(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"".join(LINES))
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "eventlog_v2_app-1").mkdir()
    (tmp_path / "eventlog_v2_app-1" / "appstatus_app-1.inprogress").write_bytes(b"")
    (tmp_path / "cut.zip").write_bytes(b"PK\x03\x04 and no more")
    facts = read_event_logs(tmp_path)
    assert facts.applications.height == 1
    faults = dict(zip((Path(path).name for path in facts.logs["path"]), facts.logs["fault"], strict=True))
    assert faults.pop("good") is None
    assert sorted(faults) == ["cut.zip", "empty", "eventlog_v2_app-1"]
    assert all(faults.values())


# An executor that ran nothing, and the end of one, leave no trace either.
OF_SLOTS = ("slot_use_share", "n_task_slots")
# What leaves no trace: the driver's updates of metrics, one version of a plan, all work after the last that is there,
# and ends of tasks of a stage that failed shortly before the application ended, since such tasks may have run on.
UNTRACED = ("DriverAccumUpdates", "AdaptiveExecutionUpdate", "SQLAdaptiveSQLMetricUpdates")


def list_untraced(lines: list[bytes]) -> set[int]:
    """Numbers of the lines that may go without a trace."""
    events = [json.loads(line) for line in lines]
    end_ms = next((event["Timestamp"] for event in events if event["Event"].endswith("ApplicationEnd")), 0)
    stages = [event["Stage Info"] for event in events if event["Event"].endswith("StageCompleted")]
    failed = {
        (stage["Stage ID"], stage["Stage Attempt ID"])
        for stage in stages
        if stage.get("Failure Reason") and stage["Completion Time"] > end_ms - SHUTDOWN_MS
    }
    return {
        place
        for place, event in enumerate(events)
        if event["Event"].endswith(UNTRACED)
        or (event["Event"].endswith("TaskEnd") and (event["Stage ID"], event["Stage Attempt ID"]) in failed)
    }


def figures(profile: Profile) -> dict[str, float | None]:
    """Figures of a profile that a hole could change."""
    names = ("wall_time_s", "busy_time_s", "task_time_s", "slot_use_share", "n_tasks", "n_queries", "n_task_slots")
    found: dict[str, float | None] = dict(profile.overview.select(names).row(0, named=True))
    for row in profile.queries.iter_rows(named=True):
        found[f"duration {row['sql_id']}"], found[f"tasks {row['sql_id']}"] = row["duration_s"], row["task_time_s"]
    return found


def make_holes(lines: list[bytes], rng: random.Random, count: int, folder: Path) -> Iterator[tuple[str, Path]]:
    """Logs with one hole each: lines, all events of a kind, or files of a roll are gone."""
    names, untraced = [json.loads(line)["Event"].split(".")[-1] for line in lines], list_untraced(lines)
    for number in range(count):
        kind = rng.choice(("range", "kind", "event", "file"))
        first = rng.randrange(len(lines) - 1)
        if kind == "file":
            cuts = [0, *sorted(rng.sample(range(1, len(lines)), min(len(lines) - 1, rng.randint(2, 7)))), len(lines)]
            gone = set(rng.sample(range(len(cuts) - 1), rng.randint(1, len(cuts) - 2)))
            rolled = folder / f"eventlog_v2_app-{number}"
            rolled.mkdir()
            (rolled / f"appstatus_app-{number}").write_bytes(b"")
            for file in set(range(len(cuts) - 1)) - gone:
                content = [*lines[: file > 0], *lines[cuts[file] : cuts[file + 1]]]
                (rolled / f"events_{file + 1}_app-{number}").write_bytes(b"".join(content))
            yield f"files {sorted(gone)} of {len(cuts) - 1}", rolled
            continue
        last = (
            min(len(lines) - 1, first + 1 + int(rng.random() ** 2 * 0.6 * len(lines))) if kind == "range" else first + 1
        )
        gone = (
            {i for i, name in enumerate(names) if name == names[first]} if kind == "kind" else set(range(first, last))
        )
        what = f"{kind} {names[first]} {first}-{last}"
        what += " with executors" if any("Executor" in names[i] for i in gone) else ""
        if gone <= untraced or (last == len(lines) - 1 and kind == "range"):
            continue
        (folder / "log").write_bytes(b"".join(line for i, line in enumerate(lines) if i not in gone))
        yield what, folder / "log"


def decode(path: Path) -> list[bytes]:
    (source,) = list_logs(str(path))
    lines: list[bytes] = []
    for file in source.files:
        assert file.local is not None
        with Path(file.local).open("rb") as opened:
            lines += b"".join(decode_blocks(opened, file.codec)).splitlines(keepends=True)
    return lines


@pytest.mark.parametrize(
    ("path", "count"),
    [
        (LOGS / "small" / "three_queries", 40),
        *[
            pytest.param(param.values[0], 200, marks=pytest.mark.slow)
            for param in (*OWN, *OTHERS)
            if param.values[0].suffix not in (".lz4", ".snappy", ".lzf", ".gz") and "killed" not in str(param.values[0])
        ],
    ],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
def test_a_hole_never_makes_a_valid_figure_wrong(path: Path, count: int, tmp_path: Path) -> None:
    """Random deletions: where the verdict is valid, no figure is off by more than 5 % from that of the whole log."""
    whole = build_profile(read_event_logs(path))
    if whole.verdict != "valid":
        pytest.skip(f"the log itself has holes: {whole.reasons}")
    wrong = []
    for what, log in make_holes(decode(path), random.Random(7), count, tmp_path):
        profile = build_profile(read_event_logs(log))
        if profile.verdict == "valid":
            now = figures(profile)
            wrong += [
                f"{what}: {name} {value} -> {now.get(name)}"
                for name, value in figures(whole).items()
                if value is not None
                and not (name in OF_SLOTS and what.endswith("executors"))
                and now.get(name) != pytest.approx(value, rel=0.05, abs=0.05)
            ]
    assert wrong == []


def test_what_a_log_names_is_noted_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set that is built anew for each query makes the time grow with the square of the log."""
    ledgers: list[tuple[Ledger, dict[str, object]]] = []
    build = Ledger.__init__

    def build_and_keep(ledger: Ledger, *rest: Any, **more: Any) -> None:
        build(ledger, *rest, **more)
        ledgers.append((ledger, dict(vars(ledger))))

    monkeypatch.setattr(Ledger, "__init__", build_and_keep)
    read_event_logs(LOGS / "tpch_sf0.1.zstd", jobs=1)
    ((ledger, before),) = ledgers
    sets = {name: value for name, value in before.items() if isinstance(value, set | dict)}
    assert sets["metrics_planned"]
    assert [name for name, value in sets.items() if vars(ledger)[name] is not value] == []
