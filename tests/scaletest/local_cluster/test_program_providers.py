"""Which programs a cluster is started with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.core.errors import ConfigError, MissingToolError
from workbench.scaletest.local_cluster import program_builds

Script = Callable[[Path, str], Path]


def _fill(folder: Path, names: tuple[str, ...], script: Script) -> Path:
    for name in names:
        script(folder / name, "true")
    return folder


def _fill_kai(folder: Path, script: Script) -> None:
    _fill(folder, program_builds.KAI, script)
    (folder / "crds").mkdir()
    (folder / "crds" / "a_b.yaml").write_text("{}")


@pytest.fixture(autouse=True)
def _empty_path(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv(program_builds.ENVTEST_VARIABLE, raising=False)


def test_without_any_the_command_that_builds_them_is_named() -> None:
    with pytest.raises(MissingToolError, match="there is no control plane to start") as caught:
        program_builds.find_binaries()
    assert program_builds.BUILD in str(caught.value)


def test_a_given_folder_that_lacks_a_program_is_refused_by_its_name(tmp_path: Path, script: Script) -> None:
    folder = _fill(tmp_path / "given", (*program_builds.KUBE[:-1], *program_builds.KWOK), script)
    with pytest.raises(ConfigError, match="lacks programs") as caught:
        program_builds.find_binaries(folder)
    assert "no kube-scheduler" in str(caught.value)


def test_a_file_that_cannot_be_run_is_no_program(tmp_path: Path, script: Script) -> None:
    folder = _fill(tmp_path / "given", (*program_builds.KUBE, *program_builds.KWOK), script)
    (folder / "etcd").chmod(0o644)
    with pytest.raises(ConfigError, match="lacks programs"):
        program_builds.find_binaries(folder)


def test_a_folder_in_the_environment_is_given(tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _fill(tmp_path / "given", (*program_builds.KUBE, *program_builds.KWOK), script)
    monkeypatch.setenv(program_builds.VARIABLE, str(folder))
    found = program_builds.find_binaries()
    assert (found.provider, found.kwokctl, found.kubectl, found.kai) == ("folder", folder / "kwokctl", None, None)


def test_a_kwokctl_on_the_path_comes_before_built_ones(tmp_path: Path, script: Script) -> None:
    _fill(program_builds.build_folder("kube"), program_builds.KUBE, script)
    _fill(program_builds.build_folder("kwok"), program_builds.KWOK, script)
    assert program_builds.find_binaries().provider == "built"
    script(tmp_path / "path" / "kwokctl", "true")
    assert program_builds.find_binaries().provider == "kwokctl"
    assert program_builds.find_binaries(provider="built").provider == "built"


def test_kubernetes_on_the_path_needs_only_a_built_kwok(tmp_path: Path, script: Script) -> None:
    _fill(tmp_path / "path", program_builds.KUBE, script)
    with pytest.raises(MissingToolError):
        program_builds.find_binaries()
    _fill(program_builds.build_folder("kwok"), program_builds.KWOK, script)
    found = program_builds.find_binaries()
    assert (found.provider, found.programs["etcd"]) == ("path", tmp_path / "path" / "etcd")


def test_a_provider_that_is_named_and_missing_is_no_other() -> None:
    with pytest.raises(MissingToolError, match="this provider is not here"):
        program_builds.find_binaries(provider="kwokctl")


def test_kai_without_its_resources_is_none(tmp_path: Path, script: Script) -> None:
    folder = _fill(tmp_path / "given", (*program_builds.KUBE, *program_builds.KWOK), script)
    _fill(folder / "kai", program_builds.KAI, script)
    with pytest.raises(MissingToolError, match="no programs of KAI"):
        program_builds.find_binaries(folder).require_kai()


def test_kai_is_found_beside_the_others(tmp_path: Path, script: Script) -> None:
    folder = _fill(tmp_path / "given", (*program_builds.KUBE, *program_builds.KWOK), script)
    _fill_kai(folder / "kai", script)
    found = program_builds.find_binaries(folder)
    assert (found.require_kai(), found.kai_version) == (folder / "kai", None)
    (folder / "kai" / "VERSION").write_text("0.12.0\n")
    assert found.kai_version == "0.12.0"


def test_without_programs_the_command_that_builds_them_is_told() -> None:
    (check,) = program_builds.checks()
    assert (check.level, check.needed_for) == ("missing", "cluster")
    assert check.mend is not None
    assert "go>=1.26" in check.mend
    assert check.mend.endswith("; then workbench scaletest cluster build")


def test_a_provider_that_is_there_is_named(tmp_path: Path, script: Script) -> None:
    script(tmp_path / "path" / "kwokctl", "true")
    (check,) = program_builds.checks()
    assert (check.level, check.found) == ("good", "provider kwokctl, without KAI")


ENVTEST = ("kube-apiserver", "etcd", "kubectl")


def test_an_envtest_folder_says_what_it_lacks_and_where_that_goes(tmp_path: Path, script: Script) -> None:
    folder = _fill(tmp_path / "envtest", ENVTEST, script)
    with pytest.raises(ConfigError) as told:
        program_builds.find_binaries(folder)
    assert "no kube-controller-manager, kube-scheduler, kwok, kwokctl" in str(told.value)
    assert "put kube-controller-manager, kube-scheduler of the same Kubernetes release in the folder" in str(told.value)


@pytest.mark.parametrize("place", ["path", "built"])
def test_a_folder_without_kwok_takes_it_from_elsewhere(tmp_path: Path, script: Script, place: str) -> None:
    folder = _fill(tmp_path / "given", program_builds.KUBE, script)
    with pytest.raises(ConfigError, match="build --only kwok"):
        program_builds.find_binaries(folder)
    kwok = tmp_path / "path" if place == "path" else program_builds.build_folder("kwok")
    _fill(kwok, program_builds.KWOK, script)
    found = program_builds.find_binaries(folder)
    assert (found.provider, found.kwokctl) == ("folder", kwok / "kwokctl")
    assert found.programs["etcd"] == folder / "etcd"


def test_the_folder_of_envtest_is_used_where_its_controllers_are_beside(
    tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _fill(tmp_path / "envtest", ENVTEST, script)
    monkeypatch.setenv(program_builds.ENVTEST_VARIABLE, str(folder))
    with pytest.raises(MissingToolError, match="has no kube-controller-manager, kube-scheduler, kwok, kwokctl"):
        program_builds.find_binaries()
    _fill(folder, (*program_builds.KUBE, *program_builds.KWOK), script)
    found = program_builds.find_binaries()
    assert (found.provider, found.programs["kube-scheduler"]) == ("folder", folder / "kube-scheduler")
    assert program_builds.find_ready_provider() == "folder"


@pytest.mark.parametrize("name", ["kind", "k3s"])
def test_a_cluster_of_another_tool_is_used_by_its_context(tmp_path: Path, script: Script, name: str) -> None:
    script(tmp_path / "path" / name, "true")
    with pytest.raises(MissingToolError) as told:
        program_builds.find_binaries()
    assert f"start a cluster with {name} yourself, run kwok in it" in str(told.value)
    assert "--context CONTEXT" in str(told.value)


def test_the_time_of_a_build_is_told_before_it_and_only_where_nothing_is_there(tmp_path: Path, script: Script) -> None:
    with pytest.raises(MissingToolError, match=r"cluster build \(once, up to \d+ min on \d+ cores"):
        program_builds.find_binaries()
    assert program_builds.find_ready_provider() is None
    script(tmp_path / "path" / "kwokctl", "true")
    assert program_builds.find_ready_provider() == "kwokctl"
