"""Runs the consumer behind the rule of a local stack, whose address is in API_URL; `.ci/consumers` starts it."""

import io
import json
import os
import time
import unittest
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from threading import Thread
from typing import Any
from unittest.mock import patch
from urllib.request import Request, urlopen

import carrier

STACK, IDS = os.environ["API_URL"], (f"parcel-{number}" for number in count(1))


def call(method: str, path: str, body: Any = None, **headers: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = Request(STACK + path, data, {"Content-Type": "application/json", **headers}, method=method)
    with urlopen(request) as response:
        return json.load(response) if response.length else None


def request(shipment: str) -> str:
    """Requests a shipment. Returns the id of the message."""
    response = call("POST", "/shipment", {"id": shipment}, **{"X-Correlation-Id": f"order-{shipment}"})
    id: str = response["messages"][0]["messageId"]
    return id


def events(shipment: str) -> list[Any]:
    """The events after the first one."""
    found: list[Any] = call("GET", f"/shipment/{shipment}/events?after=1")["events"]
    return found


class Carrier(unittest.TestCase):
    def setUp(self) -> None:
        self.addCleanup(call, "PUT", "/_dev/faults", {})
        self.before = self.rule()["function"]

    def rule(self) -> Any:
        [rule] = call("GET", "/_dev/rules")
        return rule

    def wait_for_invocations(self, number: int) -> Any:
        """Waits until the function was invoked, and the queue is empty. Returns the rule."""
        for _ in range(300):
            rule = self.rule()
            added = rule["function"]["invocations"] - self.before["invocations"]
            if added >= number and rule["visible"] + rule["hidden"] == 0:
                return rule
            time.sleep(0.1)
        self.fail(f"{rule}")

    def test_requested_shipment_is_collected_because_of_the_message(self) -> None:
        shipment = next(IDS)
        message = request(shipment)
        self.wait_for_invocations(1)
        [event] = events(shipment)
        self.assertEqual((event["eventType"], event["data"]), ("ShipmentCollected", {"trackingNumber": f"T-{shipment}"}))
        meta = {"causationId": message, "correlationId": f"order-{shipment}"}
        self.assertLessEqual(meta.items(), event["meta"].items())

    def test_message_that_is_delivered_again_has_one_effect(self) -> None:
        shipment = next(IDS)
        twice = {"containing": shipment, "duplicate": True}
        lost = {"containing": shipment, "acceptThenDrop": True, "times": 1}
        call("PUT", "/_dev/faults", {"deliveries": [twice], "invocations": [lost]})
        message = request(shipment)
        rule = self.wait_for_invocations(2)
        self.assertEqual([event["eventType"] for event in events(shipment)], ["ShipmentCollected"])
        self.assertEqual(rule["deadLetters"], 0)
        # The stored response. Without the key, a repetition would be rejected.
        repeated = {"detail": {"metadata": {"aggregateId": shipment, "messageId": message}}}
        self.assertRegex(carrier.answer(repeated), "^200: ")

    def test_rejection_is_an_answer(self) -> None:
        shipment = next(IDS)
        call("PUT", "/_dev/faults", {"deliveries": [{"containing": shipment, "delayMs": 1000}]})
        request(shipment)
        call("POST", f"/shipment/{shipment}/commands", {"command": "AbandonShipment"})
        function = self.wait_for_invocations(1)["function"]
        self.assertEqual([event["eventType"] for event in events(shipment)], ["ShipmentAbandoned"])
        # A failed message would have been delivered again.
        self.assertEqual(function, self.before | {"invocations": self.before["invocations"] + 1})

    def test_message_is_delivered_again_unless_the_api_has_answered(self) -> None:
        metadata = {"aggregateId": "7", "messageId": "m-1"}
        record = {"messageId": "sqs-1", "body": json.dumps({"detail": {"metadata": metadata}})}
        for status, problem, is_settled in [
            (200, {}, True),
            (422, {"type": "urn:daybook:problem:refused"}, True),
            (410, {"type": "urn:daybook:problem:deleted"}, True),
            (422, {"type": "urn:daybook:problem:invalid-command"}, False),
            (503, {"type": "urn:daybook:problem:unavailable"}, False),
            (403, {"message": "Forbidden"}, False),
        ]:
            silent = redirect_stdout(io.StringIO())
            with self.subTest(f"{status} {problem}"), silent, responding(status, problem) as requests:
                response = carrier.handler({"Records": [record]}, None)
                failures = [] if is_settled else [{"itemIdentifier": "sqs-1"}]
                self.assertEqual(response, {"batchItemFailures": failures})
                self.assertRegex(requests[0]["Authorization"], "^AWS4-HMAC-SHA256 .*/us-east-1/execute-api/.*idempotency-key")


@contextmanager
def responding(status: int, body: Any) -> Iterator[list[Any]]:
    """Runs an API with one response, and yields the headers of its requests."""
    requests: list[Any] = []

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(self.headers)
            self.rfile.read(int(self.headers["Content-Length"]))
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Api) as server:
        Thread(target=server.serve_forever).start()
        try:
            with patch.dict(os.environ, API_URL=f"http://127.0.0.1:{server.server_port}"):
                yield requests
        finally:
            server.shutdown()


if __name__ == "__main__":
    unittest.main()
