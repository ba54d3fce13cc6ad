"""What measures inside a pod: one round of a session, each result told on stdout.

It is shipped with the modules that it imports (see `job_manifests.read_pod_programs`), all of them Python 3.9 with its
standard library. A cluster's log mixes stdout with stderr, cuts lines and may repeat them: so a result is told in short
numbered lines, each signed with the session's key. Scripts never see the key: they get neither this process's
environment nor its descriptors, and the kernel lets nobody of the same user look into it.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import hmac
import json
import os
import platform
import secrets
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

from workbench.indicators.measurement import launcher, machine_readings, resource_limits, run_isolation
from workbench.indicators.measurement.run_messages import LauncherSetup, RunCommand, RunLimits

KEY_VARIABLE = "WORKBENCH_SESSION_KEY"
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
LINE_CHARACTERS = 12_000
"""Of a text in one line: container runtimes cut at 16 KiB."""
ROUNDS_A_FILE = 100
_TOO_LONG_BYTES = 1 << 16
_FOR_GPUS = ("LD_LIBRARY_PATH", "NVIDIA_", "CUDA_")
_MAX_FLAGS = 1000


def main(arguments: list[str]) -> int:
    """Make the round that this pod's index stands for; the folders are bundle, environments, scratch."""
    bundle, environments, scratch = map(Path, arguments)
    plan = json.loads((bundle / "plan.json").read_text(encoding="utf-8"))
    return Round(plan, bundle, environments, scratch).run_all()


class RecordWriter:
    """Documents on stdout, as signed lines: `@workbench KIND ID NUMBER/COUNT TEXT SIGNATURE@`."""

    def __init__(self, key: bytes, number: int) -> None:
        self._key = key
        self._number = number
        # Of this attempt: parts of two pods that made the same round must never be put together.
        self._attempt = secrets.token_hex(4)

    def begin_document(self, name: object) -> None:
        """Announce that a document is being made now: if the pod dies, this says what it was making."""
        self._write_line("begin", name, "0/0", "-")

    def write_document(self, name: object, document: dict[str, Any]) -> None:
        """A document: its parts, then how long it must be and its digest."""
        packed = zlib.compress(json.dumps(document).encode())
        text = base64.b64encode(packed).decode()
        parts = [text[at : at + LINE_CHARACTERS] for at in range(0, len(text), LINE_CHARACTERS)]
        for number, part in enumerate(parts):
            self._write_line("part", name, f"{number}/{len(parts)}", part)
        self._write_line(
            "end", name, f"{len(parts)}/{len(parts)}", f"{len(packed)}:{hashlib.sha256(packed).hexdigest()}"
        )

    def _write_line(self, kind: str, name: object, count: str, text: str) -> None:
        body = f"{kind} {self._number}.{name}.{self._attempt} {count} {text}"
        signature = hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()[:32]
        unsent = f"@workbench {body} {signature}@\n".encode()
        while unsent:
            unsent = unsent[os.write(1, unsent) :]


