"""Real clients of other services, unchanged, pointed at this gateway.

They are not among the locked dependencies: PLATES_CLIENTS names a folder that holds them.

    npm install --prefix "$PLATES_CLIENTS" node-red-contrib-plate-recognizer@1.0.3
    pip install --target "$PLATES_CLIENTS/python" --no-deps \
        codeproject-ai-api==0.1 deepstack-python==0.9 requests pillow

Without it these tests are skipped; what the clients send is tested all the same, with
recorded requests (compat_requests.py).
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_triton import FakeTriton
from support import PHOTO

CLIENTS = Path(os.environ.get("PLATES_CLIENTS") or "/nonexistent")

# What Node-RED offers to a node, as far as this one asks for it.
NODE_RED = """
const [, , file, type, url, photo] = process.argv;
const types = {};
const RED = {
  settings: {},
  nodes: {
    createNode(node) {
      node.handlers = {};
      node.credentials = { apiToken: "secret" };
      node.on = (event, handler) => { node.handlers[event] = handler; };
      node.status = (status) => { node.shown = status; };
      node.error = (error) => { throw new Error(error); };
      node.send = (messages) => setImmediate(() => console.log(JSON.stringify(messages)));
    },
    registerType(name, type) { types[name] = type; },
  },
  util: {
    getMessageProperty: (message, name) => message[name],
    setMessageProperty: (message, name, value) => { message[name] = value; },
    evaluateNodeProperty: (value) => JSON.parse(value),
    cloneMessage: (message) => JSON.parse(JSON.stringify(message)),
  },
};
require(file)(RED);
const node = new types[type]({
  url, inputField: "image", outputField: "payload", makeAndModel: true, regionFilter: true,
  regionList: '["ru", "gb"]', regionListType: "json", statusText: "scores", cameraId: "gate 1",
});
node.handlers.input(photo ? { image: require("fs").readFileSync(photo) } : {});
"""


def package(*parts: str) -> Path:
    path = CLIENTS.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no {'/'.join(parts)} in the folder that PLATES_CLIENTS names")
    return path


def photo_in(folder: Path, photo: bytes = PHOTO) -> Path:
    path = folder / "photo.jpg"
    path.write_bytes(photo)
    return path


def run_node_red(folder: Path, node: str, *arguments: str) -> Any:
    """What a node sends on when it is given a message: address, and photo if it takes one."""
    file = package("node_modules", "node-red-contrib-plate-recognizer", f"{node}.js")
    program = shutil.which("node")
    if program is None:
        pytest.skip("no node here to run a Node-RED node with")
    script = folder / "node_red.js"
    script.write_text(NODE_RED)
    command = [program, str(script), str(file), node, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_node_red(client: httpx.Client, fake: FakeTriton, tmp_path: Path) -> None:
    url, photo = f"{client.base_url}/v1/plate-reader/", str(photo_in(tmp_path))
    success, failure = run_node_red(tmp_path, "plate-recognizer", url, photo)
    assert failure is None
    assert success["payload"]["status"] == 201
    assert success["payload"]["camera_id"] == "gate 1"
    assert [result["plate"] for result in success["payload"]["results"]] == ["b840ck197"]
    assert fake.photos == [PHOTO]


def test_node_red_is_told_of_errors(client: httpx.Client, fake: FakeTriton, tmp_path: Path) -> None:
    url, photo = f"{client.base_url}/v1/plate-reader/", str(photo_in(tmp_path, b"not a photo"))
    success, failure = run_node_red(tmp_path, "plate-recognizer", url, photo)
    assert success is None
    assert failure is not None
    assert not fake.photos


def test_node_red_asks_for_statistics(client: httpx.Client, tmp_path: Path) -> None:
    message = run_node_red(tmp_path, "plate-statistics", f"{client.base_url}/v1/statistics/")
    assert message["payload"]["total_calls"] > message["payload"]["usage"]["calls"] >= 0


PYTHON = """
import json, sys
module, url, photo, more = sys.argv[1:]
core = __import__(module + ".core").core
image = open(photo, "rb").read()
try:
    print(json.dumps(core.process_image(url, image, min_confidence=0.45, timeout=20,
                                        **json.loads(more))))
except Exception as error:
    print(json.dumps({"raised": type(error).__name__, "said": str(error)}))
"""


@pytest.mark.parametrize(
    ("module", "route", "more"),
    [
        ("codeprojectai", "v1/vision/alpr", {}),
        ("codeprojectai", "v1/image/alpr", {}),
        ("deepstack", "v1/vision/alpr", {"api_key": "key"}),
    ],
)
def test_python_clients(
    client: httpx.Client, fake: FakeTriton, tmp_path: Path, module: str, route: str, more: dict
) -> None:
    folder = package("python", module).parent

    def read(photo: bytes) -> dict:
        arguments = [module, f"{client.base_url}/{route}", str(photo_in(tmp_path, photo))]
        command = [sys.executable, "-c", PYTHON, *arguments, json.dumps(more)]
        environment = os.environ | {"PYTHONPATH": str(folder)}
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)

    answer = read(PHOTO)
    assert [prediction["plate"] for prediction in answer["predictions"]] == ["B840CK197"]
    assert fake.photos == [PHOTO]
    assert read(b"not a photo")["raised"] in ("CodeProjectAIException", "DeepstackException")
