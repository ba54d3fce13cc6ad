"""Logs that were cut, mixed, repeated, shuffled or made up: what is whole and signed counts, the rest is named."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.indicators.kubernetes.making import KEY, Good, collected, indicator, planned
from workbench.core.errors import InputError
from workbench.indicators.contract.indicator import Case
from workbench.indicators.kubernetes import log_records
from workbench.indicators.kubernetes.log_records import RecordKey, read_records
from workbench.indicators.kubernetes.pod import RecordWriter
from workbench.indicators.kubernetes.result_collection import collect_results
from workbench.indicators.store import archive

CASES = [Case.from_parameters(Good)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    planned(tmp_path, CASES)
    return tmp_path


def whole(logs: list[bytes]) -> dict[RecordKey, dict[str, Any]]:
    found = read_records([[log] for log in logs], KEY)
    assert (found.damaged, found.torn) == (0, set())
    return found.documents


def results(folder: Path) -> list[tuple[str, int, str]]:
    session = archive.read_session(folder)
    return [(one.workbench.arm, run, one.workbench.status) for _, run, one in archive.read_results(folder, session)]


def test_all_runs_of_all_rounds_are_collected(folder: Path, logs: list[bytes]) -> None:
    found = collect_results(folder, CASES, [[log] for log in logs], key=KEY)
    assert (found.statuses, found.present, found.missing, found.absent) == ({"ok": 6}, 0, {}, [])
    assert sorted(results(folder)) == sorted(
        (arm, number, "ok") for arm in ("six-1.17.0", "six-1.16.0", "control") for number in range(2)
    )
    session = archive.read_session(folder)
    assert (session.rounds_done, session.backend) == (2, "kubernetes")
    assert session.hardware.cores >= 1
    assert session.host["image"].startswith("python:3.")
    assert not [note for note in session.notes if "round 0" in note or "round 1" in note]


def test_the_same_logs_may_be_collected_again(folder: Path, logs: list[bytes]) -> None:
    collect_results(folder, CASES, [[logs[1]]], key=KEY)
    files = {path: path.read_bytes() for path in folder.rglob("result")}
    assert len(files) == 3
    found = collect_results(folder, CASES, [[log] for log in logs], key=KEY)
    assert (len(found.new), found.present) == (3, 3)
    assert all(path.read_bytes() == text for path, text in files.items())
    session = (folder / archive.SESSION_FILE).read_bytes()
    assert collect_results(folder, CASES, [[log] for log in logs], key=KEY).present == 6
    assert (folder / archive.SESSION_FILE).read_bytes() == session


@pytest.mark.parametrize("size", [1, 7, 1000, 16_384])
def test_it_does_not_matter_how_a_log_comes_in_pieces(logs: list[bytes], size: int) -> None:
    blocks = [logs[0][at : at + size] for at in range(0, len(logs[0]), size)]
    found = read_records([blocks], KEY)
    assert found.documents == whole(logs[:1])
    assert found.damaged == 0


def test_lines_may_be_mixed_with_others_repeated_and_out_of_order(logs: list[bytes]) -> None:
    draw = random.Random(3)
    lines = [line for log in logs for line in log.splitlines()]
    lines += draw.sample(lines, len(lines) // 2)
    draw.shuffle(lines)
    mixed = b"".join(
        draw.choice([b"", b"2026-01-02T03:04:05Z ", b"[pod/a/measure] ", b"half a line of stderr "])
        + line
        + draw.choice([b"\n", b"\r\n", b"and more", b""])
        for line in lines
    )
    found = read_records([[mixed]], KEY)
    assert found.documents == whole(logs)
    assert (found.damaged, found.torn) == (0, set())
    # What only looks like a line is counted.
    fake = b"@workbench part 0.0.00000000 0/1 QUJD " + b"0" * 32 + b"@\n@workbench nonsense\n@workbench "
    found = read_records([[fake + logs[0] + fake]], KEY)
    assert (found.documents, found.damaged) == (whole(logs[:1]), 6)


def test_a_log_that_was_cut_anywhere_gives_only_what_was_whole(logs: list[bytes]) -> None:
    documents = whole(logs[:1])
    counts = set()
    # Without its last character, a line is whole all the same.
    for end in range(0, len(logs[0]) - 1, 97):
        found = read_records([[logs[0][:end]]], KEY)
        assert found.documents.items() <= documents.items()
        counts.add(len(found.documents))
    # From none to all but what comes last.
    assert min(counts) == 0
    assert max(counts) == len(documents) - 1


def test_a_run_of_which_a_part_is_missing_is_named_and_not_guessed(folder: Path, logs: list[bytes]) -> None:
    lines = logs[0].splitlines()
    torn = next(line for line in lines if line.startswith(b"@workbench part 0.1."))
    found = collect_results(folder, CASES, [[b"\n".join(line for line in lines if line != torn)]], key=KEY)
    assert (len(found.new), found.torn) == (2, 1)
    assert list(found.missing) == [0]
    assert found.missing[0].startswith("1 of 3 runs are not there; ")
    assert found.missing[0].endswith(", Good was begun")
    assert found.absent == [1]
    note = f"cluster: round 0: {found.missing[0]}"
    assert note in found.session.notes
    # Another collection that heard nothing of the round does not know better; one that has the log does.
    assert note in collect_results(folder, CASES, [], key=KEY).session.notes
    assert note not in collect_results(folder, CASES, [[logs[0]]], key=KEY).session.notes


@pytest.mark.parametrize("place", range(3, 120, 13))
def test_a_changed_line_does_not_count(logs: list[bytes], place: int) -> None:
    lines = logs[0].splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(b"@workbench part 0.2."))
    line = bytearray(lines[at])
    spot = len(line) - 40 - place
    line[spot] = ord("A") if line[spot] != ord("A") else ord("B")
    lines[at] = bytes(line)
    found = read_records([[b"\n".join(lines)]], KEY)
    assert found.damaged == 1
    assert {told.what for told in found.torn} == {"2"}


def said(capfd: pytest.CaptureFixture[str]) -> bytes:
    return capfd.readouterr().out.encode()


def pod_document(logs: list[bytes]) -> dict[str, Any]:
    return next(text for told, text in whole(logs).items() if told.what == "pod")


def run_document(logs: list[bytes], position: int) -> dict[str, Any]:
    return next(dict(text) for told, text in whole(logs).items() if told.what == str(position))


def test_of_two_pods_that_made_a_round_the_first_counts(
    folder: Path, logs: list[bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    teller = RecordWriter(bytes.fromhex(KEY), 0)
    teller.write_document("pod", pod_document(logs))
    later = run_document(logs, 0) | {"started_at": "2099-01-01T00:00:00+00:00", "outcome": "timeout", "exit_code": None}
    teller.write_document(0, later)
    found = collect_results(folder, CASES, [[said(capfd)], [logs[0]]], key=KEY)
    assert (found.repeated, found.statuses) == (1, {"ok": 3})


def attempt_at_round_0(
    logs: list[bytes], positions: list[int], cpu_model: str, capfd: pytest.CaptureFixture[str]
) -> bytes:
    """The log of another pod of other hardware, which began earlier than the one that is there."""
    teller = RecordWriter(bytes.fromhex(KEY), 0)
    teller.write_document("pod", pod_document(logs) | {"cpu_model": cpu_model})
    for position in positions:
        teller.write_document(position, run_document(logs, position) | {"started_at": "2001-01-01T00:00:00+00:00"})
    return said(capfd)


def kinds(folder: Path) -> dict[int, set[str]]:
    """The kinds of machines in the archive, by round."""
    found: dict[int, set[str]] = {}
    for _, run, one in archive.read_results(folder, archive.read_session(folder)):
        found.setdefault(run, set()).add(one.workbench.hardware_key)
    return found


def without(log: bytes, position: int) -> bytes:
    mark = f" 0.{position}.".encode()
    return b"\n".join(line for line in log.splitlines() if mark not in line) + b"\n"


def test_runs_of_two_pods_of_different_hardware_never_stand_in_one_round(
    folder: Path, logs: list[bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    partly = attempt_at_round_0(logs, [0, 1], "Another One", capfd)
    found = collect_results(folder, CASES, [[partly], [logs[0]]], key=KEY)
    # Three runs are more than two, though the two began first.
    assert (len(found.new), found.repeated, found.damaged) == (3, 2, 0)
    assert {number: len(keys) for number, keys in kinds(folder).items()} == {0: 1}
    assert found.session.hardware.cpu_model == pod_document(logs)["cpu_model"]
    assert not [note for note in found.session.notes if "more than one kind" in note]


def test_of_two_equally_complete_pods_the_one_that_began_first_counts_and_none_signed_with_another_key(
    folder: Path, logs: list[bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    forged = collect_results(folder, CASES, [[logs[0]]], key="ab" * 32)
    assert (forged.new, forged.damaged, results(folder)) == ([], len(logs[0].splitlines()), [])
    other = attempt_at_round_0(logs, [0, 1, 2], "Another One", capfd)
    found = collect_results(folder, CASES, [[logs[0]], [other]], key=KEY)
    assert (len(found.new), found.repeated) == (3, 3)
    models = {one.hwinfo["cpu_info"]["brand_raw"] for *_, one in archive.read_results(folder, found.session)}
    assert models == {"Another One"}


def test_the_pod_that_is_in_the_archive_keeps_its_round(
    folder: Path, logs: list[bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    torn = without(logs[0], 1)
    assert len(collect_results(folder, CASES, [[torn]], key=KEY).new) == 2
    other = attempt_at_round_0(logs, [0, 1, 2], "Another One", capfd)
    found = collect_results(folder, CASES, [[other]], key=KEY)
    assert (found.new, found.present, found.repeated) == ([], 2, 3)
    assert list(found.missing) == [0]
    # The same pod's whole log fills its own gap.
    found = collect_results(folder, CASES, [[other], [logs[0]]], key=KEY)
    assert (len(found.new), found.present, found.missing) == (1, 2, {})
    assert {number: len(keys) for number, keys in kinds(folder).items()} == {0: 1}


@pytest.mark.parametrize(
    ("changed", "says_what_it_is"),
    [
        ({"case": "Other"}, True),
        ({"stdout": "not base64!"}, True),
        ({"usage": {"ru_fake": 1.0}}, True),
        ({"more": 1}, True),
        ({}, False),
    ],
)
def test_a_signed_document_of_another_plan_or_form_or_of_an_unknown_pod_is_not_taken(
    folder: Path,
    logs: list[bytes],
    capfd: pytest.CaptureFixture[str],
    changed: dict[str, Any],
    says_what_it_is: bool,
) -> None:
    teller = RecordWriter(bytes.fromhex(KEY), 0)
    if says_what_it_is:
        teller.write_document("pod", pod_document(logs))
    teller.write_document(0, run_document(logs, 0) | changed)
    found = collect_results(folder, CASES, [[said(capfd)]], key=KEY)
    assert (found.new, found.damaged) == ([], 1)


def test_another_machine_is_noted_and_stands_in_its_runs(
    folder: Path, logs: list[bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    collect_results(folder, CASES, [[logs[0]]], key=KEY)
    teller = RecordWriter(bytes.fromhex(KEY), 1)
    teller.write_document("pod", pod_document(logs) | {"cpu_model": "Another One"})
    teller.write_document(4, run_document(logs, 4))
    found = collect_results(folder, CASES, [[said(capfd)]], key=KEY)
    assert len(found.new) == 1
    assert "cluster: more than one kind of machine: compare within a round only" in found.session.notes
    keys = {one.workbench.hardware_key for _, _, one in archive.read_results(folder, found.session)}
    assert len(keys) == 2
    assert found.session.hardware.cpu_model != "Another One"


def test_a_document_of_two_megabytes_comes_in_many_lines_and_arrives(capfd: pytest.CaptureFixture[str]) -> None:
    noise = "".join(random.Random(1).choices("0123456789abcdef", k=2_000_000))
    RecordWriter(bytes.fromhex(KEY), 0).write_document(0, {"stdout": noise})
    log = said(capfd)
    assert max(map(len, log.splitlines())) < 16 << 10
    assert list(read_records([[log]], KEY).documents.values()) == [{"stdout": noise}]


def test_a_document_that_unpacks_to_too_much_is_not_taken_and_a_log_too_large_refused(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_records, "MAX_DOCUMENT_BYTES", 1000)
    RecordWriter(bytes.fromhex(KEY), 0).write_document(0, {"stdout": "a" * 2000})
    found = read_records([[said(capfd)]], KEY)
    assert (found.documents, len(found.torn)) == ({}, 1)
    monkeypatch.setattr(log_records, "MAX_LOG_BYTES", 1000)
    with pytest.raises(InputError, match="too large"):
        read_records([[b"a" * 600, b"a" * 600]], KEY)


def test_other_indicators_than_planned_and_the_folder_of_another_backend_are_refused(folder: Path) -> None:
    for cases in ([], [Case.from_parameters(indicator("Good", "print(2)"))]):
        with pytest.raises(InputError):
            collect_results(folder, cases, [], key=KEY)
    archive.write_session(folder, archive.read_session(folder).model_copy(update={"backend": "process"}))
    with pytest.raises(InputError, match="not a session of a cluster"):
        collect_results(folder, CASES, [], key=KEY)


def test_secrets_of_this_process_do_not_reach_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys; print('the word is swordfish-77', file=sys.stderr); print('swordfish-77')"
    monkeypatch.setenv("WORKBENCH_SECRET_ENV", "WORD")
    monkeypatch.setenv("WORD", "swordfish-77")
    collected(tmp_path, [Case.from_parameters(indicator("Leaky", script))])
    texts = [path.read_text() for path in (tmp_path / archive.INSPECTIONS).rglob("result")]
    assert len(texts) == 3
    assert all("[redacted]" in text and "swordfish" not in text for text in texts)
