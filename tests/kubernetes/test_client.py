"""Identity of a kubeconfig's context: which one, whose certificate, and what is said of a broken file."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiClient, Configuration

from workbench.core.errors import ConfigError
from workbench.kubernetes.client import load_target

TOKEN = "abcdefghijklmnop0123456789"


def written(folder: Path, *names: str, current: str | None = None, token: str = TOKEN, **cluster: Any) -> Path:
    """A file with a context for each name, all to one server with one token."""
    server = {"server": "http://127.0.0.1:1"} | cluster
    given: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": server}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in names],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(given | ({"current-context": current} if current else {})))
    return path


def test_the_only_context_needs_no_name(tmp_path: Path) -> None:
    found = load_target(written(tmp_path, "one", current="one"), None)
    assert (found.context, found.server, found.tls) == ("one", "http://127.0.0.1:1", None)
    assert found.headers()["Authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in repr(found)


def test_among_several_contexts_none_is_guessed_not_even_the_current_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="which cluster") as error:
        load_target(written(tmp_path, "one", "two", current="one"), None)
    assert "one, two" in str(error.value)


def test_a_file_without_a_current_context_is_good(tmp_path: Path) -> None:
    assert load_target(written(tmp_path, "one", "two"), "two").context == "two"


def test_an_unknown_context_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such context") as error:
        load_target(written(tmp_path, "one"), "three")
    assert "three" in str(error.value)
    assert "one" in str(error.value)


@pytest.mark.parametrize(
    "cluster",
    [
        {"server": "http://192.0.2.1:6443"},
        {"server": "https://192.0.2.1:6443", "insecure-skip-tls-verify": True},
        {"server": "https://localhost.example.org", "insecure-skip-tls-verify": True},
    ],
)
def test_a_server_beyond_this_machine_must_show_a_certificate(cluster: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="certificate is not checked"):
        load_target(written(tmp_path, "far", **cluster), "far")


@pytest.mark.parametrize("server", ["https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443"])
def test_one_on_this_machine_need_not(server: str, tmp_path: Path) -> None:
    cluster: dict[str, Any] = {"server": server, "insecure-skip-tls-verify": True}
    found = load_target(written(tmp_path, "near", **cluster), "near")
    assert found.tls is not None
    assert found.tls.verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("- a\n- b\n", ""),
        ("contexts: 3\n", ""),
        ("contexts: [{name: a}]\nclusters: []\nusers: []\n", ""),
        (f"users: [{{token: {TOKEN}\n", "not YAML, line"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_said_without_its_content(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ConfigError, match="no kubeconfig that can be used") as error:
        load_target(path, "a")
    assert told in str(error.value)
    assert TOKEN not in str(error.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no kubeconfig that can be used") as error:
        load_target(tmp_path / "none", "a")
    assert "no such file" in str(error.value)


def test_a_broken_certificate_is_an_error_of_the_file(tmp_path: Path) -> None:
    broken = {"server": "https://127.0.0.1:1", "certificate-authority-data": "bm90IGEgY2VydGlmaWNhdGU="}
    with pytest.raises(ConfigError, match="no kubeconfig that can be used"):
        load_target(written(tmp_path, "a", **broken), "a")


@pytest.mark.parametrize("name", ["BearerToken", "authorization"])
def test_the_token_is_found_under_both_names_that_the_package_has_had(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Configuration()
    given.host, given.api_key = "http://127.0.0.1:1", {name: f"Bearer {TOKEN}"}
    monkeypatch.setattr("kubernetes.config.new_client_from_config", lambda **_: ApiClient(given))
    assert load_target(written(tmp_path, "one"), None).headers()["Authorization"] == f"Bearer {TOKEN}"


def test_only_who_takes_the_current_context_gets_it_and_never_a_guess(tmp_path: Path) -> None:
    path = written(tmp_path, "one", "two", current="two")
    assert load_target(path, None, takes_current=True).context == "two"
    with pytest.raises(ConfigError, match="which cluster"):
        load_target(written(tmp_path, "one", "two"), None, takes_current=True)


def test_outside_of_a_pod_there_is_no_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="no kubeconfig that can be used") as error:
        load_target(None, "in-cluster")
    assert "Service host/port is not set" in str(error.value)
