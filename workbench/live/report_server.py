"""Extension of Jupyter's server: run folders at an address of the session, so that a report opens with its neighbours.

Only who is logged in gets a file. Pages have an origin of their own: their scripts reach neither the server nor a
network.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import AuthenticatedFileHandler
from jupyter_server.utils import url_path_join
from tornado import web

from workbench.core.errors import WorkbenchError
from workbench.core.files import default_out
from workbench.live.result_widgets import (
    ALLOWED_OF_REPORTS,
    REPORT_POLICY,
    SERVED_FOLDER_VARIABLE,
    SERVED_URL_VARIABLE,
)

_GALLERY = "index.html"


class RunFileHandler(AuthenticatedFileHandler):
    """A file of a run, or the gallery of all runs as they are now."""

    @property
    def content_security_policy(self) -> str:
        return f"{REPORT_POLICY}; frame-ancestors 'self'; sandbox {ALLOWED_OF_REPORTS}"

    @web.authenticated
    @authorized
    async def get(self, path: str, include_body: bool = True) -> None:  # type: ignore[override]
        if path == _GALLERY:
            await asyncio.to_thread(_write_gallery, Path(self.root))
        await web.StaticFileHandler.get(self, path, include_body)


def _write_gallery(folder: Path) -> None:
    from workbench.report.gallery import write_gallery

    try:
        write_gallery(folder)
    except (WorkbenchError, OSError) as error:
        raise web.HTTPError(404, str(error)) from error


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(app: Any) -> None:
    folder = default_out()
    url = url_path_join(app.web_app.settings["base_url"], "workbench-runs")
    app.web_app.add_handlers(".*$", [(f"{url}/(.*)", RunFileHandler, {"path": str(folder)})])
    # Kernels of this server read where their reports open.
    os.environ |= {SERVED_FOLDER_VARIABLE: str(folder), SERVED_URL_VARIABLE: url}
