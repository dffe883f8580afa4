"""Which photos a route takes, and which of a form's parts they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from api.errors import InvalidParameter, MissingImage
from api.uploads.multipart import Part

FORM = "multipart/form-data"
URLENCODED = "application/x-www-form-urlencoded"
JSON = "application/json"

# Fields that a message lists.
_NAMED = 8


@dataclass(frozen=True)
class UploadForm:
    """What a route takes as its body.

    Attributes:
        fields: Names that a photo's field may have; messages name the first.
        max_photos: Files in one form.
        any_field: Whether a file counts as the photo whatever its field is called.
        text: Whether a photo may be base64 text, in a form of either kind or in JSON.
        refused: Fields that are refused, each with what to say.
    """

    fields: tuple[str, ...]
    max_photos: int = 1
    any_field: bool = False
    text: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def types(self) -> tuple[str, ...]:
        """The Content-Types that the route takes."""
        others = (URLENCODED, JSON) if self.text else ()
        return (FORM, *others) if self.max_photos > 1 else (FORM, *others, "image/*")


@dataclass(frozen=True)
class UploadedPhoto:
    """One photo as it came.

    Attributes:
        content: The file's bytes, nothing checked; none if it is too long.
        filename: What the client calls it, without folders; None if it has no name.
        is_too_long: Whether it had more bytes than allowed.
    """

    content: bytes
    filename: str | None = None
    is_too_long: bool = False


@dataclass(frozen=True)
class Upload:
    """The photos and the form fields that came with them.

    Attributes:
        photos: At least one, in their order.
        fields: Names and values of the other fields; empty for a raw body.
    """

    photos: tuple[UploadedPhoto, ...]
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def photo(self) -> bytes:
        """The bytes of the only photo."""
        return self.photos[0].content

    @property
    def last(self) -> dict[str, str]:
        """Each field's value; of a repeated one the last."""
        return dict(self.fields)


def photos_among(
    files: list[Part], fields: Mapping[str, bytes], form: UploadForm
) -> list[UploadedPhoto]:
    """Find the files of a form that are photos; any other file is a mistake worth naming.

    Raises:
        MissingImage: No file is a photo.
        InvalidParameter: There are more files than the route takes.
    """
    field = form.fields[0]
    photos = [part for part in files if form.any_field or part.name in form.fields]
    if not photos and field in fields:
        raise MissingImage(
            f"The field '{field}' came as text. Send it as a file: curl -F {field}=@photo.jpg"
        )
    others = sorted({part.name for part in files} - set(form.fields))[:_NAMED]
    if not photos:
        came = ", ".join(f"'{name}'" for name in sorted({*others, *fields})[:_NAMED])
        raise MissingImage(
            f"The form has no file in the field '{field}'; its fields are: {came or 'none'}."
        )
    if form.max_photos == 1 and len(files) > 1:
        also = f", also in the fields {', '.join(others)}" if others else ""
        raise InvalidParameter(f"One photo per request: the form has {len(files)} files{also}.")
    if len(photos) > form.max_photos:
        raise InvalidParameter(
            f"The form has {len(photos)} photos; at most {form.max_photos} are read at once."
        )
    if len(photos) < len(files):
        raise InvalidParameter(f"There are also files in the fields {', '.join(others)}.")
    return [
        UploadedPhoto(part.release(), part.filename or None, part.is_too_long) for part in photos
    ]
