"""A cluster's API, as far as a session needs it; every refusal in words."""

from __future__ import annotations

import contextlib
import json
import os
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workbench import redaction
from workbench.errors import ConfigError, MissingToolError, RunFailedError
from workbench.host import is_loopback
from workbench.indicators.kubernetes.manifests import CONTAINER, Object
from workbench.indicators.kubernetes.records import MOST_LOG_BYTES

FIELD_MANAGER = "workbench"
_TIMEOUT_S = (10, 60)
_LOG_TIMEOUT_S = (10, 300)
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Created:
    """An object that was made here: its uid tells it from another one of the same name."""

    kind: str
    name: str
    uid: str


class AwayError(RunFailedError):
    """The cluster cannot be reached, or fails: another try may help."""


class GoneError(RunFailedError):
    """What was asked for is not there (any more)."""


class TakenError(ConfigError):
    """An object of this name is there already."""


class Cluster:
    """The API of one cluster and namespace; see `connect`."""

    def __init__(self, client: Any, context: str, namespace: str) -> None:
        from kubernetes.client import BatchV1Api, CoreV1Api, NetworkingV1Api

        self._client = client
        self._core, self._batch, self._network = CoreV1Api(client), BatchV1Api(client), NetworkingV1Api(client)
        self.context, self.namespace = context, namespace

    @property
    def server(self) -> str:
        """Where it is."""
        return str(self._client.configuration.host)

    @property
    def is_local(self) -> bool:
        """It is on this machine."""
        return is_loopback(urllib.parse.urlsplit(self.server).hostname or "")

    def create(self, made: Object, *, dry_run: bool = False) -> Created:
        """Make an object, or have the server check it as if."""
        methods: dict[str, Callable[..., Any]] = {
            "ConfigMap": self._core.create_namespaced_config_map,
            "Secret": self._core.create_namespaced_secret,
            "NetworkPolicy": self._network.create_namespaced_network_policy,
            "Job": self._batch.create_namespaced_job,
        }
        kind, name = str(made["kind"]), str(made["metadata"]["name"])
        options: dict[str, Any] = {"field_validation": "Strict", "field_manager": FIELD_MANAGER}
        if dry_run:
            options["dry_run"] = "All"
        answer = self._called(f"{kind} {name}", methods[kind], self.namespace, made, **options)
        return Created(kind, name, str(answer.get("metadata", {}).get("uid", "")))

    def delete(self, one: Created) -> bool:
        """Delete an object that was made here and nothing else; false when it was gone."""
        from kubernetes.client import V1DeleteOptions, V1Preconditions

        methods: dict[str, Callable[..., Any]] = {
            "ConfigMap": self._core.delete_namespaced_config_map,
            "Secret": self._core.delete_namespaced_secret,
            "NetworkPolicy": self._network.delete_namespaced_network_policy,
            "Job": self._batch.delete_namespaced_job,
        }
        only = V1DeleteOptions(preconditions=V1Preconditions(uid=one.uid), propagation_policy="Background")
        try:
            self._called(f"{one.kind} {one.name}", methods[one.kind], one.name, self.namespace, body=only)
        except (GoneError, TakenError):
            # The second: another object has its name now.
            return False
        return True

    def resume(self, job: Created) -> None:
        """Let a suspended Job begin."""
        change = {"spec": {"suspend": False}}
        self._called(f"Job {job.name}", self._batch.patch_namespaced_job, job.name, self.namespace, change)

    def job(self, name: str) -> Object:
        """A Job as it is now."""
        return self._called(f"Job {name}", self._batch.read_namespaced_job, name, self.namespace)

    def pods(self, selector: str) -> list[Object]:
        """The pods that a selector finds."""
        answer = self._called("pods", self._core.list_namespaced_pod, self.namespace, label_selector=selector)
        found = answer.get("items")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def log(self, pod: str) -> Iterator[bytes]:
        """The log of a pod's measuring container, in blocks."""
        from urllib3.exceptions import HTTPError

        response = self._asked(
            f"log of {pod}",
            self._core.read_namespaced_pod_log,
            pod,
            self.namespace,
            container=CONTAINER,
            limit_bytes=MOST_LOG_BYTES,
            _preload_content=False,
            _request_timeout=_LOG_TIMEOUT_S,
        )
        try:
            yield from response.stream(_BLOCK)
        except (OSError, HTTPError) as error:
            raise AwayError("the log was broken off", where=pod, found=_short(str(error))) from None
        finally:
            response.release_conn()

    def accelerators(self, node: str, labels: Mapping[str, str]) -> list[str]:
        """What a node's labels call its accelerators; empty where the API does not show nodes."""
        with contextlib.suppress(RunFailedError, ConfigError):
            answer = self._called("node", self._core.read_node, node)
            found = answer.get("metadata", {}).get("labels") or {}
            return [str(found[name])[:100] for name in labels if name in found]
        return []

    def _called(self, what: str, method: Callable[..., Any], *arguments: Any, **options: Any) -> Object:
        """The API's answer as it is, unread by the client's models: those refuse what newer servers add."""
        response = self._asked(what, method, *arguments, _preload_content=False, _request_timeout=_TIMEOUT_S, **options)
        try:
            found = json.loads(response.data)
        except ValueError:
            raise AwayError("the cluster answered no JSON", where=what) from None
        return found if isinstance(found, dict) else {}

    def _asked(self, what: str, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return method(*arguments, **options)
        except ApiException as error:
            raise _refused(what, error.status or 0, _message(error), self.namespace) from None
        except HTTPError as error:
            told = _short(str(getattr(error, "reason", None) or error))
            raise AwayError("the cluster cannot be reached", where=f"context {self.context}", found=told) from None


def connect(context: str | None, confirm_context: str | None, namespace: str) -> Cluster:
    """The cluster of a kubeconfig's context ($KUBECONFIG, or the usual place).

    Parameters
    ----------
    context
        Its name; the current one without it.
    confirm_context
        The same name once more: needed unless the cluster is on this machine.
    namespace
        Where objects are made.

    Raises
    ------
    MissingToolError
        The package `kubernetes` is not installed.
    ConfigError
        There is no kubeconfig or no such context, or the context is not confirmed.
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
            "no kubeconfig that can be used",
            found=_short(str(error)),
            do="set KUBECONFIG; or go by files: apply manifests.yaml, and collect the pods' logs",
        ) from None
    names = [str(one["name"]) for one in contexts]
    name = context or str(current["name"])
    if name not in names:
        raise ConfigError("no such context", where="--context", found=name[:200], allowed=names)
    try:
        cluster = Cluster(config.new_client_from_config(config_file=file, context=name), name, namespace)
    except (ConfigException, OSError, ValueError) as error:
        raise ConfigError("the context cannot be used", where=name, found=_short(str(error))) from None
    if not cluster.is_local and confirm_context != name:
        raise ConfigError(
            "this would run on a cluster that is not this machine",
            where=f"context {name}, namespace {namespace}",
            found=confirm_context,
            do=f"--confirm-context {name}",
        )
    return cluster


def _message(error: Any) -> str:
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        return _short(str(json.loads(error.body)["message"]))
    return _short(str(error.reason or ""))


def _refused(what: str, status: int, message: str, namespace: str) -> RunFailedError | ConfigError:
    if status == 404 and "namespaces" in message:
        return ConfigError("no such namespace", found=namespace, do=f"kubectl create namespace {namespace}")
    if status == 404:
        return GoneError("not on the cluster", where=what, found=message)
    if status == 409:
        return TakenError("already on the cluster", where=what, found=message)
    if status in (401, 403):
        return ConfigError("the cluster does not allow it", where=what, found=message)
    if status in (400, 422):
        return ConfigError("the cluster refuses it", where=what, found=message)
    return AwayError("the cluster failed", where=what, found=f"{status} {message}".strip())


def _short(text: str) -> str:
    cleaned: str = redaction.clean(redaction.without_user_info(" ".join(text.split())))
    return cleaned[:400]
