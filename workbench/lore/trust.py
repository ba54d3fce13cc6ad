"""May this dump be loaded? Asked, and answered from its bytes alone, before a JVM or a pickle sees any of it.

plan.meta is Java serialization and Python functions are pickles: loading either runs what its writer wanted. So a dump
is loaded when it is whole, names allowed classes and settings only, and is signed with this user's own key; or when the
user says `--trust` after being shown what it holds. See `javaclasses` for what is allowed and why.

Does not show: what the operator does with the data once it runs, nor what a trusted Python function does.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from workbench.errors import InputError
from workbench.lore import keys
from workbench.lore.confs import conf_fault as conf_fault
from workbench.lore.intact import PLAN, check_whole, read_bounded, read_sidecar, some
from workbench.lore.javaclasses import ALLOWED_CLASSES as ALLOWED_CLASSES
from workbench.lore.javaclasses import JDK_SERIAL_FILTER as JDK_SERIAL_FILTER
from workbench.lore.javaclasses import PLAN_SERIAL_FILTER as PLAN_SERIAL_FILTER
from workbench.lore.javaclasses import refused
from workbench.lore.sidecar import FILE_NAME, Sidecar

MAX_PLAN_BYTES = 32 << 20
MAX_SHOWN_CHARS = 2_000
Report = Callable[[str], None]
ClassNames = Callable[[bytes], set[str]]


def sign(sidecar: Sidecar) -> Sidecar:
    """The sidecar with the signature of this user; the key is made on first use.

    Raises
    ------
    ConfigError
        The key is not fit: see `keys`.
    """
    return sidecar.model_copy(update={"hmac": _signature(keys.own_key(), sidecar)})


def is_own(sidecar: Sidecar) -> bool:
    """Was it signed with this user's key? Without a key nothing was, and none is made.

    Raises
    ------
    ConfigError
        The key is not fit: see `keys`.
    """
    key = keys.existing_key()
    if key is None or sidecar.hmac is None:
        return False
    return hmac.compare_digest(_signature(key, sidecar), sidecar.hmac)


def check(
    folder: str | Path, *, trust: bool = False, report: Report | None = None, class_names: ClassNames | None = None
) -> Sidecar:
    """Let a dump through, or say why not. Nothing of it is loaded.

    Parameters
    ----------
    folder
        loreId-N on this machine, holding a dump and nothing else.
    trust
        Let through what somebody else made, once `report` was told what it holds. What is damaged or not allowed is
        refused all the same.
    report
        Told, text by text, what was found in a dump that is not this user's; printed on stderr by default.
    class_names
        Which classes are named in a Java stream; the reader of `inspection.javastream` by default.

    Returns
    -------
    Sidecar
        What plan.json says, which holds for the files as they are now.

    Raises
    ------
    InputError
        It is damaged (naming the file), of another format, holds what is not allowed, or is somebody else's.
    ConfigError
        This user's key is not fit: see `keys`.
    """
    folder = Path(folder)
    sidecar = read_sidecar(folder)
    check_whole(folder, sidecar)
    names = _check_plan(folder, sidecar, class_names or _class_names)
    _check_confs(folder, sidecar)
    if is_own(sidecar):
        return sidecar
    if not trust:
        raise InputError(
            "this dump is not of your making" if sidecar.hmac else "this dump is not signed",
            where=folder / FILE_NAME,
            found="another signature than your key gives" if sidecar.hmac else "no signature",
            do="loading it runs code that its maker chose; to see what it holds and load it all the same: --trust",
        )
    tell = report or _print
    for text in found_texts(sidecar, names):
        tell(text)
    return sidecar


def found_texts(sidecar: Sidecar, names: set[str]) -> list[str]:
    """What a dump of somebody else holds, in texts for people; as far as it can be found without loading."""
    packages: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        package, _, short = name.rpartition(".")
        packages[package].append(short)
    versions = sidecar.versions
    python = [name for name in names if name.endswith("PythonFunction")]
    texts = [
        f"not of your making: loreId {sidecar.lore_id}, {sidecar.operator} ({sidecar.operator_class})",
        f"it says: {_cut(sidecar.operator_text)}",
        f"made {sidecar.created_at} by Spark {versions.spark}, Python {versions.python}",
    ]
    if python or sidecar.python_functions:
        told = ", ".join(map(_cut, sidecar.python_functions)) or "not named"
        texts.append(f"Python functions, code of its maker that will run: {told}")
    else:
        texts.append("Python functions: none")
    if called := sorted(name.rpartition(".")[2] for name in names if ".expressions.objects." in name):
        texts.append(f"calls of Java by name: {', '.join(called)}")
    confs = [f"  {key} = {_cut(value)}" for key, value in sorted(sidecar.confs.items())]
    texts.append("settings that it asks for: " + ("\n" + "\n".join(confs) if confs else "none"))
    listed = [f"  {package}: {', '.join(shorts)}" for package, shorts in sorted(packages.items())]
    texts.append("classes in plan.meta: " + ("\n" + "\n".join(listed) if listed else "none"))
    return texts


def _signature(key: bytes, sidecar: Sidecar) -> str:
    return hmac.new(key, sidecar.signed_bytes(), hashlib.sha256).hexdigest()


def _class_names(data: bytes) -> set[str]:
    from workbench.lore.inspection.javastream import class_names

    return class_names(data, where=PLAN)


def _print(text: str) -> None:
    from workbench.terminal import say

    say(text, err=True)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}... ({len(text):,} characters)"


def _check_plan(folder: Path, sidecar: Sidecar, class_names: ClassNames) -> set[str]:
    if not sidecar.has_plan:
        return set()
    path = folder / PLAN
    data = read_bounded(path, MAX_PLAN_BYTES)
    # Of what is looked into, for the file might have been changed since it was checked.
    if hashlib.sha256(data).hexdigest() != sidecar.files[PLAN].sha256:
        raise InputError("a file of the dump was changed", where=path)
    names = class_names(data)
    if bad := refused(names):
        raise InputError(
            "plan.meta names classes that are not allowed",
            where=path,
            found=some(bad),
            allowed="Spark's expressions and operators, and what they are made of",
            do="do not load this file with any tool; --trust does not change this",
        )
    if sidecar.operator_class not in names:
        raise InputError("plan.meta is of another operator", where=path, allowed=_cut(sidecar.operator_class))
    return names


def _check_confs(folder: Path, sidecar: Sidecar) -> None:
    where = folder / FILE_NAME
    for key, value in {**sidecar.confs, "spark.sql.session.timeZone": sidecar.time_zone}.items():
        if fault := conf_fault(key, value):
            raise InputError(
                f"a setting that no dump may make: {fault}",
                where=where,
                found=ascii(f"{key} = {value}")[1:200],
                allowed="settings of spark.sql.* that are numbers, words or the time zone",
                do="--trust does not change this",
            )
