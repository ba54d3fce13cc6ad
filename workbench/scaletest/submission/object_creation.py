"""Creation of one API object by POST: the request, its reply, what the reply means, and backoff."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import shlex
import shutil
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import orjson

from workbench.core import redaction
from workbench.core.child_process import die_with_parent
from workbench.core.errors import ConfigError, MissingToolError, refuse_os_errors
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import NS_PER_S, Answer, ApiError, Connection, UnreachableError, now_ns
from workbench.scaletest.cluster_api.list_watch import ListPage, list_items
from workbench.scaletest.scenario.workload_objects import ObjectRequest

Meaning = Literal["made", "exists", "throttled", "again", "refused"]
MAX_REASON_CHARS = 300
FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 5.0
_QUERY = {"fieldManager": api_discovery.MANAGER}
_LIST_TRIES = 10
MAX_OUTPUT_BYTES = 1 << 20
PLACEHOLDERS = ("name", "namespace", "gpus", "file")
_PLACE = re.compile(r"\{(\w*)\}")
_NAMESPACE = re.compile(r"/namespaces/([^/]+)/")
_GPU = "nvidia.com/gpu"
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


class Metadata(msgspec.Struct):
    """Metadata of an object, as far as it is read."""

    name: str = ""
    uid: str | None = None
    creationTimestamp: str | None = None  # noqa: N815 - Kubernetes' word
    deletionTimestamp: str | None = None  # noqa: N815
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None

    @property
    def run(self) -> str | None:
        """Run that the object's label names; null without the label."""
        return (self.labels or {}).get(api_discovery.RUN)

    @property
    def spec_hash(self) -> str | None:
        """Hash of the specification that the object was made from; null without one."""
        return (self.annotations or {}).get(api_discovery.SPEC_HASH)


