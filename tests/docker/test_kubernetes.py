"""docker/kubernetes/ renders to objects that Kubernetes takes, and that fit each other.

Whoever has neither kubectl nor kustomize checks what is committed as rendered, and that nothing
was edited since.
"""

import contextlib
import importlib.util
import re
import shutil
import socket
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from fake_triton import FakeTriton
from kubernetes_checks import PROBES, ROOT, TRITON_PATHS, dockerfile_of, problems, reachable
from kubernetes_objects import FOLDER, VERSIONS, Cluster, cluster_of, quantity, schema_problems
from support import TritonEndpoints, wait_until

from plates.cli import main as cli
from plates.serving.running import running_service

NAMESPACE_OBJECTS = {"Namespace"}
QUEUE_METRIC = "plates_triton_queue_milliseconds"


def _renderer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render", FOLDER / "render.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RENDER = _renderer()
OVERLAYS: tuple[str, ...] = RENDER.OVERLAYS


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_is_committed_was_rendered_from_these_sources(overlay: str) -> None:
    text = (FOLDER / "rendered" / f"{overlay}.yaml").read_text(encoding="utf-8")
    assert text.startswith(RENDER.head(overlay)), "run `make kubernetes-render`"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_rendering_gives_what_is_committed(overlay: str) -> None:
    command = RENDER.render_command()
    if command is None:
        pytest.skip("neither kustomize nor kubectl is installed: only the sources' hash is checked")
    assert Cluster.read(RENDER.render(FOLDER / "overlays" / overlay, command)).objects == (
        cluster_of(overlay).objects
    )


def test_an_edit_of_the_sources_is_noticed(tmp_path: Path) -> None:
    copied = tmp_path / "kubernetes"
    shutil.copytree(FOLDER, copied)
    assert RENDER.head("cpu", copied) == RENDER.head("cpu")
    settings = copied / "base" / "settings.env"
    settings.write_text(settings.read_text(encoding="utf-8") + "PLATES_RATE_LIMIT=5\n")
    assert RENDER.head("cpu", copied) != RENDER.head("cpu")
    shutil.rmtree(copied / "components")
    assert len({RENDER.head("cpu", folder) for folder in (FOLDER, copied)}) == 2


def test_an_overlay_of_ones_own_renders_as_the_readme_has_it(tmp_path: Path) -> None:
    command = RENDER.render_command()
    if command is None:
        pytest.skip("neither kustomize nor kubectl is installed")
    shutil.copytree(FOLDER, tmp_path / "docker" / "kubernetes")
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    (components,) = re.findall(r"^`(components: \[.*\])`", readme, re.MULTILINE)
    own = tmp_path / "my-cluster"
    own.mkdir()
    (own / "kustomization.yaml").write_text("\n".join([*blocks, components]), encoding="utf-8")
    (own / "settings.env").write_text("PLATES_RATE_LIMIT=5\nPLATES_CONCURRENCY=11\n")
    assert cli.main(["config", "check", str(own / "settings.env")]) == 0
    cluster = Cluster.read(RENDER.render(own, command))
    assert schema_problems(cluster, VERSIONS[-1]) == []
    environment = cluster.environment("gateway")
    assert environment["PLATES_RATE_LIMIT"] == "5"
    assert environment["PLATES_CONCURRENCY"] == "11"
    assert environment["PLATES_MAX_WAITING"] == "32"
    assert environment["PLATES_TOKENS_FILE"]
    assert cluster.container("triton")["image"].startswith("registry.example/plates-triton:")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubernetes_takes_every_object(overlay: str, version: str) -> None:
    cluster = cluster_of(overlay)
    assert schema_problems(cluster, version) == []
    kinds = {item["kind"] for item in cluster.objects}
    assert kinds >= {"Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget"}
    for item in cluster.objects:
        assert item["metadata"].get("namespace", "plates") == "plates"
        assert ("namespace" in item["metadata"]) == (item["kind"] not in NAMESPACE_OBJECTS)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_objects_fit_each_other_and_the_code(overlay: str) -> None:
    assert list(problems(cluster_of(overlay))) == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_nobody_reaches_what_is_none_of_their_business(overlay: str) -> None:
    cluster = cluster_of(overlay)
    assert reachable(cluster) == {
        ("gateway", "triton", 8001),
        ("prometheus", "triton", 8002),
        ("prometheus", "gateway", 8080),
        ("stranger", "gateway", 8080),
    }
    # Triton asks nobody, the gateway only for names besides.
    assert cluster.rules(cluster.pod("triton"), "Egress") == []
    outside = [
        rule["ports"]
        for rule in cluster.rules(cluster.pod("gateway"), "Egress") or []
        if any("namespaceSelector" in peer or "ipBlock" in peer for peer in rule["to"])
    ]
    assert [[port["port"] for port in ports] for ports in outside] == [[53, 53]]


def test_quantities() -> None:
    assert (quantity("500m"), quantity("2"), quantity("1Gi")) == (0.5, 2, 2**30)
    for wrong in ("-1", "8GB", "", "1 Gi"):
        with pytest.raises(ValueError, match="no quantity"):
            quantity(wrong)