class Round:
    """One round: all its runs in the session's order, each in a fresh process."""

    def __init__(self, plan: dict[str, Any], bundle: Path, environments: Path, scratch: Path) -> None:
        key = bytes.fromhex(os.environ.pop(KEY_VARIABLE))
        self.plan, self.bundle, self.environments = plan, bundle, environments
        self.number = plan["rounds"][int(os.environ[INDEX_VARIABLE])]
        self.teller = RecordWriter(key, self.number)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        # Move this process where no network is; most clusters' seccomp profile refuses. What is in force, in words.
        isolation = dict(plan["isolation"])
        if refused := run_isolation.isolate_network():
            isolation["network"] = run_isolation.NOT_ISOLATED
            isolation["network reason"] += f"; in the pod: {refused}"
        else:
            isolation["network"] = run_isolation.ISOLATED
            del isolation["network reason"]
        protect_process()
        allowed = sorted(os.sched_getaffinity(0))
        # As many cores as were asked for: they are this pod's alone. More: everybody's, and pinning would collide.
        self.cpus = tuple(allowed[-plan["threads"] :] if len(allowed) <= plan["cpus"] else ())
        self.surroundings = run_isolation.Surroundings(
            # The limit of memory is below the pod's own, at which the kernel would kill this process, too.
            setup=LauncherSetup(RunLimits(**plan["limits"]), pythons=(), scratch=str(scratch)),
            groups=resource_limits.ControlGroups(None, None),
            uid=None,
            already=0,
            isolation=isolation,
            scratch=scratch,
            wakeup=run_isolation.open_child_signal(),
        )

    def run_all(self) -> int:
        """Make the round. Scripts may fail as they like: this ends well when each has been tried."""
        name = f"order-{self.number // ROUNDS_A_FILE}.json"
        order = json.loads((self.bundle / name).read_text(encoding="utf-8"))[str(self.number)]
        facts = {**read_machine_facts(), "cpus": self.cpus, "isolation": self.surroundings.isolation}
        self.teller.write_document("pod", facts)
        try:
            for position, case_number, arm_number in order:
                case, arm = self.plan["cases"][case_number], self.plan["arms"][arm_number]
                self.teller.begin_document(position)
                before = read_pressure()
                ended = launcher.run_command(self._build_command(case, arm), self.surroundings)
                identity = {"case": case["label"], "arm": arm["name"], "before": before, "after": read_pressure()}
                # An output that is too long is never a document: its beginning is enough.
                stdout = ended.stdout[:_TOO_LONG_BYTES] if ended.outcome == "too long" else ended.stdout
                fields = dataclasses.asdict(ended)
                texts = {"stdout": stdout, "stderr": ended.stderr}
                run_fields = {**fields, **{name: base64.b64encode(text).decode() for name, text in texts.items()}}
                self.teller.write_document(position, {**identity, **run_fields})
        finally:
            launcher.kill_leftovers(self.surroundings.groups)
        # Once more: a log that grew too large has lost its beginning.
        self.teller.write_document("pod", facts)
        self.teller.write_document("done", {"runs": len(order)})
        return 0

    def _build_command(self, case: dict[str, Any], arm: dict[str, Any]) -> RunCommand:
        """The run of a case by an arm, both as the plan has them."""
        gpu_variables = {
            name: value for name, value in os.environ.items() if self.plan["gpus"] and name.startswith(_FOR_GPUS)
        }
        return RunCommand(
            python=str(self.environments / str(arm["environment"]) / "bin" / "python"),
            sources={name: (self.bundle / key).read_bytes().decode() for name, key in case["sources"].items()},
            environment={**gpu_variables, **case["environment"]},
            timeout_s=self.plan["timeout_s"],
            cpus=self.cpus,
            max_stdout_bytes=self.plan["stdout_bytes"],
            kept_stderr_bytes=self.plan["stderr_bytes"],
        )


def protect_process() -> None:
    """Keep processes of the same user from reading this one's memory, environment or descriptors; adopt orphans."""
    run_isolation.forbid_inspection()
    run_isolation.adopt_orphans()


def read_machine_facts() -> dict[str, Any]:
    """The machine under the pod, as far as it decides what is fast; nothing that names it."""
    cpu = machine_readings.read_fields(Path("/proc/cpuinfo"))
    memory = machine_readings.read_fields(Path("/proc/meminfo")).get("memtotal", "0").split()[0]
    fields = {}
    with contextlib.suppress(OSError):
        for line in Path("/etc/os-release").read_text(errors="replace").splitlines():
            name, equals, value = line.partition("=")
            if equals and name in ("ID", "NAME", "VERSION", "VERSION_ID"):
                fields[name.lower()] = value.strip().strip("\"'")[:200]
    return {
        "cpu_model": cpu.get("model name") or platform.processor() or platform.machine(),
        "cpu_family": machine_readings.parse_whole_number(cpu.get("cpu family")),
        "cpu_model_number": machine_readings.parse_whole_number(cpu.get("model")),
        "cpu_flags": sorted(set((cpu.get("flags") or cpu.get("features") or "").split()))[:_MAX_FLAGS],
        "cores": os.cpu_count() or 1,
        "memory_bytes": int(memory) * 1024,
        "accelerators": _list_accelerators(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "os_release": fields,
    }


def _list_accelerators() -> list[str]:
    """Names of the GPUs that this pod sees, by nvidia-smi."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = [tool, "--query-gpu=name", "--format=csv,noheader"]
        output = subprocess.run(command, capture_output=True, timeout=30, check=True).stdout  # noqa: S603
        return sorted(line.strip()[:100] for line in output.decode("utf-8", "replace").splitlines() if line.strip())
    return []


def read_pressure() -> dict[str, float | None]:
    """How busy the machine is now; null where it does not tell."""
    load_1m = None
    with contextlib.suppress(OSError):
        load_1m = os.getloadavg()[0]
    return {
        "load_1m": load_1m,
        "steal_s": machine_readings.read_steal_s(Path("/proc/stat")),
        "cpu_some_avg10": machine_readings.read_some_avg10(Path("/proc/pressure/cpu")),
        "memory_some_avg10": machine_readings.read_some_avg10(Path("/proc/pressure/memory")),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
