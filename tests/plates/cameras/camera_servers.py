"""Videos, and real servers of them: MJPEG over HTTP, and such as are ill."""

import base64
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import av
import cv2
import numpy as np

SIZE_WH = (320, 240)


def picture(number: int) -> np.ndarray:
    """(H, W, 3) BGR: a square that moves, and the number as shade."""
    image = np.full((SIZE_WH[1], SIZE_WH[0], 3), 40, np.uint8)
    x = 10 + 6 * number % 250
    cv2.rectangle(image, (x, 100), (x + 40, 140), (40, 200, 250), cv2.FILLED)
    return image


def write_video(path: Path, seconds: float = 2, fps: int = 10, **metadata: str) -> Path:
    with av.open(path, "w") as container:
        container.metadata.update(metadata)
        stream = container.add_stream("libx264", rate=fps, options={"g": "10", "bf": "0"})
        stream.width, stream.height = SIZE_WH
        for number in range(round(seconds * fps)):
            frame = av.VideoFrame.from_ndarray(picture(number), "bgr24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


class _Mjpeg(BaseHTTPRequestHandler):
    """Sends pictures until the client leaves: moving ones, the same one, a few, or garbage."""

    muted = False

    def do_GET(self) -> None:
        name = self.path.strip("/")
        wanted = "Basic " + base64.b64encode(b"viewer:right").decode()
        if name == "guarded" and self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="camera"')
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
        self.end_headers()
        try:
            for number in range(10**4):
                if name == "mute" and (number > 3 or _Mjpeg.muted):
                    _Mjpeg.muted = True
                    time.sleep(30)
                shown = picture(0 if name == "frozen" else number)
                data = cv2.imencode(".jpg", shown)[1].tobytes()
                data = bytes(len(data)) if name == "lying" else data
                head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(data)}\r\n\r\n"
                self.wfile.write(head.encode() + data + b"\r\n")
                time.sleep(0.04)
        except OSError:
            pass

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def mjpeg_server() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Mjpeg)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
