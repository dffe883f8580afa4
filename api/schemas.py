"""The old name of `api.answers`."""

from api.answers import EXAMPLE as EXAMPLE
from api.answers import Plate as Plate
from api.answers import PlatesAnswer as PlatesAnswer
from api.answers import ProblemDocument as ProblemDocument
