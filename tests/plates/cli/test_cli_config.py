"""`plates config`: invalid settings are named before anything is started; the documents' table."""

import os
import re

import pytest
from support import ROOT

from plates.cli.config import SETTINGS, settings_table


def check(text, run, folder):
    """The problems that `plates config check` finds in a file with this text."""
    file = folder / "settings.env"
    file.write_bytes(os.fsencode(text))
    done = run("config", "check", file)
    problems = done.stderr.replace(f"{file}: ", "").splitlines()
    assert done.returncode == bool(problems)
    return problems


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("PLATES_PROT=8080", "PLATES_PROT: there is no such setting (is PLATES_PORT meant?)"),
        ("PLATES_PORT=99999", "PLATES_PORT: Input should be less than or equal to 65535"),
        ("PLATES_RATE_LIMIT=inf", "PLATES_RATE_LIMIT: Input should be a finite number"),
        ("PLATES_PROFILE=tpu", "PLATES_PROFILE: Input should be 'cpu' or 'gpu'"),
        ("PLATES_TOKENS= ,", "PLATES_TOKENS: there is nothing between the commas"),
        ("PLATES_CORS_ORIGINS=gate.example", "PLATES_CORS_ORIGINS: 'gate.example' is no origin"),
        ("PLATES_CORS_ORIGINS=*", "PLATES_CORS_ORIGINS: '*' is no origin"),
        ("PLATES_CORS_ORIGINS=null", "PLATES_CORS_ORIGINS: 'null' is no origin"),
        ("PLATES_CORS_ORIGINS=https://a/b", "PLATES_CORS_ORIGINS: 'https://a/b' is no origin"),
        ("PLATES_TRITON_METRICS_URL=triton", "PLATES_TRITON_METRICS_URL: String should match"),
        (f"PLATES_TRITON_CA_FILE={__file__}", f"PLATES_TRITON_CA_FILE: {__file__} has no CA cert"),
        ("PLATES_PORT", "line 1: expected NAME=value"),
        (os.fsdecode(b"\xff\xfe\x00"), "line 1: expected NAME=value"),  # an image
    ],
)
def test_an_invalid_setting_is_named_with_the_reason(line, reason, run, tmp_path):
    (problem,) = check(f"{line}\n", run, tmp_path)
    assert problem.startswith(reason) and ("meant" in reason) == ("meant" in problem)


def test_all_problems_are_named_at_once_without_secrets(run, tmp_path):
    wrong = "PLATES_PORT=-1\nFOO=2\nPLATES_X=1\nPLATES_HOST=\nPLATES_TOKENS=hidden one\n"
    problems = check(wrong + "PLATES_TRITON_TOKEN=a b\n", run, tmp_path)
    names = sorted(problem.partition(":")[0] for problem in problems)
    assert names == ["PLATES_PORT", "PLATES_TOKENS", "PLATES_TRITON_TOKEN", "PLATES_X"]
    assert "hidden" not in "".join(problems)


GOOD = """\
PLATES_PORT=9000  # a comment
export PLATES_LOG_FORMAT="json"
PLATES_CORS_ORIGINS='https://a.example, https://b.example'
PLATES_TOKENS_FILE=/run/secrets/nobody_has_this_here
PLATES_TRITON_URL=triton:8001
PLATES_MAX_BYTES=${SOMEWHERE_ELSE}
PLATES_RATE_LIMIT=

COMPOSE_PROFILES=monitoring
PLATES_DATA=/of/another/command
plates_concurrency=2
"""


def test_files_that_compose_accepts_are_accepted(run, tmp_path, monkeypatch):
    # The settings of this process must not count as the file's.
    monkeypatch.setenv("PLATES_CONCURRENCY", "nonsense")
    assert not check(GOOD, run, tmp_path)
    assert check("PLATES_NOT=\n", run, tmp_path)


def test_without_a_file_the_environment_and_composes_file_are_checked(run, tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("PLATES_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    assert run("config", "check").stdout == "environment: ok\n"
    (tmp_path / ".env").write_text("PLATES_PORT=1\n")
    assert run("config", "check").stdout == "environment: ok\n.env: ok\n"
    (tmp_path / ".env").write_text("PLATES_PORT=x\n")
    monkeypatch.setenv("PLATES_PROT", "1")
    monkeypatch.setenv("PLATES_TOKENS_FILE", "/none")
    done = run("config", "check")
    assert done.returncode == 1
    assert done.stderr.splitlines()[:2] == [
        "environment: PLATES_PROT: there is no such setting (is PLATES_PORT meant?)",
        "environment: PLATES_TOKENS_FILE: can't read /none: No such file or directory",
    ]
    assert ".env: PLATES_PORT" in done.stderr


def test_the_example_is_valid_with_every_line_uncommented(run, tmp_path):
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert run("config", "check", ROOT / ".env.example").returncode == 0
    settings = re.sub(r"^#(?=PLATES_[A-Z_]+=)", "", example, flags=re.MULTILINE)
    assert settings != example and not check(settings, run, tmp_path)


def test_the_documents_have_every_setting_with_its_default():
    table = settings_table()
    assert {row.split("`")[1] for row in table.splitlines()[2:]} == SETTINGS
    assert "| `PLATES_PORT` | Port to listen on; 0 chooses a free port. | `8080` |" in table
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    assert table in page, "paste what `.venv/bin/plates config table` prints"
    assert str(ROOT) not in table, "a path of this machine"
