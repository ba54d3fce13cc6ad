"""What a notebook cell shows besides charts: the headline that answers its question, and tables with units."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from workbench.errors import ConfigError, InputError
from workbench.formats import aligned, escape, label_of, number

if TYPE_CHECKING:
    import polars as pl

    from workbench.tables import Table

HEADLINE_MIME = "application/vnd.workbench.headline+json"

MOST_STEPS = 3
_COMMAND = re.compile("`([^`]+)`")

KeyNumber = tuple[str, object] | tuple[str, object, str] | tuple[str, object, str, str]

# Live pages have no style sheet of ours; `data-live` marks what the report leaves out.
_LIVE_STYLE = """<style data-live>
.wb-table{border-collapse:collapse;font-variant-numeric:tabular-nums}
.wb-table caption{text-align:left;opacity:.8;padding:2px 0}
.wb-table th,.wb-table td{padding:3px 10px;border-bottom:1px solid rgba(128,136,148,.3);text-align:left!important}
.wb-table .num{text-align:right!important}.wb-scroll{overflow-x:auto}
.wb-answer{font-size:1.25em;line-height:1.4;margin:.2em 0}.wb-chip{font-weight:600}
.wb-keys{display:flex;flex-wrap:wrap;gap:1em 2.5em;margin:.6em 0}
.wb-keys dt,.wb-keys dd{float:none!important;width:auto!important;margin:0!important;padding:0!important}
.wb-keys dd{font-size:1.5em}.wb-keys dt{font-weight:normal!important}
.wb-next p{font-weight:600;margin:.6em 0 0}.wb-next ul{margin:.2em 0}
.wb-keys dt,.wb-keys small{opacity:.75;font-size:.85em}.wb-keys dd small{display:block;font-size:.6em}</style>"""


@dataclass(frozen=True)
class Shown:
    """Something that a cell shows: HTML in a page, words elsewhere, and data for the report."""

    html: str
    text: str
    extra: dict[str, Any] = field(default_factory=dict)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/html": _LIVE_STYLE + self.html, "text/plain": self.text, **self.extra}

    def __repr__(self) -> str:
        return self.text


def headline(
    *,
    answer: str,
    verdict: Literal["valid", "invalid"] | None = None,
    reasons: Sequence[str] = (),
    key_numbers: Sequence[KeyNumber] = (),
    next_steps: Sequence[str] = (),
    question: str | None = None,
) -> Shown:
    """The answer in one sentence, whether to trust it, the few numbers behind it, and what to do next.

    The report lifts it to its top.

    Parameters
    ----------
    answer
        One sentence computed from the result tables, with its figure and interval.
    verdict, reasons
        Is the run valid, and why not. An invalid one needs a reason.
    key_numbers
        At most six of (label, value, unit, note); unit and note may be left out, a null value is written as a dash.
    next_steps
        At most three sentences, computed from the result: what to decide, or what to run next. `Backticks` mark what
        is to be typed.
    question
        The title of the report, where the notebook's first heading is not it.

    Raises
    ------
    ConfigError
        The verdict is unknown, an invalid one has no reason, a key number has no label or too many parts, or there
        are too many steps.

    Examples
    --------
    >>> headline(answer="2.1 times faster.", verdict="valid", key_numbers=[("queries", 22)])
    2.1 times faster.
    Verdict: valid
    queries: 22
    """
    if verdict not in (None, "valid", "invalid"):
        raise ConfigError("unknown verdict", where="headline", found=verdict, allowed=["valid", "invalid"])
    if verdict == "invalid" and not reasons:
        raise ConfigError("an invalid run needs a reason", where="headline", do="pass reasons=[…]")
    numbers = [_key_number(entry) for entry in key_numbers]
    if len(numbers) > 6:
        raise ConfigError("too many key numbers for a headline", found=len(numbers), allowed="at most 6")
    steps = [str(step) for step in next_steps]
    if len(steps) > MOST_STEPS:
        raise ConfigError("too many next steps for a headline", found=len(steps), allowed=f"at most {MOST_STEPS}")
    data = {
        "question": question,
        "answer": str(answer),
        "verdict": verdict,
        "reasons": [str(reason) for reason in reasons],
        "key_numbers": numbers,
        "next_steps": steps,
    }
    return Shown(headline_html(data), _headline_text(data), {HEADLINE_MIME: data})


def _key_number(entry: KeyNumber) -> dict[str, str]:
    parts = list(entry) if isinstance(entry, tuple | list) else []
    if not 2 <= len(parts) <= 4 or not parts[0]:
        raise ConfigError("not a key number", where="headline", found=entry, allowed="(label, value, unit, note)")
    label, value, unit, note = [*parts, "", ""][:4]
    return {"label": str(label), "value": number(value), "unit": str(unit or ""), "note": str(note or "")}


def chip_html(verdict: str | None, status: str = "succeeded") -> str:
    """The verdict, or what became of a run that has none, as a small sign."""
    word, kind = {
        "failed": ("failed", "failed"),
        "cancelled": ("cancelled", "failed"),
        "died": ("died", "failed"),
        "running": ("not finished", "none"),
    }.get(status, (verdict or "no verdict", verdict or "none"))
    return f'<span class="wb-chip wb-{escape(kind)}">{escape(word)}</span>'


def key_numbers_html(numbers: Sequence[dict[str, str]]) -> str:
    """Key numbers side by side, each with its unit and note; everything escaped."""
    if not numbers:
        return ""
    cells = []
    for entry in numbers:
        unit = f' <span class="wb-unit">{escape(entry["unit"])}</span>' if entry.get("unit") else ""
        note = f"<small>{escape(entry['note'])}</small>" if entry.get("note") else ""
        cells.append(f"<div><dt>{escape(entry['label'])}</dt><dd>{escape(entry['value'])}{unit}{note}</dd></div>")
    return f'<dl class="wb-keys">{"".join(cells)}</dl>'


def next_steps_html(steps: object) -> str:
    """What to do next, as a short list; everything escaped, and what stands in backticks set as something to type."""
    told = [str(step) for step in steps][:MOST_STEPS] if isinstance(steps, list) else []
    if not told:
        return ""
    lines = "".join(f"<li>{_COMMAND.sub(_as_code, escape(step))}</li>" for step in told)
    return f'<div class="wb-next"><p>What to do next</p><ul>{lines}</ul></div>'


def _as_code(match: re.Match[str]) -> str:
    return f"<code>{match[1]}</code>"


def headline_html(data: dict[str, Any]) -> str:
    """A headline's data as HTML for the cell itself; the report writes its own."""
    chip = chip_html(data["verdict"]) if data["verdict"] else ""
    reasons = f" {escape('; '.join(data['reasons']))}" if data["reasons"] else ""
    answer = f'<p class="wb-answer">{escape(data["answer"])}</p>'
    below = key_numbers_html(data["key_numbers"]) + next_steps_html(data["next_steps"])
    return f'<div class="wb-headline">{answer}<p>{chip}{reasons}</p>{below}</div>'


