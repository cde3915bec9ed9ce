"""The functions that are measured, and the aggregates that their commands are for."""

import json
import pathlib

from lambda_server import Run

BENCH = pathlib.Path(__file__).resolve().parent
WORKSPACE = BENCH.parent
BINARIES = BENCH / "target" / "release"
COMMAND_EVENT = json.loads((WORKSPACE / "events/command-handler/command.json").read_text())


def http_event(path, body, method="POST"):
    """An event of the HTTP API."""
    event = json.loads(json.dumps(COMMAND_EVENT))
    event["rawPath"] = path
    event["requestContext"]["http"] |= {"method": method, "path": path}
    if body is None:
        event.pop("body")
        event["headers"].pop("content-type")
        event["headers"].pop("content-length")
    else:
        event["body"] = json.dumps(body)
        event["headers"]["content-length"] = str(len(event["body"]))
    return json.dumps(event, separators=(",", ":"))


def record(size):
    """The command with a text of so many bytes, less the rest of its data."""
    return {"command": "RecordTransaction", "data": {"desc": "x" * (size - 25), "amount": 200}}


def command(aggregate, size=100):
    return http_event(f"/account/{aggregate}/commands", record(size))


def stream_record(row, number):
    """The stream record of a new row."""
    return {
        "eventID": f"{number:032}",
        "eventName": "INSERT",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": {
            "ApproximateCreationDateTime": 1795229031,
            "Keys": {"pk": row["pk"], "sk": row["sk"]},
            "NewImage": row,
            "SequenceNumber": f"{13021600000000001596893882 + number}",
            "SizeBytes": 700,
            "StreamViewType": "NEW_IMAGE",
        },
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:123456789012:table/daybook-bench/stream/2026-11-21T00:00:00.000",
    }


def create_table(engine):
    """Creates the table, without a stream: nothing here reads it."""
    keys = [("pk", "HASH"), ("sk", "RANGE")]
    schema = lambda prefix: [{"AttributeName": prefix + name, "KeyType": kind} for name, kind in keys]
    engine.call(
        "CreateTable",
        TableName="daybook-bench",
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in ("pk", "sk", "gsi1pk", "gsi1sk")],
        KeySchema=schema(""),
        GlobalSecondaryIndexes=[
            {"IndexName": "gsi1", "KeySchema": schema("gsi1"), "Projection": {"ProjectionType": "ALL"}}
        ],
        BillingMode="PAY_PER_REQUEST",
    )


class Daybook:
    """The command handler over the engine."""

    def __init__(self, engine):
        self.engine, self.command = engine, [str(BINARIES / "command-handler")]

    def run(self, events, wrapper=()):
        return Run(self.command, events, self.engine.respond, {}, wrapper).wait()

    def seed(self, aggregate, events, behind):
        """Appends events by commands in batches, with a snapshot so many events behind unless `behind` is None."""
        parts = [events] if behind is None else [events - behind, behind]
        appended = 0
        for part in parts:
            batches = []
            while part:
                batch = [record(100)] * min(part, 98)
                part -= len(batch)
                if not appended:
                    batch[0] = {"command": "OpenAccount", "data": {}}
                appended += len(batch)
                batches.append(http_event(f"/account/{aggregate}/commands", batch))
            self.check(self.run(batches))
            if behind is not None and appended == events - behind:
                self.take_snapshot(aggregate, appended)

    def take_snapshot(self, aggregate, version):
        key = {"pk": {"S": f"AGGREGATE#account#{aggregate}"}, "sk": {"S": f"EVENT#{version:012}"}}
        row = self.engine.call("GetItem", TableName="daybook-bench", Key=key)["Item"]
        row["snapshotDue"] = {"BOOL": True}
        event = json.dumps({"Records": [stream_record(row, 1)]})
        Run([str(BINARIES / "snapshotter")], [event], self.engine.respond, {}).wait()
        key["sk"] = {"S": "#SNAPSHOT"}
        taken = self.engine.call("GetItem", TableName="daybook-bench", Key=key)["Item"]
        assert taken["lastSeqNum"] == {"N": str(version)}, taken

    @staticmethod
    def check(run):
        for response in run.server.responses.values():
            assert json.loads(response)["statusCode"] in (200, 201), response
