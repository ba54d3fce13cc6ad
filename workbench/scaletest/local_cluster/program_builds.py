"""Builds of the control plane's programs from Go modules, into the user's cache.

Modules beside this file: `kube` (Kubernetes and etcd in one program, kwok and kwokctl as its tools), `kai`, `kueue`. A
part is built aside and renamed when it is whole; what Go has compiled stays in Go's own cache, so a build that was
interrupted continues where it was.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from workbench.core.checks import Check
from workbench.core.errors import ConfigError, MissingToolError, RunFailedError, WorkbenchError, refuse_os_errors
from workbench.core.files import cache_folder

Part = Literal["kube", "kwok", "kai", "kueue"]
Progress = Callable[[int, int], None]
PARTS: tuple[Part, ...] = ("kube", "kwok", "kai")
# Built when it is asked for: another ten minutes.
ALL_PARTS: tuple[Part, ...] = (*PARTS, "kueue")
GO = "1.26"
SOURCES = Path(__file__).parent
_FLAGS = ("-trimpath", "-mod=readonly", "-buildvcs=false")
# Kueue 0.19 reads the certificate of its metrics from a folder that only an administrator may write, even where it
# serves none: this text of its main file is replaced, so that the folder can be given.
KUEUE_CERTIFICATES = "WORKBENCH_KUEUE_CERTIFICATES"
_KUEUE_PATCH = ('"/etc/kueue/metrics/certs"', f'os.Getenv("{KUEUE_CERTIFICATES}")')
_LINES = 30  # of Go's output in an error
_PACKAGE = re.compile(r"[\w./~-]+")
_POLL_S, _TELL_S = 0.5, 15
Provider = Literal["kwokctl", "folder", "built", "path"]
VARIABLE = "WORKBENCH_CLUSTER_BINARIES"
# Where envtest of controller-runtime looks for its binaries.
ENVTEST_VARIABLE = "KUBEBUILDER_ASSETS"
# They start their nodes in containers or as root: nothing of ours starts them.
_WHOLE_CLUSTERS = ("kind", "k3s", "k3d", "minikube")
BUILD = "workbench scaletest cluster build"
KUBE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
KWOK = ("kwok", "kwokctl")
KAI = ("scheduler", "podgrouper", "binder", "podgroupcontroller", "queuecontroller")


@dataclass(frozen=True)
class PartBuild:
    """How a part is built.

    `module`: Our Go module that it is built in; `packages`: What of it, and `package` whose release it is.
    `cpu_s`: Processor time where Go has compiled nothing yet (2 cores of a virtual machine, Go 1.26, 2026-11-27).
    `link_flags`: For the linker; the release's numbers are filled in.
    `check`: A program that is started once; `links`: names by which the one program is called, too.
    `copies`: Files and folders of manifests beside the programs, by their place in the package.
    """

    module: str
    packages: tuple[str, ...]
    package: str
    cpu_s: int
    link_flags: str = "-s -w"
    check: str | None = None
    links: tuple[str, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)


_VERSION = "k8s.io/component-base/version.git"
_KAI_MODULE, _KUEUE_MODULE = "github.com/NVIDIA/KAI-scheduler", "sigs.k8s.io/kueue"
BUILDS: dict[Part, PartBuild] = {
    "kube": PartBuild(
        "kube",
        (".",),
        "k8s.io/kubernetes",
        1630,
        f"-s -w -X {_VERSION}Version=v{{version}} -X {_VERSION}Major={{major}} -X {_VERSION}Minor={{minor}}",
        check="kube-apiserver",
        links=("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "etcd"),
    ),
    "kwok": PartBuild(
        "kube",
        tuple(f"sigs.k8s.io/kwok/cmd/{name}" for name in KWOK),
        "sigs.k8s.io/kwok",
        100,
        check="kwokctl",
    ),
    "kai": PartBuild(
        "kai",
        tuple(f"{_KAI_MODULE}/cmd/{name}" for name in KAI),
        _KAI_MODULE,
        860,
        # KAI 0.12's podgroupcontroller forgets its --metrics-bind-address and would serve figures on port 8080 of all
        # addresses, so that a second cluster could not start. "0" is no server; the others name an address of theirs.
        "-s -w -X sigs.k8s.io/controller-runtime/pkg/metrics/server.DefaultBindAddress=0",
        copies={"crds": "deployments/kai-scheduler/crds"},
    ),
    "kueue": PartBuild(
        "kueue",
        (f"{_KUEUE_MODULE}/cmd/kueue",),
        _KUEUE_MODULE,
        1200,
        copies={"crds": "config/components/crd/bases", "webhooks.yaml": "config/components/webhook/manifests.yaml"},
    ),
}


def hash_sources(part: Part) -> str:
    """Hash of everything that a part is made of: its module's sums and sources, the flags."""
    build = BUILDS[part]
    digest = hashlib.sha256(repr((part, list(build.packages), _FLAGS, _build_link_flags(build))).encode())
    for file in _list_sources(build):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode() + content)
    if part == "kueue":
        digest.update(repr(_KUEUE_PATCH).encode())
    return digest.hexdigest()[:16]


