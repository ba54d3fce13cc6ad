"""Access to a Kubernetes cluster: the identity of a kubeconfig's context, and requests to one namespace.

Requests of high rates go through `workbench.scaletest.cluster_api.connection`, with the same identity.
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from workbench.core import redaction
from workbench.core.errors import ConfigError, RunFailedError
from workbench.core.host import is_loopback
from workbench.kubernetes.manifests import Object
from workbench.kubernetes.resources import find_resource

USER_AGENT = "workbench-scaletest"
FIELD_MANAGER = "workbench"
MAX_LOG_BYTES = 1 << 30
# The context of a pod's own service account.
IN_CLUSTER = "in-cluster"
_BLOCK = 1 << 20
_CONNECT_S, _ANSWER_S, _LOG_S = 10, 60, 300
_API_VERSIONS = {"Job": "batch/v1", "NetworkPolicy": "networking.k8s.io/v1"}


@dataclass(frozen=True)
class Target:
    """Server address and identity of a connection. Never written to a file.

    `headers` is called before every request, because tokens expire. `pool` is urllib3's, with the TLS settings and the
    proxy of the kubeconfig.
    """

    server: str
    context: str
    tls: ssl.SSLContext | None = field(repr=False)
    headers: Callable[[], dict[str, str]] = field(repr=False)
    pool: Any = field(default=None, repr=False)

    @property
    def is_local(self) -> bool:
        """The server is on this machine."""
        return is_loopback(urlsplit(self.server).hostname or "")


def load_target(
    kubeconfig: str | Path | None,
    context: str | None,
    *,
    takes_current: bool = False,
    checks_certificate: bool = True,
    do: str = "name it with --kubeconfig FILE; without a cluster of your own: workbench scaletest cluster up",
) -> Target:
    """The identity of a kubeconfig's context; without a file, of $KUBECONFIG or the usual place.

    `context`: Name of the context. It may be omitted if there is a single one; among several only `takes_current` takes
    the file's current one: a scale test on the wrong cluster is an outage. `in-cluster` is the service account of the
    pod that this runs in.
    `checks_certificate`: Refuse a server beyond this machine whose certificate is not checked.
    `do`: What to do without a kubeconfig that can be used.
    """
    import yaml
    from kubernetes import config

    file = os.environ.get("KUBECONFIG") or None if kubeconfig is None else str(kubeconfig)
    wrong = "no kubeconfig that can be used"
    try:
        if context == IN_CLUSTER and kubeconfig is None:
            name, client = IN_CLUSTER, _build_pod_client()
        else:
            name, client = _build_client(file, context, wrong, do, takes_current=takes_current)
        configuration = client.configuration
        tls = None
        if str(configuration.host).startswith("https"):
            tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
            if not configuration.verify_ssl:
                tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
            if configuration.cert_file:
                tls.load_cert_chain(configuration.cert_file, configuration.key_file)
    except yaml.YAMLError as error:
        # The message may quote the file, including tokens.
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        fault = "not YAML" if line is None else f"not YAML, line {line + 1}"
        raise ConfigError(wrong, where=file, found=fault) from None
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(wrong, where=file, found=format_error(error)) from None

    def build_headers() -> dict[str, str]:
        # The package has had two names for the token.
        token = configuration.get_api_key_with_prefix("BearerToken", "authorization")
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json"}
        return headers | {"Authorization": token} if token else headers

    server = str(configuration.host).rstrip("/")
    target = Target(server, name, tls, build_headers, client.rest_client.pool_manager)
    if checks_certificate and not target.is_local and (tls is None or not configuration.verify_ssl):
        raise ConfigError(
            "the server's certificate is not checked", where=f"context {name}", do="only servers on this machine may"
        )
    return target


def _build_client(
    file: str | None, context: str | None, wrong: str, do: str, *, takes_current: bool
) -> tuple[str, Any]:
    """The context of a kubeconfig, by its name, and a client with its identity."""
    from kubernetes import config
    from kubernetes.config import kube_config

    # The package's own listing requires a current context.
    merged = kube_config.KubeConfigMerger(file or kube_config.KUBE_CONFIG_DEFAULT_LOCATION).config
    if merged is None:
        raise ConfigError(wrong, where=file or "$KUBECONFIG", found="no such file", do=do)
    names = [str(entry.value["name"]) for entry in merged.value["contexts"]]
    name = context or (merged.value.get("current-context") if takes_current else None)
    if name is None and len(names) != 1:
        raise ConfigError(
            "which cluster?", where="--context", allowed=names, do="name the context: it is never guessed"
        )
    name = names[0] if name is None else str(name)
    if name not in names:
        raise ConfigError("no such context", where="--context", found=name[:200], allowed=names)
    return name, config.new_client_from_config(config_file=file, context=name)


def _build_pod_client() -> Any:
    """A client with the service account of the pod that this runs in; its token is read again as it changes."""
    from kubernetes import client, config

    configuration = client.Configuration()
    config.load_incluster_config(client_configuration=configuration)
    return client.ApiClient(configuration)


def format_error(error: object) -> str:
    """An error's message on one line, with secrets removed."""
    return redaction.strip_user_info(redaction.redact_value(" ".join(str(error).split())))[:300]


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
    """Objects, pods and logs of one namespace of a cluster."""

    def __init__(self, target: Target, namespace: str) -> None:
        self._target, self.namespace = target, namespace
        self.context, self.server, self.is_local = target.context, target.server, target.is_local

    def create_object(self, manifest: Object, *, dry_run: bool = False) -> CreatedObject:
        """Create an object; with `dry_run`, the server only validates it."""
        kind, name = str(manifest["kind"]), str(manifest["metadata"]["name"])
        query = {"fieldValidation": "Strict", "fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
        path = self._build_path(kind)
        answer = self._request_json(f"{kind} {name}", "POST", path, manifest, query=query)
        return CreatedObject(kind, name, str(answer.get("metadata", {}).get("uid", "")))

    def delete_object(self, target: CreatedObject) -> bool:
        """Delete an object created here; false if it no longer exists."""
        options = {"preconditions": {"uid": target.uid}, "propagationPolicy": "Background"}
        try:
            self._request_json(
                f"{target.kind} {target.name}", "DELETE", self._build_path(target.kind, target.name), options
            )
        except (ObjectNotFoundError, ObjectExistsError):
            # The second error means that another object has the name now.
            return False
        return True

    def resume_job(self, job: CreatedObject) -> None:
        """Resume a suspended Job."""
        change = {"spec": {"suspend": False}}
        self._request_json(f"Job {job.name}", "PATCH", self._build_path("Job", job.name), change)

    def get_job(self, name: str) -> Object:
        """Current state of a Job."""
        return self._request_json(f"Job {name}", "GET", self._build_path("Job", name))

    def list_pods(self, selector: str) -> list[Object]:
        """List the pods of a label selector."""
        answer = self._request_json("pods", "GET", self._build_path("Pod"), query={"labelSelector": selector})
        items = answer.get("items")
        return [pod for pod in items if isinstance(pod, dict)] if isinstance(items, list) else []

    def read_log(self, pod: str, container: str) -> Iterator[bytes]:
        """Read the log of a pod's container in blocks."""
        from urllib3.exceptions import HTTPError

        query = {"container": container, "limitBytes": str(MAX_LOG_BYTES)}
        response = self._request(
            f"log of {pod}", "GET", self._build_path("Pod", pod) + "/log", query=query, read_s=_LOG_S
        )
        try:
            yield from response.stream(_BLOCK)
        except (OSError, HTTPError) as error:
            raise ClusterUnreachableError("the log was interrupted", where=pod, found=format_error(error)) from None
        finally:
            response.release_conn()

    def read_node_labels(self, node: str) -> dict[str, str]:
        """Labels of a node; none without access to nodes."""
        with contextlib.suppress(RunFailedError, ConfigError):
            return dict(
                self._request_json("node", "GET", f"/api/v1/nodes/{node}").get("metadata", {}).get("labels") or {}
            )
        return {}

    def _build_path(self, kind: str, name: str = "") -> str:
        path = find_resource(_API_VERSIONS.get(kind, "v1"), kind).path(self.namespace)
        return f"{path}/{name}" if name else path

    def _request_json(self, subject: str, method: str, path: str, body: Object | None = None, **options: Any) -> Object:
        response = self._request(subject, method, path, body, **options)
        try:
            document = json.loads(response.data)
        except ValueError:
            raise ClusterUnreachableError("the cluster's response is not JSON", where=subject) from None
        return document if isinstance(document, dict) else {}

    def _request(
        self,
        subject: str,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        query: Mapping[str, str] | None = None,
        read_s: float = _ANSWER_S,
    ) -> Any:
        """The answer of urllib3, whose body is still to be read; a refusal is an error that says what to do.

        `subject`: What the request is about, for the message.
        """
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        url = self.server + path + (f"?{urlencode(query)}" if query else "")
        headers = self._target.headers()
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            response = self._target.pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=Timeout(connect=_CONNECT_S, read=read_s),
                preload_content=False,
            )
            if response.status < 300:
                return response
            text = response.data
        except HTTPError as error:
            raise ClusterUnreachableError(
                "cannot reach the cluster",
                where=f"context {self.context}",
                found=format_error(getattr(error, "reason", None) or error),
            ) from None
        status, message = response.status, format_error(response.reason or "")
        with contextlib.suppress(ValueError, TypeError, KeyError):
            message = format_error(json.loads(text)["message"])
        if status == 404 and "namespaces" in message:
            raise ConfigError(
                "no such namespace", found=self.namespace, do=f"kubectl create namespace {self.namespace}"
            )
        if status == 404:
            raise ObjectNotFoundError("not on the cluster", where=subject, found=message)
        if status == 409:
            raise ObjectExistsError("already on the cluster", where=subject, found=message)
        if status in (401, 403):
            raise ConfigError("the cluster does not allow it", where=subject, found=message)
        if status in (400, 422):
            raise ConfigError("the cluster refuses it", where=subject, found=message)
        raise ClusterUnreachableError("the cluster failed", where=subject, found=f"{status} {message}".strip())
