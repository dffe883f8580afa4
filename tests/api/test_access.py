"""Tokens, rate limits, CORS, headers, request ids, HEAD; TLS for clients and to another Triton."""

import re
import ssl
import time
from contextlib import closing
from types import SimpleNamespace
from unittest.mock import Mock

import httpx
import pytest
from fake_triton import FakeTriton
from gateway_support import ALPR, BATCH, READER, assert_dialect_error, post_routes
from pydantic import ValidationError
from raw_http import HANG_S, HOST, assert_refused, connect, everything
from support import PHOTO, assert_problem, make_certificate, number, post_raw, running_gateway

from api.edge.access import _by_address
from api.edge.middleware import choose_request_id
from api.settings import Settings

TOKEN, OTHER = "q1-secret-of-the-gate", "Q2/secret+of.the~yard=="
ORIGIN = "https://gate.example"
PREFLIGHT = {"origin": ORIGIN, "access-control-request-method": "POST"}


def post(client, authorization):
    headers = {} if authorization is None else {"authorization": authorization}
    return post_raw(client, PHOTO, headers)


def statuses(client, *authorizations):
    return [post(client, authorization).status_code for authorization in authorizations]


@pytest.mark.settings(tokens=f"{TOKEN}, {OTHER}")
def test_post_routes_need_a_valid_token_and_other_routes_need_none(client, fake):
    wrong = {"authorization": "Token no"}
    for path in post_routes():
        assert client.post(path, content=PHOTO).status_code in (401, 403), path
        assert client.post(path, content=PHOTO, headers=wrong).status_code == 403, path
    for path in ("/", "/healthz", "/metrics", "/openapi.json", "/docs"):
        assert client.get(path).status_code == 200, path
    for missing in (None, "", "Token", "Bearer", "Basic YTpi", TOKEN):
        answer = post(client, missing)
        assert_problem(answer, 401, "missing-token")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    for token in ("x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "ключ", TOKEN * 99):
        answer = post(client, f"Token {token}".encode())
        assert_problem(answer, 403, "wrong-token")
        assert token not in answer.text
    for place in ("params", "data"):
        assert client.post("/v1/plates", **{place: {"token": TOKEN}}).status_code == 401, place
    assert not fake.photos
    for path, missing_status in ((READER, 403), (ALPR, 401)):
        assert_dialect_error(client.post(path), missing_status, "oken")
        assert_dialect_error(client.post(path, headers=wrong), 403, "oken")
    for token in (TOKEN, OTHER):
        for scheme in ("Token", "Bearer", "bearer", "TOKEN"):
            assert post(client, f"{scheme} {token}").status_code == 200, scheme


def test_tokens_may_also_come_from_a_file(fake, tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"\ufeff# the gate\n{TOKEN}\n\n  {OTHER}  \n")  # as Windows writes it
    with running_gateway(fake, tokens_file=file, tokens="third") as client:
        sent = (f"Token {token}" for token in (TOKEN, OTHER, "third", "# the"))
        assert statuses(client, *sent) == [200, 200, 200, 403]
    for improper in ("", "# none\n\n", "two words\n", "кириллица\n", None):
        file.unlink() if improper is None else file.write_text(improper)
        with pytest.raises(ValidationError, match="token") as caught:
            Settings(tokens_file=file)
        assert "two words" not in str(caught.value)


def test_settings_never_print_tokens(monkeypatch):
    monkeypatch.setenv("PLATES_TOKENS", f"{TOKEN},{OTHER}")
    assert TOKEN not in f"{Settings()!r} {Settings()} {Settings().model_dump_json()}"


@pytest.mark.settings(tokens=f"{TOKEN},{OTHER}", rate_limit=0.01, rate_burst=2)
def test_each_token_has_its_own_rate_limit(client):
    assert statuses(client, *[f"Token {TOKEN}"] * 3) == [200, 200, 429]
    assert statuses(client, *[f"Bearer {OTHER}"] * 2, "Token x") == [200, 200, 403]
    refused = post(client, f"Token {TOKEN}")
    assert_problem(refused, 429, "rate-limited")
    assert 90 < int(refused.headers["retry-after"]) <= 100
    assert number(client, 'plates_refused_total{reason="rate"}') == 2


@pytest.mark.settings(rate_limit=0.01, rate_burst=4)
def test_without_tokens_addresses_have_rate_limits_and_each_photo_of_a_batch_counts(client):
    forwarded = {"x-forwarded-for": "10.0.0.1"}
    assert client.post(BATCH, files=[("image", PHOTO)] * 3).status_code == 200
    assert statuses(client, None, None) == [200, 429]
    assert post_raw(client, PHOTO, forwarded).status_code == 429
    hosts = (SimpleNamespace(host=f"2001:db8:{end}") for end in (":1", ":f:1", "1::1"))
    one, same, other = (_by_address(SimpleNamespace(client=host)) for host in hosts)
    assert one == same != other  # one client has 2**64 IPv6 addresses: a /64 network


@pytest.mark.parametrize(
    ("options", "allowed"), [({}, 30), ({"rate_limit": 0.01, "rate_burst": 2}, 2)]
)
def test_wrong_tokens_are_limited_by_address(fake, options, allowed):
    with running_gateway(fake, tokens=TOKEN, **options) as client:
        wrong = [post(client, f"Token guess-{number}") for number in range(allowed + 20)]
        assert {answer.status_code for answer in wrong[:allowed]} == {403}
        # During the loop at most one further attempt per second is allowed.
        assert "wrong tokens" in assert_problem(wrong[-1], 429, "rate-limited")["detail"]
        assert statuses(client, f"Token {TOKEN}", None) == [200, 401]


@pytest.mark.settings(rate_limit=1, rate_burst=1)
def test_the_rate_limit_recovers_up_to_the_burst_and_no_further(client):
    assert statuses(client, None, None) == [200, 429]
    time.sleep(2.1)
    assert statuses(client, None, None) == [200, 429]


def test_only_pages_of_the_configured_origins_may_use_the_service(client, fake):
    answer = client.get("/healthz", headers={"origin": ORIGIN})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert client.options("/v1/plates", headers=PREFLIGHT).status_code == 405

    origins = f"{ORIGIN.replace('g', 'G')}:443, http://localhost:3000"
    with running_gateway(fake, cors_origins=origins, tokens=TOKEN) as open_to_some:
        wanted = "content-type,last-event-id,x-request-timeout"
        asked = PREFLIGHT | {"access-control-request-headers": wanted}
        asked["access-control-request-private-network"] = "true"
        preflight = open_to_some.options("/v1/plates", headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == ORIGIN
        refused = open_to_some.post("/v1/plates", headers={"origin": ORIGIN})
        assert refused.status_code == 401  # and the page may read the reason
        assert refused.headers["access-control-allow-origin"] == ORIGIN
        assert "X-Plates-Redacted" in refused.headers["access-control-expose-headers"]
        evil = PREFLIGHT | {"origin": "https://evil.example"}
        answer = open_to_some.options("/v1/plates", headers=evil)
        assert "access-control-allow-origin" not in answer.headers


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A folder with self-signed certificates for 127.0.0.1, their keys, and a binary file."""
    folder = tmp_path_factory.mktemp("tls")
    (folder / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("gateway", "other"):
        make_certificate(folder, "IP:127.0.0.1", name)
    make_certificate(folder, "IP:127.0.0.1", "locked", ("-passout", "pass:x"))
    return folder


@pytest.mark.usefixtures("no_tracebacks")
def test_the_gateway_serves_photos_over_tls_alone(fake, certificates, monkeypatch):
    monkeypatch.setattr("api.edge.protocol._LINGER_S", 1)  # TLS has no half-closed connections
    file, key = certificates / "gateway.pem", certificates / "gateway.key"
    trusting = ssl.create_default_context(cafile=file)
    with running_gateway(fake, tls_certificate=file, tls_key=key, header_timeout_s=2) as plain:
        with connect(plain) as silent:
            assert everything(silent) == b""  # closed without an answer: no handshake came in time
        options = {"base_url": f"https://127.0.0.1:{plain.base_url.port}", "timeout": HANG_S}
        with httpx.Client(**options, verify=trusting) as client:
            assert post_raw(client, PHOTO).status_code == 200
            assert_problem(post_raw(client, bytes(30_000_000)), 413, "too-many-bytes")
        with connect(plain) as raw, trusting.wrap_socket(raw, server_hostname="127.0.0.1") as tls:
            tls.sendall(b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n")
            assert_refused(everything(tls), 400)
        with pytest.raises(httpx.TransportError):
            plain.get("/healthz")
        with httpx.Client(**options) as wary, pytest.raises(httpx.ConnectError):
            wary.get("/healthz")


@pytest.mark.parametrize(
    ("certificate", "key", "setting", "reason"),
    [
        ("gateway.pem", "", "tls_key", "set both PLATES_TLS_CERTIFICATE and PLATES_TLS_KEY, or"),
        ("gateway.pem", "other.key", "tls_key", "are not an unencrypted private key and its"),
        ("locked.pem", "locked.key", "tls_key", "unencrypted"),
        ("missing", "gateway.key", "tls_certificate", "No such file"),
        ("binary", "gateway.key", "tls_certificate", "not text"),
    ],
)
def test_unusable_tls_files_are_refused(certificates, certificate, key, setting, reason):
    given = {"tls_certificate": certificate, "tls_key": key}
    given = {name: str(certificates / file) for name, file in given.items() if file}
    with pytest.raises(ValidationError) as caught:
        Settings(**given)
    errors = caught.value.errors()
    (error,) = [error for error in errors if error["type"] != "default_factory_not_called"]
    assert error["loc"] == (setting,)
    assert reason in error["msg"]


def test_the_gateway_talks_to_triton_over_tls_with_a_token(certificates):
    trusted, key = certificates / "gateway.pem", certificates / "gateway.key"
    with closing(FakeTriton((key.read_bytes(), trusted.read_bytes()))) as fake:
        url = f"grpcs://127.0.0.1:{fake.port}"
        with running_gateway(url, triton_ca_file=trusted, triton_token="t") as client:  # noqa: S106
            assert post_raw(client, PHOTO).status_code == 200
        assert fake.metadata["authorization"] == "Bearer t"
        with running_gateway(url) as client:  # without the CA it distrusts the certificate
            assert_problem(post_raw(client, PHOTO), 503, "recognizer-unavailable")


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