def _list_sources(build: PartBuild) -> list[Path]:
    files = [SOURCES / build.module / name for name in ("go.mod", "go.sum", "main.go")]
    return [file for file in files if file.is_file()]


def build_folder(part: Part) -> Path:
    """Return the folder of a part's programs once they have been built."""
    return cache_folder().absolute() / "scaletest" / "binaries" / f"{part}-{hash_sources(part)}"


def required_version(module: str, package: str) -> str:
    """Version of a package that a module of ours asks for, without its `v`.

    >>> required_version("kube", "k8s.io/kubernetes").count(".")
    2
    """
    text = (SOURCES / module / "go.mod").read_text(encoding="utf-8")
    match = re.search(rf"^\s*(?:require )?{re.escape(package)} v(\S+)", text, re.MULTILINE)
    assert match is not None, package
    return match[1]


def build_parts(
    parts: Sequence[Part] = PARTS,
    *,
    tell: Callable[[str], None] = lambda _: None,
    progress: Callable[[str], contextlib.AbstractContextManager[Progress]] | None = None,
) -> dict[Part, Path]:
    """Build the parts that are not there yet; the folder of each.

    `progress`: Gives a function to call with (packages compiled so far, packages in all at most), for a step's name.
    """
    missing = [part for part in parts if not build_folder(part).is_dir()]
    for part in parts:
        if part not in missing:
            tell(f"{part}: built already")
    if missing:
        program = find_go()
        tell(f"{', '.join(missing)}: {_describe_build_time(missing)}")
        with _lock_builder(tell):
            for part in missing:
                if not build_folder(part).is_dir():  # another builder may have been quicker
                    _build_part(program, part, tell, progress)
    return {part: build_folder(part) for part in parts}


def find_go() -> str:
    """The Go to build with."""
    go_path = shutil.which("go")
    version = _read_output([go_path, "env", "GOVERSION"]).strip() if go_path else ""
    numbers = re.match(r"go(\d+)\.(\d+)", version)
    if go_path is None or numbers is None or (int(numbers[1]), int(numbers[2])) < tuple(map(int, GO.split("."))):
        raise MissingToolError(
            f"building needs Go {GO} or newer",
            found=version or "none on PATH",
            do=f"conda install -c conda-forge 'go>={GO}', or the package from https://go.dev/dl",
        )
    return go_path


def _describe_build_time(parts: Sequence[Part]) -> str:
    cores = os.cpu_count() or 1
    minutes = math.ceil(sum(BUILDS[part].cpu_s for part in parts) / cores / 60)
    return f"up to {minutes} min on {cores} cores, less where Go has compiled a part of it before; Ctrl-C loses nothing"


