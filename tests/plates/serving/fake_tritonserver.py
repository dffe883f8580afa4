"""A program that behaves like tritonserver, without models: for tests of the supervisor.

It serves each version of plate_recognition in its model repository by a process that sleeps. One
whose model.py begins with "raise" does not load; the file `text` beside it says what is read.
"""

import http.server
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

BOX = [10.0, 20.0, 110.0, 44.0]
TEXT = "A123BC77"


class Handler(http.server.BaseHTTPRequestHandler):
    text: ClassVar[str] = TEXT

    def do_GET(self) -> None:
        model = {"name": "plate_recognition", "inference_stats": {"success": {"count": 1}}}
        self._answer(200, {"model_stats": [model, model]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        outputs = {"texts": [self.text], "coordinates": BOX}
        if self.path.endswith("/infer"):
            answer = {"outputs": [{"name": n, "data": data} for n, data in outputs.items()]}
            self._answer(200, answer)
        else:
            self._answer(400, {"error": "there is no such model"})

    def _answer(self, status: int, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def main() -> int:
    words = [word.lstrip("-").rpartition("=") for word in sys.argv[1:]]
    options = {name: value for name, _, value in words}
    prefix = options["backend-config=python,shm-region-prefix-name"]
    for model in Path(options["model-repository"]).glob("plate_recognition/[0-9]*/model.py"):
        if model.read_text().startswith("raise"):
            failed = f"failed to load 'plate_recognition' version {model.parent.name}"
            sys.stdout.write(f"{failed}: no such luck\n")
            return 1
        text = model.with_name("text")
        Handler.text = text.read_text() if text.exists() else TEXT
        Path(f"/dev/shm/{prefix}1").touch()  # noqa: S108 - as Triton does
        subprocess.Popen([sys.executable, model.with_name("sleep.py"), f"{prefix}1"])
    address = ("127.0.0.1", int(options["http-port"]))
    http.server.ThreadingHTTPServer(address, Handler).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
