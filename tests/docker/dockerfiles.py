"""Our Dockerfiles, read instruction by instruction, and carried out without an engine."""

import io
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ("triton", "triton-cpu", "gateway")
# The folder of every image that the clone lies in.
HOME = "/plates"


@dataclass
class Stage:
    """One FROM and what follows it.

    Attributes:
        image: What it starts from, with the defaults of ARG filled in.
        name: After AS; "" without.
        steps: Instruction and value, in order; ARG and ENV are in `environment` instead.
        environment: ENV, and those ARG that have a default.
        arguments: Names of ARG.
    """

    image: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)

    def values(self, instruction: str) -> list[str]:
        """The values of all instructions of a kind."""
        return [value for name, value in self.steps if name == instruction]

    @property
    def copies(self) -> list[tuple[list[str], str]]:
        """Sources in the clone and their target; not those from other stages."""
        words = [value.split() for value in self.values("COPY") if not value.startswith("--from")]
        return [(parts[:-1], parts[-1]) for parts in words]

    @property
    def entry_point(self) -> list[str]:
        """The words of ENTRYPOINT.

        Raises:
            ValueError: It is in shell form, under which signals don't reach the process.
        """
        (value,) = self.values("ENTRYPOINT")
        words: list[str] = json.loads(value)
        return words


def read_stages(image: str) -> list[Stage]:
    """Read docker/<image>.Dockerfile."""
    return parse((ROOT / f"docker/{image}.Dockerfile").read_text(encoding="utf-8"))


def parse(text: str) -> list[Stage]:
    """Read a Dockerfile."""
    stages: list[Stage] = []
    defaults: dict[str, str] = {}
    for instruction, value in _instructions(text):
        if instruction == "FROM":
            parts = value.split()
            image = re.sub(r"\$\{(\w+)\}", lambda found: defaults[found[1]], parts[0])
            stages.append(Stage(image, parts[2] if len(parts) > 2 else ""))
        elif not stages:
            assert instruction == "ARG", instruction
            name, _, defaults[name] = value.partition("=")
        elif instruction == "ARG":
            name, given, default = value.partition("=")
            stages[-1].arguments.append(name)
            stages[-1].environment |= {name: default} if given else {}
        elif instruction == "ENV":
            stages[-1].environment |= dict(pair.split("=", 1) for pair in value.split())
        else:
            stages[-1].steps.append((instruction, value))
    return stages


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    for line in DockerfileParser(fileobj=io.BytesIO(text.encode())).structure:
        if line["instruction"] != "COMMENT":
            yield line["instruction"], line["value"]


def is_ignored(path: str, patterns: str | None = None) -> bool:
    """Whether .dockerignore keeps a path out of the build's context.

    Args:
        path: Relative to the clone.
        patterns: Of the file; None reads ours.
    """
    lines = (patterns or (ROOT / ".dockerignore").read_text(encoding="utf-8")).splitlines()
    parts = path.split("/")
    family = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    ignored = False
    for line in filter(None, (line.strip() for line in lines)):
        if line.startswith("#"):
            continue
        pattern = _expression(line.removeprefix("!"))
        if any(re.fullmatch(pattern, member) for member in family):
            ignored = not line.startswith("!")
    return ignored


def _expression(pattern: str) -> str:
    """A pattern of .dockerignore as a regular expression."""
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[.*?\])", pattern.strip("/"))
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(
        meaning.get(piece, piece if piece.startswith("[") else re.escape(piece)) for piece in pieces
    )


def copy_sources(stage: Stage, staging: Path, upto: int | None = None) -> None:
    """Do what a stage's COPY instructions do, into a folder that stands for HOME.

    Args:
        stage: Its sources lie in the clone.
        staging: The folder.
        upto: How many of its instructions; None: all.
    """
    part = Stage(stage.image, stage.name, stage.steps[:upto])
    for sources, target in part.copies:
        for source in sources:
            for file in _files(source):
                place = _place(source, file, target)
                (staging / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, staging / place)


def _files(source: str) -> list[str]:
    path = ROOT / source
    found = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    files = [str(file.relative_to(ROOT)) for file in found]
    return [file for file in files if not is_ignored(file)]


def _place(source: str, file: str, target: str) -> Path:
    if file == source:
        return Path(target, Path(file).name) if target.endswith("/") else Path(target)
    return Path(target, Path(file).relative_to(source))
