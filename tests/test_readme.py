"""What the README and its companions tell people to type works.

Every `make` target and every `plates` command line in a ```bash block must exist, with its
options; the cheap ones are run. Against the live service, the `curl` lines and the Python
blocks are run, too, with the address and the photo replaced by what the tests have.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import httpx
import pytest
from PIL import Image

from api.answers import PlatesAnswer
from plates.cli import main as cli

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = (
    *("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"),
    *(f"docs/{name}.md" for name in ("archive", "operating", "performance", "sizing", "training")),
    *("weights/README.md", "docker/README.md", "docker/kubernetes/README.md"),
)
SAMPLE = ROOT / "tests" / "samples" / "green_car.jpg"
SAMPLE_TEXT = "X556XM750"
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADDRESS = re.compile(r"http://(localhost|127\.0\.0\.1):8080")
# A photo that people are to replace with theirs.
PLACEHOLDER = re.compile(r"\b(my_|your_)?(photo|car|image)\.jpe?g\b")


def blocks(language: str) -> list[tuple[str, str]]:
    """(document, text) of every fenced block in a language."""
    found = []
    for document in DOCUMENTS:
        path = ROOT / document
        if path.exists():
            text = path.read_text(encoding="utf-8")
            found += [(document, body) for kind, body in FENCE.findall(text) if kind == language]
    return found


def command_lines() -> list[str]:
    """Every command of the ```bash blocks, continued lines joined, comments left out."""
    lines = []
    for _, block in blocks("bash"):
        for line in block.replace("\\\n", " ").splitlines():
            stripped = line.strip().removeprefix("$ ")
            if stripped and not stripped.startswith("#"):
                lines += [part.strip() for part in re.split(r"&&|\|\||;| \| ", stripped)]
    return lines


def words_of(line: str) -> list[str]:
    """A command's words without leading assignments and trailing comments."""
    words = shlex.split(line, comments=True)
    while words and re.match(r"^[A-Z_]+=", words[0]):
        words.pop(0)
    return words[:-1] if words[-1:] == ["&"] else words


LINES = [words for words in map(words_of, command_lines()) if words]
MAKE = [words for words in LINES if words[0] == "make"]
PLATES = [words for words in LINES if Path(words[0]).name == "plates"]
CURL = [line for line in command_lines() if line.startswith("curl ") and "8080" in line]
# What looks into an archive's result is run in test_bulk_readme.py.
PYTHON = [
    text
    for document, text in blocks("python")
    if document == "README.md" and "read_parquet" not in text
]
# FORCE is make's own device, nothing to type.
TARGETS = set(
    " ".join(
        re.findall(r"^\.PHONY:(.*)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    ).split()
) - {"FORCE"}


def test_readme_shows_the_two_commands() -> None:
    commands = [words[:2] for words in MAKE]
    assert ["make", "demo"] in commands
    assert ["make", "test"] in commands


def test_readme_shows_every_way_in() -> None:
    """The tests below are about all lines of a kind, and would be content with none."""
    assert any("/v1/plates" in line for line in CURL)
    assert PYTHON
    assert PLATES


@pytest.mark.parametrize("words", MAKE, ids=" ".join)
def test_make_targets_exist(words: list[str]) -> None:
    targets = [word for word in words[1:] if "=" not in word and not word.startswith("-")]
    assert set(targets) <= TARGETS


def test_make_help_lists_every_target() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(re.findall(r"^  make (\S+)", done.stdout, re.MULTILINE)) == TARGETS
    assert {"demo", "test"} < TARGETS


@pytest.mark.parametrize("words", PLATES, ids=" ".join)
def test_plates_command_lines_are_understood(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = words[1:]
    if arguments[0].startswith("-"):
        with pytest.raises(SystemExit) as done:
            cli.main(arguments)
        assert done.value.code == 0
        return
    assert arguments[0] in cli.COMMANDS
    module = cli.module_of(arguments[0])
    ran = []
    monkeypatch.setattr(module, "run", lambda parsed: ran.append(parsed) or 0)
    assert cli.main(arguments) == 0
    assert len(ran) == 1
    if arguments[0] == "train":
        train = import_module("plates.cli.train")
        training, config = train.TRAININGS[ran[0].net]
        train.parse_options(getattr(import_module(training), config), "x", ran[0].options)


@pytest.mark.parametrize("words", [["-h"], ["read", "-h"], ["serve", "-h"]], ids=" ".join)
def test_installed_command_answers(words: list[str]) -> None:
    command = Path(sys.executable).with_name("plates")
    done = subprocess.run([command, *words], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: plates")


def test_json_of_the_readme_is_a_real_answer() -> None:
    answers = [text for _, text in blocks("json") if '"plates"' in text]
    assert answers, "README.md shows no answer"
    for text in answers:
        PlatesAnswer.model_validate(json.loads(text))


def test_links_lead_somewhere() -> None:
    for document in DOCUMENTS:
        path = ROOT / document
        if not path.exists():
            continue
        text = FENCE.sub("", path.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)#\s]+)", text):
            if not target.startswith(("http://", "https://", "mailto:")):
                assert (path.parent / target).exists(), f"{document}: {target}"


def with_real_names(text: str, url: str) -> str:
    return PLACEHOLDER.sub(str(SAMPLE), ADDRESS.sub(url, text))


@pytest.mark.live
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_curl_lines_work(gateway: httpx.Client, tmp_path: Path) -> None:
    url = str(gateway.base_url).rstrip("/")
    for line in CURL:
        words = words_of(with_real_names(line, url))
        done = subprocess.run(
            [*words, "--silent", "--show-error", "--fail"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}{done.stdout}"
        if "-o" in words:
            Image.open(tmp_path / words[words.index("-o") + 1]).verify()
        elif "/v1/plates" in line:
            assert SAMPLE_TEXT in done.stdout


@pytest.mark.live
def test_python_blocks_work(gateway: httpx.Client, request: pytest.FixtureRequest) -> None:
    """Blocks that speak to Triton itself are run only where the tests have its HTTP port."""
    url = str(gateway.base_url).rstrip("/")
    for block in PYTHON:
        code = with_real_names(block, url)
        if "tritonclient" in block:
            triton = request.getfixturevalue("triton")
            if triton.http_url is None:
                continue
            code = re.sub(r"(localhost|127\.0\.0\.1):8000", triton.http_url, code)
            code = re.sub(r"(localhost|127\.0\.0\.1):8001", triton.grpc_url, code)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, f"{block}\n{done.stderr}"
        assert SAMPLE_TEXT in done.stdout
