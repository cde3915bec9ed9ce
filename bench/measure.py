"""Measures the parts of docs/performance.md, and writes the pages.

Each part measures all functions in turns, so that other load on the machine affects them alike. Instructions, calls, bytes and
units hardly depend on the load; times do.

The figures of each part are in measured.json, with the commit that they were measured on. A run of some parts replaces only
theirs.
"""

import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

import counting
import report
from functions import (
    BENCH,
    WORKSPACE,
    Adapter,
    Clients,
    Daybook,
    DynamoEs,
    binary,
    command,
    create_tables,
    deployed,
    http_event,
    stream_record,
)
from lambda_server import REFUSED, Engine, NotAccepted, Run, canned

SIZES = [100, 1_000, 10_000]
HISTORIES = [0, 10, 100, 1_000, 10_000]
SNAPSHOT_BEHIND = 50
STARTS = 300
NODE_RECORDS = 2_000  # which Node.js handles before the counted ones


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def figures(calls, events):
    """Calls, read units, write units and kilobytes for each event."""
    return {
        "calls": len(calls) / events,
        "read_units": sum(call.read_units for call in calls) / events,
        "write_units": sum(call.write_units for call in calls) / events,
        "kilobytes": sum(call.sent + call.received for call in calls) / events / 1000,
    }


def commands(run, event, warm):
    """Measures the first command of a process and, on average, the later ones, `warm` of them.

    `run(events, wrapper)` runs a process to its end. `event(process, number)` is the number-th command of a process: each process
    has an aggregate of its own, all with the same history.
    """
    events = lambda process, count: [event(process, number) for number in range(count)]
    start = counting.count(lambda wrapper: run([], wrapper))
    first = counting.count(lambda wrapper: run(events(0, 1), wrapper))
    every = counting.count(lambda wrapper: run(events(1, 1 + warm), wrapper))
    native = run(events(2, 1 + warm))
    later = [call for number in range(warm) for call in native.calls_of(1 + number)]
    return {
        "cold": figures(native.calls_of(0), 1) | {"instructions": first - start},
        "warm": figures(later, warm) | {"instructions": (every - first) / warm},
        "peak_kilobytes": native.peak_kilobytes,
    }


def commands_after(store, label, events, behind, size):
    """Measures commands of this size on aggregates with this history. For a history that a store cannot read, returns its error."""
    # A store without a cache reads the whole history for each command, so fewer of the longest ones are enough.
    warm = 2 if store.is_peer and events == 10_000 and behind is None else 10
    say("commands of", size, "bytes after", events, "events, the snapshot", behind, "behind:", store.name)
    store.use_snapshots(behind is not None)
    if events == 0:
        return commands(store.run, lambda process, number: store.creation(f"{label}-{process}-{number}"), warm)
    for process in range(3):
        store.seed(f"{label}-{process}", events, behind)
    try:
        return commands(store.run, lambda process, _: command(f"{label}-{process}", size), warm)
    except NotAccepted as error:
        if behind is None and store.reads_one_page:
            return {"error": str(error)}
        raise


def measure_sizes(stores):
    """Warm commands by the size of their data, on an aggregate of ten events."""
    rows = []
    for size in SIZES:
        row = {store.name: commands_after(store, f"size-{size}", 10, None, size) for store in stores}
        rows.append((size, row | {"bare": bare_command(stores[0], size)}))
    return rows


def bare_command(daybook, size):
    """The bare function, with the transaction and the response of a command of Daybook."""
    say("commands of", size, "bytes: bare command")
    daybook.seed(f"bare-{size}", 10, None)
    captured = []

    def respond(operation, body):
        if operation == "TransactWriteItems":
            captured.append(body)
        return daybook.engine.respond(operation, body)

    run = Run(daybook.command, [command(f"bare-{size}", size)] * 2, respond).wait()
    response = json.loads(run.server.responses[1])["body"]
    with tempfile.TemporaryDirectory() as folder:
        transaction, text = pathlib.Path(folder, "transaction"), pathlib.Path(folder, "response")
        transaction.write_bytes(captured[1])
        text.write_text(response)
        variables = {"BARE_TRANSACTION": str(transaction), "BARE_RESPONSE": str(text)}
        event = command(f"bare-{size}", size)
        run = lambda events, wrapper=(): Run(binary("bare-command"), events, canned, variables, wrapper).wait()
        return commands(run, lambda *_: event, 10)


