"""Detect secrets by name, and remove their values from everything that is written.

A run gets the *name* of an environment variable, never a secret. The value of that variable is removed from the
notebook's outputs, its tables and its record, in its usual encodings. Not removed: a secret that a program splits,
encrypts or draws as a picture.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import polars as pl

SECRET_WORDS = ("secret", "token", "password", "api_key")
SECRET_NAMES_VARIABLE = "WORKBENCH_SECRET_ENV"  # noqa: S105 - the name of a variable
REDACTION_MARK = "[redacted]"
# Shorter values occur in ordinary text.
MIN_SECRET_LENGTH = 4
# Ends at the last @ before the path, since passwords may hold one. In Azure's schemes this part is a container.
_USER_INFO = re.compile(
    r"(?P<scheme>\b(?:(?!abfss?:|wasbs?:)[A-Za-z][A-Za-z0-9+.-]*|(?:abfss?|wasbs?)(?=://[^/?#\s]*:)):/{2})[^/?#\s]*@"
)
# Secret keys of S3 may hold a slash, and a bucket's name holds no colon.
_STORE_KEYS = re.compile(r"(?P<scheme>\bs3[an]?:/{2})[^/?#\s:@]+:[^\s@]+@")
# In the key of a setting; its words are separated by dots, dashes, underscores and capitals.
_SECRET_PART = re.compile(
    r"(?:^|[._-])(?:secrets?|passw(?:or)?d|passphrase|token|credentials?"
    r"|(?:access|secret|private|account|shared|api)[._-]?key)(?:$|[._-])"
)
# Keys with such a last word hold no secret: fs.s3a.aws.credentials.provider is a class.
_ABOUT = ("class", "enabled", "file", "interval", "length", "mechanism", "path", "provider", "ratio", "type", "wait")
# Also in a list that could not be parsed: '["KEY=VALUE'.
_SETTING = re.compile(r"""[\s\["']*([A-Za-z_][\w.-]*)\s*=\s*(\S.*)""", re.DOTALL)
# In JSON, YAML, or a list of settings, whole or broken.
_KEYS = re.compile(r"""([A-Za-z_][\w.-]*)["']?\s*[:=]""")
_OF_ENVIRONMENT = re.compile(r"\$\{env[.:]\w+\}")
_Any = TypeVar("_Any")


def is_secret_name(name: str) -> bool:
    """Whether a parameter of this name probably holds a secret.

    >>> [is_secret_name(name) for name in ("api_key", "hub_token", "max_tokens", "api_key_env")]
    [True, True, False, False]
    """
    lowered = name.lower()
    return any(lowered == word or lowered.endswith("_" + word) for word in SECRET_WORDS)


def is_secret_key(key: str) -> bool:
    """Whether a Spark or Hadoop setting of this key probably holds a secret.

    >>> keys = ("spark.hadoop.fs.s3a.secret.key", "spark.ssl.keyStorePassword", "fs.s3a.aws.credentials.provider")
    >>> [is_secret_key(key) for key in keys]
    [True, True, False]
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", ".", key).lower()
    return bool(_SECRET_PART.search(words)) and not re.split(r"[._-]", words)[-1].startswith(_ABOUT)


def find_secret_settings(parameter: str, value: object) -> list[str]:
    """Keys of the secrets in a parameter: of its KEY=VALUE texts and of its mappings, at any depth.

    Names of variables are no secrets: ${env.NAME}, and values of parameters and keys whose name ends in _env.

    >>> find_secret_settings("confs", ["spark.cores.max=4", "fs.s3a.secret.key=Zq7", "fs.s3a.access.key=${env.S3_KEY}"])
    ['fs.s3a.secret.key']
    >>> find_secret_settings("service", {"url": "x", "login": [{"api_key": "Zq7"}, {"api_key_env": "KEY"}]})
    ['api_key']
    """
    if parameter.endswith("_env"):
        return []
    if isinstance(value, Mapping):
        pairs = [(str(key), item) for key, item in value.items()]
        own = [key for key, item in pairs if _is_secret_pair(key, item)]
        return own + [name for key, item in pairs if key not in own for name in find_secret_settings(key, item)]
    if isinstance(value, list | tuple):
        return [key for item in value for key in find_secret_settings(parameter, item)]
    match = _SETTING.match(value) if isinstance(value, str) else None
    return [match[1]] if match and is_secret_key(match[1]) and not _names_variable(match[2]) else []


def _is_secret_pair(key: str, value: object) -> bool:
    is_secret = is_secret_name(key) or (is_secret_key(key) and not key.endswith("_env"))
    return is_secret and not _names_variable(value)


def _names_variable(value: object) -> bool:
    return isinstance(value, str) and bool(_OF_ENVIRONMENT.fullmatch(value.strip()))


def may_hold_secret(parameter: str, value: object) -> bool:
    """Whether a value that may be misspelt or of a wrong type should not be shown.

    >>> may_hold_secret("service", '{"api_key": "Zq7'), may_hold_secret("service", '{"url": "x"')
    (True, False)
    """
    if isinstance(value, str):
        return any(is_secret_name(key) or is_secret_key(key) for key in _KEYS.findall(value))
    if isinstance(value, Mapping):
        texts = [(str(key), item) for key, item in value.items()]
        named = any(key.endswith("_env") or is_secret_name(key) or is_secret_key(key) for key, _ in texts)
        return named or any(may_hold_secret(key, item) for key, item in texts)
    return isinstance(value, list | tuple) and any(may_hold_secret(parameter, item) for item in value)


def strip_user_info(url: str) -> str:
    """A URL without the user and password before its host; the container of abfss://container@account stays.

    >>> strip_user_info("https://ann:p@w@example.org/a?b=1"), strip_user_info("abfss://logs@account/a")
    ('https://example.org/a?b=1', 'abfss://logs@account/a')
    >>> strip_user_info("s3://KEY:se/cret@bucket/a")
    's3://bucket/a'
    """
    return _USER_INFO.sub(lambda match: match["scheme"], _STORE_KEYS.sub(lambda match: match["scheme"], url))


def has_user_info(value: object) -> bool:
    """Whether a text, or any text in a list or mapping, holds a URL with a user or password.

    >>> has_user_info({"url": "https://user:pass@host/x"}), has_user_info(["https://host/x"])
    (True, False)
    """
    if isinstance(value, Mapping):
        return any(has_user_info(item) for pair in value.items() for item in pair)
    if isinstance(value, list | tuple):
        return any(has_user_info(item) for item in value)
    return isinstance(value, str) and strip_user_info(value) != value


def read_secrets(names: Iterable[str] | None = None) -> tuple[str, ...]:
    """Values of the named environment variables; without names, of those listed in $WORKBENCH_SECRET_ENV."""
    if names is None:
        names = os.environ.get(SECRET_NAMES_VARIABLE, "").split(",")
    values = (os.environ.get(name, "") for name in names if name)
    return tuple(value for value in values if len(value) >= MIN_SECRET_LENGTH)


def list_spellings(secret: str) -> list[str]:
    """Encodings of a secret in outputs: plain, Python and JSON string, HTML, URL, base64; longest first.

    >>> list_spellings("a&b")
    ['a&amp;b', 'a%26b', 'YSZi']
    """
    stripped = secret.strip()
    spellings: set[str] = {secret}
    for text in {secret, stripped} - {""}:
        spellings |= {text, repr(text)[1:-1], json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
        spellings |= {html.escape(text), html.escape(text, quote=False)}
        spellings |= {urllib.parse.quote(text), urllib.parse.quote(text, safe=""), urllib.parse.quote_plus(text)}
        spellings |= {base64.b64encode(text.encode()).decode(), base64.urlsafe_b64encode(text.encode()).decode()}
    # A short spelling replaced first would leave the rest of a longer one.
    return sorted((text for text in spellings if len(text) >= MIN_SECRET_LENGTH), key=len, reverse=True)


def redact_value(value: _Any, secrets: Iterable[str] | None = None) -> _Any:
    """Remove every secret from a text, or from all texts in lists and mappings (keys too).

    >>> redact_value({"url": "https://example.org/?key=s3cret-1"}, ["s3cret-1"])
    {'url': 'https://example.org/?key=[redacted]'}
    """
    wanted = read_secrets() if secrets is None else tuple(secrets)
    if not wanted:
        return value
    texts = sorted({text for secret in wanted for text in list_spellings(secret)}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, texts)))
    cleaned: _Any = _replace_secrets(value, pattern)
    return cleaned


def _replace_secrets(value: Any, pattern: re.Pattern[str]) -> Any:
    """Copy of a value with every match of the pattern replaced in its texts, at any depth.

    >>> _replace_secrets({"url": ["key=abc"]}, re.compile("abc")) == {"url": [f"key={REDACTION_MARK}"]}
    True
    """
    if isinstance(value, str):
        return pattern.sub(REDACTION_MARK, value)
    if isinstance(value, Mapping):
        # type(value), since the notebook's own mapping type must survive.
        return type(value)(
            {_replace_secrets(key, pattern): _replace_secrets(item, pattern) for key, item in value.items()}
        )  # type: ignore[call-arg]
    if isinstance(value, list | tuple):
        return type(value)(_replace_secrets(item, pattern) for item in value)
    return value


def redact_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Remove this process's secrets from the text columns of a table."""
    import polars as pl

    for secret in read_secrets():
        for text in list_spellings(secret):
            frame = frame.with_columns(
                pl.col(pl.String).str.replace_all(text, REDACTION_MARK, literal=True),
                pl.col(pl.List(pl.String)).list.eval(pl.element().str.replace_all(text, REDACTION_MARK, literal=True)),
            )
    return frame
