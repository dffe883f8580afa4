"""docker/kubernetes/ renders to objects that Kubernetes accepts, and that fit the code.

Without kubectl the committed output is checked, and that its sources were not edited since.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
from functools import cache
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import yaml
from containers import VERSION, read_stages
from support import ROOT, write_files

from api.main import create_app
from api.settings import Settings
from plate_models.cores import photos_at_once
from plates.cli import health
from plates.cli import main as cli
from plates.cli.config import check as check_settings
from plates.serving import child, triton

FOLDER = ROOT / "docker" / "kubernetes"
NAME = "app.kubernetes.io/name"
# The oldest version with all fields in use, and the newest with schemas.
VERSIONS = ("1.27", kubernetes_validate.latest_version())
# Paths of KServe's protocol, which Triton speaks.
TRITON_PATHS = {"/v2/health/live", "/v2/health/ready"}
# DNS servers cache an answer for 30 seconds by default; gRPC varies a connection's age by a tenth.
ADDRESSES_KNOWN_S = 30 + 1.1 * triton.CONNECTION_AGE_S

OVERLAYS = ("cpu", "gpu", "gpu-full")


class Cluster:
    """Objects by kind and name, and the environment of a deployment's only container."""

    def __init__(self, text):
        self.objects = [one for one in yaml.safe_load_all(text) if one]

    def of_kind(self, kind):
        return {o["metadata"]["name"]: o for o in self.objects if o["kind"] == kind}

    def pod(self, name):
        return self.of_kind("Deployment")[name]["spec"]["template"]["spec"]

    def container(self, name):
        (container,) = self.pod(name)["containers"]
        return container

    def ports(self, name):
        return {port["name"]: port["containerPort"] for port in self.container(name)["ports"]}

    def environment(self, name):
        """`env` overrides the settings."""
        container = self.container(name)
        found = {}
        for source in container.get("envFrom", []):
            found |= self.of_kind("ConfigMap")[source["configMapRef"]["name"]]["data"]
        return found | {entry["name"]: entry["value"] for entry in container.get("env", [])}


@cache
def cluster_of(overlay):
    """The committed output of an overlay."""
    return Cluster((FOLDER / "rendered" / f"{overlay}.yaml").read_text(encoding="utf-8"))


@pytest.fixture(params=OVERLAYS)
def cluster(request):
    return cluster_of(request.param)


def check_schemas(cluster, version):
    """Raise `ValidationError` for objects that the API of a version would refuse."""
    for item in cluster.objects:
        kubernetes_validate.validate(item, version, strict=True)


def test_the_committed_files_were_rendered_from_these_sources():
    committed = (FOLDER / "rendered" / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    folders = (FOLDER / part for part in ("base", "components", "overlays"))
    assert set(committed) == {
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(FOLDER)}"
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file()
    }, "run `make kubernetes-render`"


