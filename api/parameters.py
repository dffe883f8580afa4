"""The parameters that select plates of a photo, the same for all routes."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from api.errors import InvalidParameter
from plate_models.formats import available_countries, checked_countries

Box = tuple[float, float, float, float]
Pairs = Sequence[tuple[str, str]]
F = TypeVar("F", bound=BaseModel)
_LISTED_AS = {"roi": ' as "x0,y0,x1,y1"', "countries": ' as "sk,cz"'}
# Instead of pydantic's words, which name our classes.
_DETAILS = {"extra_forbidden": "There is no such parameter", "model_type": "expected an object"}
_PIXELS = TypeAdapter(Annotated[float, Field(allow_inf_nan=False)])


def _checked_list(value: str) -> str:
    return value and ",".join(checked_countries(value.split(",")))


class PlateFilter(BaseModel):
    """Selects the plates of a photo; the answer leaves out the others.

    The values are query parameters or fields of the form; a field overrides a query parameter.
    """

    model_config = ConfigDict(extra="forbid")

    roi: Annotated[str, AfterValidator(lambda value: _parse_roi(value) and value)] | None = Field(
        None,
        description="x0,y0,x1,y1 in pixels of the upright photo: only plates whose box has "
        "its centre inside, edges included",
        examples=["0,400,1920,1080"],
    )
    min_width: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="Only plates whose box has at least this width in pixels",
        examples=[60],
    )
    countries: Annotated[str, AfterValidator(_checked_list)] | None = Field(
        None,
        description="Countries whose plate formats are recognized, the most likely first; "
        "other formats are `unknown`. Weights for A-Z can read "
        f"`{','.join(available_countries())}`",
        examples=["sk,cz"],
    )

    def wants(self, box: Box) -> bool:
        """Whether a plate with this box (x0 y0 x1 y1, upright photo) belongs in the answer."""
        x0, y0, x1, y1 = box
        if self.min_width is not None and x1 - x0 < self.min_width:
            return False
        if self.roi is None:
            return True
        left, top, right, bottom = _parse_roi(self.roi)
        return left <= (x0 + x1) / 2 <= right and top <= (y0 + y1) / 2 <= bottom


class PlatesParameters(PlateFilter):
    """The parameters of a request with one photo."""

    redact: bool = Field(
        False,
        description="Answer with the photo itself, without metadata and with all plates blurred, "
        "even those that `roi` and `min_width` leave out",
    )


class LenientFilter(PlateFilter):
    """The same parameters for clients of other services; ignores unknown parameters."""

    model_config = ConfigDict(extra="ignore")


def _parse_roi(value: str) -> Box:
    try:
        x0, y0, x1, y1 = (_PIXELS.validate_python(part) for part in value.split(","))
    except ValueError:
        raise ValueError(f"expected x0,y0,x1,y1 in pixels, got {value[:80]!r}") from None
    if not (x0 < x1 and y0 < y1):
        raise ValueError(f"expected x0 < x1 and y0 < y1, got {value[:80]!r}")
    return x0, y0, x1, y1


def merged(parameters: F, query: Pairs, fields: Pairs) -> F:
    """Override the parameters, parsed from `query`, with the fields of a form.

    Raises `InvalidParameter` for an invalid or unknown field, or a name given twice in one place.
    """
    for given in (query, fields):
        for name, count in Counter(name for name, _ in given).items():
            if count > 1 and name in type(parameters).model_fields:
                message = f"given {count} times, not once{_LISTED_AS.get(name, '')}"
                raise invalid_parameters([{"loc": (name,), "type": "repeated", "msg": message}])
    if not fields:
        return parameters
    try:
        both = parameters.model_dump(exclude_unset=True) | dict(fields)
        return type(parameters).model_validate(both)
    except ValidationError as error:
        raise invalid_parameters(error.errors()) from error


def invalid_parameters(errors: Sequence[Any]) -> InvalidParameter:
    """Convert pydantic's list of errors (`loc`, `msg`, `type`) to one problem."""
    found = []
    for error in errors:
        detail = _DETAILS.get(error["type"], error["msg"]).removeprefix("Value error, ")
        found.append({"parameter": str(error["loc"][-1]), "detail": detail})
    text = "; ".join(f"{item['parameter']}: {item['detail']}" for item in found)
    return InvalidParameter(f"{text}.", errors=found)
