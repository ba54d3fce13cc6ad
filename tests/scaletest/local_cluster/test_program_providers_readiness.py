"""What `workbench doctor` says of a local control plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.scaletest.local_cluster import program_providers


def test_without_programs_the_command_that_builds_them_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("WORKBENCH_CLUSTER_BINARIES", raising=False)
    (check,) = program_providers.checks()
    assert (check.level, check.needed_for) == ("missing", "cluster")
    assert check.mend is not None
    assert "go>=1.26" in check.mend
    assert check.mend.endswith("; then workbench scaletest cluster build")


def test_a_provider_that_is_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("WORKBENCH_CLUSTER_BINARIES", raising=False)
    program = tmp_path / "kwokctl"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (check,) = program_providers.checks()
    assert (check.level, check.found) == ("good", "provider kwokctl, without KAI")
