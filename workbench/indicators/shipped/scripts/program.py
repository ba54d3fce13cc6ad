"""Run a command once: its time, CPU time and memory, what it printed, and what it left running."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import shlex
import subprocess
import sys
import time
from pathlib import Path

REPORT = 9
"""Descriptor of the pipe: a shell knows only one digit."""
READER = (
    "import os, resource; used = resource.getrusage(resource.RUSAGE_CHILDREN);"
    f"os.write({REPORT}, b'%d %f' % (used.ru_maxrss, used.ru_utime + used.ru_stime))"
)
# A process starts with the peak of the one that it was forked from, here Python's. So a shell starts the command and
# becomes the Python that reads what its children used.
STARTER = f'"$@" {REPORT}>&-; echo "$?" >&{REPORT}; exec "$0" -I -S -c {shlex.quote(READER)}'
PR_SET_CHILD_SUBREAPER = 36
MAX_SORTED_BYTES = 32 << 20
MAX_ERROR_BYTES = 64 << 10
SAMPLE_PAUSE_S = 0.005
MAX_PAUSE_S = 0.25
MAX_SAMPLE_SHARE = 0.02
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Print the document; a command that fails ends this script with its exit code."""
    environment = dict(os.environ)
    settings = {name: environment.pop(name) for name in list(environment) if name.startswith("PROGRAM_")}
    environment["PATH"] = settings.get("PROGRAM_PATH", environment["PATH"])
    if settings.get("PROGRAM_OF_STACK"):
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    shell, folder = settings.get("PROGRAM_SHELL", "/bin/sh"), settings.get("PROGRAM_FOLDER")
    expected = {int(code) for code in settings.get("PROGRAM_EXIT_CODES", "0").split(",")}
    _run_aside(settings.get("PROGRAM_PREPARE"), "prepare", shell, folder, environment)
    _adopt_orphans()
    words = build_words(settings["PROGRAM_COMMAND"], shell)
    exit_code, results, cpu_s = _run_and_measure(words, settings.get("PROGRAM_INPUT"), folder, environment)
    errors = Path("errors").read_bytes()[-MAX_ERROR_BYTES:]
    sys.stderr.buffer.write(errors)
    sys.stderr.flush()
    if exit_code not in expected:
        sys.exit(exit_code if exit_code else "exit code 0 is not an expected one")
    results["shell_error"] = find_shell_error(errors.decode(errors="replace"), words[0])
    _run_aside(settings.get("PROGRAM_CLEANUP"), "cleanup", shell, folder, environment)
    document = {"name": "Program", "@parameters": {}, "@result": results, "@cpu": {"elapsed_ms": 1e3 * cpu_s}}
    print(json.dumps({**document, "@checks": {"ended_with": exit_code, **digest_output()}}))  # noqa: T201


def build_words(command: str, shell: str) -> list[str]:
    """The words that a command is started by: those of its shell, or its own where there is none."""
    return shlex.split(command) if shell == "none" else [shell, "-c", command]


def _run_and_measure(
    words: list[str], input_path: str | None, folder: str | None, environment: dict[str, str]
) -> tuple[int, dict[str, object], float]:
    """Exit code of the command, results about it, and the CPU time in seconds of what it waited for."""
    reading, writing = os.pipe()
    os.dup2(writing, REPORT)
    os.close(writing)
    tree_bytes = 0
    # Into a file: some programs do less work where they see that nothing reads what they print.
    with contextlib.ExitStack() as opened:
        given = opened.enter_context(open(input_path or os.devnull, "rb"))
        output, errors = (opened.enter_context(open(name, "wb")) for name in ("output", "errors"))
        report = opened.enter_context(open(reading, encoding="ascii"))
        start = time.perf_counter_ns()
        with subprocess.Popen(  # noqa: S603 - the command of whoever measures
            ["/bin/sh", "-c", STARTER, sys.executable, *words], cwd=folder, env=environment, stdin=given,
            stdout=output, stderr=errors, pass_fds=(REPORT,),
        ) as starter:  # fmt: skip
            os.close(REPORT)
            pause_s = SAMPLE_PAUSE_S
            while not select.select([report], [], [], pause_s)[0]:
                begin_s = time.thread_time()
                tree_bytes = max(tree_bytes, measure_tree(starter.pid))
                pause_s = min(max(SAMPLE_PAUSE_S, (time.thread_time() - begin_s) / MAX_SAMPLE_SHARE), MAX_PAUSE_S)
            exit_code = int(report.readline())
            elapsed_ms = (time.perf_counter_ns() - start) / 1e6
            left_running = count_running(list_children(os.getpid()) - {starter.pid})
            peak_kib, cpu_s = report.read().split()
        output_bytes = os.fstat(output.fileno()).st_size
    results: dict[str, object] = {
        "elapsed_ms": elapsed_ms,
        "peak_mib": int(peak_kib) / 1024,
        "tree_mib": max(int(peak_kib) / 1024, tree_bytes / 2**20),
        "output_bytes": output_bytes,
        "left_running": left_running,
    }
    return exit_code, results, float(cpu_s)


def _run_aside(command: str | None, name: str, shell: str, folder: str | None, environment: dict[str, str]) -> None:
    """Run a command that is not timed; what it prints is dropped, and a failure ends this script."""
    if not command:
        return
    done = subprocess.run(  # noqa: S603 - the command of whoever measures
        build_words(command, shell), cwd=folder, env=environment, stdin=subprocess.DEVNULL, check=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        sys.exit(f"--{name} ended with exit code {done.returncode}" + (f": {lines[-1][:200]}" if lines else ""))


def _adopt_orphans() -> None:
    """Become the parent of what the command leaves behind."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)


def list_children(pid: int) -> set[int]:
    """Process ids of a process's children; empty where the kernel does not list them."""
    children: set[int] = set()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                children |= {int(text) for text in (task / "children").read_text().split()}
    return children


def measure_tree(pid: int) -> int:
    """Resident memory in bytes of the processes below this one, all together."""
    total = 0
    for child in list_children(pid):
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{child}/statm").read_text().split()[1]) * PAGE_BYTES
        total += measure_tree(child)
    return total


def count_running(pids: set[int]) -> int:
    """How many of these processes, with those below them, have not ended."""
    count = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            count += state not in "ZX"
        count += count_running(list_children(pid))
    return count


def find_shell_error(errors: str, shell: str) -> str:
    """The first message in which the shell says that it could not do a part of the command; empty without one.

    >>> find_shell_error("/bin/sh: 1: sort2: not found\\n", "/bin/sh")
    '/bin/sh: 1: sort2: not found'
    """
    heads = (f"{shell}: line ", *(f"{shell}: {digit}" for digit in range(10)))
    return next((line.strip()[:200] for line in errors.splitlines() if line.startswith(heads)), "")


def digest_output() -> dict[str, str | None]:
    """Digests of what the command printed: as it is, and of its lines in any order (null where that is too long)."""
    digest = hashlib.sha256()
    with open("output", "rb") as output:
        while chunk := output.read(1 << 20):
            digest.update(chunk)
        lines = None
        if output.tell() <= MAX_SORTED_BYTES:
            output.seek(0)
            lines = hashlib.sha256(b"\n".join(sorted(output.read().split(b"\n")))).hexdigest()
    return {"output_sha256": digest.hexdigest(), "lines_sha256": lines}


if __name__ == "__main__":
    main()
