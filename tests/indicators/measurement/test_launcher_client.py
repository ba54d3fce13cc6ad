"""One run: what it may see, how it ends, what is left of it. Real processes, hostile ones too."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import RunFailedError
from workbench.indicators.contract.indicator import USAGE
from workbench.indicators.measurement.launcher_client import (
    THREAD_VARIABLES,
    Launcher,
    build_clean_environment,
    run_once,
)
from workbench.indicators.measurement.run_messages import RunCommand, RunEnd, RunLimits

pytestmark = pytest.mark.live

MEMORY_BYTES = 1 << 30
PROCESSES = 64
Run = Callable[..., RunEnd]


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    with Launcher(RunLimits(MEMORY_BYTES, PROCESSES), [sys.executable]) as made:
        yield made


@pytest.fixture
def run(launcher: Launcher) -> Run:
    def one(script: str, **settings: Any) -> RunEnd:
        settings = {"timeout_s": 30.0, "environment": build_clean_environment(1)} | settings
        sources = {"script.py": script, **settings.pop("files", {})}
        return launcher.run_command(RunCommand(sys.executable, sources, **settings))

    return one


def printed(ended: RunEnd) -> Any:
    assert ended.outcome == "exited", (ended.detail, ended.stderr)
    return json.loads(ended.stdout)


def gone(pid: int) -> bool:
    """A process that is no more, or only waits to be waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_run_ends_well_with_its_output_and_usage(run: Run) -> None:
    ended = run("import sys; print('out'); print('err', file=sys.stderr)")
    assert (ended.outcome, ended.exit_code, ended.signal, ended.left_behind) == ("exited", 0, None, 0)
    assert (ended.stdout, ended.stderr, ended.stdout_bytes) == (b"out\n", b"err\n", 4)
    assert set(ended.usage) == set(USAGE)
    assert ended.usage["ru_maxrss"] > 1000
    assert ended.started_at < ended.ended_at


def test_usage_is_of_this_run_alone(run: Run) -> None:
    large = run("b = bytearray(300 << 20)")
    small = run("pass")
    assert large.usage["ru_maxrss"] > 300_000
    # In KiB: neither the run before nor the size of this process shows in it.
    assert small.usage["ru_maxrss"] < 100_000


def test_the_environment_is_clean_and_says_how_many_threads(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "not for runs")
    found = printed(run("import json, os; print(json.dumps(dict(os.environ)))", environment=build_clean_environment(3)))
    assert {found[name] for name in THREAD_VARIABLES} == {"3"}
    assert found["PYTHONHASHSEED"] == "0"
    assert found["PATH"] == "/usr/bin:/bin"
    assert set(found) - set(THREAD_VARIABLES) <= {
        "PATH", "LANG", "TZ", "PYTHONHASHSEED", "PYTHONIOENCODING", "HOME", "TMPDIR", "LC_CTYPE"
    }  # fmt: skip


def test_the_folder_is_private_holds_the_sources_and_is_removed(run: Run) -> None:
    script = """
import json, os, pathlib
home = pathlib.Path(os.environ["HOME"])
print(json.dumps([os.getcwd(), sorted(os.listdir()), sorted(p.name for p in home.iterdir()),
                  open("more/data.txt").read(), oct(os.stat(".").st_mode & 0o777)]))
open("written", "w").write("x")
open(os.environ["TMPDIR"] + "/too", "w").write("x")
"""
    where, names, home, text, mode = printed(run(script, files={"more/data.txt": "beside"}))
    assert (names, home, text, mode) == (["more", "script.py"], ["tmp"], "beside", "0o700")
    assert not Path(where).exists()


def test_a_run_that_nests_folders_a_thousand_deep_leaves_nothing_and_the_next_one_runs(
    run: Run, launcher: Launcher
) -> None:
    deep = "import os\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')\nprint('{}')"
    assert run(deep).outcome == "exited"
    ended = run("import os\nprint(os.getcwd())")
    assert ended.outcome == "exited"
    left = Path(ended.stdout.decode().strip()).parents[1]
    assert not left.exists() or not [one for one in left.iterdir() if one.is_dir()]


