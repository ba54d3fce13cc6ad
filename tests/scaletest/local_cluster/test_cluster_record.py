"""What a cluster may be asked for, and what is refused before anything starts."""

from __future__ import annotations

import pytest

from workbench.core.errors import ConfigError
from workbench.scaletest.local_cluster.cluster_record import (
    ClientLimit,
    NodePool,
    check_api_arguments,
    check_client_limits,
    check_cluster_name,
    parse_api_arguments,
    parse_client_limits,
    parse_pools,
)

HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "a b",
    "A",
    "-a",
    "a-",
    "a\n",
    "a\x00",
    "ä",
    "a" * 41,
    "$(id)",
    "a;b",
    "--name",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_could_be_anything_else_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="not a cluster name"):
        check_cluster_name(name)


@pytest.mark.parametrize("name", ["a", "local", "test-1", "9", "a" * 40])
def test_plain_names_are_taken(name: str) -> None:
    assert check_cluster_name(name) == name


def test_two_kinds_of_nodes_are_pairs_of_options() -> None:
    assert parse_pools([3, 2], [4, 0]) == (NodePool(nodes=3, gpus=4), NodePool(nodes=2, gpus=0))


@pytest.mark.parametrize(
    ("nodes", "gpus", "what"),
    [
        ([1, 2], [8], "differ in number"),
        ([-1], [8], "out of range"),
        ([20_001], [8], "out of range"),
        ([1], [65], "out of range"),
        ([15_000, 15_000], [8, 8], "too many nodes"),
    ],
)
def test_nodes_that_cannot_be_are_refused(nodes: list[int], gpus: list[int], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        parse_pools(nodes, gpus)


@pytest.mark.parametrize(("models", "what"), [(["T4"], "differ in number"), (["T4", "H900"], "unknown GPU model")])
def test_models_of_gpus_that_cannot_be_are_refused(models: list[str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        parse_pools([1, 2], [4, 8], models)


def test_a_limit_without_a_burst_gets_twice_its_rate() -> None:
    assert parse_client_limits(["kube-scheduler=2.5", "controller-manager=200:400"]) == {
        "kube-scheduler": ClientLimit(qps=2.5, burst=5),
        "kube-controller-manager": ClientLimit(qps=200, burst=400),
    }


@pytest.mark.parametrize(
    "text", ["scheduler", "scheduler=", "scheduler=0", "scheduler=-1", "scheduler=1:0", "scheduler=1:00", "=1", "a=nan"]
)
def test_a_limit_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a client limit"):
        parse_client_limits([text])


@pytest.mark.parametrize("name", ["etcd", "kube-apiserver", "kai-binder", "nobody"])
def test_a_component_without_such_a_limit_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no component with a client limit") as caught:
        check_client_limits({name: ClientLimit(qps=1, burst=1)}, "default")
    assert "kube-scheduler" in str(caught.value)


def test_a_component_of_kai_has_a_limit_where_kai_runs() -> None:
    limits = {"kai-binder": ClientLimit(qps=1, burst=1)}
    assert check_client_limits(limits, "kai") == limits


def test_further_arguments_are_keys_and_values() -> None:
    assert parse_api_arguments(["--max-requests-inflight=4", "v=2"]) == {"max-requests-inflight": "4", "v": "2"}


@pytest.mark.parametrize("text", ["x", "=1", "A=1", "a b=1", "a=\x07", "a=" + "x" * 401])
def test_an_argument_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not an argument"):
        parse_api_arguments([text])


@pytest.mark.parametrize(
    "key", ["bind-address", "secure-port", "etcd-servers", "tls-cert-file", "authorization-mode", "audit-log-path"]
)
def test_an_argument_that_would_open_the_cluster_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="set by the workbench"):
        check_api_arguments({key: "0.0.0.0"})
