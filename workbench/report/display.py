"""Displays of a notebook cell: headline with the answer, tables with units, notes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from workbench.console.tables import format_cells
from workbench.core.errors import ConfigError, InputError
from workbench.core.formats import escape_html, format_column, format_label, format_number, format_shares
from workbench.core.frames import takes_frames

if TYPE_CHECKING:
    import polars as pl

    from workbench.core.tables import Table

HEADLINE_MIME = "application/vnd.workbench.headline+json"

MAX_KEY_NUMBERS = 6
MAX_STEPS = 3
# Unit of columns that are parts of a whole.
SHARE = "share"
MAX_CARDS = 5
MAX_SHORT_CHARS = 28
_COMMAND = re.compile("`([^`]+)`")

KeyNumber = tuple[str, object] | tuple[str, object, str] | tuple[str, object, str, str]

# For live notebooks, which lack the report's style sheet; reports remove `data-live` elements.
_LIVE_STYLE = """<style data-live>
.wb-table{border-collapse:collapse;font-variant-numeric:tabular-nums}
.wb-table caption{text-align:left;opacity:.8;padding:2px 0}
.wb-table th,.wb-table td{padding:3px 10px;border-bottom:1px solid rgba(128,136,148,.3);text-align:left!important}
.wb-table .num{text-align:right!important}.wb-scroll{overflow-x:auto}
.wb-answer{font-size:1.25em;line-height:1.4;margin:.2em 0}
.wb-details{opacity:.8;max-width:60em}.wb-chip{display:inline-block;font-weight:600;font-size:.9em;line-height:1.2;
padding:2px 9px;margin:0 6px 2px 0;border:1px solid currentColor;border-radius:99px}
.wb-condition{font-weight:400;border-style:dashed}
.wb-keys{display:grid!important;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));
gap:10px;margin:.8em 0!important;max-width:1020px}
.wb-keys>div{border:1px solid rgba(128,136,148,.35);border-radius:8px;padding:10px 12px;min-width:0}
.wb-also{opacity:.75;font-size:.85em}
.wb-keys dt,.wb-keys dd{float:none!important;width:auto!important;margin:0!important;padding:0!important}
.wb-keys dd{font-size:1.5em}.wb-keys dt{font-weight:normal!important}
.wb-next p{font-weight:600;margin:.6em 0 0}.wb-next ul{margin:.2em 0}
.wb-keys dt,.wb-keys small{opacity:.75;font-size:.85em}.wb-keys dd small{display:block;font-size:.6em}</style>"""


@dataclass(frozen=True)
class CellDisplay:
    """Output of a cell: HTML, text, and data for the report."""

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
    details: Sequence[str] = (),
    conditions: Sequence[str] = (),
    key_numbers: Sequence[KeyNumber] = (),
    next_steps: Sequence[str] = (),
    question: str | None = None,
) -> CellDisplay:
    """The answer in one sentence, with verdict, key numbers and next steps.

    The report shows it at its top.

    Parameters
    ----------
    answer
        One sentence computed from the result tables: number with unit, interval, decision; at most 90 characters.
    verdict, reasons
        Whether the run is valid, and why not. An invalid run needs a reason.
    details
        Sentences below the answer: what it rests on, what qualifies it.
    conditions
        What was not real, in two or three words each, as chips beside the verdict: "simulated service".
    key_numbers
        At most six of (label, value, unit, note); unit and note are optional, null becomes a dash.
    next_steps
        At most three sentences, computed from the result: a decision, or the next command between backticks.
    question
        Title of the report; by default the first heading of the notebook.

    Raises
    ------
    ConfigError
        The verdict is unknown, an invalid run has no reason, a key number has no label or too many parts, or there
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
    numbers = [_build_key_number(entry) for entry in key_numbers]
    if len(numbers) > MAX_KEY_NUMBERS:
        allowed = f"at most {MAX_KEY_NUMBERS}"
        raise ConfigError("too many key numbers for a headline", found=len(numbers), allowed=allowed)
    steps = [str(step) for step in next_steps]
    if len(steps) > MAX_STEPS:
        raise ConfigError("too many next steps for a headline", found=len(steps), allowed=f"at most {MAX_STEPS}")
    data = {
        "question": question,
        "answer": str(answer),
        "verdict": verdict,
        "reasons": [str(reason) for reason in reasons],
        "details": [str(detail) for detail in details],
        "conditions": [str(condition) for condition in conditions],
        "key_numbers": numbers,
        "next_steps": steps,
    }
    return CellDisplay(render_headline(data), _format_headline(data), {HEADLINE_MIME: data})


