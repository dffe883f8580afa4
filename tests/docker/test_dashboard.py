"""The dashboard loads, and queries only metrics that /metrics has."""

import json
import re

from gateway_support import post_routes
from prometheus_client.parser import text_string_to_metric_families
from support import ROOT

from api.observing.metrics import Metrics
from plates.cameras import FOLDER_VARIABLE
from plates.cameras.http import router_for

DASHBOARD = json.loads((ROOT / "docker/grafana/dashboard.json").read_text(encoding="utf-8"))
EXPRESSIONS = [t["expr"] for panel in DASHBOARD["panels"] for t in panel.get("targets", [])]
# The endings of all possible series, even of those without values so far.
ENDINGS = {"counter": ("_total", ""), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def names_in(expression):
    return set(re.findall(r"\b(?:plates|nv)_[a-z0-9_]+", expression))


def test_expressions_ask_for_what_is_exposed_and_all_of_it(tmp_path):
    (tmp_path / "status.json").write_text('{"state": "ready", "restarts": {}}')
    exposition = Metrics(tmp_path / "status.json").exposition().decode()
    families = list(text_string_to_metric_families(exposition))
    exposed = {family.name + ending for family in families for ending in ENDINGS[family.type]}
    assert all(map(names_in, EXPRESSIONS))
    asked = set().union(*map(names_in, EXPRESSIONS))
    assert {name for name in asked if name.startswith("plates_")} <= exposed
    names = {family.name for family in families}
    assert not {name for name in names if not any(one.startswith(name) for one in asked)}


def test_times_to_answer_are_those_of_photos(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    (asked,) = set(re.findall('request_seconds_bucket{route=~"(.*?)"', "".join(EXPRESSIONS)))
    (tmp_path / "cameras.toml").write_text("cameras = []")
    taking = post_routes(router_for(tmp_path / "cameras.toml"))
    assert "/v1/cameras/{camera}/frames" in taking
    assert [route for route in taking if not re.fullmatch(asked, route)] == []
    for other in ("/v1/events", "/v1/passes", "/v1/cameras", "/v1/statistics", "/info", "/readyz"):
        assert not re.fullmatch(asked, other), other