def _build_part(
    program: str,
    part: Part,
    tell: Callable[[str], None],
    progress: Callable[[str], contextlib.AbstractContextManager[Progress]] | None,
) -> None:
    since, build = time.monotonic(), BUILDS[part]
    place, sources = build_folder(part), SOURCES / build.module
    for old in place.parent.glob(f".{place.name}.*"):  # of a builder that was killed: we hold the lock
        shutil.rmtree(old, ignore_errors=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        aside.chmod(0o755)
        # This also loads the modules, which Go says line by line.
        told = _report_every(tell, "loading modules")
        count = _run_go([program, "list", "-deps", *build.packages], sources, told).count("\n")
        tell(f"{part}: at most {count} packages to compile")
        output = aside if len(build.packages) > 1 else aside / part
        source, packages = sources, list(build.packages)
        if part == "kueue":
            source, packages = _copy_kueue_command(program, aside), ["."]
        command = [program, "build", "-v", *_FLAGS, "-ldflags", _build_link_flags(build), "-o", str(output), *packages]
        with progress(part) if progress else contextlib.nullcontext() as watch:
            _run_go(command, source, _count_packages(count, watch, tell))
        shutil.rmtree(aside / "source", ignore_errors=True)
        # What belongs to a part besides its programs; and whether they start.
        for name in build.links:
            (aside / name).symlink_to(part)
        if build.check is not None:
            _read_output([str(aside / build.check), "--version"])
        if build.copies:
            package = _find_module(program, build)
            for target, manifests in build.copies.items():
                if (package / manifests).is_dir():
                    (aside / target).mkdir()
                    for file in sorted((package / manifests).glob("*.yaml")):
                        shutil.copyfile(file, aside / target / file.name)
                else:
                    shutil.copyfile(package / manifests, aside / target)
            release = required_version(build.module, build.package)
            (aside / "VERSION").write_text(release + "\n", encoding="utf-8")
        aside.rename(place)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    tell(f"{part}: built in {time.monotonic() - since:.0f} s")


def _build_link_flags(build: PartBuild) -> str:
    version = required_version(build.module, build.package)
    major, minor, _ = version.split(".", 2)
    return build.link_flags.format(version=version, major=major, minor=minor)


def _copy_kueue_command(program: str, aside: Path) -> Path:
    """Folder with our module and Kueue's main package in it, with one text replaced."""
    folder, source = aside / "source", _find_module(program, BUILDS["kueue"]) / "cmd" / "kueue"
    folder.mkdir()
    for file in _list_sources(BUILDS["kueue"]):
        shutil.copyfile(file, folder / file.name)
    replaced = 0
    for file in source.glob("*.go"):
        if not file.name.endswith("_test.go"):
            text = file.read_text(encoding="utf-8")
            replaced += text.count(_KUEUE_PATCH[0])
            (folder / file.name).write_text(text.replace(*_KUEUE_PATCH), encoding="utf-8")
    if replaced != 1:
        raise RunFailedError("not the main package of Kueue that is known", where=source, found=replaced)
    return folder


def _find_module(program: str, build: PartBuild) -> Path:
    """A package's own folder: its manifests lie there, not in its programs."""
    command = [program, "list", "-m", "-f", "{{.Dir}}", build.package]
    return Path(_read_output(command, cwd=SOURCES / build.module).strip())


def _build_environment() -> dict[str, str]:
    """No C compiler, no other toolchain than this one, no flags of the user's, no module that go.sum does not hold."""
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}


