"""The stack that an Amun specification names: its lock, its image, its native packages."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from workbench import redaction
from workbench.indicators.archive import Arm

MOST_PACKAGES = 5000
_PACKAGES = ("packages", "dev-packages", "default", "develop")
_VERSION = re.compile(r"==\s*([0-9A-Za-z][0-9A-Za-z.!+_-]{0,99})")


def arm_of(
    specification: Mapping[str, Any], document: Mapping[str, Any], component: str | None, names: dict[str, str]
) -> Arm:
    """The arm of a run; runs of the same lock, Python, image and native packages have the same.

    Parameters
    ----------
    specification, document
        As Amun keeps them; an empty specification makes the stack unknown but for the component.
    component
        The framework that was measured.
    names
        Names that are taken: name to key. What is given here gets a name of its own.
    """
    packages = locked_packages(specification)
    python = _python(specification, document)
    told: dict[str, str] = {"source": "imported"}
    for key in ("base", "packages", "python_packages"):
        if specification.get(key):
            told[key] = _shown(_without_secrets(specification[key]))
    lock = json.dumps(_locked(specification), sort_keys=True) if packages else ""
    identity: list[Any] = [lock, python, {key: value for key, value in told.items() if key != "source"}]
    if not packages:
        told["stack"] = "not told: no lock came with it"
        identity += [component, _shown(_python_part(specification).get("requirements"))]
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    name = _name(specification, packages, component)
    if names.setdefault(name, key) != key:
        name = f"{name} {key[:6]}"
        names.setdefault(name, key)
    return Arm(
        name=name,
        stack=name,
        stack_key=key,
        python=python,
        packages=packages,
        lock_sha256=hashlib.sha256(lock.encode()).hexdigest() if lock else "",
        notes=told,
    )


def locked_packages(specification: Mapping[str, Any]) -> dict[str, str]:
    """Name to version of the packages in the lock; those without a version, from a repository, have theirs empty."""
    found = _locked(specification)
    return {
        str(name)[:200]: _version(entry)
        for name, entry in sorted(found.items())[:MOST_PACKAGES]
        if isinstance(name, str)
    }


def cleaned(specification: Mapping[str, Any]) -> dict[str, Any]:
    """A specification without its server's names, without secrets, without users in its URLs.

    Examples
    --------
    >>> cleaned({"@amun_api_url": "x", "environment": [{"name": "HUB_TOKEN", "value": "s"}], "base": "image"})
    {'environment': [{'name': 'HUB_TOKEN', 'value': '[redacted]'}], 'base': 'image'}
    """
    return {
        key: _without_secrets(value, key)
        for key, value in ((str(key), value) for key, value in specification.items())
        if not key.startswith("@")
    }


def _without_secrets(value: Any, name: str = "", parent: str = "") -> Any:
    """JSON data without what is named like a secret: by its key, or by the `name` beside it."""
    if names_a_secret(name):
        return redaction.MARK
    if isinstance(value, Mapping):
        told = value.get("name")
        hidden = "value" if isinstance(told, str) and names_a_secret(told) else None
        # In a lock the keys are names of packages: tokenizers, keyring, secretstorage.
        locked = name in _PACKAGES and parent in ("requirements", "requirements_locked")
        return {
            str(key): redaction.MARK if key == hidden else _without_secrets(item, "" if locked else str(key), name)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    return redaction.without_user_info(value) if isinstance(value, str) else value


def names_a_secret(name: str) -> bool:
    """May what is called so be a secret? Rather too often than not: nobody here chose these names.

    Examples
    --------
    >>> [names_a_secret(name) for name in ("AWS_SECRET_ACCESS_KEY", "apiKey", "GH_PAT", "PATH", "verify_ssl")]
    [True, True, True, False, False]
    """
    words = re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())
    if any(part in name.lower() for part in ("secret", "token", "passw", "cred")):
        return True
    return any(word.endswith(("key", "keys")) or word in ("pat", "pats") for word in words)


def _python_part(specification: Mapping[str, Any]) -> Mapping[str, Any]:
    found = specification.get("python")
    return found if isinstance(found, Mapping) else {}


def _locked(specification: Mapping[str, Any]) -> Mapping[str, Any]:
    locked = _python_part(specification).get("requirements_locked")
    found = locked.get("default") if isinstance(locked, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _version(entry: Any) -> str:
    text = entry.get("version") if isinstance(entry, Mapping) else None
    found = _VERSION.fullmatch(text.strip()) if isinstance(text, str) else None
    return found[1] if found else ""


def _python(specification: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    requirements = _python_part(specification).get("requirements")
    requires = requirements.get("requires") if isinstance(requirements, Mapping) else None
    environment = document.get("runtime_environment")
    told = (
        requires.get("python_version") if isinstance(requires, Mapping) else None,
        environment.get("python_version") if isinstance(environment, Mapping) else None,
    )
    return next((text[:20] for text in told if isinstance(text, str) and text), "")


def _name(specification: Mapping[str, Any], packages: Mapping[str, str], component: str | None) -> str:
    """What was asked for, with the versions that it became: tensorflow 2.2.0."""
    requirements = _python_part(specification).get("requirements")
    direct = requirements.get("packages") if isinstance(requirements, Mapping) else None
    asked = [str(name) for name in direct][:3] if isinstance(direct, Mapping) else []
    if asked and packages:
        return ", ".join(f"{name} {packages.get(name, '')}".strip()[:60] for name in asked)
    return component or "unknown stack"


def _shown(value: Any) -> str:
    """A field as a short text without users in its URLs."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return redaction.without_user_info(text)[:500]
