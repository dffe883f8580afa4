"""The dashboard loads, and asks for nothing that /metrics does not have."""

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support import ROOT, TritonEndpoints

from api.observing.metrics import Metrics, fetch_triton_metrics
from api.settings import Settings

DASHBOARD = json.loads((ROOT / "docker/grafana/dashboard.json").read_text(encoding="utf-8"))
PANELS = DASHBOARD["panels"]
EXPRESSIONS = [t["expr"] for panel in PANELS for t in panel.get("targets", [])]
GRID_COLUMNS = 24


def names_in(expression: str) -> set[str]:
    """The metrics that an expression asks for."""
    return set(re.findall(r"\b(?:plates|nv)_[a-z0-9_]+", expression))


def exposed_by(exposition: str) -> set[str]:
    """The names of all series that there can be, also of those that have no values yet."""
    endings = {
        "counter": ("_total", ""),
        "gauge": ("",),
        "histogram": ("_bucket", "_sum", "_count"),
    }
    return {
        family.name + ending
        for family in text_string_to_metric_families(exposition)
        for ending in endings[family.type]
    }


def test_every_expression_asks_for_what_is_exposed(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"state": "ready", "restarts": {}}')
    exposed = exposed_by(Metrics(tmp_path / "status.json").exposition().decode())
    asked = set().union(*map(names_in, EXPRESSIONS))
    assert {name for name in asked if name.startswith("plates_")} <= exposed
    assert all(map(names_in, EXPRESSIONS))


@pytest.mark.live
def test_tritons_part_asks_for_what_it_exposes(triton: TritonEndpoints) -> None:
    import asyncio

    if triton.embedded is None:
        pytest.skip("only an embedded Triton tells where its metrics are")
    exposition = asyncio.run(fetch_triton_metrics(triton.embedded.metrics_url))
    asked = {name for text in EXPRESSIONS for name in names_in(text) if name.startswith("nv_")}
    assert asked
    assert asked <= exposed_by(exposition.decode())


def test_what_is_worth_knowing_is_shown() -> None:
    shown = set().union(*map(names_in, EXPRESSIONS))
    exposition = Metrics(Path("nowhere")).exposition().decode()
    families = {family.name for family in text_string_to_metric_families(exposition)}
    assert not {name for name in families if not any(one.startswith(name) for one in shown)}


def test_every_panel_asks_the_prometheus_that_is_chosen_on_import() -> None:
    (variable,) = DASHBOARD["templating"]["list"]
    chosen = {"type": "prometheus", "uid": f"${{{variable['name']}}}"}
    for panel in PANELS:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= GRID_COLUMNS
        if panel["type"] != "row":
            assert panel["title"] and panel["targets"]
            assert panel["datasource"] == chosen
            assert all(target["datasource"] == chosen for target in panel["targets"])
    assert "://" not in json.dumps(DASHBOARD)


def test_prometheus_asks_where_the_gateway_listens() -> None:
    folder = ROOT / "docker/prometheus"
    (job,) = yaml.safe_load((folder / "prometheus.yml").read_text())["scrape_configs"]
    assert job["metrics_path"] == "/metrics"
    (targets,) = job["file_sd_configs"][0]["files"]
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    here = yaml.safe_load((folder / targets).read_text())
    assert here == [{"targets": [f"{defaults['host']}:{defaults['port']}"]}]
