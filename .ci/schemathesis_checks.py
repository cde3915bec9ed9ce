"""Checks of our own, beside those that Schemathesis has."""

import schemathesis
from schemathesis.specs.openapi.checks import use_after_free

MISUNDERSTOOD = {
    f"urn:daybook:problem:{kind}"
    for kind in ("malformed-json", "bad-id", "bad-query", "bad-header", "bad-body", "unknown-command", "invalid-command")
}


@schemathesis.check
def what_fits_its_schema_is_understood(ctx, response, case):
    """422 says that the rules of an aggregate refuse, which a schema cannot know. It also says that fields are wrong, and
    that no request that fits its schema should ever be told."""
    if case.meta is None or not case.meta.generation.mode.is_positive or response.status_code not in (400, 422):
        return
    # The answer to HEAD has no body to look at.
    if case.method.upper() == "HEAD":
        return
    problem, detail = (response.json()[member] for member in ("type", "detail"))
    # To JSON Schema 1.0 is an integer, and no schema can say otherwise. The API takes digits alone, and says so.
    if "in plain digits" in detail:
        return
    assert problem not in MISUNDERSTOOD, f"a request that fits its schema is told {problem}"


@schemathesis.check
def what_is_deleted_is_gone(ctx, response, case):
    """The tool's own check, but for the history: a deleted aggregate's events and earlier versions can be read."""
    if case.path.endswith("/events") or "version" in (case.query or {}):
        return None
    return use_after_free(ctx, response, case)