class Object(msgspec.Struct):
    """The fields of an object that are read."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)


OBJECT = msgspec.json.Decoder(Object)


@dataclass(frozen=True, slots=True)
class Reply:
    """Result of one attempt to create an object.

    `status`: HTTP status; 0 if a program succeeded without one; None without a response.
    """

    sent_ns: int
    done_ns: int
    status: int | None
    found: Metadata = field(default_factory=Metadata)
    reason: str = ""
    message: str = ""
    retry_after_s: float | None = None
    verdict: Meaning | None = None

    @property
    def duration_s(self) -> float:
        """Duration of the attempt."""
        return (self.done_ns - self.sent_ns) / NS_PER_S

    @property
    def meaning(self) -> Meaning:
        """Verdict on the attempt: what the sender does next."""
        return self.verdict or classify_answer(self.status, self.reason)


class Submitter(Protocol):
    """A way to create objects.

    `labelled`: Whether the objects are created as planned, with the run's labels; a user's command creates its own.
    """

    mode: str
    labelled: bool

    async def create_object(self, request: ObjectRequest, *, timeout_s: float) -> Reply:
        """Make one object; never raises for what the server or the program does."""


def classify_answer(status: int | None, reason: str) -> Meaning:
    """Classify the response to a POST.

    A 409 means that the name exists, or a conflict on a quota, which is retried. A 401 is retried, because tokens are
    renewed before each request.

    >>> classify_answer(201, ""), classify_answer(422, "Invalid")
    ('made', 'refused')
    >>> classify_answer(409, "AlreadyExists"), classify_answer(409, "Conflict")
    ('exists', 'again')
    >>> [classify_answer(429, "TooManyRequests"), classify_answer(503, ""), classify_answer(None, "")]
    ['throttled', 'again', 'again']
    """
    if status is None or status >= 500 or status in (401, 408):
        return "again"
    if status == 0 or 200 <= status < 300:
        return "made"
    if status == 429:
        return "throttled"
    if status == 409:
        return "exists" if reason == "AlreadyExists" else "again"
    return "refused"


def draw_backoff_s(attempt: int, draw: random.Random) -> float:
    """Backoff after the n-th failure (from 1): doubles up to 5 s, with a random half.

    >>> 0.05 <= draw_backoff_s(1, random.Random(1)) <= 0.1, 2.5 <= draw_backoff_s(30, random.Random(1)) <= 5
    (True, True)
    """
    longest = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt - 1, 30))
    return longest * (0.5 + draw.random() / 2)


def shorten_text(text: str) -> str:
    """Put foreign text on one line and cut it."""
    return " ".join(text.split())[:MAX_REASON_CHARS]


class _Page(msgspec.Struct):
    """A page of a list."""

    class Meta(msgspec.Struct):
        """Metadata of a page: where the list continues."""

        continue_: str = msgspec.field(name="continue", default="")

    items: list[Object] = []
    metadata: Meta = msgspec.field(default_factory=Meta)


_PAGE_DECODER = msgspec.json.Decoder(_Page)


class ApiSubmitter:
    """Creates objects with POST."""

    mode = "api"
    labelled = True

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create_object(self, request: ObjectRequest, *, timeout_s: float) -> Reply:
        """Make one object; never raises for what the server does."""
        began = now_ns()
        try:
            answer = await self._connection.request(
                "POST", request.path, body=request.body, query=_QUERY, timeout_s=timeout_s
            )
        except UnreachableError as error:
            return Reply(began, now_ns(), None, message=shorten_text(str(error.facts.get("found") or error)))
        if answer.status < 300:
            return Reply(answer.sent_ns, answer.done_ns, answer.status, parse_metadata(answer.body))
        return _build_refusal(answer)


def _build_refusal(answer: Answer) -> Reply:
    document = answer.json()
    document = document if isinstance(document, dict) else {}
    return Reply(
        answer.sent_ns,
        answer.done_ns,
        answer.status,
        reason=str(document.get("reason", ""))[:80],
        message=shorten_text(redaction.redact_value(str(document.get("message", "")))),
        retry_after_s=answer.retry_after_s,
    )


async def find_object(api: Connection, request: ObjectRequest, *, timeout_s: float) -> Metadata | None:
    """Read an object by name; None if it does not exist."""
    answer = await api.request("GET", f"{request.path}/{request.name}", timeout_s=timeout_s)
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise UnreachableError("the server does not show the object", where=request.name, found=answer.status)
    return parse_metadata(answer.body)


async def list_run_objects(api: Connection, path: str, run: str) -> dict[str, Metadata]:
    """List all objects of the run in a collection, by name; in pages, so that 100,000 of them fit."""
    tries = 0

    async def fetch(query: dict[str, str]) -> ListPage:
        nonlocal tries
        while True:
            answer = await api.request("GET", path, query=query)
            if answer.status == 200:
                page = _PAGE_DECODER.decode(answer.body)
                return ListPage([item.metadata for item in page.items], "", page.metadata.continue_, answer.done_ns)
            tries += 1
            if tries >= _LIST_TRIES or answer.status not in (429, 500, 503, 504):
                raise ApiError(
                    "the objects of the run cannot be listed",
                    status=answer.status,
                    where=path,
                    found=f"{answer.status} {_build_refusal(answer).message}",
                )
            await asyncio.sleep(max(answer.retry_after_s or 0.0, 1.0))

    items = await list_items(fetch, {"labelSelector": api_discovery.build_run_selector(run)})
    return {metadata.name: metadata for metadata in items}


def read_request_metadata(request: ObjectRequest) -> Metadata:
    """Metadata of an object that we send."""
    return parse_metadata(request.body)


def parse_metadata(body: bytes) -> Metadata:
    """Metadata of an object in JSON; empty for anything else."""
    try:
        return OBJECT.decode(body).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Metadata()


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """Result of a program. `code` is None after a timeout."""

    code: int | None
    output: bytes
    told: str
    sent_ns: int
    done_ns: int


async def run_program(words: Sequence[str], *, stdin: bytes | None, timeout_s: float) -> ProgramResult:
    """Run a program, and keep up to 1 MiB of its output."""
    sent_ns = now_ns()
    with refuse_os_errors("cannot start the program", words[0], error_type=ConfigError):
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C is for us: what is under way may end.
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        async with asyncio.timeout(timeout_s):
            output, stderr, _ = await asyncio.gather(
                _read_output(process.stdout), _read_output(process.stderr), _write_input(process, stdin)
            )
            code = await process.wait()
    except TimeoutError:
        return ProgramResult(None, b"", f"no end within {timeout_s:g} s", sent_ns, now_ns())
    finally:
        # Kill its descendants as well; after a clean exit there are none.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return ProgramResult(
        code, output, shorten_text(redaction.redact_value(stderr.decode(errors="replace"))), sent_ns, now_ns()
    )


async def _read_output(stream: asyncio.StreamReader | None) -> bytes:
    """Read all output and keep the first part; an unread pipe would block the program."""
    assert stream is not None
    output = b""
    while block := await stream.read(1 << 16):
        output += block[: MAX_OUTPUT_BYTES - len(output)]
    return output


async def _write_input(process: asyncio.subprocess.Process, text: bytes | None) -> None:
    if process.stdin is None or text is None:
        return
    with contextlib.suppress(ConnectionError):
        process.stdin.write(text)
        await process.stdin.drain()
    process.stdin.close()


def parse_command(text: str, option: str) -> tuple[str, ...]:
    """Split a command line into words.

    >>> parse_command("runai submit --gpu 1", "--command")
    ('runai', 'submit', '--gpu', '1')
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError("not a valid command line", where=option, found=str(error)) from None


