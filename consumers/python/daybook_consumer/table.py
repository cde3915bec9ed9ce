"""The consumer's table. Its items have the format of the crate `daybook-consumer`."""

import json
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from .message import Message, Place, message_of, place_of

Item = dict[str, Any]

# Maximum stored messages that are read at a time.
MAX_READ = 100
# After these reasons, a transaction may succeed once its items are read again.
CONTENDED = {"ConditionalCheckFailed", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}


class InvalidChangesError(Exception):
    """DynamoDB always rejects these changes: an item or a key is too large or invalid, or there are too many."""


class State:
    """The position of an aggregate, and its first stored messages."""

    def __init__(self, position: Item, stored: dict[Place, Message]) -> None:
        self.position, self.stored = position, stored

    @property
    def last(self) -> Place:
        return self.position["epoch"], self.position["messageSeq"]


class Table:
    def __init__(self, client: Any, name: str, consumer: str) -> None:
        """`client` is the one of a boto3 resource, which converts values."""
        self.client, self.name, self.consumer = client, name, consumer
        self.incomplete = f"INCOMPLETE#{consumer}"

    def partition(self, aggregate: str) -> str:
        return f"POSITION#{self.consumer}#{aggregate.replace('/', '#')}"

    def state(self, aggregate: str, delivered: Iterable[Place]) -> State | None:
        """Reads the state of an aggregate. Returns `None` if a transaction is visible only in part."""
        pk, none = self.partition(aggregate), {"revision": 0, "epoch": 0, "messageSeq": 0, "waiting": 0, "attempts": 0}
        position = none | (self.item(pk, "#POSITION") or {})
        items = self.query(pk, "WAITING#", MAX_READ) if position["waiting"] else []
        if len(items) != min(position["waiting"], MAX_READ):
            return None
        if position["waiting"] > MAX_READ:
            # The next message may be the first of a later epoch, and a delivered message may be stored already.
            items += self.query(pk, sort_key((position["epoch"] + 1, 0)), MAX_READ)
            items += filter(None, [self.item(pk, sort_key(place)) for place in delivered])
        events = [{"detail-type": item["messageType"], "detail": json.loads(item["detail"])} for item in items]
        return State(position, {place_of(message): message for message in map(message_of, events)})

    def write(
        self, aggregate: str, state: State, *,
        position: Item | None = None, store: Message | None = None, remove: Sequence[Place] = (), rows: Iterable[Item] = (),
    ) -> bool:
        """Makes all changes or none, also in `state`. Returns `False` if another writer was faster."""
        pk, now, before = self.partition(aggregate), datetime.now(UTC).isoformat(), state.position
        counts = {"revision": before["revision"] + 1, "waiting": before["waiting"] + bool(store) - len(remove)}
        after = before | (position or {}) | counts | {"pk": pk, "sk": "#POSITION", "updatedAt": now}
        after = {name: value for name, value in after.items() if value is not None}
        writes = [self.write_of("Put", after, unchanged("revision", before["revision"])), *rows]
        writes += [self.write_of("Delete", {"pk": pk, "sk": sort_key(place)}) for place in remove]
        entry = {"pk": self.incomplete, "sk": aggregate}
        if bool(after["waiting"]) != bool(before["waiting"]):
            names = dict(zip(("aggregateType", "aggregateId"), aggregate.split("/"), strict=True)) | {"since": now}
            writes.append(self.write_of("Put", entry | names) if after["waiting"] else self.write_of("Delete", entry))
        if store:
            item = {"pk": pk, "sk": sort_key(place_of(store)), "messageType": store["detail-type"], "storedAt": now}
            writes.append(self.write_of("Put", item | {"detail": json.dumps(store["detail"], ensure_ascii=False)}))
        try:
            # The client sends one ClientRequestToken with all its attempts, so a repeated attempt changes nothing more.
            self.client.transact_write_items(TransactItems=writes)
        except ClientError as error:
            codes = {reason.get("Code") for reason in error.response.get("CancellationReasons", [])}
            if codes & CONTENDED:
                return False
            if error.response["Error"]["Code"] == "ValidationException" or "ValidationError" in codes:
                raise InvalidChangesError(str(error)) from error
            raise
        stored = state.stored | ({place_of(store): store} if store else {})
        state.position, state.stored = after, {place: message for place, message in stored.items() if place not in remove}
        return True

    def item(self, pk: str, sk: str) -> Item | None:
        response = self.client.get_item(TableName=self.name, Key={"pk": pk, "sk": sk}, ConsistentRead=True)
        return _plain(response["Item"]) if "Item" in response else None

    def query(self, pk: str, start: str = " ", limit: int = 10_000) -> list[Item]:
        """Returns the first items of a partition, from a sort key on."""
        values, config = {":pk": pk, ":start": start}, {"MaxItems": limit, "PageSize": limit}
        query = {"KeyConditionExpression": "pk = :pk AND sk >= :start", "ExpressionAttributeValues": values, "ConsistentRead": True}
        pages = self.client.get_paginator("query").paginate(TableName=self.name, PaginationConfig=config, **query)
        return [_plain(item) for page in pages for item in page["Items"]]

    def write_of(self, kind: str, item: Item, condition: Item | None = None) -> Item:
        """A write of a transaction: `Put` has an item, the others have its key."""
        return {kind: {"TableName": self.name, "Item" if kind == "Put" else "Key": item, **(condition or {})}}


def sort_key(place: Place) -> str:
    return f"WAITING#{place[0]:010}#{place[1]:020}"


def unchanged(name: str, value: Any) -> Item:
    """The condition that an item was not written since it was read."""
    if not value:
        return {"ConditionExpression": "attribute_not_exists(pk)"}
    return {"ConditionExpression": f"{name} = :before", "ExpressionAttributeValues": {":before": value}}


def _plain(item: Item) -> Item:
    return {name: int(value) if isinstance(value, Decimal) else value for name, value in item.items()}


class Rows:
    """The rows that a message reads and changes."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._rows: dict[tuple[str, str], Item] = {}
        # An error of the table, which is none of the message, unlike an invalid key.
        self.failure: Exception | None = None

    def get(self, partition: str, sort: str) -> Any:
        """Returns a row, or `None`. If it changes before the transaction, the message is handled again."""
        one = self._one(partition, sort)
        if "row" not in one:
            try:
                item = self._table.item(one["pk"], sort) or {}
            except (BotoCoreError, ClientError) as error:
                self.failure = None if "(ValidationException)" in str(error) else error
                raise
            one |= {"row": item.get("row"), "condition": unchanged("writeId", item.get("writeId"))}
        return None if one["row"] is None else json.loads(one["row"])

    def put(self, partition: str, sort: str, row: Any) -> None:
        """Writes a row. Unless `get` has read it, it replaces what is stored under its key."""
        text = json.dumps(row, ensure_ascii=False, allow_nan=False)
        self._one(partition, sort).update(kind="Put", row=text)

    def delete(self, partition: str, sort: str) -> None:
        self._one(partition, sort).update(kind="Delete", row=None)

    def writes(self) -> Iterable[Item]:
        for one in self._rows.values():
            kind, item = one.get("kind", "ConditionCheck"), {"pk": one["pk"], "sk": one["sk"]}
            row = {"row": one["row"], "writeId": uuid.uuid4().hex} if kind == "Put" else {}
            yield self._table.write_of(kind, item | row, one.get("condition"))

    def _one(self, partition: str, sort: str) -> Item:
        item = {"pk": f"ROW#{self._table.consumer}#{partition}", "sk": sort}
        return self._rows.setdefault((partition, sort), item)
