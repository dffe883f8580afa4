"""The output of `docker compose config` for each combination of the files."""

import re

import pytest
from compose_files import COMBINATIONS, PROJECT, ROOT, digests, has_plugin, read_copy, resolve
from containers import VERSION, seconds

from plate_models.cores import photos_at_once
from plate_models.spec import LIMITS
from plates.serving import child, triton
from plates.serving.supervisor import TICK_S

COPY = read_copy()


@pytest.fixture(params=COMBINATIONS)
def combination(request):
    return str(request.param)


@pytest.fixture
def services(combination):
    return COPY[combination]["services"]


def test_the_copy_was_made_of_these_files(combination):
    assert COPY["sources"] == digests(), "run `make docker-resolve`"
    if has_plugin():
        assert resolve(combination) == COPY[combination], "run `make docker-resolve`"


def test_ours_are_built_from_this_clone(combination, services):
    assert ("grafana" in services) == ("monitoring" in combination)
    cpu = combination.startswith("cpu")
    files = {"triton": "triton-cpu" if cpu else "triton", "gateway": "gateway"}
    for name, file in files.items():
        build = services[name]["build"]
        assert (build["context"], build["dockerfile"]) == (PROJECT, f"docker/{file}.Dockerfile")
        cameras = "-cameras" * (name == "gateway" and "cameras" in combination)
        assert services[name]["image"] == f"plates-{file}{cameras}:{VERSION}"
        assert (build.get("args", {}).get("ROLE") == "cameras") == bool(cameras)
    devices = services["triton"]["deploy"]["resources"]["reservations"].get("devices", [])
    first = {"driver": "nvidia", "device_ids": ["0"], "capabilities": ["gpu"]}
    assert devices == ([] if cpu else [first])
    # The image's own models, if no folder is given.
    assert services["triton"]["environment"]["PLATES_MODEL_REPOSITORY"] == ""


def test_every_service_is_locked_up(services):
    for service in services.values():
        assert re.fullmatch(r"v?\d+\.\d+\.\d+", service["image"].rpartition(":")[2])
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"] and not service.get("cap_add")
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert int(service["user"].split(":")[0]) > 0
        assert all(port["host_ip"] == "127.0.0.1" for port in service.get("ports", []))
        for mount in service["volumes"]:
            assert mount["type"] == "volume" or mount["read_only"], mount
            source = mount["source"].removeprefix(f"{PROJECT}/")
            if mount["type"] == "bind" and source != "cameras":  # these exist in a fresh clone
                assert (ROOT / source).exists(), mount


def test_there_is_time_to_start_and_to_stop(services):
    assert seconds(services["triton"]["healthcheck"]["start_period"]) >= triton.READY_S
    assert services["gateway"]["depends_on"]["triton"]["condition"] == "service_healthy"
    for name, own_s in (("triton", triton.STOP_S + triton.KILL_S), ("gateway", child.STOP_S)):
        assert seconds(services[name]["stop_grace_period"]) >= TICK_S + own_s + 2


def test_only_the_gateway_reaches_triton(combination, services):
    assert "ports" not in services["triton"]
    assert set(services["triton"]["networks"]) == {"inside"}
    assert COPY[combination]["networks"]["inside"]["internal"] is True
    inside = {name for name, service in services.items() if "inside" in service["networks"]}
    assert inside == {"triton", "gateway"}
    shared = int(services["triton"]["shm_size"])
    assert shared >= photos_at_once(32) * LIMITS.max_bytes, "a large machine's photos"


def test_no_secret_stands_in_the_environment(combination, services):
    for name, service in services.items():
        for variable, value in (service.get("environment") or {}).items():
            if re.search("TOKEN|PASSWORD|SECRET|KEY", variable):
                assert variable.endswith("FILE") and value == "", (name, variable)
    # A fresh clone has none, and everything starts nevertheless.
    assert {one["file"] for one in COPY[combination]["secrets"].values()} == {"/dev/null"}


@pytest.mark.skipif(not has_plugin(), reason="no docker compose plugin here")
def test_secrets_builds_and_models_are_what_the_operator_gave():
    given = {"PLATES_TOKENS_FILE": "./tokens.txt", "GRAFANA_PASSWORD_FILE": "/etc/password"}
    given |= {"TRITON_IMAGE": "a:1", "PYTHON_IMAGE": "b:1", "TORCH_INDEX": "c"}
    given["MODEL_REPOSITORY"] = "/srv/models"
    resolved = resolve("gpu, monitoring", **given)
    files = {name: secret["file"] for name, secret in resolved["secrets"].items()}
    assert files == {"tokens": f"{PROJECT}/tokens.txt", "grafana_password": "/etc/password"}
    gpu, cpu = resolved["services"], resolve("cpu", **given)["services"]
    variables = {"gateway": "PLATES_TOKENS_FILE", "grafana": "GF_SECURITY_ADMIN_PASSWORD__FILE"}
    for name, variable in variables.items():
        assert gpu[name]["environment"][variable] == gpu[name]["secrets"][0]["target"]
    # From an index of CPU builds the GPU image would get a torch without CUDA.
    assert gpu["triton"]["build"]["args"] == {"TRITON_IMAGE": "a:1"}
    assert cpu["triton"]["build"]["args"] == {"PYTHON_IMAGE": "b:1", "TORCH_INDEX": "c"}
    assert cpu["gateway"]["build"]["args"] == {"PYTHON_IMAGE": "b:1"}
    (mount,) = [mount for mount in gpu["triton"]["volumes"] if mount["type"] == "bind"]
    assert mount["source"] == "/srv/models" and mount["read_only"]
    assert mount["target"] == gpu["triton"]["environment"]["PLATES_MODEL_REPOSITORY"]


def test_the_example_explains_every_variable_and_no_other():
    names = ("docker/compose.yaml", "docker/compose.cpu.yaml", "compose.cameras.yaml")
    text = "".join((ROOT / name).read_text() for name in names)
    used = set(re.findall(r"\$\{([A-Z_]+)", text)) - {"PLATES_LOG_FORMAT"}
    for arguments in re.findall(r"args: (?:!override )?\[(.*?)\]", text):
        used |= set(arguments.split(", "))
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert set(re.findall(r"^#([A-Z_]+)=", example, re.MULTILINE)) == used
