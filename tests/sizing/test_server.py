"""The simulated service over HTTP: what it says, what it counts, how it begins and ends."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.capacity.making import config, only
from tests.conftest import SAMPLES
from tests.sizing.conftest import Sizing
from workbench.capacity.study import build_plan
from workbench.core.errors import RunFailedError
from workbench.runs.run_folder import start_run
from workbench.sizing.command import app
from workbench.sizing.config import NotebookConfig
from workbench.sizing.load.server_metrics import parse_server_metrics
from workbench.sizing.load.sweep_journal import load_sweep_journal
from workbench.sizing.simulation.cluster_model import Cluster, Service
from workbench.sizing.simulation.simulator_process import run_simulator
from workbench.sizing.simulation.simulator_server import scale_service_times
from workbench.sizing.study import build_study

pytestmark = pytest.mark.live

HANG_S = 60
# 20 ms a call and no spread: quick, and the same each time.
QUICK = Service(
    slots=4, input_tokens=40, input_cv=0, output_tokens=10, output_cv=0, decode_base_s=0.002, decode_per_sequence_s=0
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with run_simulator(QUICK) as found:
        yield found


def ask(url: str, body: object = None, *, headers: dict[str, str] | None = None) -> tuple[int, str]:
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=headers or {})
    try:
        answer = urllib.request.urlopen(request, timeout=HANG_S)
    except urllib.error.HTTPError as error:
        answer = error  # an answer, too
    with answer:
        assert answer.headers["server"] == "workbench-simulator"
        return answer.status, answer.read().decode()


def stat(url: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(url + "/stat")[1])
    return found


def until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def events(text: str) -> list[dict[str, Any]]:
    """The payloads of the event lines."""
    lines = [json.loads(line[19:]) for line in text.splitlines() if line.startswith("intermediate_data: ")]
    return [json.loads(line["payload"]) for line in lines]


def shape(value: Any) -> Any:
    """Names and types at every depth; of lists the first element."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else type(value).__name__


def test_an_answer_holds_the_events_of_the_workflow_and_of_each_call(url: str) -> None:
    status, text = ask(url + "/generate/full", {"input_message": "what?"})
    assert status == 200
    found = events(text)
    around = ("WORKFLOW_START", "FUNCTION_START"), ("FUNCTION_END", "WORKFLOW_END")
    assert [event["event_type"] for event in found] == [*around[0], *("LLM_START", "LLM_END") * 2, *around[1]]
    assert [event["UUID"] for event in found[2::2]][:2] == [event["UUID"] for event in found[3::2]][:2]
    assert len({event["UUID"] for event in found}) == 4
    times = [event["event_timestamp"] for event in found]
    assert times == sorted(times)
    # 40 tokens of prompt at 40,000 a second, ten tokens of 2 ms.
    assert times[3] - times[2] == pytest.approx(0.021, abs=1e-5)
    assert found[3]["usage_info"]["token_usage"]["completion_tokens"] == 10


def test_an_answer_has_the_shape_of_one_that_nat_serve_wrote(url: str) -> None:
    recorded = (SAMPLES / "sizing" / "nat" / "generate_full.txt").read_text()
    _, text = ask(url + "/generate/full", {"input_message": "what?"})
    assert [line.split(":")[0] for line in text.splitlines()] == [line.split(":")[0] for line in recorded.splitlines()]
    for ours, theirs in zip(events(text), events(recorded), strict=True):
        # The plug-in that was recorded reports no tokens, a model's callbacks do.
        ours["usage_info"] = theirs["usage_info"] = None
        assert shape(ours) == shape(theirs)
        assert list(ours) == list(theirs)


def test_a_question_comes_back_as_it_was_whatever_is_in_it(url: str) -> None:
    for question in ('"quoted" \\ and \n 100 % é \U0001f642 @base@ #began# %(base)b', "", "x" * 100_000):
        found = events(ask(url + "/generate/full", {"input_message": question})[1])
        assert found[0]["data"]["input"] == {"input_message": question}
        assert found[2]["data"]["input"] == found[3]["data"]["input"] == question
        assert len({event["UUID"] for event in found}) == 4


