"""Client of the cluster API, and reader of the signed records in pod logs."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import os
import re
import urllib.parse
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.core import redaction
from workbench.core.errors import ConfigError, InputError, MissingToolError, RunFailedError
from workbench.core.host import is_loopback
from workbench.indicators.kubernetes.job_manifests import CONTAINER, Object
from workbench.indicators.kubernetes.pod import LINE_CHARACTERS

POD = "pod"
DONE = "done"
MAX_LOG_BYTES = 1 << 30
MAX_DOCUMENT_BYTES = 16 << 20
_MAX_PARTS = 1000
_CHUNK = 1 << 20
_MARK = b"@workbench "
_LINE = re.compile(
    rb"@workbench ((begin|part|end) (\d{1,6})\.(\d{1,9}|pod|done)\.([0-9a-f]{8}) (\d{1,4})/(\d{1,4}) "
    rb"([A-Za-z0-9+/=:-]{1,%d})) ([0-9a-f]{32})@" % LINE_CHARACTERS
)
_LONGEST = LINE_CHARACTERS + 200
FIELD_MANAGER = "workbench"
_TIMEOUT_S = (10, 60)
_LOG_TIMEOUT_S = (10, 300)
_BLOCK = 1 << 20


@dataclass(frozen=True, order=True)
class RecordKey:
    """Identity of a document: round, subject (position of a run, `pod` or `done`), and attempt at the round."""

    round: int
    what: str
    attempt: str


@dataclass
class Records:
    """Records found in the logs.

    `documents` are complete and signed; `begun` are started runs; `torn` are documents with missing parts; `damaged`
    counts lines that are cut or not signed with the session's key.
    """

    documents: dict[RecordKey, dict[str, Any]] = field(default_factory=dict)
    begun: set[RecordKey] = field(default_factory=set)
    torn: set[RecordKey] = field(default_factory=set)
    damaged: int = 0


@dataclass
class _Parts:
    count: int
    parts: dict[int, str] = field(default_factory=dict)
    end: str | None = None


def read_records(logs: Iterable[Iterable[bytes]], key: str) -> Records:
    """Read the documents of logs, each an iterable of byte blocks; logs may be in any order."""
    records, gathered = Records(), dict[RecordKey, _Parts]()
    for blocks in logs:
        for line in _find_lines(blocks, records):
            _take_line(line, bytes.fromhex(key), records, gathered)
    for record_key, parts in gathered.items():
        document = _assemble_document(parts)
        if document is None:
            records.torn.add(record_key)
        else:
            records.documents[record_key] = document
    return records


def read_blocks(path: Path) -> Iterator[bytes]:
    """Read a log file in blocks."""
    try:
        with path.open("rb") as file:
            while block := file.read(_CHUNK):
                yield block
    except OSError as error:
        raise InputError("cannot read the log", where=path, found=error.strerror) from None


def _find_lines(blocks: Iterable[bytes], records: Records) -> Iterator[re.Match[bytes]]:
    """Find record lines at any position; incomplete ones are counted as damaged."""
    buffer, total = b"", 0
    for block in blocks:
        total += len(block)
        if total > MAX_LOG_BYTES:
            raise InputError("log is too large", allowed=f"up to {MAX_LOG_BYTES >> 20} MiB")
        buffer += block
        # Keeps enough bytes to find a line across two blocks.
        buffer = yield from _match_lines(buffer, max(0, len(buffer) - _LONGEST), records)
    yield from _match_lines(buffer, len(buffer), records)


def _match_lines(buffer: bytes, until: int, records: Records) -> Generator[re.Match[bytes], None, bytes]:
    """Matches that start before `until`; returns the bytes to search again with the next block."""
    at = 0
    while (start := buffer.find(_MARK, at)) != -1 and start < until:
        line = _LINE.match(buffer, start)
        if line is None:
            records.damaged += 1
            at = start + 1
        else:
            yield line
            at = line.end()
    # The mark itself may be split at the end of the block, hence `until`.
    return buffer[max(at, until) :]


def _take_line(line: re.Match[bytes], key: bytes, records: Records, gathered: dict[RecordKey, _Parts]) -> None:
    body, kind, number, name, attempt, at, of, text, signature = line.groups()
    if not hmac.compare_digest(hmac.new(key, body, hashlib.sha256).hexdigest()[:32].encode(), signature):
        records.damaged += 1
        return
    record_key, place, count = RecordKey(int(number), name.decode(), attempt.decode()), int(at), int(of)
    if kind == b"begin":
        records.begun.add(record_key)
        return
    parts = gathered.setdefault(record_key, _Parts(count))
    if count != parts.count or count > _MAX_PARTS:
        records.damaged += 1
    elif kind == b"end":
        parts.end = text.decode()
    else:
        parts.parts[place] = text.decode()


def _assemble_document(parts: _Parts) -> dict[str, Any] | None:
    """Assemble a document from its parts; null if a part is missing or the digest differs."""
    if parts.end is None or sorted(parts.parts) != list(range(parts.count)):
        return None
    length, _, digest = parts.end.partition(":")
    try:
        packed = base64.b64decode("".join(parts.parts[at] for at in range(parts.count)), validate=True)
        if str(len(packed)) != length or hashlib.sha256(packed).hexdigest() != digest:
            return None
        unpacked = zlib.decompressobj().decompress(packed, MAX_DOCUMENT_BYTES)
        document = json.loads(unpacked)
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


@dataclass(frozen=True)
class CreatedObject:
    """Object created by this process; the uid distinguishes it from another one of the same name."""

    kind: str
    name: str
    uid: str


class ClusterUnreachableError(RunFailedError):
    """The cluster cannot be reached or fails; a retry may help."""


class ObjectNotFoundError(RunFailedError):
    """The object does not exist (any more)."""


class ObjectExistsError(ConfigError):
    """An object with this name already exists."""


class Cluster:
    """API of one cluster and namespace; see `connect_cluster`."""

    def __init__(self, client: Any, context: str, namespace: str) -> None:
        from kubernetes.client import BatchV1Api, CoreV1Api, NetworkingV1Api

        self._client = client
        self._core, self._batch, self._network = CoreV1Api(client), BatchV1Api(client), NetworkingV1Api(client)
        self.context, self.namespace = context, namespace

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self._client.configuration.host)

    @property
    def is_local(self) -> bool:
        """Whether the cluster is on this machine."""
        return is_loopback(urllib.parse.urlsplit(self.server).hostname or "")

    def create_object(self, manifest: Object, *, dry_run: bool = False) -> CreatedObject:
        """Create an object; with `dry_run`, the server only validates it."""
        methods: dict[str, Callable[..., Any]] = {
            "ConfigMap": self._core.create_namespaced_config_map,
            "Secret": self._core.create_namespaced_secret,
            "NetworkPolicy": self._network.create_namespaced_network_policy,
            "Job": self._batch.create_namespaced_job,
        }
        kind, name = str(manifest["kind"]), str(manifest["metadata"]["name"])
        options: dict[str, Any] = {"field_validation": "Strict", "field_manager": FIELD_MANAGER}
        if dry_run:
            options["dry_run"] = "All"
        answer = self._call_raw(f"{kind} {name}", methods[kind], self.namespace, manifest, **options)
        return CreatedObject(kind, name, str(answer.get("metadata", {}).get("uid", "")))

    def delete_object(self, target: CreatedObject) -> bool:
        """Delete an object created here; false if it no longer exists."""
        from kubernetes.client import V1DeleteOptions, V1Preconditions

        methods: dict[str, Callable[..., Any]] = {
            "ConfigMap": self._core.delete_namespaced_config_map,
            "Secret": self._core.delete_namespaced_secret,
            "NetworkPolicy": self._network.delete_namespaced_network_policy,
            "Job": self._batch.delete_namespaced_job,
        }
        only = V1DeleteOptions(preconditions=V1Preconditions(uid=target.uid), propagation_policy="Background")
        try:
            self._call_raw(f"{target.kind} {target.name}", methods[target.kind], target.name, self.namespace, body=only)
        except (ObjectNotFoundError, ObjectExistsError):
            # The second error means that another object has the name now.
            return False
        return True

    def resume_job(self, job: CreatedObject) -> None:
        """Resume a suspended Job."""
        change = {"spec": {"suspend": False}}
        self._call_raw(f"Job {job.name}", self._batch.patch_namespaced_job, job.name, self.namespace, change)

    def get_job(self, name: str) -> Object:
        """Current state of a Job."""
        return self._call_raw(f"Job {name}", self._batch.read_namespaced_job, name, self.namespace)

    def list_pods(self, selector: str) -> list[Object]:
        """List the pods of a label selector."""
        answer = self._call_raw("pods", self._core.list_namespaced_pod, self.namespace, label_selector=selector)
        items = answer.get("items")
        return [pod for pod in items if isinstance(pod, dict)] if isinstance(items, list) else []

    def read_log(self, pod: str) -> Iterator[bytes]:
        """Read the log of a pod's measuring container in blocks."""
        from urllib3.exceptions import HTTPError

        response = self._call_api(
            f"log of {pod}",
            self._core.read_namespaced_pod_log,
            pod,
            self.namespace,
            container=CONTAINER,
            limit_bytes=MAX_LOG_BYTES,
            _preload_content=False,
            _request_timeout=_LOG_TIMEOUT_S,
        )
        try:
            yield from response.stream(_BLOCK)
        except (OSError, HTTPError) as error:
            raise ClusterUnreachableError(
                "the log was interrupted", where=pod, found=_shorten_text(str(error))
            ) from None
        finally:
            response.release_conn()

    def list_accelerators(self, node: str, labels: Mapping[str, str]) -> list[str]:
        """Accelerators according to the labels of a node; empty without access to nodes."""
        with contextlib.suppress(RunFailedError, ConfigError):
            answer = self._call_raw("node", self._core.read_node, node)
            node_labels = answer.get("metadata", {}).get("labels") or {}
            return [str(node_labels[name])[:100] for name in labels if name in node_labels]
        return []

    def _call_raw(self, subject: str, method: Callable[..., Any], *arguments: Any, **options: Any) -> Object:
        """Raw API response; the models of the client reject fields of newer servers."""
        response = self._call_api(
            subject, method, *arguments, _preload_content=False, _request_timeout=_TIMEOUT_S, **options
        )
        try:
            document = json.loads(response.data)
        except ValueError:
            raise ClusterUnreachableError("the cluster's response is not JSON", where=subject) from None
        return document if isinstance(document, dict) else {}

    def _call_api(self, subject: str, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return method(*arguments, **options)
        except ApiException as error:
            raise _explain_refusal(subject, error.status or 0, _read_error_message(error), self.namespace) from None
        except HTTPError as error:
            reason = _shorten_text(str(getattr(error, "reason", None) or error))
            raise ClusterUnreachableError(
                "cannot reach the cluster", where=f"context {self.context}", found=reason
            ) from None


def connect_cluster(context: str | None, confirm_context: str | None, namespace: str) -> Cluster:
    """Connect to the cluster of a kubeconfig context ($KUBECONFIG, or the default path).

    `confirm_context`: The same name again; required unless the cluster is on this machine.
    """
    try:
        from kubernetes import config
        from kubernetes.config.config_exception import ConfigException
    except ModuleNotFoundError as error:
        if error.name != "kubernetes":
            raise
        raise MissingToolError("the Kubernetes client is not installed", do="pip install kubernetes") from None
    file = os.environ.get("KUBECONFIG") or None
    try:
        contexts, current = config.list_kube_config_contexts(config_file=file)
    except (ConfigException, OSError, ValueError) as error:
        raise ConfigError(
            "no usable kubeconfig",
            found=_shorten_text(str(error)),
            do="set KUBECONFIG; or apply manifests.yaml with kubectl, and collect the pod logs",
        ) from None
    names = [str(entry["name"]) for entry in contexts]
    name = context or str(current["name"])
    if name not in names:
        raise ConfigError("no such context", where="--context", found=name[:200], allowed=names)
    try:
        cluster = Cluster(config.new_client_from_config(config_file=file, context=name), name, namespace)
    except (ConfigException, OSError, ValueError) as error:
        raise ConfigError("cannot use the context", where=name, found=_shorten_text(str(error))) from None
    if not cluster.is_local and confirm_context != name:
        raise ConfigError(
            "the cluster is not on this machine",
            where=f"context {name}, namespace {namespace}",
            found=confirm_context,
            do=f"--confirm-context {name}",
        )
    return cluster


def _read_error_message(error: Any) -> str:
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        return _shorten_text(str(json.loads(error.body)["message"]))
    return _shorten_text(str(error.reason or ""))


def _explain_refusal(subject: str, status: int, message: str, namespace: str) -> RunFailedError | ConfigError:
    if status == 404 and "namespaces" in message:
        return ConfigError("no such namespace", found=namespace, do=f"kubectl create namespace {namespace}")
    if status == 404:
        return ObjectNotFoundError("not on the cluster", where=subject, found=message)
    if status == 409:
        return ObjectExistsError("already on the cluster", where=subject, found=message)
    if status in (401, 403):
        return ConfigError("the cluster does not allow it", where=subject, found=message)
    if status in (400, 422):
        return ConfigError("the cluster refuses it", where=subject, found=message)
    return ClusterUnreachableError("the cluster failed", where=subject, found=f"{status} {message}".strip())


def _shorten_text(text: str) -> str:
    cleaned: str = redaction.redact_value(redaction.strip_user_info(" ".join(text.split())))
    return cleaned[:400]
