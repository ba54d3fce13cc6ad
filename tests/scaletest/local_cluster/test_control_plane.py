"""kwok is told to end each pod after the lifetime that the pod carries."""

from __future__ import annotations

import pytest
import yaml

from tests.scaletest.making_scenarios import RUN, scenario
from workbench.core.errors import InputError
from workbench.scaletest.local_cluster.control_plane import add_lifetime_stage
from workbench.scaletest.scenario.workload_plan import draw_plan

# Made by hand in the shape of what kwokctl 0.8 writes.
WRITTEN = """
kind: KwokConfiguration
options: {}
---
kind: Stage
metadata: {name: pod-ready}
spec: {next: {statusTemplate: "phase: Running"}}
---
kind: Stage
metadata: {name: pod-complete}
spec:
  next: {statusTemplate: "phase: Succeeded"}
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
      - jq: {key: ".metadata.ownerReferences.[].kind", operator: In, values: [Job]}
---
"""


def test_the_stage_waits_for_the_annotation_that_planned_pods_carry() -> None:
    documents = list(yaml.safe_load_all(add_lifetime_stage(WRITTEN)))
    assert [one.get("metadata", {}).get("name") for one in documents] == [None, "pod-ready", "pod-complete"]
    spec = documents[2]["spec"]
    assert spec["next"] == {"statusTemplate": "phase: Succeeded"}
    expression = spec["delay"]["durationFrom"]["expressionFrom"]
    assert {"key": expression, "operator": "Exists"} in spec["selector"]["matchExpressions"]
    assert "ownerReferences" not in str(spec["selector"])
    body = draw_plan(scenario({"kind": "Pod", "lifetime": 5}), RUN).workload_at(0).requests()[0].body.decode()
    annotation = expression.split('"')[1]
    assert f'"{annotation}":"5.000s"' in body


@pytest.mark.parametrize("text", ["", "a: [", "kind: Stage", "kind: Stage\nmetadata: {name: pod-complete}\nspec: 1"])
def test_a_configuration_without_the_stage_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        add_lifetime_stage(text)
