"""What the API's schemas can't see: do the objects fit each other, the code, and the images?"""

import argparse
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from kubernetes_objects import PROMETHEUS, STRANGER, Cluster, Object, matches, quantity

from api.main import create_app
from api.settings import Settings
from plate_models.cores import photos_at_once
from plates.cli import health
from plates.cli.config import check as check_settings
from plates.serving import gateway, triton

ROOT = Path(__file__).resolve().parents[2]
# At most, of all processes together (PSS, MB), while twelve senders sent photos of 64 megapixels, a
# fourth of them to be redacted, to a Triton with four threads (2026-11-22, on a CPU), and /dev/shm.
MEASURED_MB = {"triton": 2456 + 93, "gateway": 1290}
DOCKERFILES = {"gateway": "gateway", "cpu": "triton-cpu", "gpu": "triton"}
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
Ports = Mapping[str, int]
# Of KServe's protocol, which Triton speaks; a live test asks for both.
TRITON_PATHS = {"/v2/health/live", "/v2/health/ready"}
# DNS servers remember an answer so long, unless told otherwise.
DNS_CACHE_S = 30
_AGE_JITTER = 1.1  # gRPC's own
_QUEUE = re.compile(r"max_queue_size: (\d+)")


def problems(cluster: Cluster) -> Iterator[str]:
    """Everything that does not fit, each with the object's name."""
    for check in (
        _selectors,
        _services,
        _probes,
        _stopping,
        _scaling,
        _at_once,
        _settings,
        _images,
        _resources,
        _hardening,
        _mounts,
    ):
        yield from check(cluster)


def _selectors(cluster: Cluster) -> Iterator[str]:
    for name, deployment in cluster.deployments.items():
        labels = cluster.template(name)["metadata"]["labels"]
        spread = cluster.template(name)["spec"]["topologySpreadConstraints"]
        for selector in (deployment["spec"]["selector"], *(one["labelSelector"] for one in spread)):
            if not matches(labels, selector):
                yield f"Deployment/{name}: {selector} does not select its own pods"
    everybody = [cluster.template(name)["metadata"]["labels"] for name in cluster.deployments]
    for name, budget in cluster.of_kind("PodDisruptionBudget").items():
        found = [labels for labels in everybody if matches(labels, budget["spec"]["selector"])]
        if len(found) != 1:
            yield f"PodDisruptionBudget/{name}: selects the pods of {len(found)} deployments"
    if cluster.of_kind("PodDisruptionBudget").keys() != cluster.deployments.keys():
        yield "PodDisruptionBudget: one is needed for each deployment"


def _services(cluster: Cluster) -> Iterator[str]:
    for name, service in cluster.of_kind("Service").items():
        pod = cluster.pod(name)
        if not matches(pod.labels, {"matchLabels": service["spec"]["selector"]}):
            yield f"Service/{name}: does not select the pods of Deployment/{name}"
        for port in service["spec"]["ports"]:
            if port["targetPort"] not in pod.ports:
                yield f"Service/{name}: no container has a port {port['targetPort']}"
    host, _, port = cluster.environment("gateway")["PLATES_TRITON_URL"].rpartition(":")
    triton = cluster.of_kind("Service").get(host, {"spec": {"ports": []}})["spec"]
    if int(port) not in [entry["port"] for entry in triton["ports"]]:
        yield f"PLATES_TRITON_URL: no service {host} has a port {port}"
    elif triton.get("clusterIP") != "None":
        yield f"Service/{host}: only a headless one tells gRPC all addresses"


def _probes(cluster: Cluster) -> Iterator[str]:
    for name in cluster.deployments:
        pod, container = cluster.pod(name), cluster.container(name)
        paths = gateway_paths() if name == "gateway" else TRITON_PATHS
        for probe in PROBES:
            try:
                path, port = _asked(container[probe], pod.ports, cluster.environment(name))
            except (KeyError, SystemExit, argparse.ArgumentError) as error:
                yield f"Deployment/{name}: {probe} can't work: {error}"
                continue
            if port not in pod.ports.values():
                yield f"Deployment/{name}: {probe} asks port {port}, which is no container's"
            if path not in paths:
                yield f"Deployment/{name}: {probe} asks for {path}, which is no route"
        yield from _patience(name, container)


@cache
def gateway_paths() -> frozenset[str]:
    """What the gateway answers GET on."""
    paths = create_app(Settings(triton_url="triton:8001")).openapi()["paths"]
    return frozenset(path for path, methods in paths.items() if "get" in methods)


