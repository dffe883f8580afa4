"""The dashboard loads, and asks for nothing that /metrics does not have."""

import json
import re

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support import ROOT

from api.observing.metrics import Metrics
from api.settings import Settings

DASHBOARD = json.loads((ROOT / "docker/grafana/dashboard.json").read_text(encoding="utf-8"))
PANELS = DASHBOARD["panels"]
EXPRESSIONS = [t["expr"] for panel in PANELS for t in panel.get("targets", [])]
HISTOGRAM = ("_bucket", "_sum", "_count")


def names_in(expression: str) -> set[str]:
    """The metrics that an expression asks for."""
    return set(re.findall(r"\b(?:plates|nv)_[a-z0-9_]+", expression))


def exposed_by(exposition: str) -> set[str]:
    """The names of all series that there can be, also of those that have no values yet."""
    endings = {"counter": ("_total", ""), "gauge": ("",), "histogram": HISTOGRAM}
    return {
        family.name + ending
        for family in text_string_to_metric_families(exposition)
        for ending in endings[family.type]
    }


def test_expressions_ask_for_what_is_exposed_and_all_of_it(tmp_path):
    (tmp_path / "status.json").write_text('{"state": "ready", "restarts": {}}')
    exposition = Metrics(tmp_path / "status.json").exposition().decode()
    assert all(map(names_in, EXPRESSIONS))
    asked = set().union(*map(names_in, EXPRESSIONS))
    assert {name for name in asked if name.startswith("plates_")} <= exposed_by(exposition)
    families = {family.name for family in text_string_to_metric_families(exposition)}
    assert not {name for name in families if not any(one.startswith(name) for one in asked)}


@pytest.mark.live
def test_tritons_part_asks_for_what_it_exposes(triton):
    if triton.embedded is None:
        pytest.skip("where another Triton has its metrics is not known")
    exposition = httpx.get(f"http://{triton.embedded.metrics_url}/metrics", timeout=20).text
    asked = {name for text in EXPRESSIONS for name in names_in(text) if name.startswith("nv_")}
    assert asked and asked <= exposed_by(exposition)


def test_every_panel_asks_the_prometheus_that_is_chosen_on_import():
    (variable,) = DASHBOARD["templating"]["list"]
    chosen = {"type": "prometheus", "uid": f"${{{variable['name']}}}"}
    for panel in (panel for panel in PANELS if panel["type"] != "row"):
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert sources.count(chosen) == len(sources) > 1, panel["title"]
    assert "://" not in json.dumps(DASHBOARD)


def test_prometheus_asks_where_the_gateway_listens():
    folder = ROOT / "docker/prometheus"
    (job,) = yaml.safe_load((folder / "prometheus.yml").read_text())["scrape_configs"]
    assert job["metrics_path"] == "/metrics"
    (targets,) = job["file_sd_configs"][0]["files"]
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    here = yaml.safe_load((folder / targets).read_text())
    assert here == [{"targets": [f"{defaults['host']}:{defaults['port']}"]}]
