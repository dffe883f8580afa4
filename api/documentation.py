"""What several routes say of themselves in the OpenAPI document."""

from typing import Any

from fastapi import FastAPI

from api.answers import ProblemDocument
from api.errors import KINDS
from api.uploads.receiving import FORM, JSON, URLENCODED, UploadForm

Responses = dict[int | str, dict[str, Any]]

# Not as `model`: FastAPI would list it as application/json besides. Batches have it there.
_PROBLEM_SCHEMA = {"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}


def problem_response(description: str) -> dict[str, Any]:
    """How a route documents that it may answer with a problem document."""
    content = {"application/problem+json": {"schema": _PROBLEM_SCHEMA}}
    return {"content": content, "description": description}


# What each status means, in the words of all problems that have it.
MEANINGS = {
    status: "; ".join(kind.title for kind in KINDS.values() if kind.status == status)
    for status in sorted({kind.status for kind in KINDS.values()})
}
PROBLEMS: Responses = {status: problem_response(text) for status, text in MEANINGS.items()}


def file_field(description: str) -> dict[str, Any]:
    """The schema of a form's field that holds a file."""
    return {"type": "string", "format": "binary", "description": description}


def body_of(form: UploadForm, properties: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI request body of a route whose form has these fields.

    Those of the address are not listed again: Swagger UI and generated clients would send
    examples or defaults of them in every form, where they win. Fields that may be left out have
    an empty example, for the same reason.
    """
    schema = {"type": "object", "required": [form.fields[0]], "properties": properties}
    base64 = {"type": "string", "description": "The photo's bytes in base64"}
    text = schema | {"properties": properties | {form.fields[0]: base64}}
    schemas = {FORM: schema, URLENCODED: text, JSON: text, "image/*": file_field("The photo")}
    return {"required": True, "content": {kind: {"schema": schemas[kind]} for kind in form.types}}


def document_tokens(app: FastAPI) -> None:
    """Say in the OpenAPI document which routes ask for a token, where tokens are set.

    Declared as a dependency, as FastAPI has it, it would stand beside every GET route, too.
    """
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        document = describe()
        token = {"type": "http", "scheme": "bearer", "description": "Where the service has tokens"}
        document["components"]["securitySchemes"] = {"token": token}
        for operations in document["paths"].values():
            for operation in operations.values():
                if "403" in operation["responses"]:
                    operation["security"] = [{}, {"token": []}]  # {}: or none
        return document

    app.openapi = openapi  # type: ignore[method-assign]
