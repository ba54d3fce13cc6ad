"""Objects by `kubectl apply`, one process each: how upstream submits, and what that costs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from workbench.errors import MissingToolError
from workbench.scaletest.driving import program
from workbench.scaletest.driving.by_api import metadata
from workbench.scaletest.driving.reply import Meaning, Reply
from workbench.scaletest.planned import Request

# HTTP status of the words that kubectl repeats of the server.
_STATUS = {
    "AlreadyExists": 409,
    "BadRequest": 400,
    "Conflict": 409,
    "Forbidden": 403,
    "InternalError": 500,
    "Invalid": 422,
    "NotFound": 404,
    "ServerTimeout": 504,
    "ServiceUnavailable": 503,
    "Timeout": 504,
    "TooManyRequests": 429,
    "Unauthorized": 401,
}
_FROM_SERVER = re.compile(r"Error from server(?: \((\w+)\))?: ")
_AWAY = re.compile(
    r"Unable to connect|connection (refused|reset)|i/o timeout|handshake timeout|EOF|Client\.Timeout|"
    r"deadline exceeded|no route to host|network is unreachable|http2: "
)


class Kubectl:
    """Objects by `kubectl apply -f -`.

    Raises
    ------
    MissingToolError
        There is no such program.
    """

    mode = "kubectl"
    labelled = True

    def __init__(self, kubeconfig: str | Path | None, context: str | None, binary: str | Path | None = None) -> None:
        found = shutil.which(str(binary or "kubectl"))
        if found is None:
            raise MissingToolError(
                "no kubectl", where=binary or "PATH", do="name one with --kubectl FILE, or submit with the API"
            )
        self._words = [found]
        if kubeconfig is not None:
            self._words += ["--kubeconfig", str(kubeconfig)]
        if context is not None:
            self._words += ["--context", context]

    async def make(self, request: Request, *, timeout_s: float) -> Reply:
        """Make one object; never raises for what the server or the program does."""
        # Its own time limit, too: it ends by itself should we be gone.
        words = [*self._words, "apply", "-f", "-", "-o", "json", f"--request-timeout={timeout_s:g}s"]
        ended = await program.run(words, stdin=request.body, timeout_s=timeout_s)
        if ended.code == 0:
            return Reply(ended.sent_ns, ended.done_ns, 200, metadata(ended.output))
        reason, status, verdict = judged(ended.told)
        return Reply(ended.sent_ns, ended.done_ns, status, reason=reason, message=ended.told, verdict=verdict)


def judged(told: str) -> tuple[str, int | None, Meaning | None]:
    """What an error of kubectl's means: the server's word for it, its HTTP status, else what is to be done.

    Examples
    --------
    >>> judged('Error from server (Forbidden): pods is forbidden')
    ('Forbidden', 403, None)
    >>> judged('Unable to connect to the server: EOF')
    ('', None, 'again')
    >>> judged('error: unable to recognize "STDIN"')
    ('', None, 'refused')
    """
    if (found := _FROM_SERVER.search(told)) is not None and found[1] in _STATUS:
        return found[1], _STATUS[found[1]], None
    if " is invalid: " in told:
        return "Invalid", 422, None
    again = found is not None or _AWAY.search(told) is not None or told.startswith("no end within")
    return "", None, "again" if again else "refused"
