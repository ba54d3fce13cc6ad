"""Nobody there is told before a sweep begins; somebody there is left alone."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from workbench.core.errors import ConfigError
from workbench.sizing.load.service_targets import target_factory


def test_who_listens_gets_a_connection_and_no_request() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        target_factory.check_listener(f"http://127.0.0.1:{server.getsockname()[1]}/generate")
        with server.accept()[0] as met:
            met.settimeout(10)
            assert met.recv(100) == b""


def test_nobody_there_is_told_with_the_port_and_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConfigError, match="no service listens") as refused:
        target_factory.check_listener(f"http://127.0.0.1:{port}")
    assert f"127.0.0.1:{port}: Connection refused" in str(refused.value)
    assert f"workbench sizing simulate --port {port}" in str(refused.value)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (socket.gaierror(-2, "Name or service not known"), "no such host"),
        (TimeoutError("timed out"), "no connection within 10 s"),
        (OSError(113, "No route to host"), "No route to host"),
    ],
)
def test_other_failures_have_their_words(error: OSError, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> socket.socket:
        raise error

    monkeypatch.setattr(target_factory.socket, "create_connection", fails)
    with pytest.raises(ConfigError, match=told):
        target_factory.check_listener("https://example.org/v1")