def _build_key_number(entry: KeyNumber) -> dict[str, str]:
    parts = list(entry) if isinstance(entry, tuple | list) else []
    if not 2 <= len(parts) <= 4 or not parts[0]:
        raise ConfigError("not a key number", where="headline", found=entry, allowed="(label, value, unit, note)")
    label, value, unit, note = [*parts, "", ""][:4]
    return {"label": str(label), "value": format_number(value), "unit": str(unit or ""), "note": str(note or "")}


def render_chip(verdict: str | None, status: str = "succeeded") -> str:
    """A chip with the verdict, or with the status of a run without one.

    >>> render_chip("valid")
    '<span class="wb-chip wb-valid">valid</span>'
    """
    word, kind = {
        "failed": ("failed", "failed"),
        "cancelled": ("cancelled", "failed"),
        "died": ("died", "failed"),
        "running": ("not finished", "none"),
    }.get(status, (verdict or "no verdict", verdict or "none"))
    return f'<span class="wb-chip wb-{escape_html(kind)}">{escape_html(word)}</span>'


def render_conditions(conditions: object) -> str:
    """Chips of what was not real in a run, such as a simulated service; escaped.

    >>> render_conditions(["simulated service"])
    '<span class="wb-chip wb-condition">simulated service</span>'
    """
    words = conditions if isinstance(conditions, list) else []
    return "".join(f'<span class="wb-chip wb-condition">{escape_html(str(word))}</span>' for word in words)


def render_details(details: object) -> str:
    """Sentences below an answer as a paragraph; escaped."""
    sentences = " ".join(str(detail) for detail in details) if isinstance(details, list) else ""
    return f'<p class="wb-details">{escape_html(sentences)}</p>' if sentences else ""


def render_key_numbers(numbers: Sequence[dict[str, str]]) -> str:
    """Key numbers with unit and note as HTML, at most five in a row and the rest in a line below; escaped."""
    if not numbers:
        return ""
    cells = []
    for entry in numbers[:MAX_CARDS]:
        unit = f' <span class="wb-unit">{escape_html(entry["unit"])}</span>' if entry.get("unit") else ""
        note = f"<small>{escape_html(entry['note'])}</small>" if entry.get("note") else ""
        cells.append(
            f"<div><dt>{escape_html(entry['label'])}</dt><dd>{escape_html(entry['value'])}{unit}{note}</dd></div>"
        )
    also = "; ".join(_format_key_number(entry) for entry in numbers[MAX_CARDS:])
    below = f'<p class="wb-also">Also: {escape_html(also)}</p>' if also else ""
    return f'<dl class="wb-keys">{"".join(cells)}</dl>{below}'


def _format_key_number(entry: dict[str, str]) -> str:
    unit = f" {entry['unit']}" if entry.get("unit") else ""
    note = f" ({entry['note']})" if entry.get("note") else ""
    return f"{entry['label']}: {entry['value']}{unit}{note}"


def render_next_steps(steps: object) -> str:
    """Next steps as an HTML list; escaped, with text in backticks as code.

    >>> render_next_steps(["Run `workbench doctor`."])
    '<div class="wb-next"><p>What to do next</p><ul><li>Run <code>workbench doctor</code>.</li></ul></div>'
    """
    texts = [str(step) for step in steps][:MAX_STEPS] if isinstance(steps, list) else []
    if not texts:
        return ""
    lines = "".join(f"<li>{_COMMAND.sub(_render_code, escape_html(step))}</li>" for step in texts)
    return f'<div class="wb-next"><p>What to do next</p><ul>{lines}</ul></div>'


def _render_code(match: re.Match[str]) -> str:
    return f"<code>{match[1]}</code>"


def render_headline(data: dict[str, Any]) -> str:
    """A headline as HTML for the notebook cell; the report renders its own."""
    chip = (render_chip(data["verdict"]) if data["verdict"] else "") + render_conditions(data["conditions"])
    reasons = f" {escape_html('; '.join(data['reasons']))}" if data["reasons"] else ""
    answer = f'<p class="wb-answer">{escape_html(data["answer"])}</p>'
    below = render_details(data["details"]) + render_key_numbers(data["key_numbers"])
    below += render_next_steps(data["next_steps"])
    return f'<div class="wb-headline">{answer}<p>{chip}{reasons}</p>{below}</div>'


def _format_headline(data: dict[str, Any]) -> str:
    lines = [data["answer"]]
    if data["verdict"]:
        words = ", ".join([data["verdict"], *data["conditions"]])
        lines.append(f"Verdict: {words}" + (f" ({'; '.join(data['reasons'])})" if data["reasons"] else ""))
    lines += data["details"]
    lines += [_format_key_number(entry) for entry in data["key_numbers"]]
    lines += [f"Next: {step}" for step in data["next_steps"]]
    return "\n".join(lines)


