"""Request ids, HEAD, headers for browsers, and the page's static files."""

import re
from unittest.mock import Mock

import pytest
from support import PHOTO, assert_problem, number, post_raw

from api.edge.middleware import choose_request_id

HEADER = "x-request-id"


def test_a_request_id_that_could_break_a_log_is_replaced():
    for offered in ("", "x" * 65, "a b", "a/b", "ж", 'a"b', "a\n", "a\r\nSet-Cookie: b"):
        chosen = choose_request_id(offered)
        assert re.fullmatch("[0-9a-f-]{36}", chosen)
        assert choose_request_id(offered) != chosen


def test_every_answer_has_a_request_id_and_headers_for_browsers(client, fake, monkeypatch):
    fail = Mock(side_effect=ArithmeticError)
    monkeypatch.setattr("api.observing.metrics.Metrics.exposition", fail)
    answers = [client.get(path) for path in ("/", "/healthz", "/docs", "/nowhere")]
    answers += [post_raw(client, PHOTO), post_raw(client, b""), client.put("/v1/plates")]
    answers += [client.post("/v1/plates?roi=a")]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 404, 200, 400, 405, 422]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        has_plates = answer.request.url.path.startswith("/v1/")
        assert (answer.headers.get("cache-control") == "no-store") == has_plates
    answers.append(client.get("/metrics"))
    assert_problem(answers[-1], 500, None)
    assert len({answer.headers[HEADER] for answer in answers}) == len(answers)
    for own in ("a", "Camera_1.2-3", "x" * 64):
        assert client.get("/healthz", headers={HEADER: own}).headers[HEADER] == own


def test_only_the_pages_own_files_are_served(client):
    for path in ("/page/", "/page/none.js", "/page/%2e%2e%2fmain.py", "/page/..%2fcli.py"):
        assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    "path", ["/", "/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/info/", "/nowhere"]
)
def test_head_is_answered_like_get_and_counted_as_head(client, path):
    heads = 'plates_requests_total{method="HEAD"'
    before = number(client, heads)
    get, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    assert int(head.headers["content-length"]) > 0
    assert number(client, heads) == before + 1  # and the connection still works
