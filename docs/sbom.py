"""Writes docs/sbom.cdx.json and docs/licences.md: what this project installs and fetches, with versions and licences.

    python docs/sbom.py

Versions and sha256 come from requirements.lock, workbench/spark/engine_jars.py and the go.mod and go.sum of the local
control plane; licences from what the installed packages and Go's module cache say. What is not on this machine
keeps what the files said before. No network.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from workbench.spark.engines import ENGINES

ROOT = Path(__file__).resolve().parents[1]
SBOM, LICENCES = ROOT / "docs" / "sbom.cdx.json", ROOT / "docs" / "licences.md"
MODULES = ROOT / "workbench" / "scaletest" / "local_cluster"
UNKNOWN = "unknown"
_PIN = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)(?: ; ([^\\]+?))?(?=\s|$)")
_REQUIRED = re.compile(r"^\s*(?:require )?([\w./~-]+\.[\w./~-]+) (v\S+)", re.MULTILINE)
_REPLACED = re.compile(r"^\s*(?:replace )?(\S+)(?: v\S+)? => (\S+) (v\S+)$", re.MULTILINE)
# Words that packages use for what has a name at spdx.org.
_SPDX = {
    "Apache 2.0": "Apache-2.0", "Apache": "Apache-2.0", "Apache License, Version 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0", "Apache Software License": "Apache-2.0", "MIT License": "MIT",
    "BSD License": "BSD-3-Clause", "BSD": "BSD-3-Clause", "ISC License (ISCL)": "ISC", "MPL 2.0": "MPL-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0", "Python Software Foundation License": "PSF-2.0",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
}  # fmt: skip
# Packages for other systems, which are never installed where this is written: what their pages on PyPI say.
_ELSEWHERE = {
    "appnope": "BSD-2-Clause",
    "colorama": "BSD-3-Clause",
    "httpx2-jsfetch": "BSD-3-Clause",
    "pywin32": "PSF-2.0",
    "pywinpty": "MIT",
}
# A licence by words that only its own text has; the first that fits.
_TEXTS = (
    ("Apache-2.0", "Apache License"),
    ("MPL-2.0", "Mozilla Public License"),
    ("GPL-3.0-or-later", "GNU GENERAL PUBLIC LICENSE"),
    ("BSD-3-Clause", "Neither the name"),
    ("BSD-3-Clause", "nor the names of"),
    ("BSD-2-Clause", "Redistributions in binary form"),
    ("ISC", "Permission to use, copy, modify, and/or distribute"),
    ("ISC", "Permission to use, copy, modify, and distribute"),
    ("MIT", "Permission is hereby granted, free of charge"),
    ("Unlicense", "This is free and unencumbered software"),
    ("CC0-1.0", "CC0 1.0 Universal"),
)
Component = dict[str, Any]


def components(before: dict[str, str]) -> list[Component]:
    """All of them, by kind and name; `before` is the licence by purl that the files gave earlier."""
    found = [*_packages(), *_jars(), *(one for name in ("kube", "kai", "kueue") for one in _modules(name, before))]
    return sorted({one["purl"]: one for one in found}.values(), key=lambda one: one["purl"])


def _packages() -> Iterator[Component]:
    for entry in (ROOT / "requirements.lock").read_text().replace("\\\n", " ").splitlines():
        if not (pin := _PIN.match(entry)):
            continue
        name, version, marker = pin[1], pin[2], pin[3]
        digests = re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)
        yield _component(f"pkg:pypi/{name.lower()}@{version}", name, version, _of_package(name), digests, marker=marker)


def _of_package(name: str) -> str:
    try:
        told = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return _ELSEWHERE.get(name, UNKNOWN)
    if expression := told.get("License-Expression"):
        return str(expression)
    classes = [one.split(" :: ")[-1] for one in told.get_all("Classifier") or [] if one.startswith("License ::")]
    classes = [one for one in classes if one not in ("DFSG approved", "OSI Approved")]
    words = str(told.get("License") or "").strip().split("\n")[0]
    if classes:
        return " OR ".join(sorted({_SPDX.get(one, one) for one in classes}))
    return _SPDX.get(words, words) if 0 < len(words) <= 60 else _by_text(_texts(name))


def _texts(name: str) -> list[str]:
    files = metadata.files(name) or []
    return [file.read_text() for file in files if re.match(r"(?i)(licen[cs]e|copying)", file.name)]


def _by_text(texts: list[str]) -> str:
    for text in texts:
        flat = " ".join(text.split())
        if found := next((licence for licence, words in _TEXTS if words in flat), None):
            return found
    return UNKNOWN


def _jars() -> Iterator[Component]:
    for engine in ENGINES.values():
        for artifact in engine.artifacts.values():
            group, name, version = artifact.coordinate.split(":")
            digests = [artifact.sha256] if artifact.sha256 else []
            yield _component(f"pkg:maven/{group}/{name}@{version}", name, version, "Apache-2.0", digests)


def _modules(folder: str, before: dict[str, str]) -> Iterator[Component]:
    known = dict(re.findall(r"^(\S+ v\S+) h1:(\S+)$", (MODULES / folder / "go.sum").read_text(), re.MULTILINE))
    cache = _module_cache()
    for name, version in required(folder):
        purl = f"pkg:golang/{name}@{version}"
        place = cache / f"{_escaped(name)}@{version}" if cache else None
        here = place is not None and place.is_dir()
        licence = _by_text(_files_of(place)) if here and place is not None else before.get(purl, UNKNOWN)
        yield _component(purl, name, version, licence, [], h1=known.get(f"{name} {version}"))


def required(folder: str) -> list[tuple[str, str]]:
    """Names and versions of a go.mod, those that it puts in the place of others among them."""
    mod = (MODULES / folder / "go.mod").read_text()
    instead = {old: (new, version) for old, new, version in _REPLACED.findall(mod)}
    return [instead.get(name, (name, version)) for name, version in _REQUIRED.findall(mod)]


def _files_of(place: Path) -> list[str]:
    files = sorted(file for file in place.iterdir() if re.match(r"(?i)(licen[cs]e|copying)", file.name))
    return [file.read_text(errors="replace") for file in files if file.is_file()]


def _escaped(name: str) -> str:
    """As Go's cache names folders: a capital letter is an exclamation mark and the small one."""
    return re.sub(r"[A-Z]", lambda found: "!" + found[0].lower(), name)