def test_http_and_virtual_time_run_the_same_model() -> None:
    spread = Service(slots=2, output_tokens=8, calls=3, tool_s=0.003, shared_s=0.001, seed=11)
    with run_simulator(spread) as url:
        answers = [events(ask(url + "/generate/full", {"input_message": "a"})[1]) for _ in range(5)]
    cluster, ended = Cluster(spread), []
    for _ in answers:
        cluster.start_workflow(ended.append)
        cluster.run_while(lambda: ended == [] or ended[-1].ended_s is None or cluster.running > 0)
    for events_, workflow in zip(answers, ended, strict=True):
        real = [event["event_timestamp"] for event in events_ if event["event_type"].startswith("LLM")]
        virtual = [moment for call in workflow.calls for moment in (call.sent_s, call.ended_s)]
        gaps = [[later - sooner for sooner, later in pairwise(times)] for times in (real, virtual)]
        assert gaps[0] == pytest.approx(gaps[1], abs=2e-6)


def test_a_chat_completion_counts_its_tokens(url: str) -> None:
    body = {"messages": [{"role": "user", "content": "a"}]}
    found = json.loads(ask(url + "/v1/chat/completions", body)[1])
    assert (found["model"], found["usage"]["completion_tokens"]) == ("workbench-simulator", 10)
    assert found["choices"][0]["message"]["content"].split() == ["one"] * 10
    assert found["choices"][0]["finish_reason"] == "stop"
    for limit, exact, tokens, reason in ((4, False, 4, "length"), (400, False, 10, "stop"), (30, True, 30, "length")):
        asked = body | {"max_tokens": limit, "ignore_eos": exact}
        found = json.loads(ask(url + "/v1/chat/completions", asked)[1])
        assert (found["usage"]["completion_tokens"], found["choices"][0]["finish_reason"]) == (tokens, reason)


def test_a_stream_has_a_chunk_for_each_token_at_its_time(url: str) -> None:
    body = {"messages": [{"role": "user", "content": "a"}], "stream": True, "stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=HANG_S)
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    seen = [(time.monotonic(), line) for line in iter(connection.getresponse().readline, b"") if line.strip()]
    connection.close()
    chunks = [json.loads(line[6:]) for _, line in seen[:-1]]
    assert seen[-1][1].strip() == b"data: [DONE]"
    tokens = [chunk for chunk in chunks if chunk["choices"] and chunk["choices"][0]["delta"].get("content")]
    assert len(tokens) == 10
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] == 10
    # Nine gaps of 2 ms; the last token cannot come earlier, however busy the machine.
    assert seen[-1][0] - seen[0][0] > 0.005


def test_the_plain_endpoints_answer(url: str) -> None:
    assert json.loads(ask(url + "/generate", {"input_message": "a"})[1]) == {"value": "This answer is simulated."}
    assert json.loads(ask(url + "/v1/models")[1])["data"][0]["id"] == "workbench-simulator"
    assert json.loads(ask(url + "/health")[1])["simulated"] is True
    assert stat(url)["simulated"] is True


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/generate/full", {"q": "another name"}, 422),
        ("/generate/full", [1], 422),
        ("/generate/full", b"{", 400),
        ("/v1/chat/completions", {"messages": []}, 400),
        ("/v1/chat/completions", {"messages": [1], "max_tokens": True}, 400),
        ("/generate/full", None, 405),
        ("/nowhere", {}, 404),
    ],
)
def test_a_wrong_request_is_refused_and_counted(url: str, path: str, body: object, status: int) -> None:
    before = stat(url)["refused"]
    assert ask(url + path, body)[0] == status
    assert stat(url)["refused"] == before + 1


def connected(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=HANG_S)


def raw(url: str, sent: bytes) -> bytes:
    """Everything that comes back on one connection until the server closes it."""
    with connected(url) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


