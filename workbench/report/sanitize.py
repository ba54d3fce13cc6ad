"""Sanitize HTML from notebooks: no scripts, no handlers, nothing loaded from elsewhere."""

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
_ELSEWHERE = re.compile(r"@import|url\(\s*[\"']?(?!data:|#)", re.IGNORECASE)
_LOADERS = ["applet", "base", "embed", "form", "frame", "frameset", "iframe", "link", "meta", "object", "template"]
_SOURCES = {"src", "srcset", "poster", "background", "data", "action", "formaction", "xlink:href"}


def clean_markdown(html: str) -> str:
    """Rendered markdown reduced to tags of prose; images only when embedded in the page.

    >>> clean_markdown('<p onclick="x()">good<script>bad()</script></p>')
    '<p>good</p>'
    >>> clean_markdown('<a href="javascript:bad()">here</a>')
    '<a>here</a>'
    """
    import bleach

    return str(
        bleach.clean(
            _SCRIPT.sub("", html),
            tags=_TAGS,
            attributes=_is_safe_markdown_attribute,
            protocols=["http", "https", "mailto", "data"],
            strip=True,
            strip_comments=True,
        )
    )


def _is_safe_markdown_attribute(tag: str, name: str, value: str) -> bool:
    if name in ("class", "id", "title", "lang"):
        return True
    if tag == "a" and name == "href":
        return bool(_SAFE_LINK.match(value.strip())) and not value.strip().lower().startswith("data:")
    if tag == "img":
        return name in ("alt", "width", "height") or (name == "src" and bool(_DATA_IMAGE.match(value)))
    return tag in ("td", "th") and name in ("colspan", "rowspan", "align", "scope")


def clean_output(html: str) -> tuple[str, str]:
    """Displayed HTML without scripts, handlers and external addresses, and a note on what was removed.

    It comes from this project or from libraries, so its styles and drawings stay. Every tag is closed, so that it
    cannot swallow the page after it. The page's policy forbids the rest anyway; this is the first of two fences.

    >>> clean_output('<b>12</b><script src="https://example.org/a.js"></script>')
    ('<b>12</b>', 'A script of this output was left out.')
    >>> clean_output('<p onclick="bad()">open')
    ('<p>open</p>', '')
    """
    from bs4 import BeautifulSoup, Comment

    soup = BeautifulSoup(html, features="html.parser")
    scripts = soup.find_all("script")
    live = soup.find_all("style", attrs={"data-live": True})
    foreign = [style for style in soup.find_all("style") if _ELSEWHERE.search(style.text)]
    comments = soup.find_all(string=lambda text: isinstance(text, Comment))
    for element in [*scripts, *soup.find_all(_LOADERS), *live, *foreign, *comments]:
        element.extract()
    for element in soup.find_all(True):
        for name in [
            name for name, value in element.attrs.items() if not _is_safe_attribute(element.name, name, str(value))
        ]:
            del element[name]
    return str(soup), "A script of this output was left out." if scripts else ""


def _is_safe_attribute(tag: str, name: str, value: str) -> bool:
    name, value = name.lower(), value.strip()
    if name.startswith("on"):
        return False
    if name == "style":
        return not _ELSEWHERE.search(value)
    if name == "href":
        return bool(_SAFE_LINK.match(value)) if tag == "a" else value.startswith(("#", "data:image/"))
    return name not in _SOURCES or value.startswith(("#", "data:image/"))


def render_ansi(text: str) -> str:
    """Terminal output as escaped HTML with its colours."""
    from nbconvert.filters.ansi import ansi2html

    html: Any = ansi2html(text)
    return str(html)
