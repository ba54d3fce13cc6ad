"""No test begins on a cluster that nobody confirmed, or under an identity that nothing holds back."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scaletest.making_scenarios import scenario
from tests.scaletest.safety.facts_of_clusters import cluster, node
from workbench.core.errors import ConfigError, InputError
from workbench.kubernetes.client import Target
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.safety import confirmation
from workbench.scaletest.safety.cluster_facts import ClusterFacts

TARGET = Target("https://lab.example.org:6443", "lab", None, dict)


Confirm = Callable[..., ClusterFacts]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The list of confirmed clusters, which is not there yet."""
    return tmp_path / "config" / "allowed"


@pytest.fixture
def confirm(monkeypatch: pytest.MonkeyPatch, file: Path) -> Confirm:
    """`confirm` on a cluster that was made by hand: a scripted answer in place of a server."""

    def run(found: ClusterFacts, confirmed: str | None = None, **more: Any) -> ClusterFacts:
        async def look(api: Connection) -> ClusterFacts:
            return found

        monkeypatch.setattr(confirmation, "inspect_cluster", look)
        monkeypatch.setattr(confirmation, "default_allow_file", lambda: file)
        made = more.get("scenario", scenario())
        return asyncio.run(confirmation.confirm_cluster(Connection(TARGET), made, confirmed))

    return run


def test_an_unknown_cluster_is_shown_and_must_be_confirmed(confirm: Confirm, file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        confirm(cluster())
    told = str(caught.value)
    for part in ("https://lab.example.org:6443", "v1.36.3", "1 simulated", "12 without the label of a test"):
        assert part in told
    assert "add --confirm 0123456789" in told
    assert not file.exists()


def test_a_typed_fingerprint_is_kept_for_the_owner_only_and_asked_once(confirm: Confirm, file: Path) -> None:
    assert confirm(cluster(), " 0123456789\n").fingerprint == "0123456789"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "lab.example.org" not in file.read_text()
    assert confirm(cluster()).fingerprint == "0123456789"
    confirm(cluster(fingerprint="aaaaaaaaaa"), "aaaaaaaaaa")
    assert set(json.loads(file.read_text())["clusters"]) == {"0123456789", "aaaaaaaaaa"}


def test_another_cluster_under_the_same_context_is_refused(confirm: Confirm) -> None:
    confirm(cluster(), "0123456789")
    other = cluster(fingerprint="ffffffffff")
    with pytest.raises(ConfigError, match="not confirmed"):
        confirm(other)
    with pytest.raises(ConfigError, match="not the confirmed one"):
        confirm(other, "0123456789")


def test_a_local_cluster_of_our_own_needs_no_confirmation(confirm: Confirm, file: Path) -> None:
    confirm(cluster(own="local"))
    assert not file.exists()


def test_an_administrator_is_refused_and_the_cluster_not_remembered(confirm: Confirm, file: Path) -> None:
    admin = cluster(groups=("system:masters", "system:authenticated"))
    with pytest.raises(ConfigError, match="the test was not begun") as caught:
        confirm(admin, "0123456789")
    assert "never throttles" in str(caught.value)
    assert not file.exists()
    own = cluster(own="local", groups=("system:masters",))
    assert confirm(own) is own
    assert confirmation.check_identity(own)[0].level == "warning"


def test_an_administrators_own_work_asks_for_the_right_cluster_only(confirm: Confirm) -> None:
    admin = cluster(node("real", simulated=False), groups=("system:masters",))
    assert confirm(admin, "0123456789", scenario=None) is admin
    with pytest.raises(ConfigError, match="not confirmed"):
        confirm(cluster(node("real", simulated=False), fingerprint="ffffffffff"), scenario=None)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"clusters": 1}', "\x00"])
def test_a_file_of_confirmed_clusters_that_is_none_is_refused(confirm: Confirm, file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(InputError, match="confirmed clusters"):
        confirm(cluster())


def test_the_file_lies_in_the_users_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert confirmation.default_allow_file().parent == tmp_path / "workbench"
