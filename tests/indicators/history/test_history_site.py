"""Pages of a history for a team, and alerts: what is sent, that the address stays secret, and who refuses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from workbench.core import samples
from workbench.core.errors import ConfigError, RunFailedError
from workbench.indicators.command import app
from workbench.indicators.history.history_points import HistoryFilter, load_history
from workbench.indicators.history.history_site import INDEX, list_states, name_page, send_alert, write_site
from workbench.indicators.history.level_changes import HistoryAnalysis, analyse_history

POINTS = Path(samples.find_sample("sample:points"))
SECRET = "s3cr3t-token"


def analyse(since: str | None = None) -> HistoryAnalysis:
    return analyse_history(load_history(POINTS, HistoryFilter(None, None, None, "wall", False, None)), since=since)


class Receiver(HTTPServer):
    """Takes alerts; `status`: What it answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[bytes] = []
        self.status = 200


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("HOOK", f"http://127.0.0.1:{server.server_port}/{SECRET}")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_first_page_links_each_metric_and_says_since_when(tmp_path: Path) -> None:
    analysis = analyse()
    write_site(analysis, tmp_path, command="x")
    text = (tmp_path / INDEX).read_text()
    pages = {name_page(metric) for metric in analysis.series["metric"]}
    assert {path.name for path in tmp_path.iterdir()} == {INDEX, *pages}
    assert all(f'href="{page}"' in text for page in pages)
    slower, again = list_states(analysis)
    assert slower["state"].endswith("1.1 times slower since 2026-11-25: numpy 2.4.6 -> 1.26.4")
    assert "unchanged since 2026-11-25" in again["state"]


def test_regressions_are_sent_and_shown_and_the_address_is_not(receiver: Receiver) -> None:
    found = CliRunner().invoke(
        app, ["history", "--points", str(POINTS), "--since", "2026-11-25T08:39:00", "--webhook", "HOOK"]
    )
    (body,) = map(json.loads, receiver.bodies)
    assert body["text"].startswith("Regression: ")
    assert body["regressions"][0]["stack"] == "numpy"
    assert f"sent: {json.dumps(body)}" in found.output
    assert SECRET not in found.output


def test_without_a_regression_nothing_is_sent(receiver: Receiver, tmp_path: Path) -> None:
    earlier = pl.read_parquet(POINTS).filter(pl.col("created_at") < "2026-11-25T08:38")
    earlier.write_parquet(tmp_path / "points.parquet")
    command = ["history", "--points", str(tmp_path / "points.parquet"), "--since", "2026-11-25T08:30:00"]
    assert "No regression" in CliRunner().invoke(app, [*command, "--webhook", "HOOK"]).output
    assert receiver.bodies == []


def test_an_address_that_refuses_is_told_without_its_secret(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.status = 403
    with pytest.raises(RunFailedError, match="the alert was not taken") as caught:
        send_alert({}, "HOOK")
    assert "status 403" in str(caught.value)
    assert SECRET not in str(caught.value)
    monkeypatch.setenv("HOOK", f"file:///{SECRET}")
    with pytest.raises(ConfigError, match="no address") as refused:
        send_alert({}, "HOOK")
    assert SECRET not in str(refused.value)
    monkeypatch.delenv("HOOK")
    with pytest.raises(ConfigError, match="no address"):
        send_alert({}, "HOOK")
