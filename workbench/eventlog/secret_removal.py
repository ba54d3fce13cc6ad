"""Remove secrets from text: Spark's own pattern, user info in URLs, key-value pairs and known tokens.

Secrets without such a mark, for example a bare word in a sentence, are not found.
"""

from __future__ import annotations

import re
from functools import lru_cache

REDACTED = "*********(redacted)"  # the same text as Spark's
# Spark's default of spark.redaction.regex (3.5), with additions of later versions and clouds.
SPARK_PATTERN = re.compile(r"(?i)secret|password|token|access[.]?key|credential|passphrase|sas[.]")
SECRET_NAME = re.compile(
    SPARK_PATTERN.pattern + r"|passwd|pwd|(?:account|api|private|shared|encryption|master)[._-]?key|access_key"
)
# All patterns are linear: repetitions are bounded, or begin at a rare text.
# Users may have an @, passwords a slash; ports differ from passwords by their digits.
URL_USER = re.compile(r"//(?P<user>[^\s/\"'<>\\]{1,400}|[^\s/:@\"'<>\\]{0,200}:(?!\d{1,5}[/?#])[^\s@\"'<>\\]{1,200})@")
ORACLE_USER = re.compile(r"(?i)(jdbc:oracle:\w{1,10}:)[^\s@\"'<>]{1,200}@")
# In abfss://container@account/… the part before the @ is a container, not a user.
CONTAINER_SCHEME = re.compile(r"(?i)\b(?:abfss?|wasbs?):$")
_KEY = (
    r"(?:secret|passw(?:or)?d|pwd|token|access[._-]?key|account[._-]?key|private[._-]?key|shared[._-]?key|credential"
    r"|passphrase|api[._-]?key|[?&]sig(?:nature)?\b|amz-signature)"
)
_TYPE = r"(?:string|int|bigint|smallint|tinyint|double|float|boolean|date|timestamp|binary|decimal|struct<|array<|map<)"
_QUOTED = r"\\?\"[^\"]*(?:\"|\Z)|\\?'[^']*(?:'|\Z)"
PAIR = re.compile(
    rf"(?i)(?P<key>{_KEY}[\w.-]{{0,64}}[\\\"'`]{{0,3}}\s{{0,4}}(?:=>|->|[=:])\s{{0,4}})(?!{_TYPE})"
    rf"(?P<value>{_QUOTED}|[^\s,;&)\]}}\"']+)"
)
# `--password x`, `PASSWORD 'x'`, `IDENTIFIED BY 'x'`
FLAG = re.compile(rf"(?i)(?P<key>--?[\w-]{{0,40}}{_KEY}\s{{1,4}})(?P<value>{_QUOTED}|[^\s\"'-][^\s\"']*)")
SPOKEN_PAIR = re.compile(rf"(?i)(?P<key>(?:{_KEY}|identified\s{{1,4}}by)\s{{1,4}})(?P<value>{_QUOTED})")
BARE_TOKEN = re.compile(
    r"(?P<key>(?i:\bbearer\s{1,4}|\bbasic\s{1,4}))(?P<value>[\w.+/=~-]{8,})"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_\w{20,}|\beyJ[\w-]{10,}\.[\w-]{4,}[\w.-]*"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*"
)
HINT_PATTERN = re.compile(
    rf"(?i)//|jdbc:oracle|{_KEY}|identified\s{{1,4}}by|bearer|basic\s|AKIA|ASIA|gh[pousr]_|eyJ|PRIVATE KEY|sas[.]|"
    r"encryption[._-]?key|master[._-]?key"
)
# Most texts have none of these, and the regular expression takes 200 times as long.
HINTS = (
    *("//", "secret", "passw", "pwd", "token", "access", "account", "private", "shared", "credential", "passphrase"),
    *("api", "sig", "oracle", "identified", "bearer", "basic", "akia", "asia", "gh", "eyj", "sas.", "encryption"),
    "master",
)
LINE_CHARS = 80
# A hint to a secret in the shown part of a line is in it, or shortly after it in the same value.
SEARCHED_CHARS = 1 << 16
EVENT_LINE = re.compile(r'\ufeff?\s*\{\s*"Event"\s*:\s*"[\w.]*')


# Texts repeat thousands of times in a log.
@lru_cache(maxsize=2048)
def remove_secrets(text: str) -> str:
    """Remove user info in URLs, values such as `password=…` and well-known tokens from a text.

    >>> remove_secrets("jdbc:postgresql://ann:pw@db/x?user=ann&password=pw&ssl=true")
    'jdbc:postgresql://*********(redacted)@db/x?user=ann&password=*********(redacted)&ssl=true'
    >>> remove_secrets("abfss://container@account.dfs.core.windows.net/x")
    'abfss://container@account.dfs.core.windows.net/x'
    """
    if not has_secret_hint(text):
        return text
    text = ORACLE_USER.sub(lambda match: f"{match[1]}{REDACTED}@", URL_USER.sub(_mask_url_user, text))
    for pattern in (PAIR, FLAG, SPOKEN_PAIR, BARE_TOKEN):
        text = pattern.sub(_mask_value, text)
    return text


def has_secret_hint(text: str) -> bool:
    """Does the text have a hint to a secret?"""
    lowered = text.lower()
    return any(hint in lowered for hint in HINTS) and HINT_PATTERN.search(text) is not None


def _mask_url_user(url: re.Match[str]) -> str:
    before = url.string[max(0, url.start() - 12) : url.start()]
    if CONTAINER_SCHEME.search(before) and not set(":@") & set(url["user"]):
        return url[0]
    return f"//{REDACTED}@"


def _mask_value(pair: re.Match[str]) -> str:
    return (pair["key"] or "") + REDACTED


def remove_property_secrets(name: str, value: str) -> str:
    """Value of a property, redacted when its name or value looks like a secret (Spark tests both)."""
    if SECRET_NAME.search(name) or SPARK_PATTERN.search(value):
        return REDACTED
    return remove_secrets(value)


def format_bad_line(line: bytes) -> str:
    """The first 80 characters of a bad line, without secrets.

    A line with a hint to a secret is shown up to the event's name only, since broken JSON cannot be parsed. Fragments
    of an event are not shown, since the name of a secret may be in the lost part.
    """
    text = line[:SEARCHED_CHARS].decode("utf-8", "replace")
    event = EVENT_LINE.match(text[:400])
    if has_secret_hint(text) or (event is None and '"' in text):
        return f"{event[0][:LINE_CHARS] if event else ''}… ({REDACTED})"
    return "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:LINE_CHARS].rstrip("\r\n")
    )


def cut_text(text: str, chars: int) -> str:
    """The beginning of a long text, with reserve for redaction, cut between words.

    A cut inside user info would separate it from its @.
    """
    limit = 4 * chars
    if len(text) <= limit:
        return text
    last = max(text.rfind(blank, limit - 1000, limit) for blank in " \n\t")
    return text[: last if last >= 0 else limit - 1000]