def _read_output(command: Sequence[str], cwd: Path | None = None) -> str:
    process = subprocess.run(  # noqa: S603
        command,
        cwd=cwd,
        env=_build_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise _build_failure(command, (process.stderr or process.stdout).splitlines())
    return process.stdout


def _build_failure(command: Sequence[str], lines: Sequence[str]) -> RunFailedError:
    text = "\n    ".join(line[:300] for line in lines[-_LINES:])
    name = " ".join([Path(command[0]).name, *command[1:2]])
    return RunFailedError("a step of the build failed", where=name, found=f"the end of its output:\n    {text}")


def _report_every(tell: Callable[[str], None], label: str) -> Callable[[str], None]:
    """Tells now and then how many lines there were, and the last one."""
    lines, told = 0, time.monotonic()

    def count_line(line: str) -> None:
        nonlocal lines, told
        lines += 1
        if time.monotonic() - told > _TELL_S:
            told = time.monotonic()
            tell(f"  {label}: {lines} so far; {line[:100]}")

    return count_line


def _count_packages(count: int, watch: Progress | None, tell: Callable[[str], None]) -> Callable[[str], None]:
    """Counts the packages that Go names as it compiles them; what else it says is no package."""
    compiled, every = 0, _report_every(tell, f"compiling at most {count} packages")

    def count_package(line: str) -> None:
        nonlocal compiled
        if _PACKAGE.fullmatch(line):
            compiled = min(compiled + 1, count)
            if watch is not None:
                watch(compiled, count)
            every(line)

    return count_package


def _run_go(command: Sequence[str], cwd: Path, seen: Callable[[str], None]) -> str:
    """Run Go, give each line that it says to `seen`; its output. It and its compilers end when we are interrupted."""
    lines: list[str] = []
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(  # noqa: S603
            command,
            cwd=cwd,
            env=_build_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert process.stderr is not None
        try:
            for line in process.stderr:
                lines.append(line.rstrip())
                seen(lines[-1])
            process.wait()
        finally:
            process.stderr.close()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode != 0:
            raise _build_failure(command, lines)
        output.seek(0)
        return output.read()


@contextlib.contextmanager
def _lock_builder(tell: Callable[[str], None]) -> Iterator[None]:
    """One builder at a time; the others wait for it and find its work done. A builder that dies lets go."""
    import fcntl

    place = build_folder("kube").parent
    with refuse_os_errors(
        "the cache cannot be written",
        place,
        do="set XDG_CACHE_HOME to a folder that can be written",
        error_type=ConfigError,
    ):
        place.mkdir(parents=True, exist_ok=True)
        handle = os.open(place / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        is_announced = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not is_announced:
                    tell("another build is running: waiting for it")
                is_announced = True
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Binaries:
    """Programs to start a cluster with.

    `provider`: `kwokctl`: on PATH, and it brings its own control plane; `folder`: given; `built`: by `cluster build`;
    `path`: Kubernetes and etcd on PATH, such as conda installs them.
    `programs`: Path of each that is known, by its name; for `kwokctl` there is that one only.
    `kai`: Folder with KAI's programs, and `crds/` in it; null where there is none.
    """

    provider: Provider
    programs: Mapping[str, Path]
    kai: Path | None = None

    @property
    def kubectl(self) -> Path | None:
        """Kubernetes' own client, where there is one: for submitting the way others do."""
        beside = self.programs.get("kubectl")
        if beside is not None and _is_program(beside):
            return beside
        path = shutil.which("kubectl")
        return Path(path) if path else None

    def require_kai(self) -> Path:
        """The folder of KAI's programs."""
        if self.kai is None:
            raise MissingToolError(
                "there are no programs of KAI",
                where=f"provider {self.provider}",
                allowed=f"a folder kai/ with {', '.join(KAI)} and crds/",
                do=BUILD,
            )
        return self.kai

    def require_scheduler(self) -> Path:
        """The kube-scheduler's program, for a second one."""
        program = self.programs.get("kube-scheduler")
        if program is None:
            raise MissingToolError(
                "there is no program of a second kube-scheduler",
                where=f"provider {self.provider}",
                do=f"{BUILD}, then up with --provider built",
            )
        return program

    def require_kueue(self) -> Path:
        """The folder of Kueue's program and manifests: our own build, whatever the provider."""
        folder = build_folder("kueue")
        if not _is_program(folder / "kueue"):
            raise MissingToolError(
                "there is no program of Kueue", do=f"{BUILD} --only kueue (once, ten minutes on two cores)"
            )
        return folder

    @property
    def kueue_version(self) -> str | None:
        """Version of Kueue, where its build left one."""
        return _read_version(self.require_kueue())

    @property
    def kai_version(self) -> str | None:
        """Version of KAI, where its build left one."""
        return _read_version(self.require_kai())

    @property
    def kwokctl(self) -> Path:
        """The program that creates clusters."""
        return self.programs["kwokctl"]


def find_binaries(folder: Path | None = None, provider: Provider | None = None) -> Binaries:
    """The first provider that is there, or the one that is named.

    `folder`: A folder with the programs; $WORKBENCH_CLUSTER_BINARIES without it. Given, it is used or refused.
    """
    named_folder = folder or (Path(value) if (value := os.environ.get(VARIABLE)) else None)
    if named_folder is not None and provider in (None, "folder"):
        return _binaries_in_folder(named_folder.expanduser().absolute())
    kai = _find_kai_programs(build_folder("kai"))
    if provider in (None, "kwokctl") and (kwokctl := shutil.which("kwokctl")):
        return Binaries("kwokctl", {"kwokctl": Path(kwokctl)}, kai)
    built = {name: build_folder("kube") / name for name in KUBE} | {name: build_folder("kwok") / name for name in KWOK}
    if provider in (None, "built") and all(map(_is_program, built.values())):
        return Binaries("built", built | {"kubectl": build_folder("kube") / "kubectl"}, kai)
    # Conda's kubernetes-server and etcd bring no kwok: that one is built, which takes a minute instead of ten.
    on_path = _find_kwok_programs() | {name: Path(path) for name in KUBE if (path := shutil.which(name))}
    if provider in (None, "path") and not _list_missing(on_path):
        return Binaries("path", on_path, kai)
    # A folder that envtest uses, where somebody has put the controllers beside.
    assets = Path(value).expanduser() if (value := os.environ.get(ENVTEST_VARIABLE)) else None
    lacking = _list_missing(_list_folder_programs(assets)) if assets is not None else []
    if provider in (None, "folder") and assets is not None and not lacking:
        return _binaries_in_folder(assets.absolute())
    if provider is not None:
        raise MissingToolError("this provider is not here", where="--provider", found=provider, do=BUILD)
    found = None
    if assets is not None and lacking:
        found = f"{assets} (${ENVTEST_VARIABLE}) has no {', '.join(lacking)}"
    elif any(name in on_path for name in KUBE):
        found = f"on PATH, but no {', '.join(_list_missing(on_path))}"
    do = f"{BUILD} (once, {_describe_build_time(('kube', 'kwok'))}; needs Go {GO} or newer)"
    if others := [name for name in _WHOLE_CLUSTERS if shutil.which(name)]:
        do += (
            f"; or start a cluster with {others[0]} yourself, run kwok in it with nodes labelled "
            "workbench.local/sim=true, and use `workbench scaletest run SCENARIO --context CONTEXT`"
        )
    raise MissingToolError(
        "there is no control plane to start",
        found=found,
        allowed=f"kwokctl on PATH, a folder of binaries (${VARIABLE}), {', '.join(KUBE)} on PATH, or built ones",
        do=do,
    )


def find_ready_provider() -> Provider | None:
    """Provider that starts a cluster without a build; null where there is none, or only built programs."""
    try:
        provider = find_binaries().provider
    except WorkbenchError:
        return None
    return None if provider == "built" else provider


def _list_folder_programs(folder: Path) -> dict[str, Path]:
    """Programs of a folder; kwok may also be on PATH, or built: it goes with any release."""
    return _find_kwok_programs() | {name: folder / name for name in (*KUBE, *KWOK) if _is_program(folder / name)}


def _find_kwok_programs() -> dict[str, Path]:
    """Find kwok's programs on PATH or built."""
    paths = {name: Path(shutil.which(name) or build_folder("kwok") / name) for name in KWOK}
    return {name: path for name, path in paths.items() if _is_program(path)}


def _list_missing(programs: Mapping[str, Path]) -> list[str]:
    return [name for name in (*KUBE, *KWOK) if name not in programs]


def _binaries_in_folder(folder: Path) -> Binaries:
    programs = _list_folder_programs(folder)
    if missing := _list_missing(programs):
        # The controllers that an envtest has not, or kwok, which builds in a minute or two.
        do = f"{BUILD} --only kwok ({_describe_build_time(('kwok',))}), or put kwok and kwokctl on PATH"
        if beside := ", ".join(name for name in missing if name in KUBE):
            do = (
                f"put {beside} of the same Kubernetes release in the folder of the others (envtest has no controllers "
                f"and no scheduler); or leave --binaries and ${VARIABLE} out: {BUILD} makes them all"
            )
        raise ConfigError(
            "the folder of binaries lacks programs", where=folder, found=f"no {', '.join(missing)}", do=do
        )
    return Binaries("folder", programs | {"kubectl": folder / "kubectl"}, _find_kai_programs(folder / "kai"))


def _find_kai_programs(folder: Path) -> Path | None:
    is_complete = all(_is_program(folder / name) for name in KAI) and any((folder / "crds").glob("*.yaml"))
    return folder if is_complete else None


def _read_version(folder: Path) -> str | None:
    try:
        return (folder / "VERSION").read_text(encoding="utf-8").strip()[:40]
    except OSError:
        return None


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def checks() -> list[Check]:
    """One check: the provider that was found, or what is missing to build one."""

    subject = "control plane"
    try:
        binaries = find_binaries()
    except WorkbenchError as error:
        mend = BUILD
        try:
            find_go()
        except WorkbenchError as no_go:
            mend = f"{no_go.facts['do']}; then {BUILD}"
        return [Check(subject, error.what, "cluster", "missing", mend)]
    kai = (binaries.kai_version or "of no known version") if binaries.kai else None
    return [Check(subject, f"provider {binaries.provider}, {f'with KAI {kai}' if kai else 'without KAI'}", "cluster")]
