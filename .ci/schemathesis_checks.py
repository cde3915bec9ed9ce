"""Checks in addition to those of Schemathesis, and the aggregates that its requests need."""

import collections
import itertools
import json
import re
import urllib.error
import urllib.parse
import urllib.request
import uuid

import schemathesis
from schemathesis.specs.openapi.checks import use_after_free

NOT_UNDERSTOOD = {
    f"urn:daybook:problem:{kind}"
    for kind in ("malformed-json", "bad-id", "bad-query", "bad-header", "bad-body", "unknown-command", "invalid-command")
}


@schemathesis.check
def request_that_fits_its_schema_is_understood(ctx, response, case):
    """422 means that the rules of an aggregate reject the request, which a schema cannot express, or that fields are wrong.
    The latter must not happen to a request that fits its schema."""
    if case.meta is None or not case.meta.generation.mode.is_positive or response.status_code not in (400, 422):
        return
    # The response to HEAD has no body.
    if case.method.upper() == "HEAD":
        return
    problem, detail = (response.json()[member] for member in ("type", "detail"))
    # In JSON Schema, 1.0 is always an integer. The API accepts only digits, which its problem detail explains.
    if "in plain digits" in detail:
        return
    # The schema of a claim is that of any text: a schema cannot limit the bytes after the colon.
    if "claim must be name:value" in detail:
        return
    # Nor can it compare two parameters.
    if "must begin with prefix" in detail or "which is greater than to" in detail:
        return
    # A schema cannot forbid a header because of a command in the body.
    if "left out of a creation" in detail or "left out if the first command names a claim" in detail:
        return
    assert problem not in NOT_UNDERSTOOD, f"a request that fits its schema gets the problem {problem}"


@schemathesis.check
def deleted_aggregate_returns_410(ctx, response, case):
    """Schemathesis' use_after_free, except for a deleted aggregate's events and earlier versions, which stay readable."""
    if case.path.endswith("/events") or "version" in (case.query or {}):
        return None
    return use_after_free(ctx, response, case)


calls = collections.defaultdict(itertools.count)


@schemathesis.hook
def before_call(ctx, case, kwargs):
    """Creates what every second request of an operation needs, if it fits its schema: its aggregate, with the document's example
    of a creation, and the course and the student of a subscription. Schemathesis makes up most ids, so that almost all of its
    requests would get a 404 or a rejection."""
    if case.meta is None or not case.meta.generation.mode.is_positive or next(calls[case.operation.label]) % 2:
        return
    base = case.operation.base_url.rstrip("/")
    create_involved(base, case.body)
    of_aggregate = re.match(r"(/[^/]+/\{id\})", case.operation.path)
    if of_aggregate is None:
        return
    creation = case.operation.schema.raw_schema["paths"][f"{of_aggregate[1]}/commands"]["post"]["requestBody"]["content"][
        "application/json"
    ]["examples"]["creation"]["value"]
    # An e-mail address belongs to one customer, a course has few seats, and a student joins few courses.
    unique = uuid.uuid4().hex
    body = json.dumps(creation).replace("@", f"+{unique}@").replace('"rust"', f'"{unique}"').replace('"ann"', f'"{unique}"')
    create_involved(base, json.loads(body))
    path = of_aggregate[1].format(id=urllib.parse.quote(str(case.path_parameters["id"]), safe=""))
    create(f"{base}{path}/commands", body)


def create(url, body):
    request = urllib.request.Request(url, body.encode(), {"content-type": "application/json"})
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except urllib.error.HTTPError as error:
        # The aggregate exists already, or was deleted, or only the system may create it.
        problem = error.read().decode()
        assert error.code in (403, 409, 410, 422) and "claim-taken" not in problem, problem


def create_involved(base, body):
    """Creates the courses and the students of subscriptions, as far as their ids can be ids."""
    for data in subscriptions(body):
        for of, creation in (("course", {"seats": 20}), ("student", {})):
            if re.fullmatch("[A-Za-z0-9._~-]{1,128}", data[of]) and data[of] not in (".", ".."):
                create(f"{base}/{of}", json.dumps({"id": data[of], **creation}))


def subscriptions(body):
    """Each object of a body that names a course and a student."""
    if isinstance(body, dict):
        if all(isinstance(body.get(name), str) for name in ("course", "student")):
            yield body
        body = list(body.values())
    if isinstance(body, list):
        for part in body:
            yield from subscriptions(part)