def _headline_text(data: dict[str, Any]) -> str:
    lines = [data["answer"]]
    if data["verdict"]:
        lines.append(f"Verdict: {data['verdict']}" + (f" ({'; '.join(data['reasons'])})" if data["reasons"] else ""))
    for entry in data["key_numbers"]:
        unit = f" {entry['unit']}" if entry["unit"] else ""
        note = f" ({entry['note']})" if entry["note"] else ""
        lines.append(f"{entry['label']}: {entry['value']}{unit}{note}")
    lines += [f"Next: {step}" for step in data["next_steps"]]
    return "\n".join(lines)


def table(frame: pl.DataFrame, declared: Table | None = None, *, caption: str = "", limit: int = 20) -> Shown:
    """A table as people read it: units in the header, numbers aligned, nulls as dashes, and how many rows there are.

    Parameters
    ----------
    frame
        Rows to show; its values are not changed, only written shorter.
    declared
        The table's declaration, for units and for the meaning of a column (shown when pointed at); without it the
        unit is read from the column's name. Columns that it does not declare are shown too.
    caption
        What the table holds.
    limit
        Most rows to show, 1 or more; the caption says how many there are.

    Raises
    ------
    InputError
        `limit` is below 1.
    """
    if limit < 1:
        raise InputError("limit must be 1 or more", where="report.table", found=limit)
    shown = frame.head(limit)
    told = (
        f"{number(shown.height)} of {number(frame.height)} rows" if shown.height < frame.height else _rows(frame.height)
    )
    heads = [_header(name, declared) for name in frame.columns]
    columns = [aligned(shown.get_column(name).to_list()) for name in shown.columns]
    kinds = [_kind(dtype.is_numeric(), texts) for dtype, texts in zip(frame.dtypes, columns, strict=True)]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Shown(
        _table_html(heads, kinds, rows, caption, told), _table_text([head for head, _ in heads], rows, caption, told)
    )


def bullets(lines: Sequence[str]) -> Shown:
    """Notes, one a line."""
    html = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return Shown(f"<ul>{html}</ul>", "\n".join(f"- {line}" for line in lines))


def _rows(count: int) -> str:
    return f"{number(count)} row{'' if count == 1 else 's'}"


def _kind(is_number: bool, texts: list[str]) -> str:
    """How a column is set: numbers at the right, short texts on one line, long ones wrapped."""
    return "num" if is_number else "short" if all(len(text) <= 28 for text in texts) else ""


def _header(name: str, declared: Table | None) -> tuple[str, str]:
    column = next((column for column in declared.columns if column.name == name), None) if declared else None
    return (label_of(name, column.unit or None), column.meaning) if column else (label_of(name), "")


def _table_html(heads: list[tuple[str, str]], kinds: list[str], rows: list[list[str]], caption: str, told: str) -> str:
    kinds = [f' class="{kind}"' if kind else "" for kind in kinds]
    head = "".join(
        f'<th scope="col"{kind} title="{escape(meaning)}">{escape(text)}</th>'
        for (text, meaning), kind in zip(heads, kinds, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{escape(value)}</td>" for value, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    )
    body = body or f'<tr><td colspan="{len(heads)}">none</td></tr>'
    words = f"{escape(caption)} <small>{told}</small>" if caption else f"<small>{told}</small>"
    return (
        f'<div class="wb-scroll" tabindex="0"><table class="wb-table"><caption>{words}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _table_text(heads: list[str], rows: list[list[str]], caption: str, told: str) -> str:
    widths = [min(40, max(len(head), *(len(row[index]) for row in rows), 1)) for index, head in enumerate(heads)]
    lines = [
        "  ".join(value[:width].ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()
        for row in [heads, *rows]
    ]
    return "\n".join([f"{caption} ({told})" if caption else told, *lines])