def test_a_run_is_pinned_to_its_cores(run: Run) -> None:
    core = max(os.sched_getaffinity(0))
    assert printed(run("import json, os; print(json.dumps(list(os.sched_getaffinity(0))))", cpus=(core,))) == [core]


def test_stdin_is_closed_and_no_other_file_is_open(run: Run) -> None:
    script = "import json, os, sys; print(json.dumps([sys.stdin.read(), sorted(os.listdir('/proc/self/fd'))]))"
    # The fourth is the folder that is being listed.
    assert printed(run(script)) == ["", ["0", "1", "2", "3"]]


def test_rights_cannot_be_gained_and_signals_are_as_usual(run: Run) -> None:
    lines = "open('/proc/self/status').read().splitlines()"
    found = printed(run(f"import json; print(json.dumps(dict(l.split(':', 1) for l in {lines})))"))
    assert found["NoNewPrivs"].strip() == "1"
    # Python ignores SIGPIPE and SIGXFSZ by itself; the numbers that the C library keeps (32, 33) nobody can reset.
    known = sum(1 << (number - 1) for number in signal.valid_signals())
    assert int(found["SigIgn"], 16) & known in (0, 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1))
    assert int(found["SigBlk"], 16) == 0


@pytest.mark.smoke
@pytest.mark.skipif(os.geteuid() != 0, reason="not started by root, so there are no rights to drop")
def test_runs_of_root_have_a_user_of_their_own(run: Run, launcher: Launcher) -> None:
    if "user reason" in launcher.isolation:
        pytest.skip(f"no user of their own can be had here: {launcher.isolation['user reason']}")
    assert launcher.isolation["user"] == "unprivileged, of its own"
    script = "import json, os; print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups()]))"
    users, groups, more = printed(run(script))
    assert len({*users, *groups}) == 1
    assert users[0] > 1000
    assert more == []


@pytest.mark.smoke
def test_no_network_is_reached(run: Run, launcher: Launcher) -> None:
    if launcher.isolation["network"] != "isolated":
        pytest.skip(f"no network namespace can be made here: {launcher.isolation['network reason']}")
    script = """
import json, socket
interfaces = [name for _, name in socket.if_nameindex()]
try:
    socket.create_connection(("192.0.2.1", 80), timeout=5)
    reached = "reached"
except OSError as error:
    reached = type(error).__name__
with socket.create_server(("127.0.0.1", 0)) as own:
    port = own.getsockname()[1]
print(json.dumps([interfaces, reached, port > 0]))
"""
    interfaces, reached, itself = printed(run(script))
    assert interfaces == ["lo"]
    assert reached == "OSError"
    assert itself


def test_a_network_that_is_asked_for_is_there_and_said_to_be() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        script = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), timeout=5)"
        ended = run_once(RunCommand(sys.executable, {"script.py": script}, timeout_s=30), RunLimits(network=True))
    assert (ended.outcome, ended.isolation["network"]) == ("exited", "not isolated")


@pytest.mark.smoke
def test_an_allocation_above_the_limit_is_out_of_memory(run: Run) -> None:
    ended = run("b = bytearray(3 << 30); print(len(b))")
    assert ended.outcome == "out of memory", (ended.outcome, ended.stderr)
    assert ended.exit_code != 0


def test_a_bounded_fork_bomb_is_stopped_by_the_limit_and_swept_away(run: Run, launcher: Launcher) -> None:
    if launcher.isolation["processes"] == "no limit":
        pytest.skip("no limit of processes binds here: neither a control group nor a user of its own")
    script = """
import json, os, time
made = []
for _ in range(200):
    try:
        pid = os.fork()
    except OSError:
        continue
    if pid == 0:
        time.sleep(2)
        os._exit(0)
    made.append(pid)
print(json.dumps(len(made)))
"""
    ended = run(script)
    assert 0 < printed(ended) < PROCESSES
    assert ended.left_behind == printed(ended)
    assert ended.isolation["processes"].endswith("the limit was reached") or "user" in ended.isolation["processes"]


def test_a_timeout_kills_everything_at_once(run: Run, launcher: Launcher) -> None:
    script = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(3):
    os.fork()
