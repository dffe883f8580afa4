"""The commands, code, answers and links in the README and the other documents work.

Every `make` target and every `plates` command line in a ```bash block must exist, with its
options. Live tests run the `curl` lines and the README's Python blocks, with the address and the
photo replaced by those of the tests.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from support import ROOT, SCENE, SCENE_TEXT, write_files

from api.answers import PlatesAnswer
from plate_models.release import SHA256SUMS, sha256_of
from plates.cli import bench, train
from plates.cli import main as cli

DOCUMENTS = {
    path: path.read_text(encoding="utf-8")
    for pattern in ("*.md", "docs/*.md", "weights/*.md", "docker/**/*.md")
    for path in ROOT.glob(pattern)
}
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADDRESS = re.compile(r"http://(localhost|127\.0\.0\.1):8080")
# The name of a photo that readers replace by their own.
PLACEHOLDER = re.compile(r"\b(my_|your_)?(photo|car|image)\.jpe?g\b")


def blocks(language):
    """Every fenced block in a language, as (document, text)."""
    for path, text in DOCUMENTS.items():
        yield from ((path, body) for kind, body in FENCE.findall(text) if kind == language)


def command_lines():
    """Every command in a ```bash block, without comments; continued lines are joined."""
    for _, block in blocks("bash"):
        for line in block.replace("\\\n", " ").splitlines():
            stripped = line.strip().removeprefix("$ ")
            if stripped and not stripped.startswith("#"):
                yield from map(str.strip, re.split(r"&&|\|\||;| \| ", stripped))


def words_of(line):
    """A command's words, without leading assignments, trailing comments and a final `&`."""
    words = shlex.split(line, comments=True)
    while words and re.match(r"^[A-Z_]+=", words[0]):
        words.pop(0)
    return words[:-1] if words[-1:] == ["&"] else words


LINES = [words for words in map(words_of, command_lines()) if words]
PLATES = [words for words in LINES if Path(words[0]).name == "plates"]
CURL = [line for line in command_lines() if line.startswith("curl ") and "8080" in line]
# Blocks that open the result of `plates bulk` would need such a result.
PYTHON = [
    text
    for path, text in blocks("python")
    if path == ROOT / "README.md" and "read_parquet" not in text
]


def test_the_documents_have_commands_of_every_kind():
    """The tests below check all lines of a kind, and would pass if there were none."""
    commands = [words[:2] for words in LINES]
    assert ["make", "demo"] in commands and ["make", "test"] in commands
    assert PYTHON and PLATES and any("/v1/plates" in line for line in CURL)


def test_make_targets_exist_and_help_lists_them():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.findall(r"^\.PHONY:(.*)", makefile, re.MULTILINE)
    targets = set(" ".join(phony).split()) - {"FORCE"}  # only other targets depend on it
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(re.findall(r"^  make (\S+)", done.stdout, re.MULTILINE)) == targets
    for words in (words for words in LINES if words[0] == "make"):
        given = {word for word in words[1:] if "=" not in word and not word.startswith("-")}
        assert given <= targets, words


@pytest.mark.parametrize("words", PLATES, ids=" ".join)
def test_plates_command_lines_parse(words, monkeypatch):
    arguments = words[1:]
    if arguments[0].startswith("-"):
        with pytest.raises(SystemExit) as done:
            cli.main(arguments)
        assert done.value.code == 0
        return
    ran = []
    module = cli.module_of(arguments[0])
    monkeypatch.setattr(module, "run", lambda parsed: ran.append(parsed) or 0)
    assert cli.main(arguments) == 0
    (parsed,) = ran
    if module is bench:
        bench.parse_options(parsed.tool, parsed.options)
    if module is train:
        train.parse_options(parsed.net, parsed.options)


def test_json_answers_in_the_documents_are_valid_and_of_this_release():
    answers = [text for _, text in blocks("json") if '"plates"' in text]
    assert answers, "no document shows an answer"
    release = "sha256:" + sha256_of(ROOT / "weights" / SHA256SUMS)
    for text in answers:
        assert PlatesAnswer.model_validate(json.loads(text)).model.weights == release


def test_relative_links_lead_to_files():
    for path, text in DOCUMENTS.items():
        for target in re.findall(r"\]\(([^)#\s]+)", FENCE.sub("", text)):
            if not target.startswith(("http://", "https://", "mailto:")):
                assert (path.parent / target).exists(), f"{path}: {target}"


@pytest.fixture
def with_real_names(gateway_url):
    """Replaces the address and the photo in a command by those of the tests."""
    return lambda text: PLACEHOLDER.sub(str(SCENE), ADDRESS.sub(gateway_url, text))


@pytest.mark.live
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_lines_work(with_real_names, tmp_path):
    for line in CURL:
        words = [*words_of(with_real_names(line)), "--silent", "--show-error", "--fail"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, f"{line}: {done.stderr}{done.stdout}"
        if "-o" in words:
            Image.open(tmp_path / words[words.index("-o") + 1]).verify()
        elif "/v1/plates" in line:
            assert SCENE_TEXT in done.stdout


@pytest.mark.live
def test_python_blocks_work(with_real_names, request):
    """Blocks that talk to Triton directly run only if the tests have its HTTP address."""
    for block in PYTHON:
        code = with_real_names(block)
        if "tritonclient" in block:
            triton = request.getfixturevalue("triton")
            if triton.http_url is None:
                continue
            code = re.sub(r"(localhost|127\.0\.0\.1):8000", triton.http_url, code)
            code = re.sub(r"(localhost|127\.0\.0\.1):8001", triton.grpc_url, code)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, f"{block}\n{done.stderr}"
        assert SCENE_TEXT in done.stdout


# The files of a set-up clone that decide whether it is set up again.
SET_UP = [
    *("Makefile", "pyproject.toml", "docker/setup.sh", "docker/requirements/dev.txt"),
    *("docker/requirements/torch.txt", ".venv/.setup", ".venv/bin/plates"),
]


def test_a_clone_that_changed_or_was_moved_is_set_up_again(tmp_path):
    def would_set_up():
        command = ["make", "-q", "-C", tmp_path, ".venv/.setup"]
        status = subprocess.run(command, capture_output=True).returncode
        assert status in (0, 1)
        return bool(status)

    write_files(tmp_path, dict.fromkeys(SET_UP, (ROOT / "Makefile").read_bytes()))
    for moment, name in enumerate(SET_UP):
        os.utime(tmp_path / name, (moment, moment))
    for place in (tmp_path, tmp_path.parent):  # scripts name the place of the set-up
        (tmp_path / SET_UP[-1]).write_text(f"#!{place}/.venv/bin/python\n")
        assert would_set_up() == (place != tmp_path)
    (tmp_path / SET_UP[-1]).unlink()
    for name in SET_UP[:5]:
        assert not would_set_up()
        os.utime(tmp_path / name)
        assert would_set_up(), name
        os.utime(tmp_path / name, (0, 0))