def _module_cache() -> Path | None:
    try:
        done = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True)  # noqa: S607
    except (OSError, subprocess.CalledProcessError):
        return None
    return Path(done.stdout.strip())


def _component(purl: str, name: str, version: str, licence: str, sha256: list[str], **facts: str | None) -> Component:
    made: Component = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    spdx = {"expression": licence} if licence != UNKNOWN and " (" not in licence else {"license": {"name": licence}}
    made["licenses"] = [spdx]
    if sha256:
        # One for each file that the lock lets pass: wheels of all systems, and the source.
        made["hashes"] = [{"alg": "SHA-256", "content": digest} for digest in sha256]
    if told := [{"name": f"workbench:{key}", "value": value} for key, value in facts.items() if value]:
        made["properties"] = told
    return made


def licence_of(component: Component) -> str:
    """Its expression, or the name that stands for what is none."""
    (told,) = component["licenses"]
    return str(told.get("expression") or told["license"]["name"])


def document(found: list[Component]) -> dict[str, Any]:
    """CycloneDX 1.6, without a time: the same lock gives the same file."""
    digest = hashlib.sha256("".join(one["purl"] for one in found).encode()).hexdigest()
    serial = f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
    project = {"type": "application", "bom-ref": "accelerated-workbench", "name": "accelerated-workbench"}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": project | {"licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": found,
    }


def text(found: list[Component]) -> str:
    """The file, a component a line, so that a change of the lock is a change of few lines."""
    whole = json.dumps(document([]), indent=1)
    lines = ",\n".join("  " + json.dumps(one) for one in found)
    return whole.replace('"components": []', f'"components": [\n{lines}\n ]') + "\n"


HEAD = """\
# Licences

What `requirements.lock` installs, what the local control plane is built from and the jars that are fetched, with the
licences that they state. Made by `python docs/sbom.py` together with `docs/sbom.cdx.json` (CycloneDX), and held to the
lock by `tests/test_sbom.py`. The workbench itself is under Apache-2.0 and ships none of this code: a user's installer
fetches it, so its licences bind who passes it on, such as who builds a container image.

## Copyleft

Nothing here is linked into what this repository distributes.

"""
WHY = {
    "MPL-2.0": "copyleft by file: used unchanged, so nothing of ours falls under it",
    "LGPL-3.0-only": "an optional extra (`postgres`), loaded as a library that the user can replace",
    "GPL-2.0-only": "a Java runtime (OpenJDK, with the Classpath exception), a process of its own; extra `spark`",
}


def page(found: list[Component]) -> str:
    """The list for people: copyleft ones with the reason why they are fine, unknown ones by name, then all."""
    lines = ["| component | licence | why it is fine |", "|---|---|---|"]
    for one in found:
        if reason := next((why for word, why in WHY.items() if word in licence_of(one)), None):
            lines.append(f"| {one['name']} {one['version']} | {licence_of(one)} | {reason} |")
    unknown = [one for one in found if licence_of(one) == UNKNOWN]
    told = ", ".join(f"{one['name']} {one['version']}" for one in unknown) or "None."
    parts = [HEAD + "\n".join(lines), "## Not known", told, "## All of them"]
    for kind, title in (("pypi", "Python packages"), ("maven", "Jars"), ("golang", "Go modules")):
        rows = [one for one in found if one["purl"].startswith(f"pkg:{kind}/")]
        listed = [f"| {one['name']} | {one['version']} | {licence_of(one)} |" for one in rows]
        parts.append("\n".join([f"### {title}", "", "| name | version | licence |", "|---|---|---|", *listed]))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write both files."""
    os.chdir(ROOT)
    before = json.loads(SBOM.read_text())["components"] if SBOM.is_file() else []
    found = components({one["purl"]: licence_of(one) for one in before})
    SBOM.write_text(text(found))
    LICENCES.write_text(page(found))
    print(f"{len(found)} components: {SBOM.name}, {LICENCES.name}")  # noqa: T201


if __name__ == "__main__":
    main()