@takes_frames
def table(
    frame: pl.DataFrame, declared: Table | None = None, *, caption: str = "", limit: int = 20, folded: bool = False
) -> CellDisplay:
    """Display a table: units in the header, aligned numbers, dashes for nulls, and the number of rows.

    Parameters
    ----------
    frame
        Rows to show.
    declared
        Declaration with units and meanings of columns (tooltips); without it units come from the column names.
        Undeclared columns are shown too.
    caption
        Caption of the table.
    limit
        Maximum number of rows shown, 1 or more; the caption has the total.
    folded
        On a page only the caption is seen until it is opened: for long tables that few need.

    Raises
    ------
    InputError
        `limit` is below 1.
    """
    if limit < 1:
        raise InputError("limit must be 1 or more", where="report.table", found=limit)
    shown = frame.head(limit)
    row_note = (
        f"{format_number(shown.height)} of {format_number(frame.height)} rows"
        if shown.height < frame.height
        else _format_row_count(frame.height)
    )
    heads = []
    for name in frame.columns:
        column = next((column for column in declared.columns if column.name == name), None) if declared else None
        if column is None:
            column_header = format_label(name), ""
        else:
            # A share is shown in per cent.
            column_header = format_label(name, "" if column.unit == SHARE else column.unit or None), column.meaning
        heads.append(column_header)
    shares = {column.name for column in declared.columns if column.unit == SHARE} if declared else set()
    columns = [
        format_shares(shown.get_column(name).to_list())
        if name in shares and shown.schema[name].is_numeric()
        else format_column(shown.get_column(name).to_list())
        for name in shown.columns
    ]
    kinds = [choose_column_class(dtype.is_numeric(), texts) for dtype, texts in zip(frame.dtypes, columns, strict=True)]
    rows = [list(row) for row in zip(*columns, strict=True)]
    html = _render_table(heads, kinds, rows, caption, row_note, shown)
    return CellDisplay(
        f'<details class="rows"><summary>{escape_html(caption or row_note)}</summary>{html}</details>'
        if folded
        else html,
        _format_table([head for head, _ in heads], kinds, rows, caption, row_note),
    )


def bullets(lines: Sequence[str]) -> CellDisplay:
    """Display a list of notes."""
    html = "".join(f"<li>{escape_html(line)}</li>" for line in lines)
    return CellDisplay(f"<ul>{html}</ul>", "\n".join(f"- {line}" for line in lines))


def _format_row_count(count: int) -> str:
    return f"{format_number(count)} row{'' if count == 1 else 's'}"


def choose_column_class(is_number: bool, texts: list[str]) -> str:
    """CSS class of a column: numbers are right-aligned, short texts stay on one line, long ones wrap.

    >>> [choose_column_class(False, [text]) for text in ("q1", "word " * 20)], choose_column_class(True, ["1"])
    (['short', ''], 'num')
    """
    return "num" if is_number else "short" if all(len(text) <= MAX_SHORT_CHARS for text in texts) else ""


def _render_table(
    heads: list[tuple[str, str]],
    kinds: list[str],
    rows: list[list[str]],
    caption: str,
    note: str,
    frame: pl.DataFrame,
) -> str:
    """Render an HTML table; `heads` are pairs of text and meaning, `kinds` the CSS class of each column, or empty.

    A cell whose text is rounded carries its value from `frame`, for files; a column carries its name.
    """
    kinds = [f' class="{kind}"' if kind else "" for kind in kinds]
    head = "".join(
        f'<th scope="col"{kind} data-column="{escape_html(name)}" title="{escape_html(meaning)}">'
        f"{escape_html(text)}</th>"
        for (text, meaning), kind, name in zip(heads, kinds, frame.columns, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{kind}{_render_exact(value, text)}>{escape_html(text)}</td>"
            for value, text, kind in zip(values, row, kinds, strict=True)
        )
        + "</tr>"
        for values, row in zip(frame.iter_rows(), rows, strict=True)
    )
    body = body or f'<tr><td colspan="{len(heads)}">none</td></tr>'
    words = f"{escape_html(caption)} <small>{note}</small>" if caption else f"<small>{note}</small>"
    return (
        f'<div class="wb-scroll" tabindex="0"><table class="wb-table"><caption>{words}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _render_exact(value: object, text: str) -> str:
    """Attribute with a number that its text rounds; empty where the text is exact."""
    if not isinstance(value, float) or not math.isfinite(value):
        return ""
    try:
        exact = float(text.replace(",", "").replace("\u2212", "-")) == value
    except ValueError:
        exact = False
    return "" if exact else f' data-exact="{value!r}"'


def _format_table(heads: list[str], kinds: list[str], rows: list[list[str]], caption: str, note: str) -> str:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in heads]
    lines = format_cells(columns, heads, right=[kind == "num" for kind in kinds])
    return "\n".join([f"{caption} ({note})" if caption else note, *lines])
