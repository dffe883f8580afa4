"""The Grafana dashboard loads, and its queries match the metrics and routes of the service."""

import json
import re

from gateway_support import post_routes
from prometheus_client.parser import text_string_to_metric_families
from support import ROOT

from api.observing.metrics import Metrics
from plates.cameras.http import router_for

DASHBOARD = json.loads((ROOT / "docker/grafana/dashboard.json").read_text(encoding="utf-8"))
EXPRESSIONS = [t["expr"] for panel in DASHBOARD["panels"] for t in panel.get("targets", [])]
# Suffixes of a family's series; a series without values is not in the exposition.
ENDINGS = {"counter": ("_total", ""), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def names_in(expression):
    """The metrics that an expression queries."""
    return set(re.findall(r"\b(?:plates|nv)_[a-z0-9_]+", expression))


def test_the_dashboard_queries_existing_metrics_and_all_of_the_gateways(tmp_path):
    (tmp_path / "status.json").write_text('{"state": "ready", "restarts": {}}')
    exposition = Metrics(tmp_path / "status.json").exposition().decode()
    families = list(text_string_to_metric_families(exposition))
    exposed = {family.name + ending for family in families for ending in ENDINGS[family.type]}
    assert all(map(names_in, EXPRESSIONS))
    queried = set().union(*map(names_in, EXPRESSIONS))
    assert {name for name in queried if name.startswith("plates_")} <= exposed
    names = {family.name for family in families}
    assert not {name for name in names if not any(one.startswith(name) for one in queried)}


def test_the_answer_times_are_those_of_routes_that_read_photos(tmp_path):
    (asked,) = set(re.findall('request_seconds_bucket{route=~"(.*?)"', "".join(EXPRESSIONS)))
    (tmp_path / "cameras.toml").write_text("cameras = []")
    taking = post_routes(router_for(tmp_path / "cameras.toml"))
    assert "/v1/cameras/{camera}/frames" in taking
    assert [route for route in taking if not re.fullmatch(asked, route)] == []
    for other in ("/v1/events", "/v1/passes", "/v1/cameras", "/v1/statistics", "/info", "/readyz"):
        assert not re.fullmatch(asked, other), other