def _asked(probe: Object, ports: Ports, environment: dict[str, str]) -> tuple[str, int]:
    """The path and the port that a probe asks for; raises `KeyError` where it can't ask."""
    if "httpGet" in probe:
        port = probe["httpGet"]["port"]
        return probe["httpGet"]["path"], ports[port] if isinstance(port, str) else port
    program, command, *words = probe["exec"]["command"]
    if (program, command) != ("plates", "health"):
        raise KeyError("plates health")
    parser = argparse.ArgumentParser(exit_on_error=False)
    health.configure(parser)
    arguments = parser.parse_args(words)
    if arguments.status and str(arguments.status) != environment["PLATES_STATUS_FILE"]:
        raise KeyError(str(arguments.status))
    parts = urlsplit(arguments.url)
    return parts.path, parts.port or 80


def _patience(name: str, container: Object) -> Iterator[str]:
    """The supervisor heals first; the kubelet only what the supervisor can't."""
    load_s = triton.EmbeddedTriton(ROOT).ready_timeout
    silent_s = gateway.SILENCE_S + gateway.START_S
    needed = {
        ("triton", "startupProbe"): load_s,
        ("triton", "livenessProbe"): load_s,
        ("gateway", "startupProbe"): gateway.START_S,
        ("gateway", "livenessProbe"): silent_s,
    }
    for (part, kind), seconds in needed.items():
        probe = container[kind]
        given = probe["periodSeconds"] * probe["failureThreshold"]
        if part == name and given < seconds:
            yield f"Deployment/{name}: {kind} gives up after {given} s, healing takes {seconds:g} s"
    if (
        container["readinessProbe"]["timeoutSeconds"]
        <= Settings.model_fields["ready_timeout_s"].default
    ):
        yield f"Deployment/{name}: readinessProbe gives up before a photo was tried"


def _stopping(cluster: Cluster) -> Iterator[str]:
    own_s = {"triton": triton.STOP_S + triton.ORPHANS_S, "gateway": gateway.STOP_S}
    known_s = DNS_CACHE_S + _AGE_JITTER * triton.CONNECTION_AGE_S
    for name, deployment in cluster.deployments.items():
        program, seconds = cluster.container(name)["lifecycle"]["preStop"]["exec"]["command"]
        given = cluster.template(name)["spec"]["terminationGracePeriodSeconds"]
        if program != "sleep" or given < int(seconds) + own_s[name] + 1:
            yield f"Deployment/{name}: {given} s are too short for {program} {seconds} and a stop"
        if name == "triton" and int(seconds) < known_s:
            yield f"Deployment/triton: gateways know it after {known_s:g} s, not {seconds}"
        rolling = deployment["spec"]["strategy"]["rollingUpdate"]
        if rolling != {"maxUnavailable": 0, "maxSurge": 1}:
            yield f"Deployment/{name}: a rolling update may not take pods away first"


def _scaling(cluster: Cluster) -> Iterator[str]:
    scalers = cluster.of_kind("HorizontalPodAutoscaler")
    for name, scaler in scalers.items():
        spec = scaler["spec"]
        target = spec["scaleTargetRef"]
        if target["kind"] != "Deployment" or target["name"] not in cluster.deployments:
            yield f"HorizontalPodAutoscaler/{name}: there is no {target['kind']}/{target['name']}"
        least, most = spec["minReplicas"], spec["maxReplicas"]
        if not 0 < least < most:
            yield f"HorizontalPodAutoscaler/{name}: from {least} to {most} pods"
    for name, deployment in cluster.deployments.items():
        if name not in scalers:
            yield f"Deployment/{name}: nothing scales it"
        if "replicas" in deployment["spec"]:
            yield f"Deployment/{name}: replicas would undo what the autoscaler did, at each apply"


def _at_once(cluster: Cluster) -> Iterator[str]:
    """All gateways together fill all Tritons, and don't overrun the queues of the fewest."""
    scalers = cluster.of_kind("HorizontalPodAutoscaler")
    gateways, tritons = (scalers[name]["spec"] for name in ("gateway", "triton"))
    each = int(cluster.environment("gateway")["PLATES_CONCURRENCY"])
    cores = quantity(cluster.container("triton")["resources"]["limits"]["cpu"])
    if cores != int(cores):
        yield f"Deployment/triton: {cores:g} cores: the nets compute with whole threads"
    slots = photos_at_once(int(cores))
    config = (ROOT / "model_repository/plate_recognition/config.pbtxt").read_text(encoding="utf-8")
    (queue,) = map(int, _QUEUE.findall(config))
    least, most = gateways["minReplicas"] * each, gateways["maxReplicas"] * each
    pods = tritons["maxReplicas"]
    if least < pods * slots:
        yield f"PLATES_CONCURRENCY: {least} photos don't fill {pods} pods of {slots}"
    if most > tritons["minReplicas"] * (slots + queue):
        yield f"PLATES_CONCURRENCY: {most} photos overrun the queue of {queue}"


