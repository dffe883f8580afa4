"""Settings that make no sense are refused by name before anything is started."""

import json
import logging
import os
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from plates.cli import main
from plates.cli.config import settings_schema, settings_table
from plates.cli.environment import OF_OTHERS, SETTINGS, warn_of_unknown_settings
from plates.serving.running import running_service

ROOT = Path(__file__).resolve().parents[3]
COMMITTED = ROOT / "docker" / "settings.schema.json"


def check(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Status and stderr of `plates config check` for a file with that text."""
    file = folder / "settings.env"
    file.write_text(text, encoding="utf-8")
    status = main.main(["config", "check", str(file)])
    return status, capsys.readouterr().err.replace(f"{file}: ", "")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("PLATES_PROT=8080", "PLATES_PROT: there is no such setting (is PLATES_PORT meant?)"),
        ("PLATES_QQQQQQQQQQQQ=1", "PLATES_QQQQQQQQQQQQ: there is no such setting\n"),
        ("PLATES_PORT=99999", "PLATES_PORT: Input should be less than or equal to 65535"),
        ("PLATES_PORT=http", "PLATES_PORT: Input should be a valid integer"),
        ("PLATES_CONCURRENCY=0", "PLATES_CONCURRENCY: Input should be greater than 0"),
        ("PLATES_THREADS=-1", "PLATES_THREADS: Input should be greater than 0"),
        ("PLATES_RATE_LIMIT=inf", "PLATES_RATE_LIMIT: Input should be a finite number"),
        ("PLATES_PROFILE=tpu", "PLATES_PROFILE: Input should be 'cpu' or 'gpu'"),
        ("PLATES_TRITON_URL=http://triton:8000", "PLATES_TRITON_URL: http:// is not Triton's"),
        ("PLATES_CORS_ORIGINS=gate.example", "PLATES_CORS_ORIGINS: 'gate.example' is no origin"),
        ("PLATES_TRITON_METRICS_URL=triton", "PLATES_TRITON_METRICS_URL: String should match"),
        ("PLATES_PORT", "line 1: expected NAME=value"),
        ("what is this", "line 1: expected NAME=value"),
    ],
)
def test_what_makes_no_sense_is_named(
    line: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, problems = check(tmp_path, line + "\n", capsys)
    assert status == 1
    assert told in problems
    assert problems.count("\n") == 1


def test_everything_that_is_wrong_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, problems = check(tmp_path, "PLATES_PORT=-1\nFOO=2\nPLATES_X=1\nPLATES_HOST=\n", capsys)
    assert (status, problems.count("\n")) == (1, 2)
    assert "PLATES_PORT" in problems and "PLATES_X" in problems


def test_secrets_are_not_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, problems = check(tmp_path, "PLATES_TOKENS=hidden one\n", capsys)
    assert status == 1
    assert "PLATES_TOKENS" in problems and "hidden" not in problems


GOOD = """\
# What compose reads.
PLATES_PORT=9000  # a comment
export PLATES_LOG_FORMAT="json"
PLATES_CORS_ORIGINS='https://a.example, https://b.example'
PLATES_TOKENS_FILE=/run/secrets/nobody_has_this_here
PLATES_TRITON_URL=triton:8001
PLATES_MAX_BYTES=${SOMEWHERE_ELSE}
PLATES_RATE_LIMIT=

COMPOSE_PROFILES=monitoring
"""


def test_files_that_compose_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # This process's own settings are none of the file's.
    monkeypatch.setenv("PLATES_CONCURRENCY", "nonsense")
    assert check(tmp_path, GOOD, capsys) == (0, "")


def test_compose_files_beside_it_have_variables_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "PLATES_IMAGE_TAG=1\nPLATES_PUBLISHED_PORT=80\n"
    assert check(tmp_path, text, capsys)[1].count("there is no such setting") == 2
    (tmp_path / "docker").mkdir()
    (tmp_path / "compose.yaml").write_text("image: a:${PLATES_IMAGE_TAG:-1} $${PLATES_NOT}\n")
    (tmp_path / "docker" / "compose.gpu.yaml").write_text("ports: [${PLATES_PUBLISHED_PORT}]\n")
    assert check(tmp_path, text, capsys) == (0, "")
    assert check(tmp_path, "PLATES_NOT=1\n", capsys)[0] == 1


def test_what_kustomize_reads_is_taken_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kustomization.yaml").touch()
    assert check(tmp_path, "# comment\n\nPLATES_LOG_FORMAT=json\n", capsys) == (0, "")
    for line in ('PLATES_LOG_FORMAT="json"', "PLATES_LOG_FORMAT=json  # always"):
        status, problems = check(tmp_path, line + "\n", capsys)
        assert status == 1
        assert "PLATES_LOG_FORMAT: Input should be 'json' or 'text'" in problems


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["config", "check", str(tmp_path / "none.env")]) == 1
    said = capsys.readouterr().err
    assert "No such file" in said and ".env.example" in said
    (tmp_path / "image.env").write_bytes(b"\xff\xfe\x00")
    assert main.main(["config", "check", str(tmp_path / "image.env")]) == 1
    assert "not text" in capsys.readouterr().err


def check_here(folder: Path, monkeypatch: pytest.MonkeyPatch, **environment: str) -> int:
    """Status of `plates config check` in a folder, with these settings alone."""
    for name in [name for name in os.environ if name.startswith("PLATES_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    return main.main(["config", "check"])


def test_without_a_file_the_environment_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_here(tmp_path, monkeypatch) == 0
    assert capsys.readouterr().out == "environment: ok\n"
    assert check_here(tmp_path, monkeypatch, PLATES_PROT="1", PLATES_TOKENS_FILE="/none") == 1
    assert capsys.readouterr().err.splitlines() == [
        "environment: PLATES_PROT: there is no such setting (is PLATES_PORT meant?)",
        "environment: PLATES_TOKENS_FILE: can't read /none: No such file or directory",
    ]


def test_without_a_file_that_of_compose_is_checked_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".env").write_text("PLATES_PORT=1\n")
    assert check_here(tmp_path, monkeypatch) == 0
    assert capsys.readouterr().out == "environment: ok\n.env: ok\n"
    (tmp_path / ".env").write_text("PLATES_PORT=x\n")
    assert check_here(tmp_path, monkeypatch) == 1
    assert ".env: PLATES_PORT" in capsys.readouterr().err


def test_the_example_makes_sense_with_every_line_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert main.main(["config", "check", str(ROOT / ".env.example")]) == 0
    settings = re.sub(r"^#(?=PLATES_[A-Z_]+=)", "", example, flags=re.MULTILINE)
    assert settings != example
    assert check(tmp_path, settings, capsys) == (0, "")


def test_the_page_on_operating_has_the_current_table() -> None:
    text = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    assert settings_table() in text, "paste what `.venv/bin/plates config table` prints"


def test_the_table_has_every_setting() -> None:
    rows = settings_table().splitlines()[2:]
    assert {row.split("`")[1] for row in rows} == SETTINGS
    assert "| `PLATES_PORT` | Port to listen on; 0 takes a free one. | `8080` |" in rows


def test_the_committed_schema_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["config", "schema"]) == 0
    printed = capsys.readouterr().out
    hint = "run `.venv/bin/plates config schema > docker/settings.schema.json`"
    assert COMMITTED.read_text(encoding="utf-8") == printed, hint
    Draft202012Validator.check_schema(json.loads(printed))


def test_every_setting_is_described() -> None:
    properties = settings_schema()["properties"]
    assert properties.keys() == SETTINGS
    assert all(entry["description"] and entry["type"] for entry in properties.values())
    # Nothing of where this was made.
    assert str(ROOT) not in json.dumps(properties)


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"PLATES_PORT": 70000}, "70000"),
        ({"PLATES_PORT": "8080"}, "'8080' is not of type 'integer'"),
        ({"PLATES_CONCURRENCY": -1}, "-1"),
        ({"PLATES_PROFILE": "tpu"}, "tpu"),
        ({"PLATES_PROT": 1}, "PLATES_PROT"),
        ({"PLATES_RATE_LIMIT": 0}, "0 is less than or equal"),
    ],
)
def test_the_schema_refuses_what_makes_no_sense(environment: dict, name: str) -> None:
    errors = list(Draft202012Validator(settings_schema()).iter_errors(environment))
    assert len(errors) == 1
    assert name in errors[0].message


def test_the_schema_leaves_others_alone() -> None:
    environment = {"HOME": "/", "PLATES_PORT": 1, "PLATES_TOKENS": "a,b", "PLATES_THREADS": 2}
    Draft202012Validator(settings_schema()).validate(environment)


def test_unknown_settings_of_the_environment_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "plates.settings"):
        warn_of_unknown_settings(
            {"PLATES_PORTS": "secret", "plates_port": "1", "PLATES_DATA": "x", "PATH": "y"}
        )
    assert [record.getMessage() for record in caplog.records] == [
        "PLATES_PORTS: there is no such setting (is PLATES_PORT meant?). It is ignored."
    ]


def test_variables_of_other_commands_are_known() -> None:
    asked = re.compile(r"""environ(?:\.get\(|\[)\s*["'](PLATES_[A-Z_]+)""")
    files = [
        path
        for folder in ("api", "plate_models", "plates")
        for path in (ROOT / folder).rglob("*.py")
    ]
    names = {name for path in files for name in asked.findall(path.read_text(encoding="utf-8"))}
    assert "PLATES_DATA" in names
    assert names <= SETTINGS | OF_OTHERS


def test_a_service_says_which_of_its_variables_nobody_reads(tmp_path: Path) -> None:
    environment = {"PLATES_TRITON_URL": "127.0.0.1:1", "PLATES_CONCURENCY": "2"}
    with running_service(environment, tmp_path / "log"):
        pass
    told = (tmp_path / "log").read_text(encoding="utf-8")
    assert "PLATES_CONCURENCY: there is no such setting (is PLATES_CONCURRENCY meant?)" in told
