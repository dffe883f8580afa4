"""Parts of the OpenAPI document that several routes share."""

from typing import Any

from fastapi import FastAPI

from api.answers import ProblemDocument
from api.errors import KINDS
from api.uploads.receiving import FORM, JSON, URLENCODED, UploadForm

Responses = dict[int | str, dict[str, Any]]


def problem_response(description: str) -> dict[str, Any]:
    """The OpenAPI response of a route that may answer with a problem document."""
    # Not `model`, which FastAPI would also list as application/json. Batches put the schema there.
    schema = {"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}
    content = {"application/problem+json": {"schema": schema}}
    return {"content": content, "description": description}


# The meaning of each status: the titles of all problems that have it.
MEANINGS = {
    status: "; ".join(kind.title for kind in KINDS.values() if kind.status == status)
    for status in sorted({kind.status for kind in KINDS.values()})
}
PROBLEMS: Responses = {status: problem_response(text) for status, text in MEANINGS.items()}


def file_field(description: str) -> dict[str, Any]:
    """The schema of a form's file field."""
    return {"type": "string", "format": "binary", "description": description}


def body_of(form: UploadForm, properties: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI request body of a route whose form has these fields.

    Omit fields that are query parameters, too: Swagger UI and generated clients would send their
    examples or defaults in each form, where they override the query. For the same reason, give
    optional fields an empty example.
    """
    schema = {"type": "object", "required": [form.fields[0]], "properties": properties}
    base64 = {"type": "string", "description": "The photo's bytes in base64"}
    text = schema | {"properties": properties | {form.fields[0]: base64}}
    schemas = {FORM: schema, URLENCODED: text, JSON: text, "image/*": file_field("The photo")}
    return {"required": True, "content": {kind: {"schema": schemas[kind]} for kind in form.types}}


def document_tokens(app: FastAPI) -> None:
    """Mark the routes in the OpenAPI document that require a token, if tokens are set.

    A security dependency of FastAPI would mark all GET routes, too.
    """
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        document = describe()
        token = {"type": "http", "scheme": "bearer", "description": "If the service has tokens"}
        document["components"]["securitySchemes"] = {"token": token}
        for operations in document["paths"].values():
            for operation in operations.values():
                if "403" in operation["responses"]:
                    operation["security"] = [{}, {"token": []}]  # {}: or no token
        return document

    app.openapi = openapi  # type: ignore[method-assign]
