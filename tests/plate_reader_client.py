"""What tests of Plate Recognizer's form say to it, and what they expect of an error."""

import base64

import httpx
from gateway_client import PHOTO

PATH = "/v1/plate-reader/"
BASE64 = base64.b64encode(PHOTO).decode()


def post(client: httpx.Client, photo: bytes = PHOTO, **fields: object) -> httpx.Response:
    return client.post(PATH, files={"upload": ("car.jpg", photo)}, data=fields)


def plates_of(response: httpx.Response) -> list[str]:
    assert response.status_code == 201, response.text
    return [result["plate"] for result in response.json()["results"]]


def assert_refused(response: httpx.Response, status: int, said: str, member: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.json().keys() == {member}
    assert said in response.json()[member]
