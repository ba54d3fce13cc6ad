"""Child processes: what they say, how they end, and that nothing of them stays."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from workbench.core.child_process import ChildProcess, kill_process_tree, run_command
from workbench.core.errors import ConfigError, MissingToolError, RunFailedError, WorkbenchError

LIMIT_S = 60.0
# Starts another, in the same session, that nothing but a kill ends; both tell their numbers.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
below = subprocess.Popen([sys.executable, "-c", code])
print(below.pid, flush=True)
time.sleep(600)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(is_true: Callable[[], bool]) -> bool:
    until = time.monotonic() + LIMIT_S
    while not is_true() and time.monotonic() < until:
        time.sleep(0.02)
    return is_true()


def test_a_command_gives_its_code_and_both_outputs() -> None:
    found = run_command(python("import sys; print('out'); sys.stderr.write('err'); sys.exit(3)"), timeout_s=LIMIT_S)
    assert (found.exit_code, found.stdout, found.stderr, found.last_lines) == (3, "out\n", "err", "err")


def test_a_command_that_must_succeed_says_what_it_said_last() -> None:
    with pytest.raises(RunFailedError) as failed:
        run_command(python("raise SystemExit('no disk')"), timeout_s=LIMIT_S, must_succeed=True)
    assert failed.value.facts["found"] == "no disk"


def test_more_output_than_is_kept_does_not_stop_a_command() -> None:
    found = run_command(python("print('x' * 3_000_000)"), timeout_s=LIMIT_S, max_output_bytes=10)
    assert (found.exit_code, found.stdout) == (0, "x" * 10)


def test_a_program_that_is_not_there_is_a_missing_tool() -> None:
    with pytest.raises(MissingToolError) as missing:
        run_command(["no-such-program"], do="install it")
    assert missing.value.facts["do"] == "install it"


def test_at_the_time_limit_a_command_is_gone_with_all_that_it_started() -> None:
    mark = f"600.{os.getpid()}"
    with pytest.raises(RunFailedError, match="in time"):
        run_command(["sh", "-c", f"sleep {mark} & sleep {mark}"], timeout_s=0.5)
    assert [one.pid for one in psutil.process_iter(["cmdline"]) if mark in (one.info["cmdline"] or [])] == []


def test_what_ignores_a_polite_end_is_killed_with_all_below_it() -> None:
    with ChildProcess(python(STUBBORN), grace_s=0.2) as child:
        below = int(child.wait_for_line(str.isdigit, timeout_s=LIMIT_S))
    assert child.exit_code == -9
    assert not is_alive(below)


def test_what_outlives_its_parent_in_the_session_is_found() -> None:
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    with ChildProcess(python(code)) as child:
        below = int(child.wait_for_line(str.isdigit, timeout_s=LIMIT_S))
        assert child.wait(LIMIT_S) == 0
        assert is_alive(below)
    assert not is_alive(below)


def test_a_child_ends_when_its_input_does() -> None:
    code = "import sys; print('ready', flush=True); sys.stdin.read(); print('bye'); sys.exit(7)"
    with ChildProcess(python(code), with_stdin=True) as child:
        child.wait_for_line(lambda line: line == "ready", timeout_s=LIMIT_S)
    assert (child.exit_code, child.stdout_text) == (7, "ready\nbye\n")


def test_a_child_that_dies_before_it_is_ready_says_why() -> None:
    with (
        ChildProcess(python("raise SystemExit('port is taken')")) as child,
        pytest.raises(RunFailedError, match="ended") as failed,
    ):
        child.wait_for_line(lambda line: line == "ready", timeout_s=LIMIT_S)
    assert failed.value.facts == {"where": "exit code 1", "found": "port is taken", "allowed": None, "do": None}


def test_a_child_that_says_nothing_is_given_up_on() -> None:
    with (
        ChildProcess(python("import time; time.sleep(600)"), grace_s=0) as child,
        pytest.raises(RunFailedError, match="not ready"),
    ):
        child.wait_for_line(lambda line: line == "ready", timeout_s=0.1)
    assert not child.is_running


def test_lines_are_told_as_they_come_and_the_end_is_watched() -> None:
    lines: list[str] = []
    errors: list[str] = []
    codes: list[int] = []
    code = "import sys; print('a'); print('b'); sys.stderr.write('c'); sys.exit(5)"
    with ChildProcess(python(code), on_line=lines.append, on_error_line=errors.append) as child:
        child.watch_end(codes.append)
        assert child.wait(LIMIT_S) == 5
    assert wait_until(lambda: codes == [5])
    assert (lines, errors) == (["a", "b"], ["c"])


def test_output_may_go_to_a_file(tmp_path: Path) -> None:
    with ChildProcess(python("print('kept')"), output=tmp_path / "log", env={**os.environ, "A": "1"}) as child:
        child.wait(LIMIT_S)
    assert (tmp_path / "log").read_text() == "kept\n"


def test_a_detached_child_is_left_alone() -> None:
    with ChildProcess(python("import time; time.sleep(600)"), is_detached=True) as child:
        pass
    assert child.is_running
    kill_process_tree(child.pid)
    assert child.wait(LIMIT_S) == -9


@pytest.mark.parametrize("ending", ["", "os._exit(1)", "os.kill(os.getpid(), 9)"])
def test_nothing_stays_behind_a_process_that_ends(ending: str) -> None:
    """By its own end, and by a kill: then by the word that the child's input ended."""
    child = "from workbench.core.child_process import watch_stdin_end; import os, time; "
    child += "watch_stdin_end(lambda: os._exit(0)); print('ready', flush=True); time.sleep(600)"
    code = f"""
import os, sys
from workbench.core.child_process import ChildProcess
child = ChildProcess([sys.executable, "-c", {child!r}], with_stdin=True)
child.wait_for_line(lambda line: line == "ready", timeout_s=60)
print(child.pid, flush=True)
{ending}
"""
    done = subprocess.run(python(code), capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert wait_until(lambda: not is_alive(int(done.stdout)))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own help")
def test_a_foreign_program_dies_with_a_parent_that_is_killed() -> None:
    code = """
import os
from workbench.core.child_process import ChildProcess
print(ChildProcess(["sleep", "600"], ends_with_thread=True).pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run(python(code), capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert wait_until(lambda: not is_alive(int(done.stdout)))


def test_a_stranger_with_the_same_number_is_spared() -> None:
    with ChildProcess(python("import time; time.sleep(600)"), grace_s=0) as child:
        kill_process_tree(child.pid, started_s=0.0)
        assert child.is_running


def test_a_child_answers_line_by_line_and_one_that_has_ended_is_told() -> None:
    code = "import sys\nfor line in sys.stdin: print(line.strip() * 30_000, flush=True)"
    with ChildProcess(python(code), name="the echo", with_stdin=True, max_line_bytes=1 << 20) as child:
        assert [child.ask(word) for word in ("abc", "d")] == ["abc" * 30_000, "d" * 30_000]
        child.end()
        with pytest.raises(RunFailedError, match=r"(?s)the echo ended.*exit code 0"):
            child.ask("e")


@pytest.mark.parametrize(("code", "kind"), [(2, ConfigError), (3, RunFailedError)])
def test_an_error_of_the_workbench_in_a_child_is_raised_as_if_it_had_been_raised_here(
    code: int, kind: type[WorkbenchError]
) -> None:
    told = kind("no such resource", where="--kind", found="nothings", do="list them")
    with (
        ChildProcess(python(f"import sys; print({str(told)!r}, file=sys.stderr); sys.exit({code})")) as child,
        pytest.raises(kind) as failed,
    ):
        child.wait_for_line(bool, timeout_s=LIMIT_S)
    assert (failed.value.what, failed.value.facts) == (told.what, told.facts)
