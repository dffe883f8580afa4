"""docker/kubernetes/ renders to objects that Kubernetes accepts and that match the code.

Without kubectl, the tests check the committed rendered files, and that their sources have not
changed since.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
from functools import cache
from itertools import product
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
from plates.cli.config import check as check_settings
from plates.serving import child, triton

FOLDER = ROOT / "docker" / "kubernetes"
OVERLAYS = ("cpu", "gpu", "gpu-full")
NAME = "app.kubernetes.io/name"
# The oldest version that has every field in use, and the newest with schemas.
VERSIONS = ("1.27", kubernetes_validate.latest_version())
# DNS servers cache an answer for 30 s by default; gRPC varies a connection's age by 10 %.
ADDRESSES_KNOWN_S = 30 + 1.1 * triton.CONNECTION_AGE_S


class Cluster:
    """The rendered objects, by kind and name; each deployment has one container."""

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
        """The container's variables: those of its ConfigMaps, overridden by its `env`."""
        container = self.container(name)
        found = {}
        for source in container.get("envFrom", []):
            found |= self.of_kind("ConfigMap")[source["configMapRef"]["name"]]["data"]
        return found | {entry["name"]: entry["value"] for entry in container.get("env", [])}


@cache
def cluster_of(overlay):
    """The committed rendered objects of an overlay."""
    return Cluster((FOLDER / "rendered" / f"{overlay}.yaml").read_text(encoding="utf-8"))


@pytest.fixture(params=OVERLAYS)
def cluster(request):
    return cluster_of(request.param)


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


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_kubectl_renders_the_committed_objects_and_the_overlay_in_the_readme(tmp_path, run):
    for overlay in OVERLAYS:
        assert render(FOLDER / "overlays" / overlay).objects == cluster_of(overlay).objects
    shutil.copytree(FOLDER, tmp_path / "docker" / "kubernetes")
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    (components,) = re.findall(r"^`(components: \[.*\])`", readme, re.MULTILINE)
    files = {"kustomization.yaml": "\n".join([*blocks, components]).encode()}
    own = write_files(tmp_path / "my-cluster", files | {"settings.env": b"PLATES_RATE_LIMIT=5\n"})
    assert run("config", "check", own / "settings.env").returncode == 0
    cluster = render(own)
    for item in cluster.objects:
        kubernetes_validate.validate(item, VERSIONS[-1], strict=True)
    environment = cluster.environment("gateway")
    assert (environment["PLATES_RATE_LIMIT"], environment["PLATES_MAX_WAITING"]) == ("5", "32")
    assert environment["PLATES_TOKENS_FILE"]
    assert cluster.container("triton")["image"].startswith("registry.example/plates-triton:")


def test_kubernetes_accepts_every_object(cluster):
    for version, item in product(VERSIONS, cluster.objects):
        kubernetes_validate.validate(item, version, strict=True)


def test_selectors_ports_and_labels_match(cluster):
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
        # `kubectl apply` would reset a number of replicas that the autoscaler has set.
        assert "replicas" not in deployment["spec"]
    host, _, port = cluster.environment("gateway")["PLATES_TRITON_URL"].rpartition(":")
    service = cluster.of_kind("Service")[host]["spec"]
    assert int(port) in [entry["port"] for entry in service["ports"]]
    # Only a headless service gives gRPC the addresses of all pods.
    assert service["clusterIP"] == "None"


def test_pods_are_restricted_and_only_the_gateway_and_prometheus_reach_triton(cluster):
    # In this namespace Kubernetes refuses pods with more privileges.
    labels = cluster.of_kind("Namespace")["plates"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    peers = {
        rule["ports"][0]["port"]: [peer["podSelector"]["matchLabels"] for peer in rule["from"]]
        for rule in cluster.of_kind("NetworkPolicy")["triton"]["spec"]["ingress"]
    }
    assert peers == {"grpc": [{NAME: "gateway"}], "metrics": [{NAME: "prometheus"}]}


def test_probes_use_existing_routes_and_are_slower_than_the_supervisors_healing(cluster):
    paths = {"triton": {"/v2/health/live", "/v2/health/ready"}}  # KServe's
    paths["gateway"] = create_app(Settings(triton_url="triton:8001")).openapi()["paths"].keys()
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
            if "httpGet" in probe:
                path, port = probe["httpGet"]["path"], ports[probe["httpGet"]["port"]]
            else:
                program, subcommand, *words = probe["exec"]["command"]
                assert (program, subcommand) == ("plates", "health")
                parser = argparse.ArgumentParser(exit_on_error=False)
                health.configure(parser)
                parts = urlsplit(parser.parse_args(words).url)
                path, port = parts.path, parts.port or 80
            assert port in ports.values()
            assert path in paths[name]
            patience_s = probe["periodSeconds"] * probe["failureThreshold"]
            assert patience_s >= slowest_s.get((name, kind), 0), f"{name}: {kind}"


def test_pods_stop_only_when_clients_no_longer_know_their_addresses(cluster):
    own_s = {"triton": triton.STOP_S + triton.KILL_S, "gateway": child.STOP_S}
    for name in own_s:
        program, wait_s = cluster.container(name)["lifecycle"]["preStop"]["exec"]["command"]
        given_s = cluster.pod(name)["terminationGracePeriodSeconds"]
        assert program == "sleep" and given_s >= int(wait_s) + own_s[name] + 1
        assert name != "triton" or int(wait_s) >= ADDRESSES_KNOWN_S


def test_the_gateways_concurrency_fills_all_tritons_but_not_beyond_their_queues(cluster):
    autoscalers = cluster.of_kind("HorizontalPodAutoscaler")
    gateways, tritons = (autoscalers[name]["spec"] for name in ("gateway", "triton"))
    each = int(cluster.environment("gateway")["PLATES_CONCURRENCY"])
    # int() needs a whole number: the nets compute with whole threads.
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
        # Variables that both set have the same values.
        assert image.environment | environment == environment | image.environment
        assert ("USER", f"{user['runAsUser']}:{user['runAsGroup']}") in image.steps
        assert container["command"] == image.entry_point