def _settings(cluster: Cluster) -> Iterator[str]:
    for name in cluster.deployments:
        yield from check_settings(cluster.environment(name), elsewhere=True)


def _images(cluster: Cluster) -> Iterator[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name in cluster.deployments:
        image, _, tag = cluster.container(name)["image"].partition(":")
        file = dockerfile_of(cluster, name)
        expected = f"plates-{file}:{project['version']}"
        if (image, tag) != tuple(expected.split(":")):
            yield f"Deployment/{name}: the image {image}:{tag} is not {expected}"
        text = (ROOT / "docker" / f"{file}.Dockerfile").read_text(encoding="utf-8")
        last = text[text.rindex("\nFROM ") :]
        built = dict(re.findall(r"\b(PLATES_\w+)=(\S+)", last))
        environment = cluster.environment(name)
        for variable in built.keys() & environment.keys():
            if built[variable] != environment[variable]:
                yield f"Deployment/{name}: {variable} is {built[variable]} in {file}.Dockerfile"
        user = cluster.template(name)["spec"]["securityContext"]
        if f"USER {user['runAsUser']}:{user['runAsGroup']}\n" not in last:
            yield f"Deployment/{name}: runAsUser {user['runAsUser']} is not {file}.Dockerfile's"


def dockerfile_of(cluster: Cluster, name: str) -> str:
    """Which Dockerfile makes a deployment's image."""
    profile = cluster.environment("triton")["PLATES_PROFILE"]
    return DOCKERFILES["gateway" if name == "gateway" else profile]


def _resources(cluster: Cluster) -> Iterator[str]:
    for name in cluster.deployments:
        resources = cluster.container(name)["resources"]
        for key, value in resources["requests"].items():
            try:
                fits = quantity(value) <= quantity(resources["limits"][key])
            except (KeyError, ValueError) as error:
                yield f"Deployment/{name}: {key}: {error}"
                continue
            if not fits:
                yield f"Deployment/{name}: requests more {key} than its limit"
            if key == "memory" and quantity(resources["limits"][key]) < MEASURED_MB[name] * 1e6:
                yield f"Deployment/{name}: it was seen to take {MEASURED_MB[name]} MB"
    profile = cluster.environment("triton")["PLATES_PROFILE"]
    gpus = cluster.container("triton")["resources"]["limits"].get("nvidia.com/gpu", "0")
    if gpus != {"gpu": "1", "cpu": "0"}[profile]:
        yield f"Deployment/triton: {gpus} GPUs with the profile {profile}"


def _hardening(cluster: Cluster) -> Iterator[str]:
    for name in cluster.deployments:
        spec, container = cluster.template(name)["spec"], cluster.container(name)
        own = container["securityContext"]
        if spec["automountServiceAccountToken"] or spec["enableServiceLinks"]:
            yield f"Deployment/{name}: gets a token or variables of the cluster's"
        if not spec["securityContext"]["runAsNonRoot"] or not own["readOnlyRootFilesystem"]:
            yield f"Deployment/{name}: may be root, or write where it shouldn't"
        if own["capabilities"] != {"drop": ["ALL"]} or own["allowPrivilegeEscalation"]:
            yield f"Deployment/{name}: keeps capabilities"
        if spec["securityContext"]["seccompProfile"] != {"type": "RuntimeDefault"}:
            yield f"Deployment/{name}: may call whatever the kernel has"


def _mounts(cluster: Cluster) -> Iterator[str]:
    for name in cluster.deployments:
        volumes = {volume["name"]: volume for volume in cluster.template(name)["spec"]["volumes"]}
        mounts = {m["mountPath"]: m["name"] for m in cluster.container(name)["volumeMounts"]}
        if set(mounts.values()) != volumes.keys():
            yield f"Deployment/{name}: mounts {sorted(mounts.values())}, has {sorted(volumes)}"
        files = [v for k, v in cluster.environment(name).items() if k.endswith("_FILE")]
        for file in files:
            if str(Path(file).parent) not in mounts:
                yield f"Deployment/{name}: {file} lies in no volume"
        shm = volumes.get(mounts.get("/dev/shm", ""), {}).get("emptyDir", {})  # noqa: S108
        if name == "triton" and shm.get("medium") != "Memory":
            yield f"Deployment/{name}: /dev/shm is no memory"


def reachable(cluster: Cluster) -> set[tuple[str, str, int]]:
    """Who reaches whom, on which port of a container's."""
    pods = {name: cluster.pod(name) for name in cluster.deployments}
    sources = pods | {"stranger": STRANGER, "prometheus": PROMETHEUS}
    return {
        (source, target, port)
        for source in sources
        for target in pods
        for port in pods[target].ports.values()
        if source != target and cluster.allows(sources[source], pods[target], port)
    }
