"""The report on photos whose plates are labelled."""

from dataclasses import dataclass, field
from typing import Any

from plate_models.training.evaluation.grammar import GrammarReport
from plate_models.training.evaluation.groups import Group, count_plates, group
from plate_models.training.evaluation.results import FAILURES, Answer, PlateResult
from plate_models.training.evaluation.tables import count_lines, group_lines
from plate_models.training.figures import Count, events, proportion


@dataclass
class Scoreboard:
    """Every labelled plate's fate, and what was read where no plate is labelled.

    Attributes:
        plates: One result per labelled plate.
        elsewhere: Answers on labelled photos that overlap no label. Plates may have been
            left unlabelled, so these are listed, not counted.
        photos_without: Number of photos without any plate.
        false_texts: Readable answers on them.
        grammar: What the grammar wins and breaks on the legible plates' labelled boxes.
    """

    plates: list[PlateResult] = field(default_factory=list)
    elsewhere: list[Answer] = field(default_factory=list)
    photos_without: int = 0
    false_texts: list[Answer] = field(default_factory=list)
    grammar: GrammarReport = field(default_factory=GrammarReport)

    @property
    def legible(self) -> list[PlateResult]:
        """The plates whose text is known for sure."""
        return [plate for plate in self.plates if plate.legible]

    @property
    def failures(self) -> list[PlateResult]:
        """The plates that went wrong somewhere, in the order of `FAILURES`, then by photo."""
        order = list(FAILURES)
        failed = [plate for plate in self.plates if plate.failure]
        return sorted(failed, key=lambda plate: (order.index(plate.failure), plate.photo))

    @property
    def wrong_texts(self) -> list[tuple[PlateResult, Answer]]:
        """Every readable answer that is known to be wrong, with its plate."""
        return [(plate, answer) for plate in self.plates for answer in plate.wrong_texts]

    @property
    def unverified(self) -> list[Answer]:
        """Readable answers that no label confirms or refutes: a person has to look."""
        illegible = [a for plate in self.plates if not plate.legible for a in plate.answers]
        return [answer for answer in [*illegible, *self.elsewhere] if answer.text]

    @property
    def groups(self) -> list[Group]:
        """The plates by width, light, source and lines."""
        return group(self.plates)

    def counts(self) -> list[Count]:
        """The scoreboard's rows."""
        rows = count_plates(self.plates)
        for crop in self.legible[0].published if self.legible else ():
            right = [plate.published[crop] == plate.text for plate in self.legible]
            rows.append(proportion(f"published recognizer, {crop}", right))
        if self.photos_without:
            false = len(self.false_texts)
            rows.append(events("readable plates in photos without", false, self.photos_without))
        return rows

    def lines(self) -> list[str]:
        """The report for a terminal: counts, groups, and every wrong text by name."""
        return [
            *count_lines(self.counts()),
            "",
            *group_lines(self.groups),
            "",
            f"From the labelled boxes {self.grammar.lines()[0]}",
            *self.grammar.lines()[1:],
            "",
            *self._wrong_lines(),
            "",
            f"Readable texts that no label confirms or refutes: {len(self.unverified)}",
            *(
                f"  {a.photo:<40} {a.text:<10} score {a.score:.3f}, "
                f"{'labelled as illegible' if a.iou else 'not labelled'}"
                for a in self.unverified
            ),
        ]

    def _wrong_lines(self) -> list[str]:
        lines = [f"Wrong readable texts: {len(self.wrong_texts) + len(self.false_texts)}"]
        for plate, answer in self.wrong_texts:
            lines.append(
                f"  {plate.photo:<40} read {answer.text:<10} right {plate.text:<10} "
                f"score {answer.score:.3f}, IoU {answer.iou:.2f}"
            )
        for answer in self.false_texts:
            lines.append(
                f"  {answer.photo:<40} read {answer.text:<10} no plate there   "
                f"score {answer.score:.3f}"
            )
        return lines

    def failure_lines(self) -> list[str]:
        """Every failure: where, why, and what was read instead."""
        lines = [f"Failures: {len(self.failures)}"]
        for plate in self.failures:
            answers = ", ".join(a.text or f"({a.guess or '-'})" for a in plate.answers) or "-"
            lines.append(
                f"  {plate.failure:<13} {plate.photo:<40} {plate.text or '?':<10} end to end "
                f"{answers}, labelled box {plate.read_in_label or '-'}, IoU {plate.iou:.2f}"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        return {
            "counts": [count.to_dict() for count in self.counts()],
            "groups": [
                {
                    "by": group.by,
                    "name": group.name,
                    "counts": [count.to_dict() for count in count_plates(group.plates)],
                }
                for group in self.groups
            ],
            "plates": [plate.to_dict() for plate in self.plates],
            "elsewhere": [answer.to_dict() for answer in self.elsewhere],
            "photos_without": self.photos_without,
            "false_texts": [answer.to_dict() for answer in self.false_texts],
            "grammar": self.grammar.to_dict(),
        }
