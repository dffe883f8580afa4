"""Rendered Kubernetes objects, and what they mean to each other."""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import kubernetes_validate
import yaml

Object = dict[str, Any]

_SUFFIXES = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9} | {
    f"{letter}i": 1024.0**power for power, letter in enumerate("KMGT", 1)
}
_QUANTITY = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(filter(None, _SUFFIXES))})?")
NAMESPACE = "plates"
FOLDER = Path(__file__).resolve().parents[2] / "docker" / "kubernetes"
# The oldest with every field that is used, one between, the newest that there are schemas for.
VERSIONS = ("1.27", "1.32", kubernetes_validate.latest_version())


def quantity(value: str | float) -> float:
    """Cores or bytes of what is written as `500m` or `2Gi`; `ValueError` for anything else."""
    found = _QUANTITY.fullmatch(str(value))
    if found is None:
        raise ValueError(f"{value!r} is no quantity such as 500m or 2Gi")
    return float(found[1]) * _SUFFIXES[found[2] or ""]


def matches(labels: Mapping[str, str], selector: Object) -> bool:
    """Whether a selector, of labels alone, selects something with these labels."""
    assert selector.keys() <= {"matchLabels"}, "the tests know no other selectors"
    return selector.get("matchLabels", {}).items() <= labels.items()


class Pod(NamedTuple):
    """Something that sends or gets packets."""

    namespace: str
    labels: Mapping[str, str]
    ports: Mapping[str, int]


STRANGER = Pod("default", {"app": "browser"}, {})
PROMETHEUS = Pod("monitoring", {"app.kubernetes.io/name": "prometheus"}, {})


class Cluster:
    """Objects by kind and name."""

    def __init__(self, objects: list[Object]) -> None:
        self.objects = objects

    @classmethod
    def read(cls, text: str) -> "Cluster":
        return cls([document for document in yaml.safe_load_all(text) if document])

    def of_kind(self, kind: str) -> dict[str, Object]:
        return {o["metadata"]["name"]: o for o in self.objects if o["kind"] == kind}

    @property
    def deployments(self) -> dict[str, Object]:
        return self.of_kind("Deployment")

    def template(self, name: str) -> Object:
        template: Object = self.deployments[name]["spec"]["template"]
        return template

    def container(self, name: str) -> Object:
        """The only container of a deployment."""
        (container,) = self.template(name)["spec"]["containers"]
        return container

    def environment(self, name: str) -> dict[str, str]:
        """What a deployment's container sees: `env` wins over the settings."""
        container = self.container(name)
        sources = [source["configMapRef"]["name"] for source in container.get("envFrom", [])]
        maps = self.of_kind("ConfigMap")
        found: dict[str, str] = {}
        for source in sources:
            found |= maps[source]["data"]
        return found | {entry["name"]: entry["value"] for entry in container.get("env", [])}

    def pod(self, name: str) -> Pod:
        ports = self.container(name)["ports"]
        return Pod(
            NAMESPACE,
            self.template(name)["metadata"]["labels"],
            {port["name"]: port["containerPort"] for port in ports},
        )

    def allows(self, source: Pod, target: Pod, port: int) -> bool:
        """Whether the network policies let a connection through."""
        return self._lets(source, "Egress", target, target, port) and self._lets(
            target, "Ingress", source, target, port
        )

    def rules(self, pod: Pod, direction: str) -> list[Object] | None:
        """What a pod may do in a direction; None: everything, for no policy is about it."""
        policies = [
            policy["spec"]
            for policy in self.of_kind("NetworkPolicy").values()
            if policy["metadata"]["namespace"] == pod.namespace
            and matches(pod.labels, policy["spec"]["podSelector"])
            and direction in policy["spec"]["policyTypes"]
        ]
        if not policies:
            return None
        return [rule for policy in policies for rule in policy.get(direction.lower(), [])]

    def _lets(self, pod: Pod, direction: str, other: Pod, target: Pod, port: int) -> bool:
        rules = self.rules(pod, direction)
        key = "to" if direction == "Egress" else "from"
        return rules is None or any(
            port in _ports(rule, target)
            and (key not in rule or any(_is_peer(other, peer) for peer in rule[key]))
            for rule in rules
        )


def _ports(rule: Object, target: Pod) -> Iterator[int]:
    for port in rule["ports"]:
        yield target.ports.get(port["port"], 0) if isinstance(port["port"], str) else port["port"]


def _is_peer(pod: Pod, peer: Object) -> bool:
    if "ipBlock" in peer:
        # Of the node itself, where no pod is.
        assert ipaddress.ip_network(peer["ipBlock"]["cidr"]).is_link_local
        return False
    spaces = peer.get(
        "namespaceSelector", {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    )
    return matches({"kubernetes.io/metadata.name": pod.namespace}, spaces) and matches(
        pod.labels, peer.get("podSelector", {})
    )


@cache
def cluster_of(overlay: str) -> Cluster:
    """What is committed as rendered; whoever changes it makes a copy."""
    return Cluster.read((FOLDER / "rendered" / f"{overlay}.yaml").read_text(encoding="utf-8"))


def schema_problems(cluster: Cluster, version: str) -> list[str]:
    """What the API of a version would refuse, with the object's name and the place in it."""
    found = []
    for item in cluster.objects:
        try:
            kubernetes_validate.validate(item, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            place = ".".join(map(str, error.absolute_path))
            name = f"{item['kind']}/{item['metadata']['name']}"
            found.append(f"{name}: {place}: {error.message}")
    return found
