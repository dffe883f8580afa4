"""Tokens, rates, and pages of other origins."""

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
ORIGIN = "https://gate.example"
PREFLIGHT = {"origin": ORIGIN, "access-control-request-method": "POST"}


@pytest.fixture(scope="module")
def guarded(fake_of_module: FakeTriton) -> Iterator[httpx.Client]:
    """A client of a gateway that wants a token."""
    with running_gateway(settings_for(fake_of_module, tokens=f"{TOKEN}, {OTHER}")) as client:
        yield client


def post(client: httpx.Client, authorization: str | bytes | None) -> httpx.Response:
    headers = {"content-type": "image/jpeg"}
    if authorization is not None:
        headers["authorization"] = authorization
    return client.post("/v1/plates", content=PHOTO, headers=headers)


def statuses(client: httpx.Client, *authorizations: str | None) -> list[int]:
    return [post(client, authorization).status_code for authorization in authorizations]


def test_every_route_that_takes_anything_asks_for_a_token(
    guarded: httpx.Client, fake: FakeTriton
) -> None:
    contexts = list(iter_route_contexts(create_app().routes))
    assert not [c for c in contexts if isinstance(c.original_route, Mount) and c.methods]
    routes = {
        (method, context.path)
        for context in contexts
        for method in (context.methods or set()) - {"GET", "HEAD", "OPTIONS"}
    }
    assert ("POST", "/v1/plates") in routes
    for method, path in routes:
        assert guarded.request(method, path, content=PHOTO).status_code in (401, 403), path
        wrong = {"authorization": "Token no"}
        assert guarded.request(method, path, content=PHOTO, headers=wrong).status_code == 403, path
    assert not fake.photos
    for path in ("/", "/healthz", "/metrics", "/openapi.json", "/docs"):
        assert guarded.get(path).status_code == 200, path


ACCEPTED = [
    f"{scheme} {token}"
    for token in (TOKEN, OTHER)
    for scheme in ("Token", "Bearer", "bearer", "TOKEN")
]
MISSING = [None, "", "Token", "Bearer", "Basic YTpi", TOKEN]
WRONG = ["x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "ключ", TOKEN * 99]


@pytest.mark.usefixtures("fake")
def test_tokens(guarded: httpx.Client) -> None:
    for authorization in ACCEPTED:
        assert post(guarded, authorization).status_code == 200, authorization
    for authorization in MISSING:
        answer = post(guarded, authorization)
        assert_problem(answer, 401, "missing-token")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    for token in WRONG:
        answer = post(guarded, f"Token {token}".encode())
        assert_problem(answer, 403, "wrong-token")
        assert token not in answer.text
    for place in ("params", "data"):
        assert guarded.post("/v1/plates", **{place: {"token": TOKEN}}).status_code == 401, place


def test_tokens_come_from_a_file_too(fake: FakeTriton, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# the gate\n{TOKEN}\n\n  {OTHER}  \n")
    with running_gateway(settings_for(fake, tokens_file=file, tokens="third")) as client:
        sent = (f"Token {token}" for token in (TOKEN, OTHER, "third", "# the"))
        assert statuses(client, *sent) == [200, 200, 200, 403]


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


def test_each_token_has_a_rate_of_its_own(fake: FakeTriton) -> None:
    settings = settings_for(fake, tokens=f"{TOKEN},{OTHER}", rate_limit=0.01, rate_burst=2)
    with running_gateway(settings) as client:
        assert statuses(client, *[f"Token {TOKEN}"] * 3) == [200, 200, 429]
        assert statuses(client, *[f"Bearer {OTHER}"] * 2, "Token x") == [200, 200, 403]
        refused = post(client, f"Token {TOKEN}")
        assert_problem(refused, 429, "rate-limited")
        assert 90 < int(refused.headers["retry-after"]) <= 100
        assert 'plates_refused_total{reason="rate"} 2.0' in client.get("/metrics").text


def test_without_tokens_addresses_have_rates_and_each_photo_of_a_batch_counts(
    fake: FakeTriton,
) -> None:
    three = [("image", (f"{number}.jpg", PHOTO)) for number in range(3)]
    forwarded = {"x-forwarded-for": "10.0.0.1", "content-type": "image/jpeg"}
    with running_gateway(settings_for(fake, rate_limit=0.01, rate_burst=4)) as client:
        assert client.post("/v1/plates/batch", files=three).status_code == 200
        assert statuses(client, None, None) == [200, 429]
        assert client.post("/v1/plates", content=PHOTO, headers=forwarded).status_code == 429


@pytest.mark.parametrize(
    ("options", "allowed"), [({}, 30), ({"rate_limit": 0.01, "rate_burst": 2}, 2)]
)
def test_wrong_tokens_are_limited_by_address(
    fake: FakeTriton, options: dict[str, object], allowed: int
) -> None:
    with running_gateway(settings_for(fake, tokens=TOKEN, **options)) as client:
        wrong = [post(client, f"Token guess-{number}") for number in range(allowed + 20)]
        assert {answer.status_code for answer in wrong[:allowed]} == {403}
        # One more per second at most may have been allowed.
        assert "wrong tokens" in assert_problem(wrong[-1], 429, "rate-limited")["detail"]
        assert int(wrong[-1].headers["retry-after"]) >= 1
        assert statuses(client, f"Token {TOKEN}", None) == [200, 401]


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


def test_only_named_origins_may_use_the_service(client: httpx.Client, fake: FakeTriton) -> None:
    answer = client.get("/healthz", headers={"origin": ORIGIN})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert client.options("/v1/plates", headers=PREFLIGHT).status_code == 405

    settings = settings_for(fake, cors_origins=f"{ORIGIN}, http://localhost:3000", tokens=TOKEN)
    with running_gateway(settings) as open_to_some:
        asked = PREFLIGHT | {"access-control-request-headers": "authorization,x-request-timeout"}
        preflight = open_to_some.options("/v1/plates", headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == ORIGIN
        assert "access-control-allow-credentials" not in preflight.headers
        refused = open_to_some.post("/v1/plates", headers={"origin": ORIGIN})
        assert refused.status_code == 401  # and the page may read why
        assert refused.headers["access-control-allow-origin"] == ORIGIN
        evil = PREFLIGHT | {"origin": "https://evil.example"}
        answer = open_to_some.options("/v1/plates", headers=evil)
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("origins", ["*", "gate.example", "https://a/b", "null"])
def test_no_origins(origins: str) -> None:
    with pytest.raises(ValidationError, match="origin"):
        Settings(cors_origins=origins)