def test_the_settings_file_is_checked_as_kustomize_reads_it() -> None:
    assert cli.main(["config", "check", str(FOLDER / "base" / "settings.env")]) == 0
    data = next(iter(cluster_of("cpu").of_kind("ConfigMap").values()))["data"]
    assert all(key.startswith("PLATES_") for key in data)


class _Compose(yaml.SafeLoader):
    """Reads compose files; `!reset` and its like say nothing to us."""


_Compose.add_multi_constructor("!", lambda *_: None)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_containers_are_what_compose_runs(overlay: str) -> None:
    cluster = cluster_of(overlay)
    text = (ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8")
    services = yaml.load(text, _Compose)["services"]  # noqa: S506 - a SafeLoader
    for name in cluster.deployments:
        theirs = services[name].get("environment", {}).items()
        fixed = {key: str(value) for key, value in theirs if "${" not in str(value)}
        ours = cluster.environment(name)
        both = (fixed.keys() & ours.keys()) - {"PLATES_STATUS_FILE"}
        assert {key: fixed[key] for key in both} == {key: ours[key] for key in both}
        assert name != "gateway" or "PLATES_TRITON_URL" in both
        file = ROOT / "docker" / f"{dockerfile_of(cluster, name)}.Dockerfile"
        entry = cluster.container(name)["command"]
        assert f'ENTRYPOINT ["{entry[0]}", "{entry[1]}"]' in file.read_text(encoding="utf-8")


def test_what_the_autoscaler_asks_for_is_what_the_adapter_makes() -> None:
    (rule,) = yaml.safe_load((FOLDER / "monitoring/adapter.yaml").read_text("utf-8"))["rules"]
    assert rule["name"]["as"] == QUEUE_METRIC
    assert rule["metricsQuery"].count("<<.LabelMatchers>>") == 2
    assert rule["metricsQuery"].count("(") == rule["metricsQuery"].count(")")
    for overlay in OVERLAYS:
        scaler = cluster_of(overlay).of_kind("HorizontalPodAutoscaler")["triton"]["spec"]
        (metric,) = scaler["metrics"]
        assert metric["pods"]["metric"]["name"] == QUEUE_METRIC


def test_prometheus_is_told_where_to_look() -> None:
    (job,) = yaml.safe_load((FOLDER / "monitoring/scrape.yaml").read_text("utf-8"))
    assert job["kubernetes_sd_configs"][0]["namespaces"]["names"] == ["plates"]
    cluster = cluster_of("cpu")
    for name, port in (("gateway", "8080"), ("triton", "8002")):
        annotations = cluster.template(name)["metadata"]["annotations"]
        assert annotations["prometheus.io/port"] == port
        assert int(port) in cluster.pod(name).ports.values()


def ask(probe: dict[str, Any], port: int) -> bool:
    """Whether a probe passes, at a port instead of the container's."""
    if "exec" in probe:
        words = [re.sub(r":8080/", f":{port}/", word) for word in probe["exec"]["command"]]
        return cli.main(words[1:]) == 0
    url = f"http://127.0.0.1:{port}{probe['httpGet']['path']}"
    return httpx.get(url, timeout=probe["timeoutSeconds"]).status_code == 200


def test_the_gateways_container_passes_its_probes(fake: FakeTriton) -> None:
    cluster = cluster_of("cpu")
    here = {
        "PLATES_HOST": "127.0.0.1",
        "PLATES_PORT": "0",
        "PLATES_TRITON_URL": f"127.0.0.1:{fake.port}",
        "PLATES_MAX_CONNECTIONS": "2",
    }
    container = cluster.container("gateway")
    with running_service(cluster.environment("gateway") | here) as service:
        port = urlsplit(service.url).port or 0
        for kind in PROBES:
            assert ask(container[kind], port), kind
        with contextlib.ExitStack() as taken:
            for _ in range(2):
                taken.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            # All places are taken: no photos for it, but it needs no restart.
            wait_until(lambda: not ask(container["startupProbe"], port))
            assert ask(container["livenessProbe"], port)


@pytest.mark.live
def test_a_triton_has_the_paths_and_the_series_that_are_asked_for(triton: TritonEndpoints) -> None:
    for path in TRITON_PATHS:
        with urllib.request.urlopen(f"http://{triton.http_url}{path}", timeout=20) as answer:
            assert answer.status == 200
    if triton.embedded is None:
        pytest.skip("where somebody else's Triton has its metrics is not known")
    url = f"http://{triton.embedded.metrics_url}/metrics"
    with urllib.request.urlopen(url, timeout=20) as answer:
        series = answer.read().decode()
    text = (FOLDER / "monitoring" / "adapter.yaml").read_text(encoding="utf-8")
    names = set(re.findall(r"\bnv_\w+", text))
    assert names == {"nv_inference_queue_duration_us", "nv_inference_request_success"}
    for name in names:
        assert f'{name}{{model="plate_recognition"' in series
