"""Refused requests on every route: bad photos, hostile forms, parameters; no URL is fetched."""

import base64
import socket

import gateway_support
import pytest
from gateway_support import ALPR, BATCH, MULTIPART, READER, assert_dialect_error, form, part, send
from photo_files import BAD, SEEN_BY_DECODING, encode, pattern
from raw_http import answer_to, status_of
from support import PHOTO, STATUS, assert_problem, post_form, post_raw

PLATES = "/v1/plates"
BASE64 = base64.b64encode(PHOTO).decode()
ADDRESS = "http://127.0.0.1:1/a.jpg"
URLENCODED = "application/x-www-form-urlencoded"


@pytest.mark.parametrize("name", sorted(BAD.keys() - SEEN_BY_DECODING))
def test_bad_photos_never_reach_triton(client, fake, name, monkeypatch):
    photo, slug = BAD[name]
    for post, at_once in ((post_raw, 2**20), (post_form, 0)):  # large ones: in a thread
        monkeypatch.setattr("api.reading._CHECKED_AT_ONCE", at_once)
        assert_problem(post(client, photo), STATUS[slug], slug)
    assert not fake.photos


HOSTILE = {
    "empty": (b"", "cut off"),
    "nonsense": (b"nonsense", "not a valid"),
    "no closing boundary": (part(), "cut off"),
    "part without a name": (form(part(PHOTO, "form-data; filename=a")), "no name"),
    "long field name": (form(part(b"1", f'form-data; name="{"x" * 300}"')), "255 characters"),
    "nine headers": (form(part(PHOTO, "", *[f"X-{n}: y" for n in range(8)])), "eader"),
    "long header": (form(part(PHOTO, "", f"X: {'y' * 5000}")), "eader"),
    "many parts": (form(*[part(b"1", f"form-data; name=a{n}") for n in range(70)]), "parts"),
    "long text": (form(part(), part(b"1" * 20_000, "form-data; name=roi")), "'roi' is longer"),
    "bare line feeds": (form(part()).replace(b"\r\n", b"\n"), "not a valid"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_forms_are_refused(client, fake, name):
    body, reason = HOSTILE[name]
    for path in (PLATES, BATCH):
        detail = assert_problem(send(client, body, path), 400, "invalid-form")["detail"]
        assert reason in detail and len(detail) < 500
    assert not fake.photos


def body(content, content_type):
    return {"content": content, "headers": {"content-type": content_type}}


def photos(*names, photo=PHOTO):
    return {"files": [(name, photo) for name in names]}


def with_fields(name="upload", **fields):
    return photos(name) | {"data": fields}


def as_json(content):
    return body(content, "application/json")


# Invalid parameters, in forms and in addresses, and the name that the refusal must contain.
PARAMETERS = [
    *(({"roi": roi}, "roi") for roi in ("1,2,3", "1,2,3,x", "5,5,1,9", "nan,0,nan,9")),
    *(({"roi": roi}, "roi") for roi in ("0,0,inf,9", "0,0,1e400,9", "0,0,٩,٩")),
    *(({"min_width": width}, "min_width") for width in ("wide", -1, "inf")),
    *(({"countries": names}, "countries") for names in ("zz", "sk,", "sk;cz", "../ru")),
    ({"roi": ["0,0,9,9", "1,1,9,9"]}, "roi"),
    ({"min_width": ["1", "1"]}, "min_width"),
]
OUR_PARAMETERS = [*PARAMETERS, ({"min_widht": 3}, "min_widht"), ({"redact": ["0", "1"]}, "redact")]


@pytest.mark.parametrize("where", ["params", "data"])
def test_invalid_parameters_are_refused_by_name(client, fake, where):
    for parameters, name in OUR_PARAMETERS:
        answer = client.post(PLATES, **photos("image"), **{where: parameters})
        document = assert_problem(answer, 422, "invalid-parameter")
        assert [error["parameter"] for error in document["errors"]] == [name]
        assert name in document["detail"]
    for parameters, name in PARAMETERS:
        for path, status in ((READER, 400), (ALPR, 422)):
            answer = client.post(path, **photos("upload"), **{where: parameters})
            assert_dialect_error(answer, status, name)
    assert not fake.photos


# (path, problem's slug or dialect's status) to requests and words of the refusals.
REFUSED = {
    (PLATES, "missing-image"): [
        (photos("other"), "'other'"),
        (body(form(), MULTIPART), "none"),
        (body(form(part(b"a", "form-data; name=image")), MULTIPART), "as text"),
        (body(form(part(bytes(20_000), "form-data; name=image")), MULTIPART), "no file name"),
    ],
    (PLATES, "invalid-parameter"): [
        (photos("image", "image"), "2 photos; at most 1"),
        (photos("image", "other"), "other"),
        (with_fields("image", redact="perhaps"), "redact"),
        (with_fields("image", image="base64"), "'image' came as text"),
    ],
    (PLATES, "invalid-form"): [
        (body(b"x", "multipart/form-data"), "no boundary"),
        (body(b"x", f"{MULTIPART}{'b' * 5000}"), "exceeds maximum"),
    ],
    (PLATES, "unsupported-media-type"): [
        (as_json(b"{}"), "application/json"),
        (body(PHOTO, ""), "missing"),
        (photos("image") | {"headers": {"Content-Encoding": "GZip"}}, "uncompressed"),
    ],
    (BATCH, "missing-image"): [
        (photos("photo"), "'photo'"),
        ({"files": {"images": (None, "text")}}, "'images' came as text"),
    ],
    (BATCH, "invalid-parameter"): [
        (photos(*["image"] * 17), "17 photos; at most 16"),
        (photos(*["image"] * 40), "40 photos; at most 16"),
        (photos("image", "other"), "other"),
        (with_fields("image", roi="1"), "roi"),
        (with_fields("image", redact="1"), "redact"),
    ],
    (BATCH, "invalid-form"): [(photos(*["image"] * 70), "parts")],
    (BATCH, "unsupported-media-type"): [(body(PHOTO, "image/jpeg"), "image/jpeg")],
    (READER, 400): [
        (with_fields(config="[" * 9000), "config"),
        (with_fields(config="5"), "config: expected an object."),
        (with_fields(config='{"threshold_d": 1.1}'), "threshold_d"),
        (with_fields(config='{"threshold_o": NaN}'), "threshold_o"),
        (with_fields(config='{"region": "strict"}', regions="zz,yy-ca"), "regions: none"),
        (with_fields(timestamp="yesterday"), "ISO 8601"),
        (with_fields(timestamp="0001-01-01T00:00:00+14:00"), "ISO 8601"),
        (with_fields(camera_id="x" * 20_000), "camera_id"),
        # The gateway never fetches URLs.
        ({"json": {"upload_url": ADDRESS, "upload": BASE64}}, "upload_url: no address"),
        ({"data": {"upload": ADDRESS}}, "base64"),
        ({"data": {"upload": ""}}, "empty"),
        ({"data": {"regions": "ru"}}, "'upload'"),
        ({"data": {"x" * 900: "1"}}, "name"),
        (body(b"a=1&" * 5000, URLENCODED), "fields"),
        ({"json": {"upload": ["QUFB", "QUFB"]}}, "One photo"),
        ({"json": {"upload": BASE64, "roi": [0, 0, 9, 9]}}, 'not once as "x0,y0,x1,y1"'),
        ({"json": [1]}, "object"),
        ({"json": {"x" * 50_000: "1"}}, "name"),
        (as_json(b'{"\\ud800": 1}'), "'?'"),  # half a surrogate pair can't be quoted
        (as_json(b"[" * 50_000), "parts"),
        (as_json(b'{"a":' * 600), "JSON"),
        (photos("upload", photo=b"GIF"), "not an image"),
        (body(b"x", "text/plain"), "text/plain"),
    ],
    (ALPR, 415): [(photos("upload", photo=b"GIF"), "not an image")],
    (ALPR, 422): [
        (with_fields(min_confidence="2"), "min_confidence"),
        (with_fields(min_confidence="nan"), "min_confidence"),
        (photos("a", "b"), "2 photos"),
    ],
}


@pytest.mark.parametrize(("path", "kind"), REFUSED)
def test_requests_are_refused_with_a_reason(client, fake, path, kind):
    for options, words in REFUSED[path, kind]:
        answer = client.post(path, **options)
        if isinstance(kind, int):
            assert_dialect_error(answer, kind, words)
        else:
            assert words in assert_problem(answer, STATUS[kind], kind)["detail"]
    assert not fake.photos


def test_unknown_paths_get_404_and_wrong_methods_405(client):
    for method, path, status in (
        ("GET", "/nowhere", 404),
        ("POST", "/v1/plates/", 404),  # no redirect: the client would send the photo twice
        ("GET", "/v1/plates", 405),
        ("DELETE", "/healthz", 405),
        ("GET", READER, 405),
        ("GET", ALPR, 405),
    ):
        response = client.request(method, path)
        if path in (READER, ALPR):
            assert_dialect_error(response, status, method)
        else:
            assert_problem(response, status, None)
        assert ("allow" in response.headers) == (status == 405)


@pytest.mark.settings(max_pixels=100)
def test_photos_above_the_pixel_limit_are_refused(client):
    assert post_raw(client, encode(pattern(10, 10), "PNG")).status_code == 200
    larger = encode(pattern(10, 11), "PNG")
    assert_problem(post_raw(client, larger), 413, "too-many-pixels")


FIELDS = ("upload_url", "url", "image", "images", "upload", "file", "config", "regions", "callback")
HEADERS = ("Referer", "Origin", "X-Forwarded-Host", "X-Original-URL", "Forwarded", "Via", "Link")
JPEG = {"Content-Type": "image/jpeg"}


@pytest.fixture
def host():
    """A host:port that nothing may connect to: the listener's backlog must stay empty."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_urls_in_fields_headers_and_files_are_not_fetched(client, host):
    address = f"http://{host}/a.jpg"
    drawing = f'<svg xmlns="http://www.w3.org/2000/svg"><image href="{address}"/></svg>'
    named = dict.fromkeys(FIELDS, address)
    requests = [
        *({"files": {field: (None, address)}} for field in FIELDS),
        *({"content": file, "headers": JPEG} for file in (drawing, address)),
        {"data": named},
        {"json": named},
        {"params": named, "files": {"image": PHOTO}},
        {"content": PHOTO, "headers": JPEG | dict.fromkeys(HEADERS, address)},
        {"files": {"upload": (address, PHOTO)}},
    ]
    routes = gateway_support.post_routes()
    assert {"/v1/plates", "/v1/plate-reader", "/v1/vision/alpr"} <= routes
    for route in routes:
        for request in requests:
            assert client.post(route, **request).status_code < 500


def test_proxy_requests_are_not_forwarded(client, host):
    # A server must accept an absolute URL as the target, and answers for itself (RFC 9112, 3.2.2).
    for line, status in ((f"GET http://{host}/", 200), (f"CONNECT {host}", 404)):
        request = f"{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        assert status_of(answer_to(client, request.encode())) == status