print(os.getpid(), flush=True)
time.sleep(600)
"""
    begin_s = time.monotonic()
    ended = run(script, timeout_s=5.0)
    assert time.monotonic() - begin_s < 50
    assert (ended.outcome, ended.signal, ended.detail) == ("timeout", signal.SIGKILL, "killed after 5 s")
    # All eight were there, so that there was something to kill.
    assert len(set(ended.stdout.split())) == 8
    assert ended.left_behind == 7
    assert children(launcher) == set()


def test_files_are_limited() -> None:
    large = RunCommand(sys.executable, {"script.py": "open('f', 'wb').write(bytes(2 << 20))"})
    ended = run_once(large, RunLimits(file_bytes=1 << 20))
    assert (ended.outcome, ended.exit_code, b"File too large" in ended.stderr) == ("exit code", 1, True)


def test_a_run_reads_its_own_cpu_time_finer_than_in_ticks(run: Run) -> None:
    script = """
import time
steps, last, end = [], time.process_time(), time.perf_counter() + 0.2
while time.perf_counter() < end:
    now = time.process_time()
    if now > last:
        steps.append(now - last)
        last = now
print(sorted(steps)[len(steps) // 2])
"""
    ended = run(script)
    assert float(ended.stdout) < 2e-4


def test_endless_output_is_stopped_and_kept_to_its_limit(run: Run) -> None:
    ended = run("while True: print('x' * 10000)")
    assert (ended.outcome, len(ended.stdout)) == ("too long", (1 << 20) + 1)
    assert ended.stdout_bytes > 1 << 20
    ended = run("print('x' * 99, flush=True)", max_stdout_bytes=100)
    assert (ended.outcome, len(ended.stdout)) == ("exited", 100)
    assert run("print('x' * 100, flush=True)", max_stdout_bytes=100).outcome == "too long"


def test_of_a_long_stderr_the_end_is_kept(run: Run) -> None:
    ended = run("import sys\nfor n in range(200_000): print('line', n, file=sys.stderr)\nprint('done')")
    assert ended.outcome == "exited"
    assert len(ended.stderr) == 64 << 10
    assert ended.stderr.endswith(b"line 199999\n")


def test_a_closed_stdout_is_no_hang_and_no_end(run: Run) -> None:
    ended = run("import os, sys\nprint('said', flush=True)\nos.close(1)\nos.close(2)\nsum(range(10**6))\nos._exit(0)")
    assert (ended.outcome, ended.stdout) == ("exited", b"said\n")


def test_a_child_in_a_session_of_its_own_is_killed_too(run: Run, launcher: Launcher) -> None:
    script = """
import os, time
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    pid = os.fork()
    if pid:
        os.write(writer, str(pid).encode())
        os._exit(0)
    time.sleep(600)
print(os.read(reader, 20).decode())
"""
    ended = run(script)
    assert ended.outcome == "exited"
    assert ended.left_behind >= 1
    assert gone(int(ended.stdout))
    assert children(launcher) == set()


@pytest.mark.parametrize(
    ("script", "outcome", "exit_code", "number"),
    [
        ("raise SystemExit(3)", "exit code", 3, None),
        ("raise ValueError('no')", "exit code", 1, None),
        ("bytearray(1 << 62)", "out of memory", 1, None),
        ("import ctypes; ctypes.string_at(0)", "killed", None, signal.SIGSEGV),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed", None, signal.SIGKILL),
        ("import os; os.abort()", "killed", None, signal.SIGABRT),
    ],
)
def test_every_end_is_told_apart(
    run: Run, script: str, outcome: str, exit_code: int | None, number: int | None
) -> None:
    ended = run(script)
    assert (ended.outcome, ended.exit_code, ended.signal) == (outcome, exit_code, number)


def test_what_cannot_be_started_says_why(run: Run, launcher: Launcher) -> None:
    ended = launcher.run_command(RunCommand("/nowhere/python", {"script.py": ""}))
    assert (ended.outcome, "No such file" in ended.detail) == ("not started", True)
    ended = run("pass", files={"../outside": "x"})
    assert (ended.outcome, "outside" in ended.detail) == ("not started", True)


def test_a_run_cannot_take_the_launcher_with_it_for_good(run: Run, launcher: Launcher) -> None:
    if os.geteuid() == 0:
        before = launcher.pid
        ended = run(f"import os, signal; os.kill({before}, signal.SIGKILL)")
        # Another user's process cannot be touched.
        assert (ended.outcome, launcher.pid) == ("exit code", before)
    assert launcher.pid is not None
    os.kill(launcher.pid, signal.SIGKILL)
    ended = run("print(1)")
    assert ended.outcome == "killed"
    assert "watches over runs" in ended.detail
    assert run("print(1)").outcome == "exited"


def test_a_launcher_that_does_not_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.indicators.measurement.launcher_client.GRACE_S", 2.0)
    monkeypatch.setattr("workbench.indicators.measurement.launcher_client._SLICE_S", 0.1)
    with Launcher(RunLimits(), [sys.executable]) as made:
        first = made.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        ended = made.run_command(RunCommand(sys.executable, {"script.py": "print(1)"}, timeout_s=1))
        assert (ended.outcome, "no answer" in ended.detail) == ("killed", True)
        assert gone(first)
        assert made.run_command(RunCommand(sys.executable, {"script.py": "print(1)"})).outcome == "exited"
        assert made.pid != first


@pytest.mark.usefixtures("usual_ctrl_c")
def test_ctrl_c_in_the_middle_of_a_run_leaves_nothing_of_it(launcher: Launcher) -> None:
    def started() -> bool:
        return any("script.py" in command_line(one) for one in children(launcher))

    def interrupt() -> None:
        waited(started)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    before = launcher.pid
    with pytest.raises(KeyboardInterrupt):
        launcher.run_command(RunCommand(sys.executable, {"script.py": "import time; time.sleep(600)"}, timeout_s=600))
    thread.join()
    assert before is not None
    assert gone(before)
    # The answer to come is not the one that was broken off.
    assert launcher.run_command(RunCommand(sys.executable, {"script.py": "print('next')"})).stdout == b"next\n"


def test_runs_end_when_the_workbench_goes_away() -> None:
    code = """
import sys
from workbench.indicators.measurement.launcher_client import run_once
from workbench.indicators.measurement.run_messages import RunCommand
run_once(RunCommand(sys.executable, {"script.py": "import os, time; os.fork(); time.sleep(600)"}, timeout_s=600))
"""
    pid = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", code])

    def both() -> set[int]:
        found = {one for one in descendants(pid) if "script.py" in command_line(one)}
        return found if len(found) == 2 else set()

    started = waited(both)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for one in started:
        waited(lambda number=one: gone(number))


def test_nothing_is_left_of_a_launcher(tmp_path: Path) -> None:
    with Launcher(RunLimits(MEMORY_BYTES), [sys.executable], scratch=tmp_path) as made:
        number = made.pid
        ended = made.run_command(RunCommand(sys.executable, {"script.py": "print(1)"}))
    assert ended.outcome == "exited"
    assert list(tmp_path.iterdir()) == []
    assert not list(Path("/sys/fs/cgroup").glob(f"**/workbench-runs-{number}"))


def test_a_launcher_that_cannot_start_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.indicators.measurement.launcher_client.PACKAGE_ROOT", Path("/nowhere"))
    with pytest.raises(RunFailedError, match="cannot be started") as caught, Launcher(RunLimits(), [sys.executable]):
        pass
    assert "ModuleNotFoundError" in str(caught.value)


def parents() -> dict[int, int]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    return found


def children(launcher: Launcher) -> set[int]:
    return {pid for pid, parent in parents().items() if parent == launcher.pid}


def descendants(pid: int) -> set[int]:
    known, found = parents(), {pid}
    while more := {one for one, parent in known.items() if parent in found} - found:
        found |= more
    return found - {pid}


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def waited(asked: Callable[[], Any], most_s: float = 60.0) -> Any:
    """What a question says as soon as it is no longer nothing."""
    until_s = time.monotonic() + most_s
    while not (found := asked()):
        assert time.monotonic() < until_s, "it never came"
        time.sleep(0.01)
    return found
