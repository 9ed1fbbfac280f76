"""Grafana's dashboard uses metrics that the service exposes."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onepass as op

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from onepass.service.http.status import exposition
from onepass.service.registry import ModelRegistry

PATH = Path(__file__).parents[2] / "deploy" / "grafana-dashboard.json"
DASHBOARD: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
EXPRESSIONS: list[str] = [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
]


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Metrics of a service that has learned and predicted, with their labels."""
    registry = ModelRegistry(tmp_path_factory.mktemp("served"))
    served = registry.create("m", op.RLSRegressor())
    served.durable.learn(np.ones((3, 2)), np.ones(3))
    served.gauges.observe_predict(3, 0.001)
    text = exposition(registry, {200: 1})
    registry.close()
    found = {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    types = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    return {**{name: {"model", "source", "detector"} for name in types}, **found}


def test_dashboard_has_the_fields_that_grafana_imports() -> None:
    assert DASHBOARD["schemaVersion"] >= 36
    assert DASHBOARD["title"]
    assert {"uid", "time", "refresh", "templating", "version"} <= DASHBOARD.keys()
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in DASHBOARD["panels"]:
        assert {"title", "type", "datasource", "fieldConfig", "options"} <= panel.keys()
        assert panel["gridPos"].keys() == {"h", "w", "x", "y"}
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references) > 0


def test_expressions_select_the_model_by_a_variable() -> None:
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables["model"]["definition"] == "label_values(onepass_ready, model)"
    of_models = [each for each in EXPRESSIONS if not re.search("onepass_requests|process_", each)]
    assert all('model=~"$model"' in each for each in of_models)


def test_panels_show_the_metrics(metrics: dict[str, set[str]]) -> None:
    shown = " ".join(EXPRESSIONS)
    names = {re.sub("_(bucket|count|sum)$", "", name) for name in metrics}
    assert {name for name in names if name not in shown} == {
        "onepass_blocks_learned_total", "process_start_time_seconds",
        "process_virtual_memory_bytes",
    }  # fmt: skip


def test_metrics_and_labels_of_expressions_exist(metrics: dict[str, set[str]]) -> None:
    used = {name for each in EXPRESSIONS for name in re.findall(r"\b(?:onepass|process)_\w+", each)}
    assert used <= metrics.keys()
    assert len(used) > 12
    for each in EXPRESSIONS:
        names = re.findall(r"\bonepass_\w+", each)
        (group,) = re.findall(r"by \((.*?)\)", each) or [""]
        selected = set(re.findall(r"(\w+)=~?\"", each)) | set(filter(None, group.split(", ")))
        assert all(selected <= metrics[name] for name in names), each


def test_brackets_of_expressions_are_balanced() -> None:
    for each in EXPRESSIONS:
        for opening, closing in ("()", "[]", "{}"):
            assert each.count(opening) == each.count(closing), each
