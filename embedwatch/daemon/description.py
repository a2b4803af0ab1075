"""Description: the parts of `/openapi.json` that the routes share."""

from __future__ import annotations

from typing import Any

from embedwatch.daemon.bodies import PARCEL_TYPE, ROW_TYPES

__all__ = ["JSON_OBJECT", "JSON_OBJECTS", "PLAIN", "errors", "parcel_body", "rows_body", "taken"]

Responses = dict[int | str, dict[str, Any]]
MEANINGS = {
    400: "The body or the request is not what it claims to be.",
    401: "Nobody who may come in.",
    403: "Not allowed.",
    404: "There is no such thing.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    415: "The body is of a type or coding that is not taken.",
    422: "A name or number does not fit.",
    429: "There is no room now; try again after `Retry-After` seconds.",
    503: "Not ready, or about to end; try again after `Retry-After` seconds.",
}
ERROR = {
    "type": "object",
    "properties": {"error": {"type": "string", "description": "One sentence."}},
    "required": ["error"],
    "additionalProperties": False,
}
ACCEPTED = {
    "type": "object",
    "properties": {"accepted": {"type": "integer", "minimum": 0, "description": "Rows, all of them stored."}},
    "required": ["accepted"],
    "additionalProperties": False,
}
VECTORS = {
    "type": "array",
    "minItems": 1,
    "items": {"type": "array", "minItems": 1, "items": {"type": ["number", "null"]}},
    "description": "Rows, all of one length; null is a number that is missing.",
}
ROWS = {
    "anyOf": [
        VECTORS,
        {
            "type": "object",
            "properties": {
                "vectors": VECTORS,
                "ids": {"type": ["array", "null"], "items": {"type": "integer", "minimum": 0}, "uniqueItems": True},
                "labels": {"type": ["array", "null"], "items": {"type": ["string", "null"], "maxLength": 256}},
                "segment": {"type": ["string", "null"], "minLength": 1, "maxLength": 256},
            },
            "required": ["vectors"],
            "additionalProperties": False,
        },
    ]
}
BINARY = {"type": "string", "format": "binary"}


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def errors(*codes: int) -> Responses:
    """Return the descriptions of errors."""
    return {code: _json(MEANINGS[code], ERROR) for code in codes}


JSON_OBJECT: Responses = {200: _json("What is known.", {"type": "object"})}
JSON_OBJECTS: Responses = {200: _json("What is known.", {"type": "array", "items": {"type": "object"}})}
PLAIN: Responses = {200: {"description": "Text.", "content": {"text/plain": {"schema": {"type": "string"}}}}}


def taken(refusals: Responses) -> Responses:
    """Return the answers of a route that takes bodies."""
    return {202: _json("Stored; it will be judged.", ACCEPTED), **refusals}


def rows_body() -> dict[str, Any]:
    """Return the bodies in which rows may come."""
    content = {kind: {"schema": ROWS if kind.endswith("json") else BINARY} for kind in ROW_TYPES}
    return {"requestBody": {"required": True, "content": content}}


def parcel_body() -> dict[str, Any]:
    """Return the body of a parcel."""
    return {"requestBody": {"required": True, "content": {PARCEL_TYPE: {"schema": BINARY}}}}
