"""The documentation works where there is no internet."""

import re

import httpx
import pytest


@pytest.mark.parametrize("page", ["/docs", "/redoc"])
def test_all_of_the_documentation_comes_from_here(client: httpx.Client, page: str) -> None:
    answer = client.get(page)
    links = re.findall(r"""(?:src|href|spec-url)\s*=\s*["']([^"']+)""", answer.text)
    links += re.findall(r"""url: ["']([^"']+)""", answer.text)
    assert len(links) >= 3
    for link in links:
        assert link.startswith("/") and not link.startswith("//"), link
        assert client.get(link).status_code == 200, link
    assert "://" not in answer.text
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self' 'unsafe-inline'" in policy
    assert "://" not in policy
