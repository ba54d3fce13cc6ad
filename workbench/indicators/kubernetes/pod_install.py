"""What installs inside a pod, before anything is measured: every stack of a session, each from its lock.

One file with the standard library of Python 3.9, as `pod.py`. It runs in an init container, the only one that needs a
package index.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Make every environment from its lock, each file's hash checked, wheels only; 0 when all are as planned."""
    bundle, environments, scratch = map(Path, arguments)
    plan = json.loads((bundle / "plan.json").read_text(encoding="utf-8"))
    os.environ.update(HOME=str(scratch), TMPDIR=str(scratch))
    version = ".".join(platform.python_version_tuple()[:2])
    for number, wanted in enumerate(plan["environments"]):
        folder, stack = environments / str(number), wanted["stack"]
        if version != wanted["python"]:
            return _report_failure(
                f"the image has Python {version}, but {stack} is for {wanted['python']}: give another --image"
            )
        if (folder / "complete").exists():
            continue
        _print_line(f"environment {number + 1} of {len(plan['environments'])}: {stack}")
        problem = _make_environment(folder, bundle / wanted["lock"])
        if problem:
            return _report_failure(f"{stack} cannot be installed: {problem}")
        places = [str(path) for path in folder.glob("lib/python*/site-packages")]
        versions = {
            re.sub("[-_.]+", "-", str(distribution.metadata["Name"]).lower()).strip("-"): distribution.version
            for distribution in metadata.distributions(path=places)
        }
        # Versions are pip's to check, by the hashes: an index and a wheel may spell one differently.
        if set(versions) != set(wanted["packages"]):
            return _report_failure(f"{stack}: something else was installed than the lock says: {versions}")
        (folder / "complete").write_text("")
    return 0


def _make_environment(folder: Path, lock: Path) -> str:
    """Why an environment could not be made; empty when it was."""
    shutil.rmtree(folder, ignore_errors=True)
    python = str(folder / "bin" / "python")
    exact = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
    uv = shutil.which("uv")
    if uv:
        install = [uv, "pip", "install", "--python", python, "--compile-bytecode", "--no-cache"]
    else:
        install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-cache-dir", "--no-input"]
        install += ["--disable-pip-version-check", "--progress-bar", "off"]
    for command in ([sys.executable, "-m", "venv", "--without-pip", str(folder)], [*install, *exact, "-r", str(lock)]):
        process = subprocess.run(  # noqa: S603
            command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        if process.returncode:
            lines = [" ".join(line.split()) for line in process.stderr.decode("utf-8", "replace").splitlines()]
            return " / ".join([line for line in lines if line][-12:])[:1500] or f"exit code {process.returncode}"
    return ""


def _report_failure(text: str) -> int:
    _print_line(text)
    return 1


def _print_line(text: str) -> None:
    # The last lines of an init container that failed become its termination message, which is what people see.
    sys.stderr.write(f"workbench: {text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
