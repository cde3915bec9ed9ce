"""A consumer as a Lambda function behind an SQS queue with `ReportBatchItemFailures`, and the requests of its operator."""

import json
import os
import re
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any

import boto3

from .message import Message, id_of, is_number, message_of
from .receive import Handle, Receiver, log
from .table import Item, State, Table


class Consumer:
    """The handler of a Lambda function.

    `name` is a part of the keys of all rows: never change it. `handle` applies a message to rows, which are written in one
    transaction with the position of its aggregate. It may be called several times for a message, and in several threads for
    messages of different aggregates. If it raises an error `max_attempts` times, the aggregate stops.
    """

    def __init__(self, name: str, table_name: str, handle: Handle, max_attempts: int = 5, client: Any = None) -> None:
        self._table = Table(client or boto3.resource("dynamodb").meta.client, table_name, name)
        self._receiver, self._max_attempts = partial(Receiver, self._table, handle, max_attempts), max_attempts

    def __call__(self, event: Any, context: Any) -> Item:
        cutoff = time.monotonic() + context.get_remaining_time_in_millis() / 1000 - 1  # leaves time for the response
        return self._execute(event, cutoff) if "request" in event else self._receive(event["Records"], cutoff)

    def _receive(self, records: list[Any], cutoff: float) -> Item:
        """Applies or stores the messages of a batch. Returns the partial batch response."""
        deliveries: dict[str, list[tuple[str, Message]]] = defaultdict(list)
        unsettled: set[str] = set()
        for record in records:
            # Without an id, nothing can be repeated but the whole batch, which an empty id does.
            delivery = str(record.get("messageId", "")) if isinstance(record, dict) else ""
            try:
                message = message_of(json.loads(record["body"], parse_constant=int))  # NaN is no JSON: `int` raises an error
                metadata = message["detail"]["metadata"]
                deliveries[f"{metadata['aggregateType']}/{metadata['aggregateId']}"].append((delivery, message))
            except Exception as error:
                log("ERROR", "a message cannot be read", delivery=delivery, error=repr(error))
                unsettled.add(delivery)
        with ThreadPoolExecutor(8) as pool:  # aggregates at a time
            unsettled = unsettled.union(*pool.map(partial(self._receive_of, cutoff), deliveries, deliveries.values()))
        return {"batchItemFailures": [{"itemIdentifier": delivery} for delivery in unsettled]}

    def _receive_of(self, cutoff: float, aggregate: str, deliveries: list[tuple[str, Message]]) -> set[str]:
        receiver = self._receiver(aggregate, [message for _, message in deliveries])
        try:
            receiver.receive(cutoff)
        except Exception as error:
            log("ERROR", "the messages of an aggregate are neither applied nor stored", aggregate=aggregate, error=repr(error))
            return {delivery for delivery, _ in deliveries}
        return {delivery for delivery, message in deliveries if id_of(message) in receiver.retry}

    def _execute(self, request: Item, cutoff: float) -> Item:
        """Executes the request of an operator."""
        kind, aggregate = request["request"], request.get("aggregate", "")
        if kind == "report":
            return self._report()
        if kind not in ("resume", "skip") or not re.fullmatch("[^#/]+/[^#/]+", aggregate):
            raise ValueError("the request is invalid")

        def change(state: State) -> Item:
            epoch, seq = int(str(request.get("epoch", max(state.last[0], 1)))), int(str(request.get("through", 0)))
            if kind == "skip" and not (is_number("epoch", epoch) and is_number("messageSeq", seq)):
                raise ValueError("the request is invalid")
            skipped = {"epoch": epoch, "messageSeq": seq, "messageId": None} if kind == "skip" and (epoch, seq) > state.last else {}
            return skipped | {"attempts": 0, "error": None}

        receiver = self._receiver(aggregate, [])
        receiver.receive(cutoff, change)
        return {"applied": receiver.applied, "failed": receiver.failed}

    def _report(self) -> Item:
        """Lists the aggregates whose messages wait, and records the metrics of the alarms."""
        incomplete = sorted(self._table.query(self._table.incomplete), key=lambda entry: entry["since"])
        aggregates = []
        for aggregate in [entry["sk"] for entry in incomplete[:100]]:
            position, *first = self._table.query(self._table.partition(aggregate), "#POSITION", 2)
            if first:
                members = {name: position.get(name) for name in ("epoch", "messageSeq", "waiting", "attempts", "error")}
                aggregates.append({"aggregate": aggregate, "since": first[0]["storedAt"], **members})
        if aggregates:
            log("WARN", "messages of aggregates wait", aggregates=aggregates)
        gaps = [datetime.fromisoformat(one["since"]).timestamp() for one in aggregates if one["attempts"] < self._max_attempts]
        oldest = time.time() - min([*gaps, time.time()])
        metrics = {"OldestGapSeconds": oldest, "AggregatesStopped": len(aggregates) - len(gaps)}
        form: Item = {"Namespace": os.getenv("METRICS_NAMESPACE"), "Dimensions": [[]], "Metrics": [{"Name": name} for name in metrics]}
        log("INFO", "metrics", _aws={"Timestamp": int(1000 * time.time()), "CloudWatchMetrics": [form]}, **metrics)
        return {"total": len(incomplete), "aggregates": aggregates}
