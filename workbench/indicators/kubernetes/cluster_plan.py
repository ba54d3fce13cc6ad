"""Plans a session for a cluster and writes its folder: specifications, options, signing key, manifests."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from workbench.core import files
from workbench.core.errors import ConfigError, InputError
from workbench.core.schema import read_model_file
from workbench.indicators.config import SessionConfig
from workbench.indicators.contract.indicator import Case
from workbench.indicators.kubernetes.job_manifests import Object, build_manifests, list_notes, select_image
from workbench.indicators.kubernetes.pod_inputs import ClusterOptions
from workbench.indicators.measurement.session_plan import PreparedCase, build_session_plan, build_specification
from workbench.indicators.measurement.stack_variants import Variant, choose_baseline
from workbench.indicators.stacks.stack_sets import Stack
from workbench.indicators.store import archive
from workbench.indicators.store.archive import CONTROL, Arm, Hardware, Session, inspection_id

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
    """Plan a session for a cluster: write session.json, specifications and manifests.

    The machine is unknown, with an empty key, until the first pod reports it.

    `config`: Rounds, threads, limits, seed. The default of `memory_bytes` is 4 GiB, independent of this machine.
    """
    session, variants = build_session(session_id, config, stacks, cases, options)
    manifests = build_manifests(
        session, stacks, cases, options, key=load_signing_key(folder, create=True), processes=config.processes
    )
    archive.write_session(folder, session)
    files.write_text(folder / FOLDER / OPTIONS, options.model_dump_json(indent=1) + "\n")
    write_manifests(folder, session, manifests, options)
    for variant in variants:
        for case in session.cases:
            if variant.arm.name not in case.skipped:
                _write_specification(
                    folder,
                    session,
                    variant,
                    next(candidate for candidate in cases if candidate.label == case.label),
                    options,
                )
    return session


def build_session(
    session_id: str, config: SessionConfig, stacks: Sequence[Stack], cases: Sequence[Case], options: ClusterOptions
) -> tuple[Session, list[Variant]]:
    """Build the plan and its variants without writing files."""
    variants = build_variants(stacks, config.baseline)
    session = build_session_plan(
        session_id,
        config,
        variants,
        cases,
        notes=[f"cluster: {note}" for note in _list_plan_notes(options)],
        here=False,
    )
    changed = {
        "backend": "kubernetes",
        "hardware": Hardware(key="", cpu_model="not known yet", cores=1, memory_bytes=0),
        "cpus": (),
        "memory_bytes": config.memory_bytes or MEMORY_BYTES,
        "host": {"image": select_image(session, options), "namespace": options.namespace},
    }
    return session.model_copy(update=changed), variants


def build_variants(stacks: Sequence[Stack], baseline: str | None = None) -> list[Variant]:
    """Variants of a session in every pod: the baseline first, the control (a copy of it) last."""
    names = [stack.name for stack in stacks]
    if twice := sorted({name for name in [*names, CONTROL] if [*names, CONTROL].count(name) > 1}):
        raise ConfigError(
            "two variants have the same name", found=twice, do=f"rename one; {CONTROL!r} is the copy of the baseline"
        )
    by_name = dict(zip(names, stacks, strict=True))
    first = by_name[choose_baseline(baseline, names)]
    return [
        *(_build_variant(stack, 0) for stack in [first, *(other for other in stacks if other is not first)]),
        _build_variant(first, 1),
    ]


def _list_plan_notes(options: ClusterOptions) -> list[str]:
    """Notes on how the session runs."""
    notes = ["each round runs in a separate pod; values of different rounds are never compared"]
    if options.gpus:
        notes.append("runs have no memory limit of their own; a run that exceeds the pod's limit ends its round")
    return notes


def _build_variant(stack: Stack, copy: int) -> Variant:
    arm = Arm(
        name=CONTROL if copy else stack.name,
        stack=stack.name,
        stack_key=stack.key,
        copy_number=copy,
        python=stack.python,
        packages=stack.versions,
        lock_sha256=stack.lock_sha256,
    )
    return Variant(arm, "", {package.name: package.hashes for package in stack.packages})


def _write_specification(folder: Path, session: Session, variant: Variant, case: Case, options: ClusterOptions) -> None:
    inspection = inspection_id(session.session_id, variant.arm.name, case.label)
    specification = build_specification(session, variant, PreparedCase.from_case(case), inspection)
    archive.write_specification(folder, inspection, specification | {"base": select_image(session, options)})


def read_options(folder: Path) -> ClusterOptions:
    """Read the cluster options of a planned session."""
    return read_model_file(ClusterOptions, folder / FOLDER / OPTIONS, noun="cluster session's options")


def load_signing_key(folder: Path, *, create: bool = False) -> str:
    """Load the key that signs a session's results; the file is readable only by its owner.

    The key gives no access. It proves that a result comes from the runner and not from a script.
    """
    path = folder / FOLDER / KEY
    try:
        key = path.read_text(encoding="utf-8").strip()
        bytes.fromhex(key)
        return key
    except FileNotFoundError:
        if not create:
            raise InputError(
                "the signing key is missing, so results cannot be verified",
                where=path,
                do="collect in the folder that the session was submitted from",
            ) from None
    except (OSError, ValueError):
        raise InputError("not a key", where=path, allowed="64 hex digits") from None
    key = secrets.token_hex(32)
    _write_private_file(path, key + "\n")
    return key


def write_manifests(folder: Path, session: Session, objects: Sequence[Object], options: ClusterOptions) -> Path:
    """Write the objects as YAML; the file contains the key and is readable only by its owner."""
    path = folder / FOLDER / MANIFESTS
    _write_private_file(path, format_yaml(objects, [f"Session {session.session_id}", *list_notes(session, options)]))
    return path


def format_yaml(objects: Sequence[Object], comments: Sequence[str]) -> str:
    """Objects as one YAML stream after comments; multi-line strings are blocks."""
    import yaml

    class Plain(yaml.SafeDumper):
        """Dumper without aliases, and with scripts as blocks."""

        def ignore_aliases(self, data: object) -> bool:
            del data
            return True

    def represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Plain.add_representer(str, represent_text)
    heads = "".join(f"# {line}\n" for comment in comments for line in comment.splitlines())
    documents = [
        yaml.dump(manifest, Dumper=Plain, sort_keys=False, default_flow_style=False, width=120) for manifest in objects
    ]
    return heads + "---\n" + "---\n".join(documents)


def _write_private_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)
