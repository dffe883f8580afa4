"""What Kubernetes would refuse, or take and then not do, is found here by name.

Each test plants one error in what is rendered.
"""

import copy
import re
from typing import Any

import pytest
from kubernetes_checks import problems, reachable
from kubernetes_objects import VERSIONS, Cluster, cluster_of, schema_problems

_POD = "spec.template.spec"
_CONTAINER = f"{_POD}.containers.0"
_HPA = "HorizontalPodAutoscaler"
REFUSED_BY_SCHEMA = {
    "unknown field": (("Deployment", "triton", f"{_CONTAINER}.resource", {}), "'resource'"),
    "unknown setting": (("Deployment", "gateway", "spec.replica", 2), "'replica'"),
    "text for a number": (
        ("Deployment", "gateway", "spec.replicas", "two"),
        "spec.replicas: 'two'",
    ),
    "number for a text": (
        ("ConfigMap", "settings", "data.PLATES_CONCURRENCY", 10),
        "data.PLATES_CONCURRENCY: 10",
    ),
    "no selector": (("Deployment", "triton", "spec.selector", None), "'selector'"),
    "no such policy": (("NetworkPolicy", "triton", "spec.podSelector", "triton"), "podSelector"),
}


def plant(cluster: Cluster, kind: str, name: str, path: str, value: Any) -> Cluster:
    """A copy with an error in it.

    Args:
        cluster: Stays as it is.
        kind: Of the object.
        name: Of the object, without the hash of a ConfigMap's content.
        path: Keys and indices with dots between.
        value: What to plant; None removes what is there.
    """
    planted = Cluster(copy.deepcopy(cluster.objects))
    named = planted.of_kind(kind).items()
    (place,) = (found for known, found in named if re.sub(r"-\w{10}$", "", known) == name)
    *before, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    for key in before:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return planted


@pytest.mark.parametrize(("error", "told"), REFUSED_BY_SCHEMA.values(), ids=REFUSED_BY_SCHEMA)
@pytest.mark.parametrize("version", (VERSIONS[0], VERSIONS[-1]))
def test_the_schemas_refuse_by_name(error: tuple[Any, ...], told: str, version: str) -> None:
    planted = plant(cluster_of("gpu"), *error)
    alone = Cluster(list(planted.of_kind(error[0]).values()))
    (problem,) = schema_problems(alone, version)
    assert told in problem
    assert f"{error[0]}/{error[1]}" in problem


REFUSED_BY_US = {
    "negative number": ((_HPA, "gateway", "spec.minReplicas", -1), f"{_HPA}/gateway: from -1 to 6"),
    "more than the most": ((_HPA, "triton", "spec.minReplicas", 9), f"{_HPA}/triton: from 9"),
    "scales nothing": (
        (_HPA, "triton", "spec.scaleTargetRef.name", "tritons"),
        "no Deployment/tritons",
    ),
    "number fixed": (("Deployment", "triton", "spec.replicas", 2), "replicas would undo"),
    "other labels": (
        ("Deployment", "triton", "spec.template.metadata.labels", {"app": "triton"}),
        "Deployment/triton: {'matchLabels'",
    ),
    "budget for nobody": (
        ("PodDisruptionBudget", "triton", "spec.selector.matchLabels", {"app": "x"}),
        "PodDisruptionBudget/triton: selects the pods of 0",
    ),
    "service for nobody": (
        ("Service", "gateway", "spec.selector", {"app": "x"}),
        "Service/gateway: does not select",
    ),
    "no such port": (
        ("Service", "triton", "spec.ports.0.targetPort", "grcp"),
        "no container has a port grcp",
    ),
    "one address": (("Service", "triton", "spec.clusterIP", None), "only a headless one"),
    "no such route": (
        ("Deployment", "gateway", f"{_CONTAINER}.readinessProbe.httpGet.path", "/ready"),
        "readinessProbe asks for /ready",
    ),
    "probe of no port": (
        ("Deployment", "triton", f"{_CONTAINER}.livenessProbe.httpGet.port", 8080),
        "livenessProbe asks port 8080",
    ),
    "unknown option": (
        ("Deployment", "gateway", f"{_CONTAINER}.livenessProbe.exec.command.2", "--prot"),
        "livenessProbe can't work",
    ),
    "impatient": (
        ("Deployment", "triton", f"{_CONTAINER}.livenessProbe.failureThreshold", 3),
        "livenessProbe gives up after 30 s",
    ),
    "killed while it stops": (
        ("Deployment", "triton", f"{_POD}.terminationGracePeriodSeconds", 60),
        "60 s are too short",
    ),
    "gone before it is known": (
        ("Deployment", "triton", f"{_CONTAINER}.lifecycle.preStop.exec.command.1", "5"),
        "not 5",
    ),
    "too few at once": (
        ("ConfigMap", "settings", "data.PLATES_CONCURRENCY", "2"),
        "PLATES_CONCURRENCY: 4 photos don't fill",
    ),
    "too many at once": (
        ("ConfigMap", "settings", "data.PLATES_CONCURRENCY", "50"),
        "PLATES_CONCURRENCY: 300 photos overrun",
    ),
    "unknown setting": (
        ("ConfigMap", "settings", "data.PLATES_CONCURENCY", "2"),
        "PLATES_CONCURENCY: there is no such setting (is PLATES_CONCURRENCY meant?)",
    ),
    "senseless setting": (
        ("ConfigMap", "settings", "data.PLATES_RATE_LIMIT", "-1"),
        "PLATES_RATE_LIMIT: Input should be greater than 0",
    ),
    "other version": (
        ("Deployment", "gateway", f"{_CONTAINER}.image", "plates-gateway:latest"),
        "plates-gateway:latest is not",
    ),
    "other user": (
        ("Deployment", "triton", f"{_POD}.securityContext.runAsUser", 1000),
        "runAsUser 1000 is not triton.Dockerfile's",
    ),
    "no quantity": (
        ("Deployment", "triton", f"{_CONTAINER}.resources.limits.memory", "8GB"),
        "'8GB' is no quantity",
    ),
    "too little memory": (
        ("Deployment", "gateway", f"{_CONTAINER}.resources.limits.memory", "1Gi"),
        "it was seen to take",
    ),
    "half a core": (
        ("Deployment", "triton", f"{_CONTAINER}.resources.limits.cpu", "4500m"),
        "4.5 cores",
    ),
    "small shared memory": (
        ("Deployment", "triton", f"{_POD}.volumes.0.emptyDir", {}),
        "shm is no memory",
    ),
}


@pytest.mark.parametrize(("error", "told"), REFUSED_BY_US.values(), ids=REFUSED_BY_US)
def test_what_the_schemas_let_pass_is_refused_by_name(error: tuple[Any, ...], told: str) -> None:
    assert told in "\n".join(problems(plant(cluster_of("gpu"), *error)))


def test_an_open_door_is_noticed() -> None:
    cluster = plant(cluster_of("cpu"), "NetworkPolicy", "triton", "spec.ingress.0.from", None)
    assert ("stranger", "triton", 8001) in reachable(cluster)
    objects = [o for o in cluster_of("cpu").objects if o["kind"] != "NetworkPolicy"]
    assert len(reachable(Cluster(objects))) == 3 * 3 + 3 * 1
