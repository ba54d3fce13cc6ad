"""Secrets stay out of files: names that give one away, and values that are cut out of whatever is written.

A run is given the *name* of an environment variable, never a secret. What that variable holds is taken out of the
notebook's outputs, its tables and its record, in the spellings that it is likely to appear in.
Does not show: a secret that a program splits, encrypts or draws as a picture.
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
NAMES_VARIABLE = "WORKBENCH_SECRET_ENV"
MARK = "[redacted]"
# A shorter value would be found everywhere, and cutting it out would spoil the text.
MIN_LENGTH = 4
# The last @ before the path ends it, since passwords hold signs. In Azure's schemes a container stands there.
_USER_INFO = re.compile(
    r"(?P<scheme>\b(?:(?!abfss?:|wasbs?:)[A-Za-z][A-Za-z0-9+.-]*|(?:abfss?|wasbs?)(?=://[^/?#\s]*:)):/{2})[^/?#\s]*@"
)
# In the key of a setting, whose words dots, dashes, underscores and capitals part.
_SECRET_PART = re.compile(
    r"(?:^|[._-])(?:secrets?|passw(?:or)?d|passphrase|token|credentials?"
    r"|(?:access|secret|private|account|shared|api)[._-]?key)(?:$|[._-])"
)
# With one of these at its end a key is about secrets and holds none: fs.s3a.aws.credentials.provider is a class.
_ABOUT = ("class", "enabled", "file", "interval", "length", "mechanism", "path", "provider", "ratio", "type", "wait")
# As it may stand in a list that could not be read: '["KEY=VALUE'.
_SETTING = re.compile(r"""[\s\["']*([A-Za-z_][\w.-]*)\s*=\s*(\S.*)""", re.DOTALL)
_OF_ENVIRONMENT = re.compile(r"\$\{env[.:]\w+\}")
_Any = TypeVar("_Any")


def names_a_secret(name: str) -> bool:
    """Is a parameter of this name likely to hold a secret?

    Examples
    --------
    >>> [names_a_secret(name) for name in ("api_key", "hub_token", "max_tokens", "api_key_env")]
    [True, True, False, False]
    """
    lowered = name.lower()
    return any(lowered == word or lowered.endswith("_" + word) for word in SECRET_WORDS)


def is_secret_key(key: str) -> bool:
    """Is a setting of this key, of Spark or Hadoop, likely to be a secret?

    Examples
    --------
    >>> keys = ("spark.hadoop.fs.s3a.secret.key", "spark.ssl.keyStorePassword", "fs.s3a.aws.credentials.provider")
    >>> [is_secret_key(key) for key in keys]
    [True, True, False]
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", ".", key).lower()
    return bool(_SECRET_PART.search(words)) and not re.split(r"[._-]", words)[-1].startswith(_ABOUT)


def secret_settings(parameter: str, value: object) -> list[str]:
    """Keys of the secrets among a parameter's KEY=VALUE texts, one or a list.

    What names a variable is no secret: ${env.NAME}, and all that a parameter holds whose name ends in _env.

    Examples
    --------
    >>> secret_settings("confs", ["spark.cores.max=4", "fs.s3a.secret.key=Zq7", "fs.s3a.access.key=${env.S3_KEY}"])
    ['fs.s3a.secret.key']
    """
    if parameter.endswith("_env"):
        return []
    if isinstance(value, list | tuple):
        return [key for item in value for key in secret_settings(parameter, item)]
    match = _SETTING.match(value) if isinstance(value, str) else None
    if match is None or _OF_ENVIRONMENT.fullmatch(match[2].strip()):
        return []
    return [match[1]] if is_secret_key(match[1]) else []


def without_user_info(url: str) -> str:
    """A URL without the user and password before its host; the container of abfss://container@account stays.

    Examples
    --------
    >>> without_user_info("https://ann:p@w@example.org/a?b=1"), without_user_info("abfss://logs@account/a")
    ('https://example.org/a?b=1', 'abfss://logs@account/a')
    """
    return _USER_INFO.sub(lambda found: found["scheme"], url)


def holds_user_info(value: object) -> bool:
    """Does a text, or one in a list or mapping, hold a URL with a user or password?"""
    if isinstance(value, Mapping):
        return any(holds_user_info(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(holds_user_info(item) for item in value)
    return isinstance(value, str) and without_user_info(value) != value


def values(names: Iterable[str] | None = None) -> tuple[str, ...]:
    """The secrets of this process: what the named variables hold ($WORKBENCH_SECRET_ENV without names)."""
    if names is None:
        names = os.environ.get(NAMES_VARIABLE, "").split(",")
    held = (os.environ.get(name, "") for name in names if name)
    return tuple(value for value in held if len(value) >= MIN_LENGTH)


def spellings(secret: str) -> list[str]:
    """How a secret may stand in an output: as it is, in a Python or JSON text, in HTML, in a URL, in base64."""
    stripped = secret.strip()
    found: set[str] = {secret}
    for text in {secret, stripped} - {""}:
        found |= {text, repr(text)[1:-1], json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
        found |= {html.escape(text), html.escape(text, quote=False)}
        found |= {urllib.parse.quote(text), urllib.parse.quote(text, safe=""), urllib.parse.quote_plus(text)}
        found |= {base64.b64encode(text.encode()).decode(), base64.urlsafe_b64encode(text.encode()).decode()}
    # The longest first, or a short spelling would leave the rest of a longer one standing.
    return sorted((text for text in found if len(text) >= MIN_LENGTH), key=len, reverse=True)


def clean(value: _Any, secrets: Iterable[str] | None = None) -> _Any:
    """Cut every secret out of a text, or out of all texts in lists and mappings (keys too).

    Parameters
    ----------
    value
        A text, or JSON-like data; anything else is given back as it is.
    secrets
        The secrets; those of this process without it.

    Examples
    --------
    >>> clean({"url": "https://example.org/?key=s3cret-1"}, ["s3cret-1"])
    {'url': 'https://example.org/?key=[redacted]'}
    """
    wanted = values() if secrets is None else tuple(secrets)
    if not wanted:
        return value
    texts = sorted({text for secret in wanted for text in spellings(secret)}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, texts)))
    cleaned: _Any = _clean(value, pattern)
    return cleaned


def _clean(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return pattern.sub(MARK, value)
    if isinstance(value, Mapping):
        # The notebook's own mapping type must survive, hence type(value).
        return type(value)({_clean(key, pattern): _clean(item, pattern) for key, item in value.items()})  # type: ignore[call-arg]
    if isinstance(value, list | tuple):
        return type(value)(_clean(item, pattern) for item in value)
    return value


def clean_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Cut this process's secrets out of the text columns of a table."""
    import polars as pl

    for secret in values():
        for text in spellings(secret):
            frame = frame.with_columns(
                pl.col(pl.String).str.replace_all(text, MARK, literal=True),
                pl.col(pl.List(pl.String)).list.eval(pl.element().str.replace_all(text, MARK, literal=True)),
            )
    return frame
