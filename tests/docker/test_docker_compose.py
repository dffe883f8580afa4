"""What `docker compose` makes of our files, in each combination."""

import re
import tomllib
from typing import Any

import pytest
from compose_files import (
    COMBINATIONS,
    PROJECT,
    ROOT,
    digests,
    has_plugin,
    read_copy,
    resolve,
    run_config,
)

from plate_models.cores import photos_at_once
from plate_models.spec import LIMITS
from plates.serving import gateway, triton
from plates.serving.supervisor import TICK_S

COPY = read_copy()
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
OURS = ("triton", "gateway")
WITH_PLUGIN = pytest.mark.skipif(not has_plugin(), reason="no docker compose plugin here")
SERVICES = [
    pytest.param(service, name, id=f"{combination}: {name}")
    for combination in COMBINATIONS
    for name, service in COPY[combination]["services"].items()
]


def seconds(text: str) -> float:
    """Read a duration such as 1m30s."""
    found = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", text)
    assert found, text
    return 60 * int(found[1] or 0) + int(found[2] or 0)


def test_the_copy_was_made_of_these_files() -> None:
    assert COPY["sources"] == digests(), "run `make docker-resolve`"


@WITH_PLUGIN
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_docker_compose_resolves_them_so(combination: str) -> None:
    assert resolve(combination) == COPY[combination], "run `make docker-resolve`"


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_the_services_of_each_combination(combination: str) -> None:
    monitoring = {"prometheus", "grafana"} if "monitoring" in combination else set()
    assert set(COPY[combination]["services"]) == {*OURS, *monitoring}


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_only_the_gpu_variant_reserves_a_gpu(combination: str) -> None:
    triton = COPY[combination]["services"]["triton"]
    devices = triton["deploy"]["resources"]["reservations"].get("devices", [])
    cpu = combination.startswith("cpu")
    assert devices == ([] if cpu else [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}])
    name = "triton-cpu" if cpu else "triton"
    assert triton["build"]["dockerfile"] == f"docker/{name}.Dockerfile"
    assert triton["image"] == f"plates-{name}:{VERSION}"


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_ours_are_built_from_this_clone(combination: str) -> None:
    for name in OURS:
        service = COPY[combination]["services"][name]
        assert service["build"]["context"] == PROJECT
        assert (ROOT / service["build"]["dockerfile"]).is_file()
        assert service["image"].endswith(f":{VERSION}")


@pytest.mark.parametrize(("service", "name"), SERVICES)
def test_every_service_is_locked_up(service: dict[str, Any], name: str) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"] and not service.get("cap_add")
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged") and service.get("network_mode") is None
    uid = int(service["user"].split(":")[0])
    assert uid > 0
    assert service["restart"] == "unless-stopped"
    limits = service["deploy"]["resources"]["limits"]
    assert int(limits["memory"]) >= 512 * 2**20 and limits["pids"] > 0
    assert service["logging"]["options"]["max-size"]
    for mount in service["volumes"]:
        assert mount["type"] == "volume" or mount["read_only"], mount


@pytest.mark.parametrize(("service", "name"), SERVICES)
def test_every_image_is_pinned(service: dict[str, Any], name: str) -> None:
    _, _, tag = service["image"].rpartition(":")
    assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag), service["image"]


@pytest.mark.parametrize(("service", "name"), SERVICES)
def test_every_service_is_asked_how_it_is(service: dict[str, Any], name: str) -> None:
    check = service["healthcheck"]
    assert check["test"][0] == "CMD" and check["retries"] >= 2
    assert seconds(check["timeout"]) < seconds(check["interval"])
    assert seconds(check["start_interval"]) < seconds(check["start_period"])
    if name == "triton":
        assert seconds(check["start_period"]) >= 180  # EmbeddedTriton's ready_timeout


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_the_gateway_waits_for_a_triton_that_is_well(combination: str) -> None:
    services = COPY[combination]["services"]
    assert services["gateway"]["depends_on"]["triton"]["condition"] == "service_healthy"
    if "monitoring" in combination:
        assert services["grafana"]["depends_on"]["prometheus"]["condition"] == "service_healthy"


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_nobody_but_the_gateway_reaches_triton(combination: str) -> None:
    resolved = COPY[combination]
    services = resolved["services"]
    assert "ports" not in services["triton"]
    assert set(services["triton"]["networks"]) == {"inside"}
    assert resolved["networks"]["inside"]["internal"] is True
    inside = {name for name, service in services.items() if "inside" in service["networks"]}
    assert inside == set(OURS)


