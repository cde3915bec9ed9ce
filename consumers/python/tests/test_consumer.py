"""The cases of `vectors.json`, random orders of messages, the example, and the items of earlier releases.

They need the address of a DynamoDB in AWS_ENDPOINT_URL_DYNAMODB, and the name of a new table in TABLE_NAME;
`.ci/consumers` sets both.
"""

import itertools
import json
import os
import random
import unittest
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import boto3
from botocore.config import Config
from daybook_consumer import Consumer, Rows
from order_mails import handler as order_mails

ROOT = Path(__file__).resolve().parents[3]
TABLE = os.environ["TABLE_NAME"]
VECTORS = json.loads((ROOT / "consumers/vectors.json").read_text())
DYNAMODB = boto3.resource("dynamodb").meta.client


class Context:
    def __init__(self, seconds: float = 30) -> None:
        self._seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self._seconds * 1000)


class Network(BaseHTTPRequestHandler):
    """Loses the response of each second transaction, after it is executed."""

    transactions = itertools.count()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            response = urlopen(Request(os.environ["AWS_ENDPOINT_URL_DYNAMODB"], body, dict(self.headers)))
        except HTTPError as error:
            response = error
        body, is_transaction = response.read(), self.headers["X-Amz-Target"].endswith(".TransactWriteItems")
        if not is_transaction or next(self.transactions) % 2 == 1:
            self.send_response(response.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


class Journal:
    """The consumer of the cases: it lists the applied messages of each aggregate, and counts those of all."""

    def __init__(self, name: str, client: Any = DYNAMODB) -> None:
        self.name, self.is_repaired = name, False
        self.handler = Consumer(name, TABLE, self.handle, max_attempts=3, client=client)

    def handle(self, message: Any, rows: Rows) -> None:
        name, metadata = message["detail-type"], message["detail"]["metadata"]
        if name == "Poison" and not self.is_repaired:
            raise ValueError("it is poison")
        aggregate = f"{metadata['aggregateType']}/{metadata['aggregateId']}"
        rows.put(aggregate, "#LIST", [*(rows.get(aggregate, "#LIST") or []), [metadata["epoch"], metadata["messageSeq"]]])
        rows.put("total", "#TOTAL", (rows.get("total", "#TOTAL") or 0) + 1)
        if name == "LargeRow":
            rows.put(aggregate, "large", "x" * 500_000)
        for row in range(101 if name == "ManyRows" else 0):
            rows.put(aggregate, f"row-{row}", row)

    def deliver(self, messages: list[Any]) -> list[str]:
        """Delivers a batch. Returns the ids of the deliveries that must be repeated."""
        response = self.handler({"Records": records(messages)}, Context())
        return sorted(failure["itemIdentifier"] for failure in response["batchItemFailures"])

    def items(self) -> list[Any]:
        pages = DYNAMODB.get_paginator("scan").paginate(TableName=TABLE, ConsistentRead=True)
        return [item for page in pages for item in page["Items"] if item["pk"].split("#")[1] == self.name]

    def aggregates(self) -> dict[str, Any]:
        """The aggregates in the form of the cases."""
        aggregates: dict[str, Any] = {}
        total, incomplete, waiting = 0, set(), set()
        for item in self.items():
            kind, _, *rest = item["pk"].split("#")
            one = aggregates.setdefault("/".join(rest), complete({}))
            if kind == "INCOMPLETE":
                incomplete.add(item["sk"])
            elif item["sk"] == "#LIST":
                one["applied"] = json.loads(item["row"])
            elif item["sk"] == "#TOTAL":
                total = json.loads(item["row"])
            elif item["sk"] == "#POSITION":
                one |= {"position": [item["epoch"], item["messageSeq"]], "attempts": item["attempts"]}
                waiting |= {("/".join(rest), item["waiting"])} if item["waiting"] else set()
            elif item["sk"].startswith("WAITING#"):
                one["stored"].append([int(number) for number in item["sk"].split("#")[1:]])
        aggregates = {name: one for name, one in aggregates.items() if name not in ("", "total")}
        assert incomplete == {name for name, _ in waiting}
        assert waiting == {(name, len(one["stored"])) for name, one in aggregates.items() if one["stored"]}
        assert total == sum(len(one["applied"]) for one in aggregates.values())
        return aggregates


def complete(aggregate: dict[str, Any]) -> dict[str, Any]:
    """An aggregate of a case, with the members that are left out."""
    return {"applied": [], "attempts": 0, "stored": []} | aggregate


def expanded(messages: list[Any]) -> list[Any]:
    return [
        {**message, "seq": seq} if "seqs" in message else message
        for message in messages
        for seq in (range(message["seqs"][0], message["seqs"][1] + 1) if "seqs" in message else [None])
    ]


def records(messages: list[Any]) -> list[Any]:
    return [
        message["record"]
        if "record" in message
        else {"messageId": str(at), "body": message["body"] if "body" in message else json.dumps(event(message))}
        for at, message in enumerate(expanded(messages))
    ]


def event(message: Any) -> Any:
    aggregate_type, aggregate_id = message.get("of", "note/1").split("/")
    epoch, seq = message.get("epoch", 1), message["seq"]
    message_id = message.get("id", f"{aggregate_type}-{aggregate_id}-{epoch}-{seq}")
    metadata = {
        "messageId": message_id,
        "aggregateType": aggregate_type,
        "aggregateId": aggregate_id,
        "seqNum": seq,
        "messageSeq": seq,
        "epoch": epoch,
        "previousEpoch": message.get("previousEpoch"),
        "eventId": f"event-{message_id}",
        "eventVersion": 1,
        "occurredAt": "2030-01-01T00:00:00.000Z",
    } | message.get("metadata", {})
    metadata = {name: value for name, value in metadata.items() if value is not None}
    data = {"text": "x" * message.get("bytes", 0)}
    return {"detail-type": message.get("type", "Noted"), "detail": {"metadata": metadata, "data": data}}


def setUpModule() -> None:
    DYNAMODB.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    )


