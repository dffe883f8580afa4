"""Who may send photos: tokens, rates, and pages of other origins."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fake_triton import FakeTriton
from fastapi.routing import iter_route_contexts
from pydantic import ValidationError
from starlette.routing import Mount
from support import PHOTO, assert_problem, running_gateway, settings_for

from api.edge.access import RateLimit
from api.main import create_app
from api.settings import Settings

TOKEN, OTHER = "q1-secret-of-the-gate", "Q2/secret+of.the~yard=="


@pytest.fixture(scope="module")
def guarded(fake_of_module: FakeTriton) -> Iterator[httpx.Client]:
    """A client of a gateway that wants a token."""
    with running_gateway(settings_for(fake_of_module, tokens=f"{TOKEN}, {OTHER}")) as client:
        yield client


def post(
    client: httpx.Client, authorization: str | None, path: str = "/v1/plates"
) -> httpx.Response:
    headers = {"content-type": "image/jpeg"}
    if authorization is not None:
        headers["authorization"] = authorization
    return client.post(path, content=PHOTO, headers=headers)


def guarded_routes() -> list[tuple[str, str]]:
    """Method and path of every route that takes anything."""
    contexts = list(iter_route_contexts(create_app().routes))
    assert not [c for c in contexts if isinstance(c.original_route, Mount) and c.methods]
    return sorted(
        (method, context.path)
        for context in contexts
        for method in (context.methods or set()) - {"GET", "HEAD", "OPTIONS"}
    )


def test_the_routes_that_take_photos_are_known() -> None:
    assert ("POST", "/v1/plates") in guarded_routes()


@pytest.mark.parametrize(("method", "path"), guarded_routes())
def test_no_route_forgets_the_tokens(
    guarded: httpx.Client, fake: FakeTriton, method: str, path: str
) -> None:
    for authorization, statuses in (({}, {401, 403}), ({"authorization": "Token no"}, {403})):
        answer = guarded.request(method, path, content=PHOTO, headers=authorization)
        assert answer.status_code in statuses, answer.text
    assert not fake.photos


@pytest.mark.parametrize("scheme", ["Token", "Bearer", "bearer", "TOKEN"])
@pytest.mark.parametrize("token", [TOKEN, OTHER])
def test_every_token_lets_in(guarded: httpx.Client, scheme: str, token: str) -> None:
    assert post(guarded, f"{scheme} {token}").status_code == 200


@pytest.mark.parametrize("authorization", [None, "", "Token", "Bearer", "Basic YTpi", TOKEN])
def test_a_token_is_asked_for(guarded: httpx.Client, authorization: str | None) -> None:
    answer = post(guarded, authorization)
    assert_problem(answer, 401, "missing-token")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("token", ["x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "ключ", TOKEN * 99])
def test_another_token_does_not_let_in(guarded: httpx.Client, token: str) -> None:
    answer = post(guarded, f"Token {token}".encode())
    assert_problem(answer, 403, "wrong-token")
    assert token not in answer.text


def test_tokens_of_addresses_and_forms_do_not_count(guarded: httpx.Client) -> None:
    assert guarded.post("/v1/plates", params={"token": TOKEN}).status_code == 401
    assert guarded.post("/v1/plates", data={"token": TOKEN}).status_code == 401


@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/openapi.json", "/docs"])
def test_what_shows_no_plates_needs_no_token(guarded: httpx.Client, path: str) -> None:
    assert guarded.get(path).status_code == 200


def test_all_tokens_are_compared(guarded: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(offered: bytes, digest: bytes) -> bool:
        compared.append((len(offered), len(digest)))
        return offered == digest

    monkeypatch.setattr("api.edge.access.hmac.compare_digest", compare)
    assert post(guarded, f"Token {TOKEN}").status_code == 200
    assert post(guarded, "Token x").status_code == 403
    assert compared == [(32, 32)] * 4


def test_tokens_come_from_a_file_too(fake: FakeTriton, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# the gate\n{TOKEN}\n\n  {OTHER}  \n")
    with running_gateway(settings_for(fake, tokens_file=file, tokens="third")) as client:
        answers = [post(client, f"Token {token}") for token in (TOKEN, OTHER, "third", "# the")]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 403]


@pytest.mark.parametrize("content", ["", "# none\n\n", "two words\n", "кириллица\n", None])
def test_a_file_without_proper_tokens_is_refused(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "tokens"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ValidationError, match="token") as caught:
        Settings(tokens_file=file)
    assert "two words" not in str(caught.value)


def test_settings_never_show_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATES_TOKENS", f"{TOKEN},{OTHER}")
    assert TOKEN not in f"{Settings()!r} {Settings()} {Settings().model_dump_json()}"
    monkeypatch.setenv("PLATES_TOKENS", f"{TOKEN} x")
    with pytest.raises(ValidationError) as caught:
        Settings()
    assert TOKEN not in str(caught.value)


def test_no_tokens_let_everybody_in(monkeypatch: pytest.MonkeyPatch, client: httpx.Client) -> None:
    monkeypatch.setenv("PLATES_TOKENS", "")
    assert not Settings().accepted_tokens()
    assert post(client, None).status_code == 200
    assert post(client, "Token whatever").status_code == 200


def test_each_token_has_a_rate_of_its_own(fake: FakeTriton) -> None:
    settings = settings_for(fake, tokens=f"{TOKEN},{OTHER}", rate_limit=0.01, rate_burst=2)
    with running_gateway(settings) as client:
        first = [post(client, f"Token {TOKEN}") for _ in range(4)]
        second = [post(client, f"Bearer {OTHER}") for _ in range(2)]
        wrong = post(client, "Token x")
        exposition = client.get("/metrics").text
    assert 'plates_refused_total{reason="rate"} 2.0' in exposition
    assert [answer.status_code for answer in first] == [200, 200, 429, 429]
    assert [answer.status_code for answer in second] == [200, 200]
    assert wrong.status_code == 403
    assert_problem(first[-1], 429, "rate-limited")
    assert 90 < int(first[-1].headers["retry-after"]) <= 100


def test_without_tokens_addresses_have_rates(fake: FakeTriton) -> None:
    with running_gateway(settings_for(fake, rate_limit=0.01, rate_burst=1)) as client:
        made_up = {"x-forwarded-for": "10.0.0.1", "content-type": "image/jpeg"}
        answers = [post(client, None), post(client, None)]
        answers.append(client.post("/v1/plates", content=PHOTO, headers=made_up))
    assert [answer.status_code for answer in answers] == [200, 429, 429]


@pytest.mark.parametrize(
    ("options", "allowed"), [({}, 30), ({"rate_limit": 0.01, "rate_burst": 2}, 2)]
)
def test_wrong_tokens_are_limited_by_address(
    fake: FakeTriton, options: dict[str, object], allowed: int
) -> None:
    with running_gateway(settings_for(fake, tokens=TOKEN, **options)) as client:
        wrong = [post(client, f"Token guess-{number}") for number in range(allowed + 20)]
        right = post(client, f"Token {TOKEN}")
        missing = post(client, None)
        refused = client.get("/metrics").text
    assert {answer.status_code for answer in wrong[:allowed]} == {403}
    assert wrong[-1].status_code == 429  # one more per second at most may have been allowed
    assert "wrong tokens" in assert_problem(wrong[-1], 429, "rate-limited")["detail"]
    assert int(wrong[-1].headers["retry-after"]) >= 1
    assert (right.status_code, missing.status_code) == (200, 401)
    assert 'plates_refused_total{reason="rate"}' in refused


def test_each_photo_of_a_batch_counts(fake: FakeTriton) -> None:
    three = [("image", (f"{number}.jpg", PHOTO)) for number in range(3)]
    with running_gateway(settings_for(fake, rate_limit=0.01, rate_burst=4)) as client:
        assert client.post("/v1/plates/batch", files=three).status_code == 200
        answers = [post(client, None) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]


def test_a_bucket_fills_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("api.edge.access.time.monotonic", lambda: now)
    rate = RateLimit(per_second=2, burst=3)
    assert [rate.take("a") for _ in range(5)] == [0, 0, 0, 0.5, 0.5]
    now += 0.5
    assert [rate.take("a"), rate.take("a")] == [0, 0.5]
    now += 1000
    assert [rate.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    now += 1.5
    rate.owe("a", 9)  # six more than there were
    assert rate.take("a") == 3.5


def test_those_who_came_long_ago_are_forgotten() -> None:
    rate = RateLimit(per_second=0.001, burst=1, max_clients=3)
    assert rate.take("a") == 0
    for name in "bcd":
        assert rate.take("a") > 0  # remembered as long as it comes
        assert rate.take(name) == 0
    assert len(rate._buckets) == 3
    assert rate.take("b") == 0


ORIGIN = "https://gate.example"
PREFLIGHT = {"origin": ORIGIN, "access-control-request-method": "POST"}


def test_other_origins_are_not_let_in_unless_named(client: httpx.Client) -> None:
    answer = client.get("/healthz", headers={"origin": ORIGIN})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert client.options("/v1/plates", headers=PREFLIGHT).status_code == 405


def test_named_origins_are_let_in(fake: FakeTriton) -> None:
    settings = settings_for(fake, cors_origins=f"{ORIGIN}, http://localhost:3000", tokens=TOKEN)
    with running_gateway(settings) as client:
        asked = PREFLIGHT | {"access-control-request-headers": "authorization,x-request-timeout"}
        preflight = client.options("/v1/plates", headers=asked)
        refused = client.post("/v1/plates", headers={"origin": ORIGIN})
        other = client.options("/v1/plates", headers=PREFLIGHT | {"origin": "https://evil.example"})
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == ORIGIN
    assert "access-control-allow-credentials" not in preflight.headers
    assert refused.status_code == 401  # and the page may know why
    assert refused.headers["access-control-allow-origin"] == ORIGIN
    assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize("origins", ["*", "gate.example", "https://a/b", "null"])
def test_origins_that_are_none(origins: str) -> None:
    with pytest.raises(ValidationError, match="origin"):
        Settings(cors_origins=origins)
