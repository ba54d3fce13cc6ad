"""Free ports on this machine that stay ours while a component is restarted."""

from __future__ import annotations

import random
import socket

from workbench.errors import MissingToolError

LOOPBACK = "127.0.0.1"
# Below what systems hand out to outgoing connections (Linux: 32768 and up): while a component is away for a restart,
# nobody's connection can take its port. Above what services of this machine usually use.
_LOWEST, _HIGHEST = 20_000, 31_999


def free(count: int) -> list[int]:
    """So many different ports that nobody listens on.

    Another process may still take one before it is used: whoever starts a server on them tries again.

    Raises
    ------
    MissingToolError
        There are not so many.
    """
    # Random places, since clusters start at the same moment. No secret hangs on it.
    candidates = random.SystemRandom().sample(range(_LOWEST, _HIGHEST), 400)
    found: list[int] = []
    for port in candidates:
        if len(found) == count:
            break
        if is_free(port):
            found.append(port)
    if len(found) < count:
        raise MissingToolError("not enough free ports on this machine", found=len(found), allowed=f"{count} needed")
    return found


def is_free(port: int) -> bool:
    """Does nobody listen on this port, on loopback or everywhere?"""
    # The wildcard too: somebody who listens on all addresses has it.
    for host in (LOOPBACK, ""):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                return False
    return True
