"""axe-core, from npm into the cache once, pinned by its sha256."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

from workbench.core.files import cache_folder

VERSION = "4.10.3"
SHA256 = "0f2b4d7dcdf7d1219df8d1959ad68e565f51d14c3f0d88bb71cd59abeb956292"
IMPACTS = ("serious", "critical")


def read_script() -> str:
    """The library's text; skips the test where npm cannot give it."""
    kept = cache_folder() / "tests" / f"axe-core-{VERSION}.tgz"
    if not kept.is_file():
        fetch(kept)
    found = hashlib.sha256(kept.read_bytes()).hexdigest()
    assert found == SHA256, f"{kept} is not axe-core {VERSION}: sha256 {found}"
    with tarfile.open(kept) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


def fetch(kept: Path) -> None:
    if not (npm := shutil.which("npm")):
        pytest.skip("npm is not installed")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [npm, "pack", "--silent", f"axe-core@{VERSION}"], cwd=folder, capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            pytest.skip(f"npm cannot give axe-core: {done.stderr[-200:]}")
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(folder) / f"axe-core-{VERSION}.tgz", kept)


def find_violations(page: Any) -> list[str]:
    """Serious and critical findings of WCAG 2.1 A and AA on an open page, each with its first elements."""
    page.evaluate(read_script())
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
    found = page.evaluate("tags => axe.run(document, { runOnly: tags, resultTypes: ['violations'] })", tags)
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: "
        + "; ".join(f"{node['target']} {node['html'][:120]}" for node in one["nodes"][:3])
        for one in found["violations"]
        if one["impact"] in IMPACTS
    ]
