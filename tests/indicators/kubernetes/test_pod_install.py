"""The installer of a pod, run for real on a folder of wheels: hashes are checked, and what fails says which stack."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.indicators.kubernetes.making import PYTHON
from workbench.indicators.kubernetes import pod_install

pytestmark = pytest.mark.live


def wheel(folder: Path, version: str) -> str:
    """Make a wheel of one module; the lock's line for it."""
    name = f"tiny_thing-{version}"
    info = f"{name}.dist-info"
    files = {
        "tiny_thing.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: Tiny.Thing\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(text)}")
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,"]) + "\n"
    made = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return f"tiny-thing=={version} \\\n    --hash=sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}\n"


class Quiet(SimpleHTTPRequestHandler):
    """A folder's listing is all that a package index must be."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A package index on loopback: its URL, and the folder for the wheels."""
    folder = tmp_path / "index" / "tiny-thing"
    folder.mkdir(parents=True)
    handler = functools.partial(Quiet, directory=str(tmp_path / "index"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", folder
        server.shutdown()
        thread.join()


def interpreter(tool: str) -> str:
    """A Python as an image has it: with pip, or with uv beside it."""
    for python in dict.fromkeys((sys.executable, str(getattr(sys, "_base_executable", sys.executable)))):
        has_pip = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
        if tool == "uv" or has_pip:
            return python
    pytest.skip("no interpreter with pip")


def installed(
    tmp_path: Path, index: tuple[str, Path], tool: str, locks: dict[str, str] | None = None, **changed: Any
) -> subprocess.CompletedProcess[str]:
    """The installer on two stacks, with uv or pip."""
    url, wheels = index
    tools = tmp_path / "tools"
    folders = [tmp_path / name for name in ("bundle", "environments", "scratch")]
    for folder in (tools, *folders):
        folder.mkdir()
    if tool == "uv":
        uv = shutil.which("uv")
        if uv is None:
            pytest.skip("no uv on PATH")
        (tools / "uv").symlink_to(uv)
    wanted = []
    for version in ("1.0", "2.0"):
        lock = wheel(wheels, version)
        (folders[0] / f"lock-{version}.txt").write_text((locks or {}).get(version, lock))
        one = {"stack": f"tiny-{version}", "python": PYTHON, "lock": f"lock-{version}.txt"}
        wanted.append({**one, "packages": {"tiny-thing": version}, **changed})
    (folders[0] / "plan.json").write_text(json.dumps({"environments": wanted}))
    shutil.copyfile(str(pod_install.__file__), folders[0] / "pod_install.py")
    environment = {"PATH": f"{tools}{os.pathsep}{os.defpath}", "PIP_INDEX_URL": url, "UV_DEFAULT_INDEX": url}
    command = [interpreter(tool), "-s", "-B", str(folders[0] / "pod_install.py"), *map(str, folders)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_every_stack_gets_an_environment_of_its_own(tmp_path: Path, index: tuple[str, Path], tool: str) -> None:
    done = installed(tmp_path, index, tool)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        "workbench: environment 1 of 2: tiny-1.0",
        "workbench: environment 2 of 2: tiny-2.0",
    ]
    for number, version in enumerate(("1.0", "2.0")):
        python = tmp_path / "environments" / str(number) / "bin" / "python"
        look = [str(python), "-c", "import tiny_thing; print(tiny_thing.VERSION)"]
        assert subprocess.run(look, capture_output=True, text=True, check=True).stdout == f"{version}\n"
        assert list((tmp_path / "environments" / str(number)).rglob("tiny_thing*.pyc")) != []


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_a_file_with_another_hash_is_not_installed(tmp_path: Path, index: tuple[str, Path], tool: str) -> None:
    done = installed(tmp_path, index, tool, {"1.0": f"tiny-thing==1.0 --hash=sha256:{64 * 'a'}\n"})
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("workbench: tiny-1.0 cannot be installed: ")
    assert "hash" in done.stderr.lower()
    assert not (tmp_path / "environments" / "0" / "complete").exists()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"python": "3.99"}, f"the image has Python {PYTHON}, but tiny-1.0 is for 3.99: give another --image"),
        ({"packages": {"tiny-thing": "1.0", "more": "1"}}, "was installed than the lock says: {'tiny-thing': '1.0'}"),
    ],
)
def test_another_python_and_other_packages_than_the_lock_says_are_told(
    tmp_path: Path, index: tuple[str, Path], changed: dict[str, Any], told: str
) -> None:
    done = installed(tmp_path, index, "uv", **changed)
    assert done.returncode == 1
    assert told in done.stderr.splitlines()[-1]
