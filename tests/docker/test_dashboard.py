"""The dashboard loads, and asks for nothing that /metrics does not have."""

import json
import re

from prometheus_client.parser import text_string_to_metric_families
from support import ROOT

from api.observing.metrics import Metrics

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