@pytest.mark.parametrize(("service", "name"), SERVICES)
def test_what_is_published_is_published_on_loopback(service: dict[str, Any], name: str) -> None:
    for port in service.get("ports", []):
        assert port["host_ip"] == "127.0.0.1", port


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_there_is_time_to_stop_in_order(combination: str) -> None:
    services = COPY[combination]["services"]
    triton_s = TICK_S + triton.STOP_S + triton.ORPHANS_S
    assert seconds(services["triton"]["stop_grace_period"]) >= triton_s + 2
    assert seconds(services["gateway"]["stop_grace_period"]) >= TICK_S + gateway.STOP_S + 2


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_shared_memory_holds_the_photos_of_a_large_machine(combination: str) -> None:
    triton = COPY[combination]["services"]["triton"]
    needed = photos_at_once(32) * LIMITS.max_bytes
    assert int(triton["shm_size"]) >= needed
    # It is counted as the container's memory.
    assert int(triton["shm_size"]) < int(triton["deploy"]["resources"]["limits"]["memory"]) / 2


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_no_secret_stands_in_the_environment(combination: str) -> None:
    resolved = COPY[combination]
    for name, service in resolved["services"].items():
        for variable, value in (service.get("environment") or {}).items():
            if re.search("TOKEN|PASSWORD|SECRET|KEY", variable):
                assert variable.endswith("FILE") and value == "", (name, variable)
    # In a fresh clone there are none, and everything starts all the same.
    assert {secret["file"] for secret in resolved["secrets"].values()} == {"/dev/null"}


@WITH_PLUGIN
def test_secrets_are_mounted_where_they_are_given() -> None:
    given = {"PLATES_TOKENS_FILE": "./tokens.txt", "GRAFANA_PASSWORD_FILE": "/etc/password"}
    resolved = resolve("gpu, monitoring", **given)
    files = {name: secret["file"] for name, secret in resolved["secrets"].items()}
    assert files == {"tokens": f"{PROJECT}/tokens.txt", "grafana_password": "/etc/password"}
    gateway, grafana = (resolved["services"][name] for name in ("gateway", "grafana"))
    targets = {secret["target"] for s in (gateway, grafana) for secret in s["secrets"]}
    told = {
        gateway["environment"]["PLATES_TOKENS_FILE"],
        grafana["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"],
    }
    assert targets == told == {"/run/secrets/tokens", "/run/secrets/grafana_password"}


@pytest.mark.parametrize(("service", "name"), SERVICES)
def test_what_is_mounted_is_in_a_fresh_clone(service: dict[str, Any], name: str) -> None:
    for mount in (m for m in service["volumes"] if m["type"] == "bind"):
        assert (ROOT / mount["source"].removeprefix(f"{PROJECT}/")).exists(), mount


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_the_images_own_models_are_served_unless_a_folder_is_given(combination: str) -> None:
    environment = COPY[combination]["services"]["triton"]["environment"]
    assert environment["PLATES_MODEL_REPOSITORY"] == ""


@WITH_PLUGIN
def test_builds_are_told_what_they_can_use() -> None:
    given = {"TRITON_IMAGE": "a:1", "PYTHON_IMAGE": "b:1", "TORCH_INDEX": "c"}
    gpu, cpu = (resolve(name, **given)["services"] for name in ("gpu", "cpu"))
    # An index of CPU builds would give the GPU image a torch without CUDA.
    assert gpu["triton"]["build"]["args"] == {"TRITON_IMAGE": "a:1"}
    assert cpu["triton"]["build"]["args"] == {"PYTHON_IMAGE": "b:1", "TORCH_INDEX": "c"}
    assert cpu["gateway"]["build"]["args"] == {"PYTHON_IMAGE": "b:1"}


@WITH_PLUGIN
def test_a_folder_of_releases_is_mounted_and_served() -> None:
    triton = resolve("gpu", MODEL_REPOSITORY="/srv/models")["services"]["triton"]
    (mount,) = [m for m in triton["volumes"] if m["type"] == "bind"]
    assert mount["source"] == "/srv/models" and mount["read_only"]
    assert mount["target"] == triton["environment"]["PLATES_MODEL_REPOSITORY"]


@WITH_PLUGIN
@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("TRITON_SHM", "lots", "services[triton].shm_size"),
        ("TRITON_MEMORY", "much", "services[triton].deploy.resources.limits.memory"),
        ("TRITON_CPUS", "all", "services[triton].deploy.resources.limits.cpus"),
        ("GATEWAY_MEMORY", "-", "services[gateway].deploy.resources.limits.memory"),
        ("GATEWAY_CPUS", "two", "services[gateway].deploy.resources.limits.cpus"),
        ("PLATES_PORT", "abc", "hostPort: abc"),
        ("PLATES_HOST", "my host", "my host"),
        ("GRAFANA_PORT", "99999", "hostPort: 99999"),
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(
    variable: str, value: str, named: str
) -> None:
    done = run_config(COMBINATIONS["gpu, monitoring"], **{variable: value})
    assert done.returncode != 0
    assert named in done.stderr


def test_the_example_explains_every_variable_and_no_other() -> None:
    text = "".join((ROOT / f"docker/{name}").read_text() for name in ("compose.yaml",))
    text += (ROOT / "docker/compose.cpu.yaml").read_text()
    used = set(re.findall(r"\$\{([A-Z_]+)", text)) - {"PLATES_LOG_FORMAT"}
    for arguments in re.findall(r"args: (?:!override )?\[(.*?)\]", text):
        used |= set(arguments.split(", "))
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert set(re.findall(r"^#([A-Z_]+)=", example, re.MULTILINE)) == used