BODY = b'{"input_message":"a"}'
ASK = b"POST /generate HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n" % len(BODY)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"what is this\r\n\r\n", b"400"),
        (b"POST /generate HTTP/2.0\r\n\r\n", b"505"),
        (b"POST /generate HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"400"),
        (b"POST /generate HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"413"),
        (b"POST /generate HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        (b"GET /" + b"a" * 40_000, b"431"),
        (ASK + b"Connection: close\r\n\r\n" + BODY, b"200"),
        (ASK.replace(b"1.1", b"1.0") + b"\r\n" + BODY, b"200"),
    ],
)
def test_a_connection_is_closed_after_what_cannot_be_followed_by_more(url: str, sent: bytes, status: bytes) -> None:
    assert raw(url, sent).startswith(b"HTTP/1.1 " + status)


def test_requests_on_one_connection_are_answered_in_their_order(url: str) -> None:
    found = raw(url, (ASK + b"\r\n" + BODY) * 2 + b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert [part[:3] for part in found.split(b"HTTP/1.1 ")[1:]] == [b"200"] * 3
    assert found.count(b"This answer is simulated.") == 2
    assert found.endswith(b'"simulated":true}')


def test_a_body_may_come_late_and_in_pieces(url: str) -> None:
    with connected(url) as connection:
        connection.sendall(ASK + b"Expect: 100-continue\r\nConnection: close\r\n\r\n")
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        for byte in BODY:
            connection.sendall(bytes([byte]))
        assert b"".join(iter(lambda: connection.recv(65_536), b"")).startswith(b"HTTP/1.1 200")


def test_a_streamed_answer_to_http_1_0_ends_with_its_connection(url: str) -> None:
    body = b'{"messages":[1],"stream":true,"max_tokens":2}'
    head = b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\nConnection: keep-alive\r\n\r\n" % len(body)
    found = raw(url, head + body)
    assert b"transfer-encoding" not in found
    assert found.endswith(b"data: [DONE]\n\n")


async def together(url: str, count: int, watch: Callable[[], None]) -> list[bytes]:
    """So many requests at once, each on a connection of its own; `watch` runs while they are under way."""
    host, port = url.removeprefix("http://").split(":")

    async def one() -> bytes:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(ASK.replace(b"/generate", b"/generate/full") + b"Connection: close\r\n\r\n" + BODY)
        found = await reader.read()
        writer.close()
        return found

    tasks = [asyncio.create_task(one()) for _ in range(count)]
    await asyncio.to_thread(watch)
    return await asyncio.wait_for(asyncio.gather(*tasks), HANG_S)


def test_what_is_in_flight_is_counted_by_the_server() -> None:
    slow = QUICK.model_copy(update={"slots": 100, "decode_base_s": 0.05})
    with run_simulator(slow) as url:
        found = asyncio.run(together(url, 64, lambda: until(lambda: stat(url)["in_flight"] == 64)))
        assert all(answer.startswith(b"HTTP/1.1 200") for answer in found)
        counted = stat(url)
        assert (counted["peak"], counted["served"], counted["in_flight"]) == (64, 64, 0)
        assert counted["latency_s"]["n"] == 64
        assert counted["latency_s"]["p50"] > 1.0  # 20 tokens of 50 ms
        assert ask(url + "/reset", b"")[0] == 200
        assert {name: stat(url)[name] for name in ("peak", "served")} == {"peak": 0, "served": 0}
        assert stat(url)["latency_s"] == {"n": 0, "p50": None, "p95": None, "p99": None}


def test_the_wait_for_admission_is_in_no_event() -> None:
    capped = QUICK.model_copy(update={"admission": 2, "slots": 100, "decode_base_s": 0.01})
    with run_simulator(capped) as url:
        found = asyncio.run(together(url, 8, lambda: None))
        counted = stat(url)
    assert (counted["peak"], counted["peak_in_service"]) == (8, 2)
    spans = []
    for answer in found:
        times = [event["event_timestamp"] for event in events(answer.decode())]
        spans.append(max(times) - min(times))
    # Two calls of ten tokens of 10 ms each, whoever had to wait, and 1 ms of prefill for each that is running.
    assert all(0.2019 < span < 0.2041 for span in spans)
    # The last two waited for three such pairs.
    assert counted["latency_s"]["p99"] > 0.7


def test_a_client_that_hangs_up_is_counted_and_harms_nobody(url: str) -> None:
    before = stat(url)
    connection = connected(url)
    connection.sendall(ASK + b"\r\n" + BODY)
    until(lambda: stat(url)["in_flight"] == 1)
    connection.close()
    until(lambda: stat(url)["abandoned"] == before["abandoned"] + 1)
    until(lambda: stat(url)["in_service"] == 0)
    after = stat(url)
    assert (after["in_flight"], after["served"]) == (0, before["served"])
    assert ask(url + "/generate", {"input_message": "a"})[0] == 200


def test_a_time_scale_multiplies_every_time() -> None:
    found = scale_service_times(Service(tool_s=1.0, shared_s=0.5), 0.1)
    assert found.model_dump() == Service().model_dump() | {
        "prefill_tokens_per_s": 400_000,
        "decode_base_s": 0.0004,
        "decode_per_sequence_s": pytest.approx(0.00003),
        "tool_s": 0.1,
        "shared_s": 0.05,
    }


@pytest.mark.parametrize("scale", [0.5, 1.0])
def test_its_time_scale_is_told_with_the_sweep_the_answer_and_the_plan_once(
    sizing: Sizing, tmp_path: Path, scale: float
) -> None:
    told = "the simulator ran at 0.5 of its times: goals, rates and costs are of that scaled service"
    asked = ("--users", "1,2,4,8,12", "--samples", 30, "--most-samples", 30, "--goal", "p95<=5", "--out", tmp_path)
    with run_simulator(QUICK, time_scale=scale) as url:
        ran = sizing("run", "--url", url, *asked)
    n_told = 1 if scale != 1 else 0
    assert ran.out.count(told) == n_told
    (folder,) = (path.parent for path in tmp_path.rglob("sweep.json"))
    assert load_sweep_journal(folder)[0].steps["time_scale"].unique().to_list() == [None if scale == 1 else scale]
    estimate = ("estimate", folder, "--target-users", 40)
    assert sizing(*estimate).out.count(f"note: {told}") == n_told
    assert json.loads(sizing(*estimate, "--json").out)["notes"].count(told) == n_told
    plan = config(**only(sizing=folder), users=["10"], accept_invalid=True)
    note = f"Simulated: the service of the sizing run{', at 0.5 of its times' if n_told else '.'}"
    assert [text.startswith(note) for text in build_plan(plan).notes].count(True) == 1
    reported = NotebookConfig(users=40, goals=["p95<=5"], sweep=[str(folder)])
    study = build_study(reported, start_run("sizing", tmp_path / "report"))
    assert study.notes.count(f"{told.capitalize()}.") == n_told


def test_a_port_that_is_taken_is_said_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RunFailedError, match=f"port {port}"), run_simulator(QUICK, port=port):
            pytest.fail("it must not start")


def test_the_command_has_an_option_for_every_parameter_with_its_default() -> None:
    options = {option.name: option for option in typer.main.get_group(app).commands["simulate"].params}
    for name, field in Service.model_fields.items():
        assert options[name].default == field.default, name


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    ready = tmp_path / "url.txt"
    command = [sys.executable, "-m", "workbench", "sizing", "simulate", "--port", "0", "--slots", "3"]
    command += ["--ready-file", str(ready)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: ready.exists() or process.poll() is not None)
    url = ready.read_text().strip()
    assert stat(url)["service"]["slots"] == 3
    assert ask(url + "/generate", {"input_message": "a"})[0] == 200
    process.send_signal(signal.SIGINT)
    told, complained = process.communicate(timeout=HANG_S)
    assert (process.returncode, complained) == (0, "")
    assert f"at {url}; Ctrl-C ends it" in told
    assert "served 1, refused 0, abandoned by clients 0, at most 1 in flight" in told


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--slots", "0"], "--slots"),
        (["--router", "best"], "--router"),
        (["--time-scale", "0"], "--time-scale"),
        (["--host", "203.0.113.1"], "--port"),
    ],
)
def test_a_wrong_option_is_named(options: list[str], named: str, sizing: Sizing) -> None:
    code, _, err = sizing("simulate", "--port", "0", *options)
    assert code == 2
    assert named in err


def test_its_metrics_page_counts_what_runs_and_waits(url: str) -> None:
    status, text = ask(url + "/metrics")
    found = parse_server_metrics(text)
    assert (status, found["running"], found["waiting"]) == (200, 0.0, 0.0)