def measure_histories(stores):
    """Commands by the number of events that the aggregate has, with and without snapshots."""
    return [
        (events, behind, {store.name: commands_after(store, f"history-{events}-{behind}", events, behind, 100) for store in stores})
        for events in HISTORIES
        for behind in (None, SNAPSHOT_BEHIND)
        if behind is None or events > behind
    ]


def measure_reads(daybook):
    """The first read of a process."""
    rows = []
    for events, behind in ((10, None), (1_000, 3), (1_000, 50), (1_000, None), (10_000, 50), (10_000, None)):
        say("cold read after", events, "events, the snapshot", behind, "behind")
        aggregate = f"read-{events}-{behind}"
        daybook.seed(aggregate, events, behind)
        event = http_event(f"/account/{aggregate}", None, "GET")
        start = counting.count(lambda wrapper: daybook.run([], wrapper))
        first = counting.count(lambda wrapper: daybook.run([event], wrapper))
        native = daybook.run([event])
        tail = 0
        if behind is not None:
            key = {":pk": {"S": f"AGGREGATE#account#{aggregate}"}, ":sk": {"S": f"EVENT#{events - behind:012}"}}
            tail = daybook.engine.call(
                "Query",
                TableName="daybook-bench",
                KeyConditionExpression="pk = :pk AND sk > :sk",
                ExpressionAttributeValues=key,
                ReturnConsumedCapacity="TOTAL",
                ConsistentRead=True,
            )["ConsumedCapacity"]["CapacityUnits"]
        row = figures(native.calls_of(0), 1) | {"instructions": first - start, "tail_units": tail}
        rows.append((events, behind, row))
    return rows


def messages(daybook, count):
    """New outbox rows of as many aggregates."""
    aggregates = [f"relay-{n}" for n in range(count)]
    daybook.run([http_event("/todo", {"id": id, "title": "TODO", "message": "Make coffee"}) for id in aggregates])
    rows = []
    for id in aggregates:
        key = {"pk": {"S": f"AGGREGATE#todo#{id}"}, "sk": {"S": "OUTBOX#000000000001#0"}}
        rows.append(daybook.engine.call("GetItem", TableName="daybook-bench", Key=key)["Item"])
    return [stream_record(row, number) for number, row in enumerate(rows)]


def measure_batches(command_line, records, less, more, variables=None):
    """Instructions for each record, and calls for each batch, of a function that publishes `more` of these batches."""
    batch = json.dumps({"Records": records}, separators=(",", ":"))
    start = lambda count, wrapper=(): Run(command_line, [batch] * count, canned, variables, wrapper).wait()
    fewer = counting.count(lambda wrapper: start(less, wrapper))
    every = counting.count(lambda wrapper: start(more, wrapper))
    native = start(more)
    return {
        "instructions": (every - fewer) / (more - less) / len(records),
        "calls": len(native.server.calls) / more,
        "peak_kilobytes": native.peak_kilobytes,
    }


