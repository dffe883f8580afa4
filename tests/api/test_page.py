"""The page's files as they are served: types, headers, languages, nothing from elsewhere."""

import json
import re

import httpx
import pytest

from api.errors import kinds
from api.routes.page import page_files

NAMES = sorted(page_files())
SCRIPTS = [name for name in NAMES if name.endswith(".js")]
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "jpg": "image/jpeg",
}
# What turns strings into markup or code.
MARKUP = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(")


def source(name: str) -> str:
    return page_files()[name].content.decode()


def texts_of(name: str) -> dict[str, str]:
    """A language file is JSON but for its first words and its last character."""
    return json.loads(source(name).removeprefix("export default ").rstrip().removesuffix(";"))


def test_every_file_comes_with_its_type_and_headers(client: httpx.Client) -> None:
    for address in ("/", *(f"/page/{name}" for name in NAMES)):
        response = client.get(address)
        assert response.status_code == 200
        name = address.removeprefix("/page/").strip("/") or "index.html"
        assert response.headers["content-type"] == TYPES[name.rpartition(".")[2]]
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        head = client.head(address)
        assert (head.status_code, head.content) == (200, b"")
    for path in ("/page/", "/page/none.js", "/page/%2e%2e%2fmain.py", "/page/..%2fcli.py"):
        assert client.get(path).status_code == 404


def test_browsers_ask_whether_a_file_changed(client: httpx.Client) -> None:
    etag = client.get("/page/page.js").headers["etag"]
    for known in (etag, f'W/{etag}, "other"', "*"):
        answer = client.get("/page/page.js", headers={"if-none-match": known})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == etag
    assert client.get("/page/page.js", headers={"if-none-match": '"other"'}).status_code == 200
    assert etag != client.get("/page/page.css").headers["etag"]


def test_nothing_is_loaded_or_sent_elsewhere(client: httpx.Client) -> None:
    rules = client.get("/").headers["content-security-policy"].split("; ")
    policy = dict(rule.partition(" ")[::2] for rule in rules)
    assert policy["default-src"] == "'none'"
    for kind in ("script-src", "style-src", "connect-src"):
        assert policy[kind] == "'self'"
    assert policy["img-src"] == "'self' blob:"
    assert policy["form-action"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith(".jpg")])
def test_no_file_names_another_host_or_makes_markup_of_strings(name: str) -> None:
    hosts = set(re.findall(r"(?:https?:)?//([\w.-]+\.\w+|localhost)", source(name)))
    # The name of SVG, which nothing is fetched from, and the example for pages without scripts.
    assert hosts <= {"www.w3.org", "localhost"}
    assert not [word for word in ("@import", "url(", *MARKUP) if word in source(name)]
    assert set(re.findall(r'from "\./([^"]+)"', source(name))) <= set(NAMES)


def test_page_has_no_inline_code_or_style() -> None:
    html = source("index.html")
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", html)
    assert re.findall(r"<script[^>]*>(.*?)</script>", html, re.S) == [""]
    for address in re.findall(r'(?:src|href)="([^"]+)"', html):
        # Relative, so that a proxy may serve the page under a path of its own.
        assert address.startswith("page/") or address in ("docs", "openapi.json", "readyz")


def test_every_text_exists_in_both_languages() -> None:
    english, russian = texts_of("english.js"), texts_of("russian.js")
    assert list(english) == list(russian)
    for key, words in english.items():
        assert words and russian[key]
        assert set(re.findall(r"{\w+}", words)) == set(re.findall(r"{\w+}", russian[key])), key
    # What the page says before its scripts run is what they say in English.
    html = source("index.html")
    for key, words in re.findall(r'data-text="([\w.]+)"[^>]*>([^<]*)<', html):
        assert english[key] == words
    code = "\n".join(map(source, (*SCRIPTS, "index.html")))
    asked = set(re.findall(r'\btext\("([\w.]+)"|data-(?:text|label)="([\w.]+)"', code))
    keys = {key for pair in asked for key in pair if key}
    assert len(keys) > 30
    for status in {kind.status for kind in kinds()} | {0, 401, 403, 408, 429}:
        keys |= {f"problem.{status}", f"advice.{status}"}
    assert keys <= english.keys()
