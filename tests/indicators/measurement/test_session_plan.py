"""A run as its document: each ending has its status, and nothing hostile in it gets any further."""

from __future__ import annotations

import json
import platform
import sys
from typing import Any

import pytest

from tests.indicators.measurement.making import Tiny, session, two_sides, valid
from workbench.indicators.contract.documents import Status
from workbench.indicators.contract.indicator import Case
from workbench.indicators.measurement.run_messages import Outcome, RunEnd
from workbench.indicators.measurement.session_plan import Slot, build_run_document
from workbench.indicators.store.archive import Pressure, Result

SESSION = session()
SIDE = two_sides()[0]


def recorded(
    stdout: Any, outcome: Outcome = "exited", stderr: bytes = b"", *, detail: str = "", exit_code: int = 0, **facts: Any
) -> Result:
    raw = stdout if isinstance(stdout, bytes) else json.dumps(stdout).encode()
    facts |= {"usage": {"ru_utime": 0.5}, "duration_s": 1.0, "isolation": {"network": "isolated"}}
    facts |= {"started_at": "2026-01-01T00:00:00+00:00", "ended_at": "2026-01-01T00:00:01+00:00"}
    ended = RunEnd(outcome, detail, exit_code, stdout=raw, stderr=stderr, stdout_bytes=len(raw), **facts)
    slot = Slot(4, 1, SESSION.cases[0].label, SIDE.arm.name)
    case = Case.from_parameters(Tiny)
    return build_run_document(SESSION, slot, SIDE.arm, case, ended, Pressure(load_1m=0.5), Pressure())


def test_failed_checks_and_what_was_left_behind_are_told_and_the_run_stays_ok_but_not_one_that_was_left() -> None:
    found = recorded(valid(**{"@checks": {"wrong": 3}}), left_behind=2).workbench
    assert (found.status, found.failed_checks) == ("ok", ("wrong is 3, not 0",))
    assert found.isolation["left behind"] == "2 process(es), killed"
    assert "left behind" not in recorded(valid()).workbench.isolation
    assert recorded(valid(), "stopped").workbench.status == "killed"


def test_a_valid_document_is_ok_and_its_values_are_there() -> None:
    found = recorded(valid())
    assert (found.workbench.status, found.workbench.reason) == ("ok", None)
    assert found.metric_value("elapsed_ms") == 3.0
    assert (found.workbench.round, found.workbench.position, found.workbench.arm) == (1, 4, "one")
    assert (found.workbench.before.load_1m, found.workbench.hardware_key) == (0.5, SESSION.hardware.key)
    assert Result.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    ("stdout", "status", "reason"),
    [
        (b"", "empty", "nothing on stdout"),
        (b"elapsed: 3 ms", "not JSON", "elapsed"),
        (b'{"name": "Tiny", "@result": {"elapsed_ms": NaN}}', "not finite", "NaN"),
        (b'{"name": "Tiny", "@result": {"elapsed_ms": 1e999}}', "not finite", "too large"),
        (b'"' + b"x" * (1 << 20) + b'"', "too long", "1,048,576"),
        (valid(**{"@parameters": {"n": 3}}), "invalid document", "2 was asked for"),
        (valid(**{"@result": {"elapsed_ms": 3.0, "ru_utime": -1}}), "invalid document", "ru_utime"),
    ],
)
def test_an_output_that_is_no_document_has_a_status_and_a_reason(stdout: Any, status: Status, reason: str) -> None:
    found = recorded(stdout)
    assert found.workbench.status == status
    assert reason in str(found.workbench.reason)
    assert found.metric_value("elapsed_ms") is None
    assert Result.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize("outcome", ["timeout", "out of memory", "killed", "exit code", "too long"])
def test_how_the_process_ended_counts_before_what_it_printed(outcome: Outcome) -> None:
    for stdout in (valid(), b"", b"half a docu"):
        found = recorded(stdout, outcome, detail="because", exit_code=3)
        assert (found.workbench.status, found.workbench.reason) == (outcome, "because")
        assert found.metric_value("elapsed_ms") is None


def test_the_reason_of_a_failure_has_the_last_line_of_stderr() -> None:
    found = recorded(b"", "exit code", b"Traceback\n  more\nValueError: no GPU\n", detail="exit code 1", exit_code=1)
    assert found.workbench.reason == "exit code 1: ValueError: no GPU"
    assert found.stderr.startswith("Traceback")


def test_half_a_character_in_a_document_does_not_stop_the_session() -> None:
    raw = json.dumps(valid(framework="half \ud800")).encode()
    found = recorded(raw)
    assert found.workbench.status in ("not JSON", "invalid document")
    assert Result.model_validate_json(found.model_dump_json()) == found


def test_secrets_of_the_workbench_are_cut_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "s3cret-and-long")
    monkeypatch.setenv("WORKBENCH_SECRET_ENV", "THE_KEY")
    found = recorded(b"s3cret-and-long", "exit code", b"KeyError: s3cret-and-long", detail="exit code 1")
    assert "s3cret" not in found.model_dump_json()


def test_output_that_is_no_document_is_kept_as_text_up_to_a_size() -> None:
    assert recorded(b"plain").stdout == "plain"
    assert len(recorded(b"x" * (1 << 20)).stdout) == 64 << 10
    assert recorded(b"").stdout == ""


def test_neither_host_nor_path_is_in_a_document() -> None:
    text = recorded(valid()).model_dump_json()
    assert platform.node() not in json.loads(text)["runtime_environment"].values()
    assert sys.prefix not in text
    assert json.loads(text)["hostname"] == ""