class ConsumerTest(unittest.TestCase):
    maxDiff = None

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        with open(os.devnull, "w") as log, redirect_stdout(log):
            return super().run(result)

    def read(self, path: str) -> Any:
        return json.loads((ROOT / path).read_text())

    def test_each_case_ends_with_its_aggregates(self) -> None:
        for number, case in enumerate(VECTORS["cases"]):
            journal = Journal(f"case-{number}")
            with self.subTest(case["name"]):
                for step in case["steps"]:
                    self.take(journal, step)
                aggregates = {name: complete(one) for name, one in case["aggregates"].items()}
                self.assertEqual(journal.aggregates(), aggregates)

    def take(self, journal: Journal, step: Any) -> None:
        journal.is_repaired |= "repaired" in step
        if "deliver" in step:
            self.assertEqual(journal.deliver(step["deliver"]), sorted(step.get("failed", [])))
        if "request" in step:
            response = journal.handler(step["request"], Context())
            self.assertEqual(step.get("response", response), response)
            if "waiting" in step:
                aggregates = response["aggregates"]
                self.assertEqual({one["aggregate"]: one["waiting"] for one in aggregates}, step["waiting"])
                self.assertEqual([one["aggregate"] for one in aggregates if one["attempts"] >= 3], step["stopped"])

    def test_messages_in_random_orders_with_two_instances_at_a_time_give_the_same_rows(self) -> None:
        shuffled = VECTORS["shuffled"]
        for seed in range(shuffled["seeds"]):
            journal, chance = Journal(f"seed-{seed}"), random.Random(seed)
            queue = expanded(shuffled["messages"]) * shuffled["copies"]
            chance.shuffle(queue)

            def consume(chance: random.Random, journal: Journal = journal, queue: list[Any] = queue) -> None:
                while batch := [queue.pop() for _ in range(min(chance.randint(1, 10), len(queue)))]:
                    queue.extend(batch[int(delivery)] for delivery in journal.deliver(batch))

            with self.subTest(seed=seed), ThreadPoolExecutor(2) as pool:
                list(pool.map(consume, [random.Random(chance.random()) for _ in range(2)]))
                aggregates = {name: complete(one) for name, one in shuffled["aggregates"].items()}
                self.assertEqual(journal.aggregates(), aggregates)

    def test_messages_are_applied_once_although_the_responses_of_transactions_are_lost(self) -> None:
        with ThreadingHTTPServer(("127.0.0.1", 0), Network) as network:
            Thread(target=network.serve_forever).start()
            once = Config(retries={"total_max_attempts": 1})
            url = f"http://127.0.0.1:{network.server_port}"
            journal = Journal("lost", boto3.resource("dynamodb", endpoint_url=url, config=once).meta.client)
            batch: list[Any] = [{"seq": 5}, {"seq": 1}, {"seq": 3}, {"of": "note/2", "seq": 1}, {"seq": 2}, {"seq": 1}]
            while batch:
                batch = [batch[int(delivery)] for delivery in journal.deliver(batch)]
            network.shutdown()
        one = complete({"applied": [[1, 1], [1, 2], [1, 3]], "position": [1, 3], "stored": [[1, 5]]})
        self.assertEqual(journal.aggregates(), {"note/1": one, "note/2": complete({"applied": [[1, 1]], "position": [1, 1]})})

    def test_the_example_writes_the_mails_of_shuffled_messages(self) -> None:
        body = json.dumps(self.read("app/order-mails/events/3-missing-message.json"))
        missing = {"Records": [{"messageId": "missing", "body": body}]}
        for batch in (self.read("app/order-mails/events/1-shuffled-batch.json"), missing):
            self.assertEqual(order_mails(batch, Context()), {"batchItemFailures": []})
        items = Journal("order-mails").items()
        rows = [json.loads(item["row"]) for item in items if item["pk"] == "ROW#order-mails#customer/alice"]
        texts = ["Thank you for order 7, your number 1.", "Order 7 is on its way, its tracking number is T-1."]
        self.assertEqual([row.get("text", row) for row in rows], [{"orders": 1}, *texts])

    def test_items_of_each_release_are_continued_and_written_in_the_same_form(self) -> None:
        for release in (ROOT / "tests/golden-rows").iterdir():
            items = json.loads((release / "consumer.json").read_text())
            for item in items:
                boto3.client("dynamodb").put_item(TableName=TABLE, Item=item)
            journal = Journal("journal")
            self.assertEqual(journal.deliver([{"seq": 1}, {"seq": 2}]), [])
            expected = complete({"applied": [[1, 1], [1, 2], [1, 3]], "position": [1, 3]})
            self.assertEqual(journal.aggregates()["note/1"], expected)
            journal.deliver([{"of": "note/2", "seq": 1}, {"of": "note/2", "seq": 3}])
            written = {form(item) for item in journal.items()}
            plain = [{name: next(iter(value.values())) for name, value in item.items()} for item in items]
            self.assertLessEqual({form(item) for item in plain}, written)

    def test_a_payload_that_is_neither_a_batch_nor_a_request_and_an_unknown_request_are_errors(self) -> None:
        requests = [{"request": "other"}, {"request": "skip", "aggregate": "7", "through": 1}]
        for payload in (None, 7, "text", [], {}, {"Records": 7}, *requests):
            with self.subTest(payload=payload), self.assertRaises((TypeError, KeyError, ValueError)):
                Journal("errors").handler(payload, Context())

    def test_a_request_to_skip_has_whole_numbers_or_texts_of_them(self) -> None:
        journal = Journal("skip")

        def skip(**given: Any) -> Any:
            return journal.handler({"request": "skip", "aggregate": "note/1", **given}, Context())

        journal.deliver([{"seq": 3}, {"seq": 4, "epoch": 2}])
        odd: list[Any] = ["", "2nd", 1.5, "1.5", 0, -1, []]
        requests = [{"through": through, "epoch": 2} for through in [None, 2**64 - 1, *odd]]
        for given in [{}, *requests, *({"through": 2, "epoch": epoch} for epoch in [2**32, *odd])]:
            with self.subTest(given), self.assertRaises(ValueError):
                skip(**given)
        expected = complete({"position": [0, 0], "stored": [[1, 3], [2, 4]]})
        self.assertEqual(journal.aggregates()["note/1"], expected)
        for given in ({"through": "2", "epoch": "1"}, {"through": "3", "epoch": "2"}):
            self.assertEqual(skip(**given), {"applied": 1, "failed": 0})
        expected = complete({"applied": [[1, 3], [2, 4]], "position": [2, 4]})
        self.assertEqual(journal.aggregates()["note/1"], expected)

    def test_an_aws_error_of_the_function_counts_as_an_attempt_and_an_error_of_the_table_does_not(self) -> None:
        def from_no_table(params: Any, **_: Any) -> Any:
            return params | {"TableName": "none"} if params["Key"]["pk"].endswith("#unavailable") else params

        def handle(message: Any, rows: Rows) -> None:
            if message["detail"]["metadata"]["aggregateId"] == "1":
                DYNAMODB.get_item(TableName="none", Key={"pk": "any"})
            if message["detail"]["metadata"]["aggregateId"] == "2":
                rows.get("any", "")
            with suppress(Exception):
                rows.get("unavailable", "any")

        client, journal = boto3.resource("dynamodb").meta.client, Journal("aws-errors")
        client.meta.events.register("provide-client-params.dynamodb.GetItem", from_no_table)
        journal.handler = Consumer(journal.name, TABLE, handle, max_attempts=2, client=client)
        batch: list[Any] = [{"of": f"note/{number}", "seq": 1} for number in (1, 2, 3)]
        self.assertEqual([journal.deliver(batch) for _ in range(2)], [["0", "1", "2"], ["2"]])
        stopped = complete({"position": [0, 0], "attempts": 2, "stored": [[1, 1]]})
        self.assertEqual(journal.aggregates(), {"note/1": stopped, "note/2": stopped})

    def test_messages_are_delivered_again_when_the_time_is_up_or_the_table_is_not_available(self) -> None:
        batch, failures = {"Records": records([{"seq": 1}])}, {"batchItemFailures": [{"itemIdentifier": "0"}]}
        self.assertEqual(Journal("late").handler(batch, Context(0.5)), failures)
        unavailable = Consumer("unavailable", "none", lambda message, rows: None, client=DYNAMODB)
        self.assertEqual(unavailable(batch, Context()), failures)


def form(item: dict[str, Any]) -> str:
    """The kind of an item, and its attributes."""
    return ",".join([item["pk"].split("#")[0], *sorted(item)])
