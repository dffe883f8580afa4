"""`plates health`: the answers it accepts, and the certificates it trusts."""

from small_server import Reply, small_server
from support import make_certificate


def answer(path):
    return Reply(b"no photo is read", int(path.strip("/")))


def test_a_service_is_healthy_if_it_answers_200_and_its_supervisor_is_ready(run, tmp_path):
    file = tmp_path / "status.json"
    with small_server(answer) as server:
        for words, status in {"200": 0, "503": 1, "429": 1, "429 --or-busy": 0}.items():
            done = run("health", *f"{server.url}/{words}".split())
            assert done.returncode == status
            assert status == 0 or f"{words} no photo is read" in done.stderr
        for url in ("http://a..b/", "http://xn--ü/"):
            done = run("health", url)
            assert done.returncode == 1 and done.stderr.startswith(f"plates health: {url}: ")
        status = '{"state": "%s", "restarts": {}}'
        reasons = {status % state: f"says: {state}" for state in ("healing", "failed", "stopped")}
        reasons |= dict.fromkeys(("", "[]", status % "well"), "there is no status")
        for content, reason in {status % "ready": "", **reasons}.items():
            file.write_text(content)
            done = run("health", f"{server.url}/200", "--status", file)
            assert done.returncode == bool(reason) and reason in done.stderr


def test_an_untrusted_certificate_is_refused(run, tmp_path):
    certificate, key = make_certificate(tmp_path, "DNS:localhost,IP:127.0.0.1")
    with small_server(answer) as server:
        server.speak_tls(certificate, key)
        for options in (["--ca-file", certificate], ["--insecure"]):
            assert run("health", f"{server.url}/200", *options).returncode == 0
            assert run("health", f"{server.url}/503", *options).returncode == 1
        done = run("health", f"{server.url}/200")
    assert done.returncode == 1 and "CERTIFICATE_VERIFY_FAILED" in done.stderr
