"""How a run stood to its thresholds, for people: lines for a terminal, HTML for the page and the gallery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.formats import escape

_ORDER = ("refused", "broken", "passed")
_WORDS = {"refused": "cannot be checked", "broken": "broken", "passed": "passed"}


def summary(judged: Mapping[str, Any]) -> str:
    """How many rules were passed, broken, and not to be checked.

    Examples
    --------
    >>> summary({"passed": 3, "broken": 1, "refused": 0})
    '3 passed, 1 broken'
    """
    counts = [(_WORDS[kind], _count(judged, kind)) for kind in reversed(_ORDER)]
    return ", ".join(f"{count} {word}" for word, count in counts if count) or "none"


def _count(judged: Mapping[str, Any], kind: str) -> int:
    count = judged.get(kind)
    return count if isinstance(count, int) and count > 0 else 0


def exit_code(judged: object) -> int:
    """0 when all thresholds were kept or none were given, 1 when one is broken, 2 when one cannot be checked."""
    if not isinstance(judged, Mapping):
        return 0
    return 2 if _count(judged, "refused") else 1 if _count(judged, "broken") else 0


def lines(judged: object) -> list[str]:
    """The summary, and a line a rule, the bad ones first; none where there were no thresholds."""
    if not isinstance(judged, Mapping):
        return []
    found = [f"thresholds: {summary(judged)}"]
    return found + [f"  {_WORDS[rule['outcome']]}: {rule.get('rule')} ({rule.get('found')})" for rule in _rules(judged)]


def _rules(judged: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = judged.get("rules")
    rules = listed if isinstance(listed, list) else []
    known = [rule for rule in rules if isinstance(rule, Mapping) and rule.get("outcome") in _ORDER]
    return sorted(known, key=lambda rule: _ORDER.index(rule["outcome"]))


def chip(judged: object) -> str:
    """A sign that says whether all thresholds were kept; nothing where there were none."""
    if not isinstance(judged, Mapping) or not (total := sum(_count(judged, kind) for kind in _ORDER)):
        return ""
    bad = [kind for kind in ("broken", "refused") if _count(judged, kind)]
    noun = "threshold" if total == 1 else "thresholds"
    if not bad:
        return f'<span class="wb-chip wb-valid">{total} {noun} passed</span>'
    words = ", ".join(f"{_count(judged, kind)} of {total} {noun} {_WORDS[kind]}" for kind in bad)
    return f'<span class="wb-chip wb-failed">{escape(words)}</span>'


def page(judged: object) -> str:
    """For the report, below the verdict: which thresholds were broken, at once; which were passed, on demand."""
    if not isinstance(judged, Mapping):
        return ""
    rules = _rules(judged)
    bad = [rule for rule in rules if rule["outcome"] != "passed"]
    good = [rule for rule in rules if rule["outcome"] == "passed"]
    parts = [f'<p class="verdict">{chip(judged)} <span>{escape(judged.get("file") or "")}</span></p>']
    if bad:
        parts.append(f'<ul class="limits">{"".join(map(_item, bad))}</ul>')
    if good:
        items = "".join(map(_item, good))
        summary_line = f"<summary>Passed ({len(good)})</summary>"
        parts.append(f'<details class="words">{summary_line}<ul class="limits">{items}</ul></details>')
    return f'<div class="gate">{"".join(parts)}</div>'


def _item(rule: Mapping[str, Any]) -> str:
    kind = rule["outcome"]
    sign = f"<strong>{_WORDS[kind]}</strong>" if kind != "passed" else ""
    found = f"<em>{escape(rule.get('found'))}</em>"
    return f"<li{'' if kind == 'passed' else ' class=bad'}>{sign} {escape(rule.get('rule'))} {found}</li>"
