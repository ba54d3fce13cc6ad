"""A target out of what the sweep says about it."""

from __future__ import annotations

import os

import orjson

from workbench.errors import ConfigError
from workbench.sizing.driving.loops import Target
from workbench.sizing.driving.targets.function import FunctionTarget, Workflow, checked, loaded
from workbench.sizing.driving.wire import Target as Described

FULL_PATH = "/generate/full"
CHAT_PATH = "/chat/completions"


def opened(target: Described, workflow: Workflow | None = None) -> Target:
    """The target, not yet open; headers get their values from the environment here and nowhere else.

    Raises
    ------
    ConfigError
        A variable of a header is not set, or the function cannot be loaded.
    """
    if target.protocol == "function":
        call = checked(workflow, "the function") if workflow is not None else loaded(target.function)
        return FunctionTarget(call, timeout_s=target.timeout_s)
    # Only here: it takes a quarter of a second, which a sweep of a function need not pay.
    from workbench.sizing.driving.targets.http import JsonTarget
    from workbench.sizing.driving.targets.nat import NatTarget
    from workbench.sizing.driving.targets.openai import OpenAiTarget

    headers, n_bytes = secret_headers(target.header_env), target.max_answer_bytes
    if target.protocol == "nat":
        url = _with_path(target.url, FULL_PATH)
        return NatTarget(url, timeout_s=target.timeout_s, headers=headers, max_answer_bytes=n_bytes)
    if target.protocol == "openai":
        base = target.url.rstrip("/")
        path = CHAT_PATH if base.endswith("/v1") else "/v1" + CHAT_PATH
        return OpenAiTarget(
            base if base.endswith(CHAT_PATH) else base + path,
            model=target.model,
            output_tokens=target.output_tokens,
            extra=orjson.loads(target.extra_body),
            timeout_s=target.timeout_s,
            headers=headers,
            max_answer_bytes=n_bytes,
        )
    return JsonTarget(
        target.url,
        method=target.method,
        body=None if target.body is None else orjson.loads(target.body),
        answer_at=target.answer_at,
        input_tokens_at=target.input_tokens_at,
        output_tokens_at=target.output_tokens_at,
        timeout_s=target.timeout_s,
        headers=headers,
        max_answer_bytes=n_bytes,
    )


def _with_path(url: str, path: str) -> str:
    base = url.rstrip("/")
    return base if base.endswith(path) else base + path


def secret_headers(header_env: dict[str, str]) -> dict[str, str]:
    """Headers with what the named variables hold.

    Raises
    ------
    ConfigError
        A variable is not set, is empty, or holds a line end.
    """
    missing = [name for name in header_env.values() if not os.environ.get(name)]
    if missing:
        raise ConfigError("variable of a header is not set", where="--header-env", found=missing, do="export NAME=...")
    torn = [name for name in header_env.values() if not os.environ[name].isprintable()]
    if torn:
        raise ConfigError(
            "variable of a header holds signs that no header may", where="--header-env", found=torn, allowed="one line"
        )
    return {header: os.environ[name] for header, name in header_env.items()}
