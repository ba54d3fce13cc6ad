"""Building with a Go that only pretends (a shell script): what it is asked, and what is left when it fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from workbench.core.errors import ConfigError, MissingToolError, RunFailedError
from workbench.scaletest.local_cluster import program_builds

Script = Callable[[Path, str], Path]

# Answers as Go does; `build` writes what -o names and says each package on stderr.
PRETENDED = """
echo "$PWD $*" >> "$PRETENDED_LOG"
case "$1" in
env) echo "${PRETENDED_VERSION:-go1.26.8}" ;;
list) case "$*" in
  *-deps*) printf 'a\\nb\\nc\\n' ;;
  *) echo "$PRETENDED_MODULE" ;;
  esac ;;
build)
  echo "go: downloading c v1.2.3" >&2; echo a >&2; echo b >&2
  while [ $# -gt 0 ]; do
    if [ "$1" = -o ]; then out=$2; shift; fi
    last=$1; names="$names $(basename -- "$1")"; shift
  done
  if [ -n "$PRETENDED_FAILURE" ]; then mkdir -p "$(dirname "$out")"; echo "$PRETENDED_FAILURE" >&2; exit 1; fi
  if [ -n "$PRETENDED_GATE" ]; then while [ ! -e "$PRETENDED_GATE" ]; do sleep 0.02; done; fi
  if [ -d "$out" ]; then for n in kwok kwokctl scheduler podgrouper binder podgroupcontroller queuecontroller; do
    case "$names" in *" $n"*) printf '#!/bin/sh\\n' > "$out/$n"; chmod +x "$out/$n" ;; esac; done
  else printf '#!/bin/sh\\n' > "$out"; chmod +x "$out"; fi ;;
esac
"""


@pytest.fixture
def calls(cache: Path, tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pretended Go is the one on PATH; the file lists how it was called."""
    script(tmp_path / "go" / "go", PRETENDED)
    monkeypatch.setenv("PATH", f"{tmp_path / 'go'}:/usr/bin:/bin")
    monkeypatch.setenv("PRETENDED_LOG", str(tmp_path / "calls"))
    crds = tmp_path / "module" / "deployments" / "kai-scheduler" / "crds"
    crds.mkdir(parents=True)
    (crds / "scheduling.run.ai_queues.yaml").write_text("kind: CustomResourceDefinition\n")
    monkeypatch.setenv("PRETENDED_MODULE", str(tmp_path / "module"))
    return tmp_path / "calls"


def _left(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "scaletest" / "binaries").iterdir() if path.name != ".lock")


def test_what_was_built_is_found_and_not_built_again(calls: Path) -> None:
    said: list[str] = []
    made = program_builds.build_parts(tell=said.append)
    found = program_builds.find_binaries(provider="built")
    assert found.require_kai() == made["kai"]
    assert found.kubectl == made["kube"] / "kubectl"
    assert [path.name for path in (made["kai"] / "crds").iterdir()] == ["scheduling.run.ai_queues.yaml"]
    before = calls.read_text()
    program_builds.build_parts(tell=said.append)
    assert calls.read_text() == before
    assert said[-1] == "kai: built already"


def test_go_is_asked_for_reproducible_programs_of_the_versions_in_its_module(calls: Path) -> None:
    program_builds.build_parts(["kube"])
    line = next(line for line in calls.read_text().splitlines() if " build " in line)
    assert line.startswith(str(program_builds.SOURCES / "kube"))
    version = program_builds.required_version("kube", "k8s.io/kubernetes")
    assert [word for word in ("-trimpath", "-mod=readonly", f"gitVersion=v{version}") if word not in line] == []


def test_the_packages_that_are_compiled_are_counted(calls: Path) -> None:
    seen: list[tuple[str, int, int]] = []

    @contextmanager
    def watched(step: str) -> Iterator[Callable[[int, int], None]]:
        yield lambda done, total: seen.append((step, done, total))

    program_builds.build_parts(["kwok"], progress=watched)
    assert seen == [("kwok", 1, 3), ("kwok", 2, 3)]


def test_a_failed_build_leaves_nothing_and_tells_the_end_of_what_go_said(
    calls: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRETENDED_FAILURE", "write: no space left on device")
    with pytest.raises(RunFailedError, match="no space left on device"):
        program_builds.build_parts(["kube"])
    assert _left(cache) == []


def test_what_a_killed_builder_left_is_removed_by_the_next(calls: Path, cache: Path) -> None:
    rest = program_builds.build_folder("kwok").parent / f".{program_builds.build_folder('kwok').name}.abc"
    rest.mkdir(parents=True)
    program_builds.build_parts(["kwok"])
    assert _left(cache) == [program_builds.build_folder("kwok").name]


def test_without_go_the_command_that_installs_it_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    with pytest.raises(MissingToolError, match=r"building needs Go 1\.26 or newer") as caught:
        program_builds.build_parts()
    assert "conda install" in str(caught.value)


@pytest.mark.parametrize("version", ["go1.25.9", "go0.27", "devel", ""])
def test_a_go_that_is_too_old_is_refused(calls: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("PRETENDED_VERSION", version or " ")
    with pytest.raises(MissingToolError):
        program_builds.build_parts()


@pytest.mark.parametrize("version", ["go1.26.0", "go1.30rc1", "go2.0"])
def test_a_newer_go_is_taken(calls: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("PRETENDED_VERSION", version)
    assert program_builds.find_go().endswith("/go")


def test_two_builders_build_once(calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = tmp_path / "gate"
    monkeypatch.setenv("PRETENDED_GATE", str(gate))
    waiting = threading.Event()

    def second() -> None:
        program_builds.build_parts(["kwok"], tell=lambda line: waiting.set() if "another build" in line else None)

    first = threading.Thread(target=program_builds.build_parts, args=(["kwok"],))
    other = threading.Thread(target=second)
    first.start()
    deadline = time.monotonic() + 60
    while not (calls.exists() and " build " in calls.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    other.start()
    assert waiting.wait(60)
    gate.touch()
    first.join(60)
    other.join(60)
    assert sum(" build " in line for line in calls.read_text().splitlines()) == 1


def test_a_cache_that_cannot_be_written_is_told(calls: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir()
    (cache / "scaletest").write_text("a file")
    with pytest.raises(ConfigError, match="the cache cannot be written"):
        program_builds.build_parts()


def test_the_hash_follows_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "sources"
    for module, names in (("kube", ("go.mod", "go.sum", "main.go")), ("kai", ("go.mod", "go.sum"))):
        (copy / module).mkdir(parents=True)
        for name in names:
            (copy / module / name).write_bytes((program_builds.SOURCES / module / name).read_bytes())
    keys = [program_builds.hash_sources(part) for part in program_builds.PARTS]
    monkeypatch.setattr(program_builds, "SOURCES", copy)
    assert [program_builds.hash_sources(part) for part in program_builds.PARTS] == keys
    with (copy / "kai" / "go.sum").open("a") as file:
        file.write("\n")
    again = [program_builds.hash_sources(part) for part in program_builds.PARTS]
    assert [before == now for before, now in zip(keys, again, strict=True)] == [True, True, False]
    with (copy / "kube" / "main.go").open("a") as file:
        file.write("\n")
    assert not {program_builds.hash_sources("kube"), program_builds.hash_sources("kwok")} & set(keys)
