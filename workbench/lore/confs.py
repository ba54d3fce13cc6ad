"""Which settings of a dump a replay takes over: those that change what an operator computes, and none that load code.

Spark's settings name classes to be loaded, jars, interpreters, catalogs, places to read and write: a dump that could
set them would run whatever its maker wants. So a key must be of spark.sql.*, must not speak of such things, and its
value must look like a number or a word. A setting that is refused here is left out when a dump is made.
"""

from __future__ import annotations

import re

from workbench import redaction

TIME_ZONE = "spark.sql.session.timeZone"
MAX_CHARS = 500
_KEY = re.compile(r"spark\.sql\.[A-Za-z][A-Za-z0-9_.-]{0,200}", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_+:-]{1,32}(?:/[A-Za-z0-9_+:-]{1,32}){0,2}", re.ASCII)
_VALUE = re.compile(r"[A-Za-z0-9_ .,;:+*=<>()%|?-]*", re.ASCII)
# Looks like org.example.Name; numbers with a dot do not.
_CLASS = re.compile(r"(?:^|[^\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", re.ASCII)
# Parts of the names of keys: what code is loaded, where data lies, whom Spark calls or speaks to.
_PARTS = {
    "extension": "extensions are code",
    "class": "it names classes",
    "jar": "it names jars",
    "plugin": "plugins are code",
    "javaoption": "Java's options",
    "option": "options of other programs",
    "listener": "listeners are code",
    "catalog": "catalogs are code and places",
    "provider": "it names classes",
    "serializer": "it names classes",
    "hive": "Hive loads code",
    "artifact": "artifacts are code",
    "maven": "it names places that code comes from",
    "repositories": "it names places that code comes from",
    "streaming": "streams are not replayed",
    "warehouse": "it names a place",
    "path": "it names a place",
    "location": "it names a place",
    "dir": "it names a place",
    "uri": "it names a place",
    "url": "it names a place",
    "sources.default": "it names classes",
    "excludedrules": "it names classes",
    "pyspark.python": "it names a program",
    "pyspark.driver": "it names a program",
    "worker": "it names a program",
    "command": "it names a program",
    "redaction": "it changes what is hidden",
    "secret": "it may be a secret",
    "password": "it may be a secret",
    "token": "it may be a secret",
    "credential": "it may be a secret",
}


def conf_fault(key: str, value: str) -> str | None:
    """Why may a dump not make this setting? Null when it may.

    Examples
    --------
    >>> conf_fault("spark.sql.ansi.enabled", "true"), conf_fault("spark.sql.session.timeZone", "Europe/Berlin")
    (None, None)
    >>> conf_fault("spark.jars", "evil.jar"), conf_fault("spark.sql.extensions", "org.example.Evil")
    ('only keys of spark.sql.* are taken', 'extensions are code')
    """
    if not _KEY.fullmatch(key):
        return "only keys of spark.sql.* are taken"
    if key == TIME_ZONE:
        return None if _ZONE.fullmatch(value) else "not a time zone"
    lowered = key.lower()
    for part, reason in _PARTS.items():
        if part in lowered:
            return reason
    if redaction.is_secret_key(key):
        return "it may be a secret"
    if len(value) > MAX_CHARS:
        return "the value is too long"
    if not _VALUE.fullmatch(value) or "://" in value:
        return "the value may be a path, a URI or a reference"
    return "the value may name a class" if _CLASS.search(value) else None
