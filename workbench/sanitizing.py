"""HTML that came with a notebook, made harmless: scripts, handlers and anything that would load from elsewhere."""

from __future__ import annotations

import re
from typing import Any

_WORDS = ["a", "abbr", "b", "br", "code", "del", "em", "i", "img", "ins", "kbd", "mark", "q", "s", "samp", "small"]
_MORE_WORDS = ["span", "strong", "sub", "sup", "u", "var"]
_BLOCKS = ["blockquote", "details", "div", "figcaption", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "p", "pre"]
_LISTS = ["dd", "dl", "dt", "li", "ol", "summary", "ul"]
_TABLES = ["caption", "col", "colgroup", "table", "tbody", "td", "tfoot", "th", "thead", "tr"]
_TAGS = _WORDS + _MORE_WORDS + _BLOCKS + _LISTS + _TABLES
_DATA_IMAGE = re.compile(r"data:image/(png|jpeg|gif|svg\+xml);base64,", re.IGNORECASE)
_SAFE_LINK = re.compile(r"(https?:|mailto:|#|[^:/?#]*(?:[/?#]|$))", re.IGNORECASE)
_SCRIPT = re.compile(r"<script\b.*?(?:</script\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_LIVE_STYLE = re.compile(r"<style data-live>.*?</style>", re.DOTALL)
_HANDLER = re.compile(r"""(<[a-zA-Z][^>]*?)\s+on[a-z]+\s*=\s*("[^"]*"|'[^']*'|[^\s>]+)""", re.IGNORECASE)
_REMOTE = re.compile(r"""<(?:link|iframe|object|embed|base|meta)\b[^>]*>|</(?:iframe|object)\s*>""", re.IGNORECASE)
_REMOTE_SOURCE = re.compile(
    r"""(<[a-zA-Z][^>]*?)\s+(?:src|srcset|poster|background)\s*=\s*(?:"(?!data:)[^"]*"|'(?!data:)[^']*'|(?!["']|data:)[^\s>]+)""",
    re.IGNORECASE,
)


def clean_markdown(html: str) -> str:
    """Rendered markdown with the tags that prose needs; images only where they are part of the page.

    Examples
    --------
    >>> clean_markdown('<p onclick="x()">good<script>bad()</script></p>')
    '<p>good</p>'
    >>> clean_markdown('<a href="javascript:bad()">here</a>')
    '<a>here</a>'
    """
    import bleach  # type: ignore[import-untyped]

    return str(
        bleach.clean(
            _SCRIPT.sub("", html),
            tags=_TAGS,
            attributes=_may_stay,
            protocols=["http", "https", "mailto", "data"],
            strip=True,
            strip_comments=True,
        )
    )


def _may_stay(tag: str, name: str, value: str) -> bool:
    if name in ("class", "id", "title", "lang"):
        return True
    if tag == "a" and name == "href":
        return bool(_SAFE_LINK.match(value.strip())) and not value.strip().lower().startswith("data:")
    if tag == "img":
        return name in ("alt", "width", "height") or (name == "src" and bool(_DATA_IMAGE.match(value)))
    return tag in ("td", "th") and name in ("colspan", "rowspan", "align", "scope")


def clean_output(html: str) -> tuple[str, str]:
    """HTML that code displayed, kept but for scripts, handlers and addresses elsewhere; and a note on what was taken.

    It comes from this project or from libraries, so its styles and drawings stay; the page's policy forbids the rest
    anyway, this only keeps the console quiet.

    Examples
    --------
    >>> clean_output('<b>12</b><script src="https://example.org/a.js"></script>')
    ('<b>12</b>', 'A script of this output was left out.')
    """
    html = _LIVE_STYLE.sub("", html)
    without = _SCRIPT.sub("", html)
    note = "A script of this output was left out." if without != html else ""
    without = _REMOTE.sub("", without)
    while (next_one := _REMOTE_SOURCE.sub(r"\1", _HANDLER.sub(r"\1", without))) != without:
        without = next_one
    return without, note


def balanced(html: str) -> str:
    """The fragment with every tag closed, so that it cannot swallow the page after it."""
    from bs4 import BeautifulSoup

    return str(BeautifulSoup(html, features="html.parser"))


def ansi_html(text: str) -> str:
    """Terminal output with its colours, escaped."""
    from nbconvert.filters.ansi import ansi2html

    html: Any = ansi2html(text)
    return str(html)
