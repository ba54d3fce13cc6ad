"""Secrets and, on request, everything personal, taken out of what is read from a log.

Always: property values that match Spark's own redaction pattern, user info in URLs, and `password=…`-like pairs in
plans, descriptions and messages. On request (`Redactor(strict=True)`): users, hosts, paths and SQL literals become
keyed hashes; equal values stay equal within one run and cannot be guessed from outside it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from functools import lru_cache

REDACTED = "*********(redacted)"  # the very text that Spark puts
# Spark's default for spark.redaction.regex (3.5), plus what its later versions and clouds add.
SPARK_PATTERN = re.compile(r"(?i)secret|password|token|access[.]?key|credential|passphrase|sas[.]")
URL_USER = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*:)?//(?P<user>[^/\s\"'@,;\[\](){}<>]+)@")
# In abfss://container@account/… the part before the @ is a container, no user.
CONTAINER_SCHEMES = ("abfs:", "abfss:", "wasb:", "wasbs:")
PAIR = re.compile(
    r"(?i)(?P<key>[\w.-]*(?:secret|passw(?:or)?d|pwd|token|access[._]?key|credential|passphrase|api[._]?key)[\w.-]*[\"']?\s*(?:=>|[=:])\s*)"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;&)\]}\"']+)"
)
HINT = re.compile(r"(?i)//|secret|passw|pwd|token|access[._]?key|credential|passphrase|api[._]?key")
LINE_CHARS = 80


def scrub(text: str) -> str:
    """Take user info in URLs and `password=…`-like values out of a text.

    Examples
    --------
    >>> scrub("jdbc:postgresql://ann:pw@db/x?user=ann&password=pw&ssl=true")
    'jdbc:postgresql://*********(redacted)@db/x?user=ann&password=*********(redacted)&ssl=true'
    """
    if not HINT.search(text):
        return text
    return PAIR.sub(lambda pair: pair["key"] + REDACTED, URL_USER.sub(_without_user, text))


def _without_user(url: re.Match[str]) -> str:
    scheme = url["scheme"] or ""
    if scheme.lower() in CONTAINER_SCHEMES and ":" not in url["user"]:
        return url[0]
    return f"{scheme}//{REDACTED}@"


def scrub_property(name: str, value: str) -> str:
    """The value of a property, unless its name or the value itself looks like a secret (Spark tests both)."""
    if SPARK_PATTERN.search(name) or SPARK_PATTERN.search(value):
        return REDACTED
    return scrub(value)


def scrub_line(line: bytes) -> str:
    """The first 80 characters of a bad line as they may be shown.

    A line that speaks of secrets anywhere is shown up to its event's name only: broken JSON cannot be told apart
    into names and values.
    """
    text = line[: 1 << 20].decode("utf-8", "replace")
    shown = text[:LINE_CHARS].rstrip("\r\n")
    if HINT.search(text):
        event = re.match(r'\{"Event":"[\w.]*', shown)
        return f"{event[0] if event else ''}… ({REDACTED})"
    return "".join(char if char.isprintable() else "�" for char in shown)


# What a plan's text may keep in strict mode: operators, functions, types and keywords; all else could be a literal.
PLAN_TOKEN = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|[A-Za-z_][\w.]*(?:#\d+L?)?|#\d+L?|\d[\w.:+-]*|\S")
PLAN_WORDS = frozenset(
    """and or not in like rlike is null true false asc desc nulls first last inner leftouter rightouter fullouter
    leftsemi leftanti cross existence buildleft buildright outer left right full semi anti join on using where
    select from group by order having limit offset union all distinct as case when then else end cast between
    exists with create table view insert into overwrite values set update delete merge over partition rows
    range unbounded preceding following current row interval rollup cube grouping sets filter sort project
    scan parquet orc csv json text avro delta iceberg jdbc exchange hashpartitioning rangepartitioning
    singlepartition roundrobinpartitioning hashedrelationbroadcastmode identitybroadcastmode
    ensure_requirements repartition_by_num repartition_by_col repartition rebalance plan_id id columnar gpu
    batched datafilters partitionfilters pushedfilters readschema location format struct array map string int
    integer bigint smallint tinyint double float decimal boolean date timestamp binary void keys functions
    output results count sum min max avg mean stddev variance first_value last_value collect_list collect_set
    approx_count_distinct partial_sum partial_count partial_avg partial_min partial_max merge_sum isnotnull
    isnull coalesce substring substr year month day concat upper lower trim length abs round floor ceil
    greatest least if hash rank dense_rank row_number lag lead ntile explode inline posexplode
    knownfloatingpointnormalized normalizenanandzero promote_precision checkoverflow makedecimal unscaledvalue
    wholestagecodegen adaptivesparkplan isfinalplan broadcastexchange shuffleexchange sortmergejoin
    broadcasthashjoin hashaggregate objecthashaggregate sortaggregate takeorderedandproject reusedexchange
    subquery scalar_subquery dynamicpruning inmemoryfileindex paths dynamicpruningexpression wholetextfiles
    cached batchscan filescan localtablescan expand generate window coalesced local skewed aqeshuffleread
    arguments input condition inputpath execute command""".split()  # noqa: SIM905 - one word a line would fill four pages
)
PATH = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?/{1,3}[^\s,;\"'\[\](){}]+")
ADDRESS = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b|\b[A-Za-z0-9][\w-]*(?:\.[A-Za-z0-9][\w-]*){2,}\b")


class Redactor:
    """Cleans every text that leaves a log, by its role; `strict` also hashes users, hosts, paths and SQL literals."""

    def __init__(self, *, strict: bool = False, key: bytes | None = None) -> None:
        self.strict = strict
        self._key = key or secrets.token_bytes(16)
        self.text = lru_cache(maxsize=65536)(self._text)
        self.plan = lru_cache(maxsize=65536)(self._plan)

    def hashed(self, value: str) -> str:
        """A name for a value: the same within one run, meaningless outside it."""
        return "h:" + hashlib.blake2b(value.encode(), key=self._key, digest_size=5).hexdigest()

    def name(self, value: str | None) -> str | None:
        """A user's or host's name."""
        return self.hashed(value) if self.strict and value else value

    def path(self, value: str) -> str:
        return self.hashed(value) if self.strict else scrub(value)

    def property(self, name: str, value: str) -> str:
        value = scrub_property(name, value)
        if not self.strict or value == REDACTED:
            return value
        # Numbers, sizes, switches and class names say nothing personal and are what the properties are read for.
        if re.fullmatch(
            r"-?[\d.]+[a-zA-Z]{0,2}|true|false|local(\[[\d*,]+\])?|yarn|(org|com)\.(apache|nvidia)\.[\w.$,]+", value
        ):
            return value
        return self.hashed(value)

    def _text(self, value: str | None) -> str | None:
        """A description or a message: free text, in which literals, paths and addresses may stand."""
        if not value:
            return value
        value = scrub(value)
        if not self.strict:
            return value
        value = re.sub(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"", lambda found: self.hashed(found[0]), value)
        value = PATH.sub(lambda found: self.hashed(found[0]), value)
        value = ADDRESS.sub(lambda found: self.hashed(found[0]), value)
        return self._literals(value) if re.search(r"(?i)\b(select|where|values|insert)\b", value) else value

    def _literals(self, sql: str) -> str:
        return re.sub(r"(?<![\w#.:])\d[\w.-]*", lambda found: self.hashed(found[0]), sql)

    def _plan(self, value: str | None) -> str | None:
        """An operator's text: Spark prints literals without quotes, so only known words and columns are kept."""
        if not value:
            return value
        value = scrub(value)
        return PLAN_TOKEN.sub(self._plan_token, value) if self.strict else value

    def _plan_token(self, found: re.Match[str]) -> str:
        token = found[0]
        if (not token.isalnum() and len(token) == 1) or "#" in token or token.lower() in PLAN_WORDS:
            return token
        # A name before "(" is a function or an operator.
        rest = found.string[found.end() : found.end() + 1]
        if rest == "(" and re.fullmatch(r"[a-z_][a-z_0-9]*", token):
            return token
        return self.hashed(token)