class CommandSubmitter:
    """Creates objects with a command, one process per object.

    `words`: Program and arguments; `{name}`, `{namespace}`, `{gpus}` (of the workload's first pod template) and
    `{file}` (the object as JSON, for the time of the call) are filled in.
    """

    mode = "command"
    labelled = False

    def __init__(self, words: Sequence[str]) -> None:
        unknown = sorted({placeholder for word in words for placeholder in _PLACE.findall(word)} - set(PLACEHOLDERS))
        if unknown:
            allowed = [f"{{{placeholder}}}" for placeholder in PLACEHOLDERS]
            raise ConfigError("no such place in the command", where=" ".join(words), found=unknown, allowed=allowed)
        if not any("{name}" in word or "{file}" in word for word in words):
            raise ConfigError("the command contains neither {name} nor {file}", where=" ".join(words), do="add {name}")
        program = shutil.which(words[0])
        if program is None:
            raise ConfigError("no such program", where=words[0], do="give its path, or install it")
        self._words = [program, *words[1:]]

    async def create_object(self, request: ObjectRequest, *, timeout_s: float) -> Reply:
        """Run the command for one object; never raises for what it does."""
        file = _write_temporary_file(request.body) if any("{file}" in word for word in self._words) else None
        try:
            words = fill_placeholders(self._words, request, file)
            ended = await run_program(words, stdin=None, timeout_s=timeout_s)
        finally:
            if file is not None:
                file.unlink(missing_ok=True)
        if ended.code == 0:
            return Reply(ended.sent_ns, ended.done_ns, 0)
        # A program that did not end may have done its work; one that says no is believed.
        verdict: Meaning = "again" if ended.code is None else "refused"
        message = ended.told if ended.code is None else f"exit code {ended.code}: {ended.told}"
        return Reply(ended.sent_ns, ended.done_ns, None, message=message, verdict=verdict)


def fill_placeholders(words: Sequence[str], request: ObjectRequest, file: Path | None) -> list[str]:
    """Fill the placeholders of a command.

    >>> body = b'{"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}'
    >>> request = ObjectRequest("/api/v1/namespaces/a/pods", "w-1", body)
    >>> fill_placeholders(["cli", "submit", "{name}", "-g={gpus}"], request, None)
    ['cli', 'submit', 'w-1', '-g=2']
    """
    namespace = _NAMESPACE.search(request.path + "/")
    values = {
        "name": request.name,
        "namespace": namespace[1] if namespace else "",
        "gpus": find_gpus(orjson.loads(request.body)),
        "file": str(file or ""),
    }
    return [_PLACE.sub(lambda match: values[match[1]], word) for word in words]


def find_gpus(body: Any) -> str:
    """GPU request of an object: the first GPU resource, or the first field `gpu` with a value.

    >>> find_gpus({"spec": {"gpu": {"value": "0.5"}}}), find_gpus({"spec": {}})
    ('0.5', '0')
    """
    return _find_gpu_value(body) or "0"


def _find_gpu_value(body: Any) -> str | None:
    """Find the first number of GPUs in a manifest, as text; null if it requests none."""
    if isinstance(body, list):
        return next(filter(None, map(_find_gpu_value, body)), None)
    if not isinstance(body, dict):
        return None
    if isinstance(body.get(_GPU), str | int | float):
        return str(body[_GPU])
    field = body.get("gpu")
    if isinstance(field, dict) and "value" in field:
        return str(field["value"])
    return next(filter(None, map(_find_gpu_value, body.values())), None)


def _write_temporary_file(body: bytes) -> Path:
    handle, name = tempfile.mkstemp(prefix="workload-", suffix=".json")
    with open(handle, "wb") as file:
        os.fchmod(handle, 0o600)
        file.write(body)
    return Path(name)


class KubectlSubmitter:
    """Creates objects with `kubectl apply -f -`."""

    mode = "kubectl"
    labelled = True

    def __init__(self, kubeconfig: str | Path | None, context: str | None, binary: str | Path | None = None) -> None:
        program = shutil.which(str(binary or "kubectl"))
        if program is None:
            raise MissingToolError(
                "no kubectl", where=binary or "PATH", do="name one with --kubectl FILE, or submit with the API"
            )
        self._words = [program]
        if kubeconfig is not None:
            self._words += ["--kubeconfig", str(kubeconfig)]
        if context is not None:
            self._words += ["--context", context]

    async def create_object(self, request: ObjectRequest, *, timeout_s: float) -> Reply:
        """Make one object; never raises for what the server or the program does."""
        # Its own time limit, too: it ends by itself should we be gone.
        words = [*self._words, "apply", "-f", "-", "-o", "json", f"--request-timeout={timeout_s:g}s"]
        ended = await run_program(words, stdin=request.body, timeout_s=timeout_s)
        if ended.code == 0:
            return Reply(ended.sent_ns, ended.done_ns, 200, parse_metadata(ended.output))
        reason, status, verdict = classify_kubectl_error(ended.told)
        return Reply(ended.sent_ns, ended.done_ns, status, reason=reason, message=ended.told, verdict=verdict)


def classify_kubectl_error(message: str) -> tuple[str, int | None, Meaning | None]:
    """Classify an error of kubectl: the server's reason and HTTP status, or a verdict without them.

    >>> classify_kubectl_error('Error from server (Forbidden): pods is forbidden')
    ('Forbidden', 403, None)
    >>> classify_kubectl_error('Unable to connect to the server: EOF')
    ('', None, 'again')
    >>> classify_kubectl_error('error: unable to recognize "STDIN"')
    ('', None, 'refused')
    """
    if (match := _FROM_SERVER.search(message)) is not None and match[1] in _STATUS:
        return match[1], _STATUS[match[1]], None
    if " is invalid: " in message:
        return "Invalid", 422, None
    again = match is not None or _AWAY.search(message) is not None or message.startswith("no end within")
    return "", None, "again" if again else "refused"
