"""Components' own metrics: what is kept of them, what happened between two looks, and sources that are refused."""

from __future__ import annotations

import pytest

from workbench.core.errors import ConfigError
from workbench.scaletest.observation.component_metrics import (
    ETCD,
    LIMITER,
    MAX_ROWS,
    PENDING,
    REJECTED,
    WEBHOOK,
    WORK_QUEUE,
    check_sources_are_local,
    parse_look,
    reduce_look,
)
from workbench.scaletest.observation.run_records import Pressure

HOOK = "apiserver_admission_webhook_admission_duration_seconds"


def hook(count: int, total_s: float, within: dict[str, int], name: str = "slow.example.org") -> str:
    """A webhook's histogram as the API server writes it."""
    labels = f'name="{name}",operation="CREATE",rejected="false",type="validating"'
    lines = [f'{HOOK}_bucket{{{labels},le="{bound}"}} {many}' for bound, many in within.items()]
    return "\n".join([*lines, f"{HOOK}_sum{{{labels}}} {total_s}", f"{HOOK}_count{{{labels}}} {count}", ""])


def reduced(before: str, now: str) -> dict[tuple[str, str], Pressure]:
    rows = reduce_look("kube-apiserver", parse_look(before), parse_look(now), at_ns=9, over_s=5.0)
    return {(row.measure, row.subject): row for row in rows}


def test_a_histogram_becomes_the_calls_since_the_look_before_with_mean_and_upper_bound() -> None:
    before = hook(10, 1.0, {"0.1": 10, "0.5": 10, "+Inf": 10})
    now = hook(110, 21.0, {"0.1": 11, "0.5": 110, "+Inf": 110})
    row = reduced(before, now)[(WEBHOOK, "slow.example.org")]
    assert (row.count, row.value, row.p99, row.over_s) == (100, pytest.approx(0.2), 0.5, 5.0)


def test_series_of_one_subject_are_added_up() -> None:
    text = (
        'etcd_request_duration_seconds_count{operation="create",type="pods"} 2\n'
        'etcd_request_duration_seconds_count{operation="create",type="jobs"} 3\n'
        'etcd_request_duration_seconds_sum{operation="create",type="pods"} 0.4\n'
        'etcd_request_duration_seconds_sum{operation="create",type="jobs"} 0.6\n'
        'rest_client_rate_limiter_duration_seconds_count{host="a",verb="GET"} 1\n'
        'rest_client_rate_limiter_duration_seconds_count{host="a",verb="POST"} 1\n'
        'rest_client_rate_limiter_duration_seconds_sum{host="a",verb="POST"} 3\n'
    )
    found = reduced("", text)
    assert (found[(ETCD, "create")].count, found[(ETCD, "create")].value) == (5, pytest.approx(0.2))
    assert (found[(LIMITER, "")].count, found[(LIMITER, "")].value) == (2, pytest.approx(1.5))


def test_levels_and_refusals_and_what_is_zero() -> None:
    text = (
        'workqueue_depth{name="job"} 36\nworkqueue_depth{name="cronjob"} 0\n'
        'scheduler_pending_pods{queue="active"} 4\n'
        'apiserver_flowcontrol_rejected_requests_total{flow_schema="x",priority_level="low",reason="queue-full"} 7\n'
    )
    found = reduced("", text)
    assert found[(WORK_QUEUE, "job")].value == 36
    assert found[(PENDING, "active")].value == 4
    assert found[(REJECTED, "low")].count == 7
    assert (WORK_QUEUE, "cronjob") not in found
    assert (REJECTED, "low") not in reduced(text, text)


def test_a_component_that_was_started_anew_counts_from_zero() -> None:
    before, now = hook(100, 20.0, {"0.5": 100, "+Inf": 100}), hook(4, 0.4, {"0.5": 4, "+Inf": 4})
    row = reduced(before, now)[(WEBHOOK, "slow.example.org")]
    assert (row.count, row.value) == (4, pytest.approx(0.1))


def test_beyond_the_last_bucket_there_is_no_bound() -> None:
    row = reduced("", hook(10, 100.0, {"2.5": 5, "+Inf": 10}))[(WEBHOOK, "slow.example.org")]
    assert (row.value, row.p99) == (10.0, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not metrics at all",
        f"{HOOK}_count",
        f'{HOOK}_count{{name="a"}} many',
        f'{HOOK}_count{{name="a"}} NaN',
        f'{HOOK}_bucket{{name="a",le="x"}} 1',
        f'{HOOK}_sum{{name="a" 3',
        "workqueue_depth 1e999",
        "\x00\ud7ff {} {{{",
        '<html><a href="workqueue_depth">x</a></html>',
    ],
)
def test_what_is_no_metric_is_left_out(text: str) -> None:
    assert reduced("", text) == {}


def test_rows_and_names_are_bounded() -> None:
    text = "\n".join(f'workqueue_depth{{name="{number}{"x" * 500}"}} {number + 1}' for number in range(1000))
    found = reduced("", text)
    assert len(found) == MAX_ROWS
    assert max(len(subject) for _, subject in found) <= 120
    assert max(row.value or 0 for row in found.values()) == 1000


def test_quotes_in_a_label_stay_text() -> None:
    assert [subject for _, subject in reduced("", 'workqueue_depth{name="a\\"b,c=\\"d"} 1\n')] == ['a"b,c="d']


def test_sources_are_of_this_machine() -> None:
    check_sources_are_local({"a": "https://127.0.0.1:1/metrics"})
    for name, url in (("a", ""), ("", "http://127.0.0.1/"), ("a", "http://example.org/metrics"), ("a", "file:///etc")):
        with pytest.raises(ConfigError, match="not a source of metrics"):
            check_sources_are_local({name: url})
