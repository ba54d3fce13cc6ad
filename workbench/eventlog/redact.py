"""Texts of a log made fit to leave it: always without secrets; on request without anything personal, too.

With `Redactor(strict=True)` users, hosts, paths and SQL literals become keyed hashes; equal values stay equal within
one run and cannot be guessed from outside it. Texts that may hold data anywhere (plans, messages) keep only words that
are known to say nothing, columns and functions.

Does not show: a host without dots that never registered as an executor, in a free description; a literal that is a
keyword or the name of a column.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from functools import lru_cache

from workbench.eventlog.plans import Node
from workbench.eventlog.scrub import REDACTED, scrub, scrub_property, window
from workbench.eventlog.vocabulary import (
    FUNCTIONS,
    MESSAGE_WORDS,
    PLAN_WORDS,
    PROPERTY_WORDS,
    PUBLIC_PACKAGES,
    SERVICE_ACCOUNTS,
)

# The texts of one plan repeat; those of a whole log may be 4,000 characters each and would fill the memory.
CACHED_TEXTS = 2048
_STRING = r"'(?:[^'\\]|\\.|'')*(?:'|\\?\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\\?\Z)"
STRING = re.compile(_STRING, re.S)
HASH = re.compile(r"h:[0-9a-f]{10}")
_KEPT = rf"{HASH.pattern}|{re.escape(REDACTED)}"
WITH_SLASH = re.compile(r"(?<![^\s,;=\"'`\[\](){}<>])[^\s,;=\"'`\[\](){}<>]*[/\\][^\s,;\"'`\[\](){}<>]+")
PATH = re.compile(r"(?<![^\s=,(\[`])(?:[A-Za-z][A-Za-z0-9+.-]{0,20}:)?[/~][^\s,;\"'`\[\](){}]+")
PUBLIC_CLASS = re.compile(rf"{PUBLIC_PACKAGES}(?:[.$][\w$<>]+)+")
CODE_PLACE = re.compile(r"[\w$<>.-]{1,80}\.(?:java|scala|py|kt|R|sql):\d{1,6}")
ADDRESS = re.compile(
    r"(?<![\w.-])(?:(?:\d{1,3}\.){3}\d{1,3}|[A-Za-z0-9][\w-]{0,62}(?:\.[A-Za-z0-9][\w-]{0,62}){2,}"
    r"|[\w-]{1,63}(?:\.[\w-]{1,63})+:\d{2,5}|ip-\d+-\d+-\d+-\d+|[\w.+-]{1,64}@[\w.-]{1,255})(?![\w-])"
    r"|(?<![\w:])(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{1,4}(?![\w:])"
)
SQL = re.compile(r"(?i)\b(?:select|where|values|insert|update|delete|merge|having|between|like|create|from)\b")
SQL_TOKEN = re.compile(
    rf"(?P<kept>{_KEPT}|/\*\+.*?\*/|numPartitions=\d+)|(?P<hidden>--[^\n]*|/\*.*?(?:\*/|\Z)|{_STRING})"
    r"|`(?P<quoted>[^`]*)(?:`|\Z)|(?P<word>[^\W\d]\w*)|(?P<number>\d[\w.]*(?:(?<=[eE])[+-]\d+)?)",
    re.S,
)
CALL_SITE = re.compile(r"\$?\w{1,60} at [\w$<>.-]{1,80}:\d{1,6}")
NUMBER = re.compile(r"-?\d+(?:\.\d+){0,2}[a-zA-Z%]{0,2}")
PLAN_TOKEN = re.compile(
    rf"(?P<kept>{_KEPT}|\*\(\d+\)|(?<=WholeStageCodegen )\(\d+\)|#\d+L?"
    r"|(?:plan_id=|id=#)\d+|(?:splits|numPartitions)=\d+|\d+ paths"
    r"|(?i:decimal|char|varchar)\(\d+(?:,\s?\d+)?\)|(?:[a-z]{1,20}_)?count\(1\)|\.\.\. \d+ more fields)"
    rf"|(?P<hidden>{_STRING}|{WITH_SLASH.pattern})"
    r"|(?P<column>[^\W\d][\w.]*)#(?P<id>\d+)L?(?:\.[^\W\d]\w*)*|(?P<word>[^\W\d][\w.]*)|(?P<number>\d[\w.:+-]*)"
    r"|(?P<other>[^\x00-\x7f]+)",
    re.S,
)
EXCHANGE_COUNT = re.compile(r"\), (?:[A-Z_]{6,}|true|false|\[(?:plan_id|id)=)")
LITERAL_ALIAS = re.compile(r"(?:^|[\[(, ])([^#\n]{1,120}?) AS \1#(\d+)")
COLUMN = re.compile(r"(?<!\w)([^\W\d]\w*)#(\d+)")
SCHEMA_NAME = re.compile(r"(?:struct<|,)([^\W\d]\w*):(?=[a-z])")
MESSAGE_TOKEN = re.compile(
    rf"(?P<kept>{_KEPT}|\[[A-Z][A-Z0-9_.]{{3,80}}\]|{PUBLIC_CLASS.pattern}|{CODE_PLACE.pattern}"
    r"|\b(?i:task|stage|tid|executor|attempt|job|code|line|position|partition|status|signal|exit)\s?[=:#]?\s?"
    r"\d{1,9}(?:\.\d{1,9})?\b"
    r"|\b\d+(?:\.\d+)?\s?(?:[KMGT]i?B|B|bytes|ms|s|seconds|%|times)(?!\w))"
    rf"|(?P<hidden>{_STRING}|{WITH_SLASH.pattern})"
    r"|(?P<word>[^\W\d][\w$]*)|(?P<number>\d[\w.:+-]*)|(?P<other>[^\x00-\x7f]+)",
    re.S,
)
SAID = MESSAGE_WORDS | FUNCTIONS
PROPERTY = re.compile(r"spark\.[a-z][A-Za-z.]{3,80}")
FAILURE_NAME = re.compile(
    r"[A-Z][A-Za-z]{2,60}(?:Exception|Error|Failure|Failed|Killed|Lost|Denied|Resubmitted|Success|Reason)"
)
SEVERAL_HASHES = re.compile(rf"{HASH.pattern}(?:[ ,]{{1,2}}{HASH.pattern})+")


class Redactor:
    """Cleans every text that leaves a log, by its role; `strict` also hashes users, hosts, paths and SQL literals."""

    def __init__(self, *, strict: bool = False, key: bytes | None = None) -> None:
        self.strict = strict
        self._key = key or secrets.token_bytes(16)
        self._names: set[str] = set()
        self._known: re.Pattern[str] | None = None
        self.text = lru_cache(maxsize=CACHED_TEXTS)(self._text)
        self.label = lru_cache(maxsize=CACHED_TEXTS)(self._label)
        self.message = lru_cache(maxsize=CACHED_TEXTS)(self._message)
        self.plan = lru_cache(maxsize=CACHED_TEXTS)(self._plan)

    def hashed(self, value: str) -> str:
        """A name for a value: the same within one run, meaningless outside it."""
        return "h:" + hashlib.blake2b(value.encode("utf-8", "replace"), key=self._key, digest_size=5).hexdigest()

    def learn(self, *names: str | None) -> None:
        """From now on these users and hosts are hashed wherever they are named."""
        if not self.strict:
            return
        found = {part for name in names if name for part in (name, _first_label(name))}
        found = {name for name in found if len(name) > 2 and name.lower() not in SERVICE_ACCOUNTS | MESSAGE_WORDS}
        if found <= self._names:
            return
        self._names |= found
        # The longest first, or a short name would leave the rest of a longer one standing.
        listed = "|".join(re.escape(name) for name in sorted(self._names, key=len, reverse=True))
        self._known = re.compile(rf"(?i)(?<![A-Za-z0-9])(?:{listed})(?![A-Za-z0-9])")
        for cached in (self.text, self.label, self.message, self.plan):
            cached.cache_clear()

    def _without_known(self, text: str) -> str:
        return self._known.sub(lambda found: self.hashed(found[0]), text) if self._known else text

    def name(self, value: str | None) -> str | None:
        """A user's or host's name."""
        if not value or value in ("localhost", "driver"):
            return value
        return self.hashed(value) if self.strict else scrub(value)

    def path(self, value: str) -> str:
        """A path or URL."""
        return self.hashed(value) if self.strict else scrub(value)

    def group(self, value: str | None) -> str | None:
        """A job group: notebook servers make it of the user's name."""
        return self.name(value)

    def fault(self, value: str) -> str:
        """What is wrong with a file of the log, as "name: reason"."""
        if not self.strict:
            return scrub(value)
        file, colon, reason = value.partition(": ")
        return f"{self.hashed(file)}: {self.message(reason)}" if colon else self.message(value) or ""

    def property_name(self, name: str) -> str:
        """A property's name; some clouds put the account into it."""
        name = scrub(window(name, 1000))
        if not self.strict:
            return name
        account = r"(?<![\w-])([\w-]{1,63})(?=\.(?:dfs|blob)\.core\.windows\.net)"
        return self._without_known(re.sub(account, lambda found: self.hashed(found[0]), name))

    def property(self, name: str, value: str) -> str:
        """A property's value. Strict, only choices, numbers and public classes are left: what they are read for."""
        value = scrub_property(name, value)
        if not self.strict or value == REDACTED or not value:
            return value
        plain = NUMBER.fullmatch(value) or value.lower() in PROPERTY_WORDS or _is_public(value)
        if plain or re.fullmatch(r"local\[[\d*,]+\]|(?:application|app|local)[-_][\d_-]+", value):
            return value
        if name in ("Java Version", "Scala Version") and re.fullmatch(r"[\w .()+-]{1,80}", value):
            return value
        return self.hashed(value)

    def _text(self, value: str | None, chars: int = 4000) -> str | None:
        """A description or a name: free text, in which SQL, paths and addresses may stand."""
        if not value:
            return value
        value = scrub(window(value, chars))
        if self.strict and not CALL_SITE.fullmatch(value):
            value = self._sql(value) if SQL.search(value) else self._prose(value)
        return (self._without_known(value) if self.strict else value)[:chars]

    def _prose(self, value: str) -> str:
        for pattern in (STRING, WITH_SLASH):
            value = pattern.sub(lambda found: self.hashed(found[0]), value)
        return ADDRESS.sub(self._address, value)

    def _address(self, found: re.Match[str]) -> str:
        kept = PUBLIC_CLASS.fullmatch(found[0]) or CODE_PLACE.fullmatch(found[0])
        return found[0] if kept else self.hashed(found[0])

    def _sql(self, value: str) -> str:
        value = PATH.sub(lambda found: self.hashed(found[0]), value)
        return SQL_TOKEN.sub(self._sql_token, value)

    def _sql_token(self, found: re.Match[str]) -> str:
        if found["hidden"] or found["number"] or "/" in (found["quoted"] or ""):
            return self.hashed(found[0])
        return found[0]

    def _label(self, value: str | None) -> str | None:
        """A node's, metric's or stage's name: of Spark's making, but tables, queries and paths may stand in it."""
        if not value:
            return value
        value = scrub(window(value, 4000))
        if self.strict:
            if SQL.search(value):
                value = self._sql(value)
            for pattern in (STRING, WITH_SLASH):
                value = pattern.sub(lambda found: self.hashed(found[0]), value)
            value = self._without_known(value)
        return value[:4000]

    def _message(self, value: str | None, chars: int = 2000) -> str | None:
        """What an error says: data may stand anywhere in it, so strict mode keeps known words and places of code."""
        if not value:
            return value
        value = scrub(window(value, chars))
        if self.strict:
            value = MESSAGE_TOKEN.sub(self._message_token, self._without_known(value))
            value = SEVERAL_HASHES.sub(lambda found: self.hashed(found[0]), value)
        return value[:chars]

    def _message_token(self, found: re.Match[str]) -> str:
        word = found["word"]
        known = word and (word.lower() in SAID or FAILURE_NAME.fullmatch(word))
        if hidden := found["hidden"]:
            # "spark.sql.ansi.enabled", "false": what an advice names.
            inner = hidden[1:-1]
            known = PROPERTY.fullmatch(inner) or inner.lower() in PROPERTY_WORDS
        return found[0] if found["kept"] or known else self.hashed(found[0])

    def columns(self, nodes: Iterable[Node]) -> frozenset[str]:
        """Words that are columns or tables in a plan, and "#id" of columns that were named after a literal.

        Spark calls the column of `SELECT 'Rome'` Rome, too; its definition "Rome AS Rome#7" gives it away.
        """
        if not self.strict:
            return frozenset()
        names: set[tuple[str, str]] = set()
        literals: set[str] = set()
        words: set[str] = set()
        for node in nodes:
            texts = [window(node.text, 4000), *(window(str(value), 4000) for value in node.metadata.values())]
            for text in texts:
                literals |= {number for _, number in LITERAL_ALIAS.findall(text)}
                names |= set(COLUMN.findall(text))
                words |= set(SCHEMA_NAME.findall(text))
            words |= set(re.findall(r"[^\W\d][\w.]*", HASH.sub("", self.label(node.name) or "")))
        return frozenset(
            words | {name for name, number in names if number not in literals} | {f"#{i}" for i in literals}
        )

    def _plan(self, value: str | None, columns: frozenset[str] = frozenset(), chars: int = 4000) -> str | None:
        """An operator's text: Spark prints literals without quotes, so only known words and columns are kept."""
        if not value:
            return value
        value = scrub(window(value, chars))
        if self.strict:
            value = self._without_known(PLAN_TOKEN.sub(lambda found: self._plan_token(found, columns), value))
        return value[:chars]

    def _plan_token(self, found: re.Match[str], columns: frozenset[str]) -> str:
        if found["kept"]:
            return found[0]
        if column := found["column"]:
            return found[0] if f"#{found['id']}" not in columns else self.hashed(column) + "#" + found["id"]
        if word := found["word"]:
            kept = word.lower() in PLAN_WORDS or word in columns or _is_call(found)
            return word if kept else self.hashed(word)
        return found[0] if found["number"] and _is_count(found) else self.hashed(found[0])


def _first_label(host: str) -> str:
    return host if re.fullmatch(r"[\d.:]+", host) else host.split(".", 1)[0]


def _is_public(value: str) -> bool:
    return all(PUBLIC_CLASS.fullmatch(part.strip()) for part in value.split(","))


def _is_call(found: re.Match[str]) -> bool:
    """Is the word a function? A column stands in its brackets, or nothing."""
    rest = found.string[found.end() : found.end() + 300]
    if rest.startswith("(") and found[0].lower() in FUNCTIONS:
        return True
    return rest.startswith("()") or (rest.startswith("(") and re.search(r"#\d", rest.split(")", 1)[0]) is not None)


def _is_count(found: re.Match[str]) -> bool:
    """Is the number one of partitions, or the constant at the end of a sort?"""
    text, start, end = found.string, found.start(), found.end()
    if re.match(r"\w*Coalesce \d+\Z", text):
        return True
    if re.match(r"\w*Exchange\b", text) and EXCHANGE_COUNT.match(text, end):
        return True
    return (
        end == len(text)
        and text.startswith(("Sort", "GpuSort", "CometSort"))
        and text[:start].endswith((" true, ", " false, "))
    )
