"""Does anybody listen where a sweep is to go? Asked once before it begins: a mistyped port is no measurement."""

from __future__ import annotations

import socket

from yarl import URL

from workbench.errors import ConfigError

PATIENCE_S = 10.0


def need_listener(url: str, *, patience_s: float = PATIENCE_S) -> None:
    """Open one connection and close it; no request is sent, so that nothing is counted on either side.

    A service that dies later, or refuses under load, is measured: its failures are counted.

    Raises
    ------
    ConfigError
        The host is unknown, refuses the connection, or does not answer within `patience_s`.
    """
    address = URL(url)
    host, port = address.host or "", address.port or 0
    try:
        socket.create_connection((host, port), patience_s).close()
    except socket.gaierror as error:
        raise ConfigError(
            "no such host", where="--url", found=f"{host}: {error.strerror}", do="check its name"
        ) from None
    except TimeoutError:
        raise ConfigError(
            "the service takes no connection",
            where="--url",
            found=f"{host}:{port}: nothing within {patience_s:g} s",
            do="check address and firewall",
        ) from None
    except OSError as error:
        raise ConfigError(
            "nobody listens at this address",
            where="--url",
            found=f"{host}:{port}: {error.strerror}",
            do=f"start the service, or check the port; a simulated one: workbench sizing simulate --port {port}",
        ) from None
