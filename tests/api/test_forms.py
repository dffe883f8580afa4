"""Multipart forms as hostile and as odd as they come."""

import base64

import httpx
import pytest
from fake_triton import FakeTriton
from support import PHOTO, assert_problem

HEADERS = {"content-type": "multipart/form-data; boundary=b"}


def part(content: bytes = PHOTO, disposition: str = "", *headers: str) -> bytes:
    disposition = disposition or 'form-data; name="image"; filename="a.jpg"'
    lines = [f"Content-Disposition: {disposition}", *headers]
    head = "--b\r\n" + "\r\n".join(line for line in lines if line) + "\r\n\r\n"
    return head.encode() + content + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--b--\r\n"


def post(client: httpx.Client, body: bytes, path: str = "/v1/plates") -> httpx.Response:
    return client.post(path, content=body, headers=HEADERS)


ODD = {
    "plain": part(),
    "line end first": b"\r\n" + part(),
    "type and encoding": part(
        PHOTO, "", "Content-Type: image/jpeg", "Content-Transfer-Encoding: binary"
    ),
    "headers in capitals": part().replace(b"Content-Disposition", b"CONTENT-DISPOSITION"),
    "name without quotes": part(PHOTO, "form-data; name=image; filename=a.jpg"),
    "empty file name": part(PHOTO, 'form-data; name="image"; filename=""'),
    "only the extended name": part(PHOTO, "form-data; name=\"image\"; filename*=UTF-8''a.jpg"),
    "both names": part(
        PHOTO, 'form-data; name="image"; filename="a.jpg"; filename*=UTF-8\'\'%D0%B0.jpg'
    ),
    "path as name": part(PHOTO, 'form-data; name="image"; filename="../../etc/passwd"'),
    "very long name": part(PHOTO, f'form-data; name="image"; filename="{"x" * 3000}"'),
    "eight headers": part(PHOTO, "", *[f"X-{n}: y" for n in range(7)]),
    "header twice": part(PHOTO, "", 'Content-Disposition: form-data; name="other"'),
    "boundary inside the photo's end": part(PHOTO + b"\r\n--c--\r\n--"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_forms_are_read(client: httpx.Client, fake: FakeTriton, name: str) -> None:
    assert post(client, form(ODD[name])).status_code == 200
    assert fake.photos[0].startswith(PHOTO)


HOSTILE = {
    "no closing boundary": (part(), "cut off"),
    "half a closing boundary": (part() + b"--b", "cut off"),
    "cut off in a header": (b"--b\r\nContent-Dispo", "cut off"),
    "part without headers": (form(b"--b\r\n\r\nx\r\n"), "no name"),
    "part without a name": (form(part(PHOTO, "form-data; filename=a")), "no name"),
    "attachment": (form(part(PHOTO, 'attachment; name="image"')), "no name"),
    "long field name": (form(part(b"1", f'form-data; name="{"x" * 300}"')), "255 characters"),
    "nine headers": (form(part(PHOTO, "", *[f"X-{n}: y" for n in range(8)])), "eader"),
    "long header": (form(part(PHOTO, "", f"X: {'y' * 5000}")), "eader"),
    "header without an end": (b"--b\r\nX: " + b"y" * 50_000, "eader"),
    "many parts": (form(*[part(b"1", f"form-data; name=a{n}") for n in range(17)]), "16 parts"),
    "long text": (form(part(), part(b"1" * 20_000, "form-data; name=roi")), "'roi' is longer"),
    "form in the form": (
        form(part(b"--c--", "", "Content-Type: multipart/mixed; boundary=c")),
        "form inside the form",
    ),
    "base64": (
        form(part(base64.b64encode(PHOTO), "", "Content-Transfer-Encoding: base64")),
        "as they are",
    ),
    "made-up encoding": (form(part(PHOTO, "", "Content-Transfer-Encoding: x")), "as they are"),
    "null bytes": (b"\0" * 1000, "not a valid"),
    "other boundary": (form(part()).replace(b"--b", b"--c"), "not a valid"),
    "bare line feeds": (form(part()).replace(b"\r\n", b"\n"), "not a valid"),
}


@pytest.mark.parametrize("path", ["/v1/plates", "/v1/plates/batch"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_forms_are_refused(
    client: httpx.Client, fake: FakeTriton, name: str, path: str
) -> None:
    body, said = HOSTILE[name]
    if name == "many parts" and path.endswith("batch"):
        body, said = form(*[part(b"1", f"form-data; name=a{n}") for n in range(40)]), "31 parts"
    document = assert_problem(post(client, body, path), 400, "invalid-form")
    assert said in document["detail"]
    assert len(document["detail"]) < 500
    assert not fake.photos
    assert post(client, form(part()), path).status_code == 200


@pytest.mark.parametrize("length", [257, 5000])
def test_long_boundaries(client: httpx.Client, fake: FakeTriton, length: int) -> None:
    headers = {"content-type": f"multipart/form-data; boundary={'b' * length}"}
    response = client.post("/v1/plates", content=b"x", headers=headers)
    assert_problem(response, 400, "invalid-form")
    assert not fake.photos


@pytest.mark.parametrize(
    ("disposition", "filename"),
    [
        ('filename="a.jpg"', "a.jpg"),
        ('filename=""', None),
        ('filename="../../etc/passwd"', "passwd"),
        (r'filename="C:\photos\a.jpg"', "a.jpg"),
        ('filename="номер.jpg"', "номер.jpg"),
        ("filename*=UTF-8''%D0%BD%D0%BE%D0%BC%D0%B5%D1%80.jpg", "номер.jpg"),
        ("filename*=iso-8859-1'en'%A3%20rates.jpg", "£ rates.jpg"),
        ("filename*=UTF-8''%FF%FE.jpg", "\ufffd\ufffd.jpg"),
        ("filename*=UTF-8''..%2F..%2Fetc%2Fpasswd", "passwd"),
        ("filename=\"plain.jpg\"; filename*=UTF-8''other.jpg", "plain.jpg"),
        ('filename="a%0d%0ab\x1b[31m.jpg"', "a%0d%0ab[31m.jpg"),
        (f'filename="{"x" * 300}"', "x" * 255),
    ],
)
@pytest.mark.usefixtures("fake")
def test_file_names_come_back_harmless(
    client: httpx.Client, disposition: str, filename: str | None
) -> None:
    body = form(part(PHOTO, f"form-data; name=image; {disposition}"))
    (result,) = post(client, body, "/v1/plates/batch").json()["results"]
    assert result["filename"] == filename
    reader = form(part(PHOTO, f"form-data; name=upload; {disposition}"))
    answer = post(client, reader, "/v1/plate-reader/").json()
    assert answer["filename"] == (filename or "upload")


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_pieces_of_any_size(client: httpx.Client, fake: FakeTriton, chunk: int) -> None:
    body = form(part(b"0,0,60,32", "form-data; name=roi"), part())
    pieces = (body[at : at + chunk] for at in range(0, len(body), chunk))
    response = client.post("/v1/plates", content=pieces, headers=HEADERS)
    assert [plate["text"] for plate in response.json()["plates"]] == ["B840CK197"]
    assert fake.photos == [PHOTO]
