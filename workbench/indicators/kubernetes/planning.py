"""The plan of a session on a cluster, and its folder: what is needed to submit it and to collect it later."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from workbench import files
from workbench.errors import ConfigError, InputError
from workbench.indicators import archive
from workbench.indicators.archive import CONTROL, Arm, Hardware, Session, inspection_id
from workbench.indicators.config import SessionConfig
from workbench.indicators.contract import Case
from workbench.indicators.kubernetes.manifests import Object, image_of, manifests, notes
from workbench.indicators.kubernetes.options import ClusterOptions
from workbench.indicators.running.planning import planned, specification
from workbench.indicators.running.recording import Prepared
from workbench.indicators.running.sides import Side, chosen
from workbench.indicators.stacks.model import Stack

FOLDER = "kubernetes"
OPTIONS = "options.json"
KEY = "key"
MANIFESTS = "manifests.yaml"
MEMORY_BYTES = 4 << 30


def plan_session(
    folder: Path,
    session_id: str,
    config: SessionConfig,
    stacks: Sequence[Stack],
    cases: Sequence[Case],
    options: ClusterOptions,
) -> Session:
    """Plan a session for a cluster: session.json, specifications, and manifests beside them.

    The machine is not known before the first pod has told; until then it stands as unknown, with an empty key.

    Parameters
    ----------
    folder
        The session's folder.
    session_id
        Its name.
    config
        Rounds, threads, limits, seed. Without `memory_bytes` a run gets 4 GiB: this machine's size says nothing.
    stacks, cases
        What is measured; nothing is installed here.
    options
        What the cluster is asked for.

    Raises
    ------
    ConfigError
        As of `running.planning.planned` and `manifests`; a network that was asked for: a pod's is what the policy says.
    """
    session, sides = session_of(session_id, config, stacks, cases, options)
    made = manifests(session, stacks, cases, options, key=key_of(folder, make=True), processes=config.processes)
    archive.write_session(folder, session)
    files.write_text(folder / FOLDER / OPTIONS, options.model_dump_json(indent=1) + "\n")
    write_manifests(folder, session, made, options)
    for side in sides:
        for case in session.cases:
            if side.arm.name not in case.skipped:
                _specify(folder, session, side, next(one for one in cases if one.label == case.label), options)
    return session


def session_of(
    session_id: str, config: SessionConfig, stacks: Sequence[Stack], cases: Sequence[Case], options: ClusterOptions
) -> tuple[Session, list[Side]]:
    """The plan alone, nothing of it written, with its sides."""
    sides = sides_of(stacks, config.baseline)
    session = planned(
        session_id, config, sides, cases, notes=[f"cluster: {note}" for note in _notes(options)], here=False
    )
    changed = {
        "backend": "kubernetes",
        "hardware": Hardware(key="", cpu_model="not known yet", cores=1, memory_bytes=0),
        "cpus": (),
        "memory_bytes": config.memory_bytes or MEMORY_BYTES,
        "host": {"image": image_of(session, options), "namespace": options.namespace},
    }
    return session.model_copy(update=changed), sides


def sides_of(stacks: Sequence[Stack], baseline: str | None = None) -> list[Side]:
    """The sides of a session, as they will be in every pod: the baseline first, its copy as the control last.

    Raises
    ------
    ConfigError
        There is no stack, no such baseline, or two have one name.
    """
    names = [stack.name for stack in stacks]
    if twice := sorted({name for name in [*names, CONTROL] if [*names, CONTROL].count(name) > 1}):
        raise ConfigError("two sides of one name", found=twice, do=f"rename one; {CONTROL!r} is the baseline's copy")
    by_name = dict(zip(names, stacks, strict=True))
    first = by_name[chosen(baseline, names)]
    return [
        *(_side(stack, 0) for stack in [first, *(one for one in stacks if one is not first)]),
        _side(first, 1),
    ]


def _notes(options: ClusterOptions) -> list[str]:
    """What a reader of the session should know of the way it is run."""
    found = ["each round is made in a pod of its own: figures of two rounds are never compared"]
    if options.gpus:
        found.append("no memory limit of a run's own: one that needs too much takes the rest of its round along")
    return found


def _side(stack: Stack, copy: int) -> Side:
    arm = Arm(
        name=CONTROL if copy else stack.name,
        stack=stack.name,
        stack_key=stack.key,
        copy_number=copy,
        python=stack.python,
        packages=stack.versions,
        lock_sha256=stack.lock_sha256,
    )
    return Side(arm, "", {package.name: package.hashes for package in stack.packages})


def _specify(folder: Path, session: Session, side: Side, case: Case, options: ClusterOptions) -> None:
    inspection = inspection_id(session.session_id, side.arm.name, case.label)
    told = specification(session, side, Prepared.of(case), inspection)
    archive.write_specification(folder, inspection, told | {"base": image_of(session, options)})


def read_options(folder: Path) -> ClusterOptions:
    """The options that a session was planned with.

    Raises
    ------
    InputError
        They are not there, or damaged.
    """
    path = folder / FOLDER / OPTIONS
    try:
        return ClusterOptions.model_validate_json(path.read_bytes()[: 1 << 20])
    except OSError as error:
        raise InputError("no session of a cluster", where=path, found=error.strerror) from None
    except ValidationError as error:
        raise InputError("damaged", where=path, found=error.errors(include_input=False)[0]["msg"]) from None


def key_of(folder: Path, *, make: bool = False) -> str:
    """The key that a session's results are signed with; only its owner may read the file.

    It opens nothing: it only shows that a result came from the runner and not from a script.

    Raises
    ------
    InputError
        There is none.
    """
    path = folder / FOLDER / KEY
    try:
        found = path.read_text(encoding="utf-8").strip()
        bytes.fromhex(found)
        return found
    except FileNotFoundError:
        if not make:
            raise InputError(
                "no key there: results cannot be told from forged ones",
                where=path,
                do="collect in the folder that the session was submitted from",
            ) from None
    except (OSError, ValueError):
        raise InputError("not a key", where=path, allowed="64 hex digits") from None
    found = secrets.token_hex(32)
    _write_private(path, found + "\n")
    return found


def write_manifests(folder: Path, session: Session, made: Sequence[Object], options: ClusterOptions) -> Path:
    """The objects as YAML, to be read and applied; only its owner may read the file, for the key is in it."""
    path = folder / FOLDER / MANIFESTS
    _write_private(path, as_yaml(made, [f"Session {session.session_id}", *notes(session, options)]))
    return path


def as_yaml(made: Sequence[Object], comments: Sequence[str]) -> str:
    """Objects as one YAML stream with comments before them; texts of several lines stay readable."""
    import yaml

    class Plain(yaml.SafeDumper):
        """Writes what occurs twice twice, and scripts as blocks."""

        def ignore_aliases(self, data: object) -> bool:
            del data
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Plain.add_representer(str, text)
    heads = "".join(f"# {line}\n" for comment in comments for line in comment.splitlines())
    documents = [yaml.dump(one, Dumper=Plain, sort_keys=False, default_flow_style=False, width=120) for one in made]
    return heads + "---\n" + "---\n".join(documents)


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)
