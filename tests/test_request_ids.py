"""Every answer names its request."""

import httpx
import pytest
from fake_triton import FakeTriton
from gateway_client import PHOTO, assert_problem, post_raw

from api.edge.middleware import choose_request_id

HEADER = "x-request-id"


@pytest.mark.parametrize("offered", ["a", "Camera_1.2-3", "x" * 64])
def test_the_senders_own_id_is_taken(client: httpx.Client, offered: str) -> None:
    assert client.get("/healthz", headers={HEADER: offered}).headers[HEADER] == offered


@pytest.mark.parametrize(
    "offered", ["", "x" * 65, "a b", "a/b", "ж", 'a"b', "a\n", "a\r\nSet-Cookie: b"]
)
def test_what_could_break_a_log_is_replaced(offered: str) -> None:
    chosen = choose_request_id(offered)
    assert chosen != offered
    assert len(chosen) == 36
    assert choose_request_id(offered) != chosen


def test_answers_of_every_kind_have_one(
    client: httpx.Client, fake: FakeTriton, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [
        post_raw(client, PHOTO),
        post_raw(client, b""),
        client.get("/nowhere"),
        client.put("/v1/plates"),
        client.post("/v1/plates?roi=a"),
        client.get("/metrics"),
    ]
    assert [answer.status_code for answer in answers] == [200, 400, 404, 405, 422, 200]
    ids = {answer.headers[HEADER] for answer in answers}
    assert len(ids) == len(answers)


def test_an_unexpected_exception_is_named_too(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ArithmeticError

    monkeypatch.setattr("api.observing.metrics.Metrics.exposition", fail)
    answer = client.get("/metrics", headers={HEADER: "mine"})
    assert_problem(answer, 500, None)
    assert answer.headers.get_list(HEADER) == ["mine"]
