"""Running the `plates` command as people do, and a photo to give it."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "tests" / "samples"
SCENE = SAMPLES / "green_car.jpg"
SCENE_TEXT = "X556XM750"
# -P: whatever the current folder holds, this is our `api`.
PLATES = (sys.executable, "-P", "-m", "plates.cli.main")


def plates(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PLATES, *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | environment,
        timeout=180,
    )