def measure_relay(daybook):
    """Batches of messages of distinct aggregates, by the relays of Daybook and of Node.js and by the bare function."""
    records = messages(daybook, 1_000)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        entries = pathlib.Path(folder, "entries")

        def respond(operation, body):
            if operation == "PutEvents":
                entries.write_bytes(body)
            return canned(operation, body)

        Run(deployed("stream-relay"), [json.dumps({"Records": records[:10]})], respond).wait()
        bare = {"BARE_ENTRIES": str(entries)}
        for size in (10, 1_000):
            batch, count, before = records[:size], max(2, 100 // size), NODE_RECORDS // size
            say("relay: batches of", size, "records")
            row = {
                "Daybook": measure_batches(deployed("stream-relay"), batch, 2, 2 + count),
                "bare": measure_batches(binary("bare-relay"), batch, 2, 2 + count, bare),
                # Node.js compiles hot code while it runs, so it handles more batches before the counted ones.
                "Node.js": measure_batches(["node", str(BENCH / "node" / "relay.mjs")], batch, before, before + 1_000 // size),
            }
            rows.append((size, row))
    return rows


def measure_starts():
    """Initialization: the fastest of several starts, without and with the call to AWS, and the instructions with the call."""
    functions = {
        "command-handler": "empty-http",
        "stream-relay": "empty-stream",
        "empty-http": "empty-http",
        "empty-stream": "empty-stream",
    }
    start = lambda name, variables, wrapper=(): Run(deployed(name), [], canned, variables, wrapper).wait()
    own, called = {}, {}
    say("starts")
    for _ in range(STARTS):
        for name in functions:
            for times, variables in ((own, REFUSED), (called, {})):
                times[name] = min(start(name, variables).initialization, times.get(name, 1))
    counted = {name: counting.count(lambda wrapper: start(name, {}, wrapper)) for name in functions}
    return [
        (
            name,
            {
                "own_milliseconds": own[name] * 1000,
                "own_times": own[name] / own[base],
                "milliseconds": called[name] * 1000,
                "times": called[name] / called[base],
                "instructions": counted[name],
                "times_instructions": counted[name] / counted[base],
            },
        )
        for name, base in functions.items()
    ]


HOT = {(1, 1): 400, (1, 64): 4_000, (10, 1): 60}  # processes and requests in each: the commands of each process in a turn
TURNS = 5


def measure_hot(daybook):
    """One aggregate: many requests in one process, and one request at a time in each of several processes."""
    totals = {case: [] for case in HOT}
    for turn in range(TURNS):
        for (processes, workers), count in HOT.items():
            say("hot aggregate, turn", turn + 1, "of", TURNS, "-", processes, "processes,", workers, "requests in each")
            aggregate = f"hot-{turn}-{processes}-{workers}"
            daybook.seed(aggregate, 10, None)
            clients = [Clients(daybook, command(aggregate), workers, count) for _ in range(processes)]
            totals[processes, workers] += [client.wait() for client in clients]
    rows = []
    for (processes, workers), of in totals.items():
        total = lambda name: sum(figures[name] for figures in of)
        latencies = sorted(latency for figures in of for latency in figures["latencies"])
        at = lambda share: latencies[int(share * (len(latencies) - 1))]
        accepted = total("accepted")
        row = {
            "accepted": accepted / len(latencies),
            "transactions": total("transactions") / accepted,
            # The engine reports no units of a failed transaction, which costs as many as a successful one.
            "write_units": total("write_units") / total("successful_transactions") * total("transactions") / accepted,
            "commands_a_second": accepted / total("seconds") * processes,
            "processor_milliseconds": total("processor_seconds") / accepted * 1000,
            "p50": at(0.5),
            "p99": at(0.99),
        }
        rows.append((processes, workers, row))
    return rows


def measure_opt_levels(daybook):
    """Both functions with the opt-level of the deployed binaries, and with opt-level 3."""
    records = messages(daybook, 10)
    rows = []
    for level, folder in (("s", WORKSPACE / "target" / "lambda"), ("3", BENCH / "target" / "opt-3")):
        say("opt-level", level)
        handler, relay = deployed("command-handler", folder), deployed("stream-relay", folder)
        warm = commands_after(Daybook(daybook.engine, handler), f"level-{level}", 10, None, 100)["warm"]
        batches = measure_batches(relay, records, 2, 12)
        for name, [path], of in (("command-handler", handler, warm), ("stream-relay", relay, batches)):
            zipped = subprocess.check_output([sys.executable, WORKSPACE / ".ci" / "zipped-size.py", path])
            rows.append((name, level, {"instructions": of["instructions"], "zipped": int(zipped)}))
    return rows


def main():
    git = lambda *arguments: subprocess.check_output(["git", *arguments], text=True, cwd=WORKSPACE).strip()
    written = [f":!{file.relative_to(WORKSPACE)}" for file in (report.RESULTS, report.DOCUMENT)]
    changes = git("status", "--porcelain", "--untracked-files=no", ".", *written)
    source = {
        "commit": git("rev-parse", "--short", "HEAD") + (" with changes" if changes else ""),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "counter": counting.TOOL,
    }
    engine = Engine(str(WORKSPACE / "target" / "debug" / "daybook"), WORKSPACE)
    try:
        create_tables(engine)
        daybook = Daybook(engine, deployed("command-handler"))
        stores = [daybook, Adapter(engine, binary("event-store-adapter")), DynamoEs(engine, binary("dynamo-es"))]
        parts = {
            "sizes": lambda: measure_sizes(stores),
            "histories": lambda: measure_histories(stores),
            "reads": lambda: measure_reads(daybook),
            "relay": lambda: measure_relay(daybook),
            "starts": measure_starts,
            "hot": lambda: measure_hot(daybook),
            "opt-levels": lambda: measure_opt_levels(daybook),
        }
        names = sys.argv[1:] or [name for name in parts if name != "opt-levels"]
        for name in names:
            report.store(name, source | {"rows": parts[name]()})
    finally:
        engine.stop()
    report.write()


if __name__ == "__main__":
    main()
