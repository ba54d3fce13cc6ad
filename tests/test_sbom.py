"""The list of what is installed and fetched says what the lock says; a file with another hash is not installed."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from workbench.spark.engines import COMET

ROOT = Path(__file__).parents[1]
SBOM = ROOT / "docs" / "sbom.cdx.json"
LICENCES = ROOT / "docs" / "licences.md"
# No others come in without somebody who thinks about them.
KNOWN = re.compile(
    r"(Apache-2\.0|MIT|MIT-0|MIT-CMU|BSD-[23]-Clause|0BSD|ISC|PSF-2\.0|MPL-2\.0|Zlib|CC0-1\.0|Unlicense|Python-2\.0"
    r"|LGPL-3\.0-only|GPL-2\.0-only| AND | OR |[()])+"
)


def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "docs" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    return maker()


@pytest.fixture(scope="module")
def components() -> dict[str, Any]:
    return {one["purl"]: one for one in json.loads(SBOM.read_text())["components"]}


def locked() -> dict[str, set[str]]:
    """Package and version to the hashes that the lock allows, read in another way than the script reads them."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        if name := re.match(r"([A-Za-z0-9._-]+)(?:\[.*?\])?==([^\s;\\]+)", line):
            current = found[f"pkg:pypi/{name[1].lower()}@{name[2]}"] = set()
        elif digest := re.match(r" +--hash=sha256:([0-9a-f]{64})", line):
            current.add(digest[1])
    return found


def test_every_locked_package_is_listed_with_its_hashes_and_nothing_else_is(components: dict[str, Any]) -> None:
    listed = {
        purl: {digest["content"] for digest in one["hashes"]}
        for purl, one in components.items()
        if purl.startswith("pkg:pypi/")
    }
    assert listed == locked(), "make it anew: python docs/sbom.py"


def test_every_module_of_go_and_every_jar_is_listed(components: dict[str, Any], sbom: ModuleType) -> None:
    wanted = {
        f"pkg:golang/{name}@{version}" for folder in ("kube", "kai", "kueue") for name, version in sbom.required(folder)
    }
    assert {purl for purl in components if purl.startswith("pkg:golang/")} == wanted, (
        "make it anew: python docs/sbom.py"
    )
    jars = [one for purl, one in components.items() if purl.startswith("pkg:maven/")]
    assert [one["hashes"][0]["content"] for one in jars] == [jar.sha256 for jar in COMET.values()]
    assert len(wanted) > 200


def test_every_component_states_a_licence_that_somebody_looked_at(components: dict[str, Any], sbom: ModuleType) -> None:
    told = {purl: sbom.licence_of(one) for purl, one in components.items()}
    assert {purl: licence for purl, licence in told.items() if not KNOWN.fullmatch(licence)} == {}


def test_the_page_for_people_is_made_from_the_list(components: dict[str, Any], sbom: ModuleType) -> None:
    assert LICENCES.read_text() == sbom.page(list(components.values()))
    assert SBOM.read_text() == sbom.text(list(components.values()))
    assert "| psycopg 3" in LICENCES.read_text().split("## Not known")[0], "copyleft is named with its reason"


def wheel(folder: Path) -> Path:
    """A package of no use."""
    path = folder / "nothing_at_all-1.0-py3-none-any.whl"
    info = "nothing_at_all-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("nothing_at_all.py", "")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: nothing-at-all\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.mark.parametrize("good", [True, False], ids=["the hash of the lock", "another hash"])
def test_a_file_with_another_hash_is_not_installed(tmp_path: Path, good: bool) -> None:
    digest = hashlib.sha256(wheel(tmp_path).read_bytes()).hexdigest() if good else "0" * 64
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"nothing-at-all==1.0 \\\n    --hash=sha256:{digest}\n")
    target = tmp_path / "target"
    command = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-cache", "--no-index"]
    command += ["--find-links", str(tmp_path), "--target", str(target), "--require-hashes", "-r", str(lock)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode == 0) == good, done.stderr
    assert (target / "nothing_at_all.py").exists() == good
    assert good or "nothing-at-all" in done.stderr


def test_the_set_up_installs_the_lock_by_its_hashes() -> None:
    assert "install --require-hashes -r requirements.lock" in (ROOT / ".ci" / "set-up").read_text()


def test_go_takes_no_module_that_its_sums_do_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.scaletest.local_cluster import program_builds

    monkeypatch.setenv("GOFLAGS", "-mod=mod -insecure")
    assert program_builds._build_environment()["GOFLAGS"] == "-mod=readonly"
    assert "-mod=readonly" in program_builds._FLAGS