def render(folder):
    command = ["kubectl", "kustomize", str(folder)]
    return Cluster(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl here")
def test_what_is_committed_and_an_overlay_as_the_readme_has_it_render(tmp_path):
    for overlay in OVERLAYS:
        assert render(FOLDER / "overlays" / overlay).objects == cluster_of(overlay).objects
    shutil.copytree(FOLDER, tmp_path / "docker" / "kubernetes")
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    (components,) = re.findall(r"^`(components: \[.*\])`", readme, re.MULTILINE)
    files = {"kustomization.yaml": "\n".join([*blocks, components]).encode()}
    own = write_files(tmp_path / "my-cluster", files | {"settings.env": b"PLATES_RATE_LIMIT=5\n"})
    assert cli.main(["config", "check", str(own / "settings.env")]) == 0
    cluster = render(own)
    check_schemas(cluster, VERSIONS[-1])
    environment = cluster.environment("gateway")
    assert (environment["PLATES_RATE_LIMIT"], environment["PLATES_MAX_WAITING"]) == ("5", "32")
    assert environment["PLATES_TOKENS_FILE"]
    assert cluster.container("triton")["image"].startswith("registry.example/plates-triton:")


def test_kubernetes_takes_every_object(cluster):
    for version in VERSIONS:
        check_schemas(cluster, version)


def test_selectors_and_ports_meet(cluster):
    for name, deployment in cluster.of_kind("Deployment").items():
        labels = deployment["spec"]["template"]["metadata"]["labels"].items()
        assert deployment["spec"]["selector"]["matchLabels"].items() <= labels
        service = cluster.of_kind("Service")[name]["spec"]
        assert service["selector"].items() <= labels and NAME in service["selector"]
        assert {port["targetPort"] for port in service["ports"]} <= cluster.ports(name).keys()
        policy = cluster.of_kind("NetworkPolicy")[name]["spec"]
        assert policy["podSelector"]["matchLabels"].items() <= labels
        autoscaler = cluster.of_kind("HorizontalPodAutoscaler")[name]["spec"]
        assert autoscaler["scaleTargetRef"]["name"] == name
        # Each apply would undo the autoscaler's changes.
        assert "replicas" not in deployment["spec"]
    host, _, port = cluster.environment("gateway")["PLATES_TRITON_URL"].rpartition(":")
    service = cluster.of_kind("Service")[host]["spec"]
    assert int(port) in [entry["port"] for entry in service["ports"]]
    # Only a headless service gives gRPC all addresses.
    assert service["clusterIP"] == "None"


def test_pods_are_restricted_and_only_the_gateway_and_prometheus_reach_triton(cluster):
    # Kubernetes itself refuses pods with more privileges here.
    labels = cluster.of_kind("Namespace")["plates"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    peers = {
        rule["ports"][0]["port"]: [peer["podSelector"]["matchLabels"] for peer in rule["from"]]
        for rule in cluster.of_kind("NetworkPolicy")["triton"]["spec"]["ingress"]
    }
    assert peers == {"grpc": [{NAME: "gateway"}], "metrics": [{NAME: "prometheus"}]}


def asked(probe, ports):
    if "httpGet" in probe:
        return probe["httpGet"]["path"], ports[probe["httpGet"]["port"]]
    program, subcommand, *words = probe["exec"]["command"]
    assert (program, subcommand) == ("plates", "health")
    parser = argparse.ArgumentParser(exit_on_error=False)
    health.configure(parser)
    parts = urlsplit(parser.parse_args(words).url)
    return parts.path, parts.port or 80


def test_probes_ask_what_there_is_and_leave_healing_to_the_supervisor(cluster):
    gateway_paths = create_app(Settings(triton_url="triton:8001")).openapi()["paths"].keys()
    slowest_s = {
        ("triton", "startupProbe"): triton.READY_S,
        ("triton", "livenessProbe"): triton.READY_S,
        ("gateway", "startupProbe"): child.START_S,
        ("gateway", "livenessProbe"): child.SILENCE_S + child.START_S,
    }
    for name in cluster.of_kind("Deployment"):
        ports = cluster.ports(name)
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = cluster.container(name)[kind]
            path, port = asked(probe, ports)
            assert port in ports.values()
            assert path in (gateway_paths if name == "gateway" else TRITON_PATHS)
            patience_s = probe["periodSeconds"] * probe["failureThreshold"]
            assert patience_s >= slowest_s.get((name, kind), 0), f"{name}: {kind}"


def test_pods_stop_when_nobody_sends_them_photos_any_more(cluster):
    own_s = {"triton": triton.STOP_S + triton.KILL_S, "gateway": child.STOP_S}
    for name in own_s:
        program, wait_s = cluster.container(name)["lifecycle"]["preStop"]["exec"]["command"]
        given_s = cluster.pod(name)["terminationGracePeriodSeconds"]
        assert program == "sleep" and given_s >= int(wait_s) + own_s[name] + 1
        assert name != "triton" or int(wait_s) >= ADDRESSES_KNOWN_S


def test_gateways_fill_all_tritons_and_no_more(cluster):
    autoscalers = cluster.of_kind("HorizontalPodAutoscaler")
    gateways, tritons = (autoscalers[name]["spec"] for name in ("gateway", "triton"))
    each = int(cluster.environment("gateway")["PLATES_CONCURRENCY"])
    # A whole number, as the nets use whole threads.
    cores = int(cluster.container("triton")["resources"]["limits"]["cpu"])
    slots = photos_at_once(cores)
    config = (ROOT / "model_repository/plate_recognition/config.pbtxt").read_text(encoding="utf-8")
    (queue,) = map(int, re.findall(r"max_queue_size: (\d+)", config))
    assert gateways["minReplicas"] * each >= tritons["maxReplicas"] * slots
    assert gateways["maxReplicas"] * each <= tritons["minReplicas"] * (slots + queue)


def test_settings_and_images_are_those_of_compose(cluster):
    profile = cluster.environment("triton")["PLATES_PROFILE"]
    files = {"gateway": "gateway", "triton": {"cpu": "triton-cpu", "gpu": "triton"}[profile]}
    for name, file in files.items():
        environment, container = cluster.environment(name), cluster.container(name)
        assert list(check_settings(environment, elsewhere=True)) == []
        assert container["image"] == f"plates-{file}:{VERSION}"
        image, user = read_stages(file)[-1], cluster.pod(name)["securityContext"]
        # Variables of both must have the same value.
        assert image.environment | environment == environment | image.environment
        assert ("USER", f"{user['runAsUser']}:{user['runAsGroup']}") in image.steps
        assert container["command"] == image.entry_point
