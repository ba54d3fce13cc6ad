"""Secrets taken out of texts: what Spark's own pattern calls one, user info in URLs, pairs and tokens of known forms.

Does not show: a secret that nothing announces, such as a bare word in a sentence.
"""

from __future__ import annotations

import re
from functools import lru_cache

REDACTED = "*********(redacted)"  # the very text that Spark puts
# Spark's default for spark.redaction.regex (3.5), plus what its later versions and clouds add.
SPARK_PATTERN = re.compile(r"(?i)secret|password|token|access[.]?key|credential|passphrase|sas[.]")
SECRET_NAME = re.compile(
    SPARK_PATTERN.pattern + r"|passwd|pwd|(?:account|api|private|shared|encryption|master)[._-]?key|access_key"
)
# All patterns below are linear: repetitions are bounded, or begin at a place that is seldom.
# A user may hold an @, and a password a slash; a port is told from a password by its digits.
URL_USER = re.compile(r"//(?P<user>[^\s/\"'<>\\]{1,400}|[^\s/:@\"'<>\\]{0,200}:(?!\d{1,5}[/?#])[^\s@\"'<>\\]{1,200})@")
ORACLE_USER = re.compile(r"(?i)(jdbc:oracle:\w{1,10}:)[^\s@\"'<>]{1,200}@")
# In abfss://container@account/… the part before the @ is a container, no user.
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
SPOKEN = re.compile(rf"(?i)(?P<key>(?:{_KEY}|identified\s{{1,4}}by)\s{{1,4}})(?P<value>{_QUOTED})")
BARE = re.compile(
    r"(?P<key>(?i:\bbearer\s{1,4}|\bbasic\s{1,4}))(?P<value>[\w.+/=~-]{8,})"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_\w{20,}|\beyJ[\w-]{10,}\.[\w-]{4,}[\w.-]*"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*"
)
HINT = re.compile(
    rf"(?i)//|jdbc:oracle|{_KEY}|identified\s{{1,4}}by|bearer|basic\s|AKIA|ASIA|gh[pousr]_|eyJ|PRIVATE KEY|sas[.]|"
    r"encryption[._-]?key|master[._-]?key"
)
# The regular expression costs 200 times as much per character, and nearly all texts have none of these.
HINTS = (
    *("//", "secret", "passw", "pwd", "token", "access", "account", "private", "shared", "credential", "passphrase"),
    *("api", "sig", "oracle", "identified", "bearer", "basic", "akia", "asia", "gh", "eyj", "sas.", "encryption"),
    "master",
)
LINE_CHARS = 80
# What may announce a secret in the part of a line that is shown stands in it or, in the same value, not far behind.
SEARCHED_CHARS = 1 << 16
EVENT_LINE = re.compile(r'\ufeff?\s*\{\s*"Event"\s*:\s*"[\w.]*')


# Metric types, operators and plans repeat thousands of times in a log.
@lru_cache(maxsize=2048)
def scrub(text: str) -> str:
    """Take user info in URLs, `password=…`-like values and tokens of well-known forms out of a text.

    Examples
    --------
    >>> scrub("jdbc:postgresql://ann:pw@db/x?user=ann&password=pw&ssl=true")
    'jdbc:postgresql://*********(redacted)@db/x?user=ann&password=*********(redacted)&ssl=true'
    >>> scrub("abfss://container@account.dfs.core.windows.net/x")
    'abfss://container@account.dfs.core.windows.net/x'
    """
    if not hints(text):
        return text
    text = ORACLE_USER.sub(lambda found: f"{found[1]}{REDACTED}@", URL_USER.sub(_without_user, text))
    for pattern in (PAIR, FLAG, SPOKEN, BARE):
        text = pattern.sub(_without_value, text)
    return text


def hints(text: str) -> bool:
    """Does anything in the text announce a secret?"""
    lowered = text.lower()
    return any(hint in lowered for hint in HINTS) and HINT.search(text) is not None


def _without_user(url: re.Match[str]) -> str:
    before = url.string[max(0, url.start() - 12) : url.start()]
    if CONTAINER_SCHEME.search(before) and not set(":@") & set(url["user"]):
        return url[0]
    return f"//{REDACTED}@"


def _without_value(pair: re.Match[str]) -> str:
    return (pair["key"] or "") + REDACTED


def scrub_property(name: str, value: str) -> str:
    """The value of a property, unless its name or the value itself looks like a secret (Spark tests both)."""
    if SECRET_NAME.search(name) or SPARK_PATTERN.search(value):
        return REDACTED
    return scrub(value)


def scrub_line(line: bytes) -> str:
    """The first 80 characters of a bad line as they may be shown.

    A line that speaks of secrets is shown up to its event's name only: broken JSON cannot be told apart
    into names and values. Of a fragment of an event nothing is shown, since the name of a secret may be in the
    part that is lost.
    """
    text = line[:SEARCHED_CHARS].decode("utf-8", "replace")
    event = EVENT_LINE.match(text[:400])
    if hints(text) or (event is None and '"' in text):
        return f"{event[0][:LINE_CHARS] if event else ''}… ({REDACTED})"
    return "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:LINE_CHARS].rstrip("\r\n")
    )


def window(text: str, chars: int) -> str:
    """The beginning of a long text, with reserve for what redaction takes away, cut between words.

    A cut through user info would part it from the @ that tells it.
    """
    limit = 4 * chars
    if len(text) <= limit:
        return text
    last = max(text.rfind(blank, limit - 1000, limit) for blank in " \n\t")
    return text[: last if last >= 0 else limit - 1000]
