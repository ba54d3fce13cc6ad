"""Creates a target from its specification and checks that it accepts connections."""

from __future__ import annotations

import os
import re
import socket
from typing import Any

import orjson
from yarl import URL

from workbench.core.errors import ConfigError
from workbench.sizing.load.client_messages import TargetSpec as Described
from workbench.sizing.load.load_driver import Target
from workbench.sizing.load.service_targets.function_target import (
    FunctionTarget,
    Workflow,
    check_workflow,
    load_workflow,
)

FULL_PATH = "/generate/full"
PATHS = {
    "openai": "/chat/completions",
    "responses": "/responses",
    "anthropic": "/messages",
    "embeddings": "/embeddings",
    "rerank": "/rerank",
}
"""Path of the API by protocol, behind its version."""
LISTENER_PATIENCE_S = 10.0
_STEM_PATTERN = re.compile(r"/v[1-9](?:beta)?(?:/openai)?$|/openai/deployments/[^/]+$")


def create_target(target: Described, workflow: Workflow | None = None) -> Target:
    """Create the target without opening it; resolves header values from the environment."""
    if target.protocol == "function":
        call = check_workflow(workflow, "the function") if workflow is not None else load_workflow(target.function)
        return FunctionTarget(call, timeout_s=target.timeout_s)
    # Imported late: it takes a quarter of a second, and function targets do not need it.
    from workbench.sizing.load.service_targets.json_target import JsonTarget, NatTarget
    from workbench.sizing.load.service_targets.message_targets import AnthropicTarget, ResponsesTarget
    from workbench.sizing.load.service_targets.openai_target import OpenAiTarget
    from workbench.sizing.load.service_targets.vector_targets import EmbeddingsTarget, RerankTarget

    shared: dict[str, Any] = {
        "timeout_s": target.timeout_s,
        "headers": resolve_secret_headers(target.header_env),
        "max_answer_bytes": target.max_answer_bytes,
    }
    if target.protocol == "nat":
        return NatTarget(append_path(target.url, FULL_PATH), **shared)
    if (path := PATHS.get(target.protocol)) is not None:
        url = append_path(target.url, path, stem="/v1")
        shared |= {"model": target.model, "extra": orjson.loads(target.extra_body)}
        if target.protocol == "embeddings":
            return EmbeddingsTarget(url, **shared)
        if target.protocol == "rerank":
            return RerankTarget(url, **shared)
        shared |= {"output_tokens": target.output_tokens, "exact_output": target.exact_output}
        if target.protocol == "responses":
            return ResponsesTarget(url, **shared)
        return AnthropicTarget(url, **shared) if target.protocol == "anthropic" else OpenAiTarget(url, **shared)
    return JsonTarget(
        target.url,
        method=target.method,
        body=None if target.body is None else orjson.loads(target.body),
        answer_at=target.answer_at,
        input_tokens_at=target.input_tokens_at,
        output_tokens_at=target.output_tokens_at,
        **shared,
    )


def append_path(url: str, path: str, stem: str = "") -> str:
    """Append the path of an API to a URL, before its query.

    A path that ends in it, or in the `/completions` of a chat's, is whole. The stem is left out where the URL has one:
    a version such as `/v1`, or a deployment of Azure.

    >>> append_path("http://a/?b=1", "/chat/completions", "/v1"), append_path("http://a/v1", "/chat/completions", "/v1")
    ('http://a/v1/chat/completions?b=1', 'http://a/v1/chat/completions')
    >>> append_path("http://a/openai/deployments/m/chat/completions?api-version=1", "/chat/completions", "/v1")
    'http://a/openai/deployments/m/chat/completions?api-version=1'
    """
    place, mark, query = url.partition("#")[0].partition("?")
    base = place.rstrip("/")
    if not base.endswith((path, "/" + path.rpartition("/")[2])):
        base += (path if _STEM_PATTERN.search(base) else stem + path) if stem else path
    return base + mark + query


def resolve_secret_headers(header_env: dict[str, str]) -> dict[str, str]:
    """Headers with the values of their environment variables."""
    missing = [name for name in header_env.values() if not os.environ.get(name)]
    if missing:
        raise ConfigError("a header's variable is not set", where="--header-env", found=missing, do="export NAME=...")
    torn = [name for name in header_env.values() if not os.environ[name].isprintable()]
    if torn:
        raise ConfigError(
            "header value contains control characters", where="--header-env", found=torn, allowed="one line"
        )
    return {header: os.environ[name] for header, name in header_env.items()}


def check_listener(url: str, *, patience_s: float = LISTENER_PATIENCE_S) -> None:
    """Open and close one connection without sending a request.

    Failures that occur later, under load, are part of the measurement.
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
            "the service does not accept connections",
            where="--url",
            found=f"{host}:{port}: no connection within {patience_s:g} s",
            do="check address and firewall",
        ) from None
    except OSError as error:
        raise ConfigError(
            "no service listens at this address",
            where="--url",
            found=f"{host}:{port}: {error.strerror}",
            do=f"start the service or check the port; for a simulator: workbench sizing simulate --port {port}",
        ) from None
