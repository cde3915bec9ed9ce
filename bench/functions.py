"""The functions that are measured, and the aggregates that their commands are for."""

import json
import os
import pathlib
import subprocess

from lambda_server import Run, environment

BENCH = pathlib.Path(__file__).resolve().parent
WORKSPACE = BENCH.parent
COMMAND_EVENT = json.loads((WORKSPACE / "events/command-handler/command.json").read_text())
PEER_SNAPSHOT_EVERY = 100


def deployed(name, folder=WORKSPACE / "target" / "lambda"):
    """The command line of a function of the repository, or of an empty one."""
    return [str(folder / name / "bootstrap")]


def binary(name):
    """The command line of a program of `bench/`."""
    (path,) = BENCH.glob(f"target/*/release/{name}")
    return [str(path)]


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
    """The command whose event has this number of bytes of data: a text, and 25 bytes around it."""
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


def create_tables(engine):
    """Creates the tables of all stores, without streams: nothing reads them."""

    def table(name, *keys, index=()):
        schema = lambda names: [{"AttributeName": n, "KeyType": kind} for (n, _), kind in zip(names, ("HASH", "RANGE"))]
        indexes = {}
        if index:
            projected = {"KeySchema": schema(index), "Projection": {"ProjectionType": "ALL"}}
            indexes = {"GlobalSecondaryIndexes": [{"IndexName": "gsi1", **projected}]}
        engine.call(
            "CreateTable",
            TableName=name,
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": kind} for n, kind in [*keys, *index]],
            KeySchema=schema(keys),
            BillingMode="PAY_PER_REQUEST",
            **indexes,
        )

    table("daybook-bench", ("pk", "S"), ("sk", "S"), index=[("gsi1pk", "S"), ("gsi1sk", "S")])
    table("adapter-journal", ("aid", "S"), ("seq_nr", "N"))
    table("adapter-snapshot", ("aid", "S"), ("skey", "N"))
    table("adapter-head", ("aid", "S"))
    table("dynamo-es-events", ("AggregateTypeAndId", "S"), ("AggregateIdSequence", "N"))
    table("dynamo-es-snapshots", ("AggregateTypeAndId", "S"))


class Store:
    """A function that decides commands over the engine."""

    is_peer, reads_one_page = False, False

    def __init__(self, engine, command):
        self.engine, self.command = engine, command

    def run(self, events, wrapper=()):
        return Run(self.command, events, self.engine.respond, self.variables, wrapper).wait()


class Daybook(Store):
    name, variables = "Daybook", {}

    def creation(self, aggregate):
        """The command that creates an aggregate."""
        return http_event("/account", {"id": aggregate})

    def use_snapshots(self, use):
        """Daybook reads a snapshot where there is one."""

    def seed(self, aggregate, events, behind):
        """Appends events by commands in batches, with a snapshot this number of events behind unless `behind` is None."""
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
            self.run(batches)
            if behind is not None and appended == events - behind:
                self.take_snapshot(aggregate, appended)

    def take_snapshot(self, aggregate, version):
        key = {"pk": {"S": f"AGGREGATE#account#{aggregate}"}, "sk": {"S": f"EVENT#{version:012}"}}
        row = self.engine.call("GetItem", TableName="daybook-bench", Key=key)["Item"]
        row["snapshotDue"] = {"BOOL": True}
        event = json.dumps({"Records": [stream_record(row, 1)]})
        Run(deployed("snapshotter"), [event], self.engine.respond).wait()
        key["sk"] = {"S": "#SNAPSHOT"}
        taken = self.engine.call("GetItem", TableName="daybook-bench", Key=key)["Item"]
        assert taken["lastSeqNum"] == {"N": str(version)}, taken


class Peer(Store):
    """Another event store. A longer history consists of copies of rows that it wrote itself."""

    is_peer, variables, templates = True, {}, None

    def creation(self, aggregate):
        return command(aggregate)

    def use_snapshots(self, use):
        self.variables = {"SNAPSHOT_EVERY": str(PEER_SNAPSHOT_EVERY)} if use else {}

    def seed(self, aggregate, events, behind):
        if self.templates is None:
            self.templates = self.write_templates()
        for table, template in self.templates.items():
            rows = self.copies(table, template, events, behind)
            rows = [json.loads(json.dumps(row).replace("template", aggregate)) for row in rows]
            for first in range(0, len(rows), 25):
                requests = [{"PutRequest": {"Item": row}} for row in rows[first : first + 25]]
                self.engine.call("BatchWriteItem", RequestItems={table: requests})

    def write_templates(self):
        """A row of each table, of an aggregate with as many events as lead to its first snapshot."""
        before, templates = self.variables, {}
        self.use_snapshots(True)
        self.run([command("template")] * PEER_SNAPSHOT_EVERY)
        self.variables = before
        for table in self.tables:
            rows = self.engine.call("Scan", TableName=table)["Items"]
            templates[table] = [row for row in rows if "template" in json.dumps(row)][-1]
        return templates


class Adapter(Peer):
    name = "event-store-adapter-rs 5.2"
    tables = ["adapter-journal", "adapter-head", "adapter-snapshot"]

    def copies(self, table, row, events, behind):
        if table == "adapter-journal":
            return [row | {"seq_nr": {"N": str(number)}} for number in range(1, events + 1)]
        if table == "adapter-head":
            number = {"seq_nr": {"N": str(events)}}
            return [row | number | {"events": {"L": [{"M": event["M"] | number} for event in row["events"]["L"]]}}]
        return [] if behind is None else [row | {"seq_nr": {"N": str(events - behind)}}]


class DynamoEs(Peer):
    name = "dynamo-es 0.5"
    # Without a snapshot, it reads only the first page of an aggregate's events, which has 1 MB.
    reads_one_page = True
    tables = ["dynamo-es-events", "dynamo-es-snapshots"]

    def copies(self, table, row, events, behind):
        if table == "dynamo-es-events":
            return [row | {"AggregateIdSequence": {"N": str(number)}} for number in range(1, events + 1)]
        taken = {"CurrentSequence": {"N": str(events - (behind or 0))}, "CurrentSnapshot": {"N": "1"}}
        return [] if behind is None else [row | taken]


class Clients:
    """A process of the command handler behind the server `clients`, which has as many clients as the process has workers."""

    def __init__(self, daybook, event, workers, count):
        arguments = [f"127.0.0.1:{daybook.engine.port}", event, str(count)]
        self.server = subprocess.Popen([*binary("clients"), *arguments], stdout=subprocess.PIPE, text=True)
        endpoint = f"127.0.0.1:{self.server.stdout.readline().strip()}"
        variables = {"AWS_LAMBDA_MAX_CONCURRENCY": str(workers)} if workers > 1 else {}
        output = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.function = subprocess.Popen(daybook.command, env=environment(endpoint, endpoint) | variables, **output)

    def wait(self):
        """The figures, after the last response, with the seconds that processors worked for the function."""
        figures = json.loads(self.server.stdout.readline())
        fields = pathlib.Path(f"/proc/{self.function.pid}/stat").read_text().rpartition(")")[2].split()
        figures["processor_seconds"] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        self.function.terminate()
        self.function.wait()
        self.server.wait()
        return figures
