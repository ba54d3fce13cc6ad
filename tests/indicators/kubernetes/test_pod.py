"""The runner of a pod, run for real on this machine, its logs collected: what every way to end becomes."""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.indicators.kubernetes.making import KEY, PYTHON, STACKS, Good, Pod, collected, indicator, log_of, planned
from tests.indicators.shipped.making import imported_names
from workbench.indicators.contract.indicator import Case
from workbench.indicators.kubernetes.job_manifests import read_pod_programs
from workbench.indicators.kubernetes.log_records import read_records
from workbench.indicators.kubernetes.result_collection import collect_results
from workbench.indicators.store import archive

ENDINGS = {
    "Fine": (
        "ok",
        "import json; print(json.dumps({'name': 'Fine', '@parameters': {}, '@result': {'elapsed_ms': 1.0}}))",
    ),
    "Raises": ("exit code", "raise SystemExit('no GPU here')"),
    "Text": ("not JSON", "print('done')"),
    "Infinite": ("not finite", 'print(\'{"name": "Infinite", "@parameters": {}, "@result": {"elapsed_ms": NaN}}\')'),
    "Other": ("invalid document", 'print(\'{"name": "Sort", "@parameters": {}, "@result": {"elapsed_ms": 1.0}}\')'),
    "Endless": ("too long", "while True: print('x' * 65536)"),
    "Sleeps": ("timeout", "import time; time.sleep(600)"),
    "Signals": ("killed", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
    "Greedy": ("out of memory", "x = bytearray(3 << 30)"),
    "Closes": ("empty", "import os; os.close(1)"),
}


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A session folder, and the log of a round in which every script ends in its own way."""
    folder = tmp_path_factory.mktemp("endings")
    cases = [Case.from_parameters(indicator(name, script)) for name, (_, script) in ENDINGS.items()]
    session = planned(folder, cases, rounds=(1,), timeout_s=5.0, stacks=STACKS[:1])
    log = log_of(Pod(folder / "pod", session, cases, stacks=STACKS[:1]).round(0))
    collect_results(folder, cases, [[log]], key=KEY)
    return folder, log


@pytest.mark.live
def test_every_ending_has_its_status(endings: tuple[Path, bytes]) -> None:
    found = archive.read_results(endings[0], archive.read_session(endings[0]))
    assert sorted((one.workbench.case, one.workbench.status) for _, _, one in found) == sorted(
        (name, status) for name, (status, _) in ENDINGS.items() for _ in range(2)
    )


@pytest.mark.live
def test_a_run_is_told_with_all_that_a_process_of_this_machine_tells(endings: tuple[Path, bytes]) -> None:
    session = archive.read_session(endings[0])
    by_case = {one.workbench.case: one for _, _, one in archive.read_results(endings[0], session)}
    fine, raises = by_case["Fine"], by_case["Raises"]
    assert len(fine.usage) == 16
    assert fine.workbench.duration_s > 0
    assert fine.hostname == ""
    assert fine.workbench.hardware_key == session.hardware.key != ""
    assert fine.runtime_environment["python_version"].startswith(PYTHON)
    assert fine.workbench.isolation["memory"] == "at most 1 GiB (data of each process)"
    assert fine.workbench.isolation["network"] in ("isolated", "not isolated")
    assert (raises.workbench.reason, raises.exit_code) == ("exit code 1: no GPU here", 1)
    assert raises.stderr == "no GPU here\n"


def test_no_line_of_the_log_is_one_that_a_container_runtime_would_cut(endings: tuple[Path, bytes]) -> None:
    _, log = endings
    lines = log.splitlines()
    assert max(map(len, lines)) < 16 << 10
    assert all(line.startswith(b"@workbench ") and line.endswith(b"@") for line in lines)


@pytest.mark.live
def test_what_a_run_leaves_behind_is_dead_before_the_next_begins(tmp_path: Path) -> None:
    script = (
        "import json, subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "print(json.dumps({'name': 'Leaves', '@parameters': {}, '@result': {'elapsed_ms': 1.0}}))\n"
    )
    _, results = collected(tmp_path, [Case.from_parameters(indicator("Leaves", script))])
    assert [one.workbench.status for one in results] == ["ok"] * 3
    assert {one.workbench.isolation["left behind"] for one in results} == {"1 process(es), killed"}


@pytest.mark.live
def test_folders_a_thousand_deep_do_not_stop_the_round(tmp_path: Path) -> None:
    script = (
        "import json, os\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')\n"
        "print(json.dumps({'name': 'Deep', '@parameters': {}, '@result': {'elapsed_ms': 1.0}}))\n"
    )
    _, results = collected(tmp_path, [Case.from_parameters(indicator("Deep", script))], stacks=STACKS[:1])
    assert [one.workbench.status for one in results] == ["ok"] * 2


@pytest.mark.live
def test_a_script_sees_its_parameters_its_files_and_nothing_of_the_runner(tmp_path: Path) -> None:
    script = (
        "import json, os, pathlib, helper\n"
        "seen = sorted(name for name in os.environ if 'WORKBENCH' in name or name.startswith('JOB_'))\n"
        "print(json.dumps({'name': 'Sees', '@parameters': {}, '@result': {'elapsed_ms': helper.VALUE},\n"
        "                  'x_build_info': [seen, sorted(os.listdir()), os.listdir(os.environ['HOME']),\n"
        "                                   os.environ['OMP_NUM_THREADS']]}))\n"
    )
    cases = [Case.from_parameters(indicator("Sees", script, **{"helper.py": "VALUE = 2.5\n"}))]
    _, (one, *_) = collected(tmp_path, cases, threads=2)
    assert one.metric_value("elapsed_ms") == 2.5
    assert one.stdout["x_build_info"] == [[], ["helper.py", "script.py"], ["tmp"], "2"]


FORGER = """
import json, os, re, pathlib, time
parent = os.getppid()
tried = []
for name in ("environ", "mem", "fd/1", "maps"):
    try:
        with open(f"/proc/{parent}/{name}", "r+b" if name in ("mem", "fd/1") else "rb") as file:
            if name == "fd/1":
                file.write(b"@workbench part 0.0.00000000 0/1 QUJD 00000000000000000000000000000000@\\n")
            elif name == "environ":
                file.read()
        tried.append(name)
    except OSError:
        pass
for number in range(3):
    os.write(2, b"@workbench begin 0.%d.00000000 0/0 - 00000000000000000000000000000000@\\n" % number)
    os.write(2, b"@workbench end 0.%d.00000000 1/1 3:00 00000000000000000000000000000000@\\n" % number)
print(json.dumps({"name": "Forges", "@parameters": {}, "@result": {"elapsed_ms": 7.0}, "x_build_info": tried}))
"""


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that other users can reach; pytest's own are closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="workbench-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def unprivileged(folder: Path) -> tuple[int | None, str]:
    """A user without rights (null: this one has none), and an interpreter that it can run."""
    if os.geteuid() != 0:
        return None, sys.executable
    nobody = 65_534
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            look = f"import os; os.listdir({str(folder)!r})"
            if subprocess.run([python, "-c", look], user=nobody, cwd="/", check=False).returncode == 0:
                return nobody, python
    pytest.skip("no Python that users without rights can run")


@pytest.mark.live
def test_a_script_cannot_forge_a_result_nor_look_into_the_runner(tmp_path: Path, reachable: Path) -> None:
    user, python = unprivileged(reachable)
    cases = [Case.from_parameters(indicator("Forges", FORGER))]
    session = planned(tmp_path, cases, rounds=(1,))
    made = Pod(reachable / "pod", session, cases)
    made.scratch.chmod(0o777)
    for link in made.environments.glob("*/bin/python"):
        link.unlink()
        link.symlink_to(python)
    log = log_of(made.round(0, user=user, python=python))
    # The lies stand only inside of what was signed: none is a line of the log.
    records = read_records([[log]], KEY)
    assert (records.damaged, records.torn) == (0, set())
    found = collect_results(tmp_path, cases, [[log]], key=KEY)
    results = [one for _, _, one in archive.read_results(tmp_path, found.session)]
    assert [one.metric_value("elapsed_ms") for one in results] == [7.0] * 3
    assert [one.stdout["x_build_info"] for one in results] == [[]] * 3


LOOKS = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
import pod
if sys.argv[2] == "protected":
    pod.protect_process()
look = "import os; open(f'/proc/{os.getppid()}/environ', 'rb').read(); os.readlink(f'/proc/{os.getppid()}/fd/1')"
print(subprocess.run([sys.executable, "-c", look], stderr=subprocess.DEVNULL).returncode)
"""


@pytest.mark.live
@pytest.mark.parametrize(("how", "code"), [("open", 0), ("protected", 1)])
def test_without_its_protection_a_script_could_look_into_the_runner(reachable: Path, how: str, code: int) -> None:
    user, python = unprivileged(reachable)
    for name, text in read_pod_programs().items():
        (reachable / name).write_text(text)
    command = [python, "-c", LOOKS, str(reachable), how]
    done = subprocess.run(command, user=user, cwd="/", capture_output=True, check=False, timeout=60)
    assert done.stderr == b""
    assert int(done.stdout) == code


@pytest.mark.live
def test_a_stack_that_has_no_interpreter_is_not_started_and_the_others_go_on(tmp_path: Path) -> None:
    cases = [Case.from_parameters(Good)]
    session = planned(tmp_path, cases, rounds=(1,))
    made = Pod(tmp_path / "pod", session, cases)
    (made.environments / "1" / "bin" / "python").unlink()
    found = collect_results(tmp_path, cases, [[log_of(made.round(0))]], key=KEY)
    assert found.statuses == {"not started": 1, "ok": 2}


@pytest.mark.parametrize("name", sorted(read_pod_programs()))
def test_what_runs_in_pods_is_python_3_9_with_its_own_library_alone(name: str) -> None:
    programs = read_pod_programs()
    tree = ast.parse(programs[name], feature_version=(3, 9))
    shipped = {program.removesuffix(".py") for program in programs}
    assert not shipped & sys.stdlib_module_names
    assert {name.split(".")[0] for name in imported_names(tree)} <= sys.stdlib_module_names | shipped
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert not {keyword.arg for call in calls for keyword in call.keywords} & {"strict", "slots", "kw_only", "newline"}
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    # Newer than Python 3.9.
    assert not imported & {"UTC", "Self", "pairwise", "StrEnum", "chdir", "batched"}
