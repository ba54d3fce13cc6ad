"""Altair renderer: spec, picture and text description of a chart, live and headless, offline.

Altair's own renderers fetch their scripts from the internet, or emit a mime type that notebooks refuse; see
`docs/decisions/` on reports.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import gzip
import importlib.metadata
import io
import json
import os
import re
import secrets
import textwrap
from pathlib import Path
from typing import Any

from workbench.charts.data import describe_spec
from workbench.core import files

CHART_MIME = "application/vnd.vegalite.v6+json"
"""Not Altair's own `application/vnd.vegalite.v6.json`: a notebook file allows objects under `+json` names only."""

SUBTITLE_CHARS = 110

# What XML, and so an SVG, forbids.
_NOT_DRAWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_END_MARK = "\n/* whole */"


# The notebook server sets it for the kernels of notebooks that are open there.
SESSION_VARIABLE = "JPY_SESSION_NAME"


def is_headless() -> bool:
    """Is this kernel run by `workbench run`, so that its cells are not watched?"""
    return bool(os.environ.get("WORKBENCH_RUN_DIR"))


def enable_renderer() -> None:
    """Make this project's display the one that Altair uses, live or headless as the environment says."""
    import altair as alt

    # Renderers are asked anew for each chart, so one registered name serves both.
    alt.renderers.register("workbench", build_mime_bundle)
    alt.renderers.enable("workbench")


def build_mime_bundle(spec: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Build a chart's output for each kind of viewer: the spec, a picture, and its text alternative.

    Live, HTML that draws in the page comes in addition, with the Vega bundle once per kernel.
    """
    spec = wrap_subtitle(replace_undrawable(spec))
    bundle = {
        CHART_MIME: spec,
        "image/png": base64.b64encode(render_png(spec)).decode("ascii"),
        "text/plain": describe_spec(spec),
    }
    if not is_headless() and is_in_kernel():
        bundle["text/html"] = render_live_html(spec)
    return bundle


def replace_undrawable(value: Any) -> Any:
    """A spec whose texts a drawing may hold: control characters of logs and half characters become a sign.

    >>> replace_undrawable({"title": "a\\x1b[0m", "rows": [1, "b\\n"]})
    {'title': 'a�[0m', 'rows': [1, 'b\\n']}
    """
    if isinstance(value, str):
        return _NOT_DRAWABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {replace_undrawable(key): replace_undrawable(entry) for key, entry in value.items()}
    return [replace_undrawable(entry) for entry in value] if isinstance(value, list) else value


def wrap_subtitle(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with a long subtitle in several lines: a drawing is as wide as its longest line.

    >>> wrap_subtitle({"title": {"text": "Q?", "subtitle": "seven runs each, " * 8}})["title"]["subtitle"][1]
    'runs each, seven runs each,'
    """
    title: Any = spec.get("title")
    subtitle = title.get("subtitle") if isinstance(title, dict) else None
    if not isinstance(subtitle, str) or len(subtitle) <= SUBTITLE_CHARS:
        return spec
    return spec | {"title": title | {"subtitle": textwrap.wrap(subtitle, SUBTITLE_CHARS)}}


def find_vegalite_version() -> str:
    """The Vega-Lite version for Altair's specs among those that vl-convert carries."""
    import altair as alt
    import vl_convert

    wanted = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    carried = vl_convert.get_vegalite_versions()
    return wanted if wanted in carried else carried[-1]


def render_png(spec: dict[str, Any], *, scale: float = 1.5) -> bytes:
    """The chart as a PNG, for viewers that draw no Vega and for thumbnails."""
    import vl_convert

    return shrink_png(bytes(vl_convert.vegalite_to_png(spec, vl_version=find_vegalite_version(), scale=scale)))


def shrink_png(picture: bytes) -> bytes:
    """Shrink a PNG to a fraction of its bytes: vl-convert compresses for speed, and reports hold dozens.

    A chart has some dozen colours and their shades at the edges of its marks: a palette of 256 cannot be told from all.
    One with a transparent ground is only compressed, since palettes keep no shades of transparency.
    """
    from PIL import Image

    with Image.open(io.BytesIO(picture)) as image:
        opaque = "A" not in image.getbands() or image.getchannel("A").getextrema()[0] == 255
        buffer = io.BytesIO()
        small = image.convert("RGB").quantize(256, dither=Image.Dither.NONE) if opaque else image
        small.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


@functools.cache
def load_vega_bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one script that sets `vegaEmbed`; kept in the user's cache.

    Making it costs some 2 s in each process, and 10 notebooks side by side would pay it ten times.
    """
    import vl_convert

    from workbench.core.files import cache_folder

    version = importlib.metadata.version("vl-convert-python")
    path = cache_folder() / f"vega-bundle-{version}.js"
    try:
        text = path.read_text(encoding="utf-8")
        if text.endswith(_END_MARK):
            return text
    except (OSError, UnicodeDecodeError):
        pass
    # Its stub asks for a snippet; without one the bundle sets `window.vegaEmbed`.
    bundle = vl_convert.javascript_bundle(None)  # type: ignore[arg-type]
    text = re.sub(r"</(?=script)", r"<\\/", bundle, flags=re.IGNORECASE) + _END_MARK
    # A cache that cannot be written only costs time.
    with contextlib.suppress(OSError):
        files.write_text(path, text)
    return text


@functools.cache
def pack_vega_bundle() -> str:
    """The Vega bundle as base64 of gzip, for pages that unpack it themselves."""
    return base64.b64encode(gzip.compress(load_vega_bundle().encode(), mtime=0)).decode("ascii")


def format_script_json(value: Any) -> str:
    """JSON that cannot end or confuse the script element that holds it.

    >>> format_script_json({"a": "</script><!--"})
    '{"a":"<\\\\/script>\\\\u003c!--"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("</", "<\\/").replace("<!--", "\\u003c!--").replace("\u2028", "\\u2028")


def is_in_kernel() -> bool:
    """Is this a Jupyter kernel, so that what is displayed may be seen?"""
    try:
        from IPython import get_ipython
    except ModuleNotFoundError:
        return False
    shell = get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def show_vega_bundle() -> None:
    """Show the Vega bundle once, so that the live charts below find it; silent in batch and outside a kernel."""
    if is_headless() or not is_in_kernel():
        return
    from IPython.display import display

    script = f"<script>if(!window.vegaEmbed){{{load_vega_bundle()}}}</script>"
    words = "charts are drawn without a network"
    display({"text/html": script, "text/plain": words}, raw=True)  # type: ignore[no-untyped-call]


def render_live_html(spec: dict[str, Any]) -> str:
    """HTML that draws the chart in a live page, waiting for the bundle of the first cell; dark where JupyterLab is."""
    from workbench.charts.theme import ON_DARK, build_vega_config

    mark = f"wb-{secrets.token_hex(6)}"
    parts = {"spec": spec, "dark": {"config": build_vega_config("dark"), "colours": ON_DARK}}
    scripts = "".join(
        f'<script type="application/json" id="{mark}-{name}">{format_script_json(value)}</script>'
        for name, value in parts.items()
    )
    return f'<div id="{mark}"></div>{scripts}<script>{_read_live_script()}("{mark}")</script>'


@functools.cache
def _read_live_script() -> str:
    path = Path(__file__).parent / "templates" / "live_chart.js"
    return path.read_text(encoding="utf-8").rstrip()
