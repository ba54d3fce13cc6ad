"""Kubeconfig contexts: the server's address and the identity of a context."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from workbench.core import redaction
from workbench.core.errors import ConfigError
from workbench.core.host import is_loopback

USER_AGENT = "workbench-scaletest"
_OTHERWISE = "name it with --kubeconfig FILE; without a cluster of your own: workbench scaletest cluster up"


@dataclass(frozen=True)
class Target:
    """Server address and identity of a connection. Never written to a file.

    `headers` is called before every request, because tokens expire.
    """

    server: str
    context: str
    tls: ssl.SSLContext | None = field(repr=False)
    headers: Callable[[], dict[str, str]] = field(repr=False)

    @property
    def is_local(self) -> bool:
        """The server is on this machine."""
        return is_loopback(urlsplit(self.server).hostname or "")


def load_target(kubeconfig: str | Path | None, context: str | None) -> Target:
    """The identity of a kubeconfig's context.

    `context`: Name of the context. It may be omitted only if there is a single one: a scale test on the wrong cluster
    is an outage.
    """
    import yaml
    from kubernetes import config
    from kubernetes.config.config_exception import ConfigException

    file = None if kubeconfig is None else str(kubeconfig)
    try:
        name = _select_context(context, _list_contexts(file))
        configuration = config.new_client_from_config(config_file=file, context=name).configuration
        target = Target(
            str(configuration.host).rstrip("/"), name, _build_tls_context(configuration), _build_headers(configuration)
        )
    except yaml.YAMLError as error:
        # The message may quote the file, including tokens.
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        fault = "not YAML" if line is None else f"not YAML, line {line + 1}"
        raise ConfigError("no kubeconfig that can be used", where=file, found=fault) from None
    except (ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError("no kubeconfig that can be used", where=file, found=format_error(error)) from None
    if not target.is_local and (target.tls is None or not configuration.verify_ssl):
        raise ConfigError(
            "the server's certificate is not checked", where=f"context {name}", do="only servers on this machine may"
        )
    return target


def _list_contexts(file: str | None) -> list[str]:
    """Names of the contexts; the kubernetes package's own listing requires a current context."""
    from kubernetes.config import kube_config

    merged = kube_config.KubeConfigMerger(file or kube_config.KUBE_CONFIG_DEFAULT_LOCATION).config
    if merged is None:
        raise ConfigError(
            "no kubeconfig that can be used", where=file or "$KUBECONFIG", found="no such file", do=_OTHERWISE
        )
    return [str(entry.value["name"]) for entry in merged.value["contexts"]]


def _select_context(context: str | None, names: list[str]) -> str:
    if context is None and len(names) == 1:
        return names[0]
    if context is None:
        raise ConfigError(
            "which cluster?", where="--context", allowed=names, do="name the context: it is never guessed"
        )
    if context not in names:
        raise ConfigError("no such context", where="--context", found=context[:200], allowed=names)
    return context


def _build_tls_context(configuration: Any) -> ssl.SSLContext | None:
    if not str(configuration.host).startswith("https"):
        return None
    tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
    if not configuration.verify_ssl:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if configuration.cert_file:
        tls.load_cert_chain(configuration.cert_file, configuration.key_file)
    return tls


def _build_headers(configuration: Any) -> Callable[[], dict[str, str]]:
    def request_headers() -> dict[str, str]:
        # The package has had two names for it.
        token = configuration.get_api_key_with_prefix("BearerToken", "authorization")
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json"}
        return headers | {"Authorization": token} if token else headers

    return request_headers


def format_error(error: object) -> str:
    """An error's message on one line, with secrets removed."""
    return redaction.strip_user_info(redaction.redact_value(" ".join(str(error).split())))[:300]
