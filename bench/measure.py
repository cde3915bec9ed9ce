"""Measures every row of docs/performance.md, and writes the document.

Each part measures all functions in turns, so that other load on the machine affects them alike. Instructions, calls, bytes and
units hardly depend on the load; times do.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import threading

import counting
import report
from functions import (
    BENCH,
    BINARIES,
    WORKSPACE,
    Daybook,
    command,
    create_table,
    http_event,
    stream_record,
)
from lambda_server import Engine, Run, canned

SIZES = [100, 1_000, 10_000]
HISTORIES = [10, 100, 1_000, 10_000]
SNAPSHOT_BEHIND = 50
WARM = 10  # commands after the first one
STARTS = 25
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


def commands(run, event):
    """Measures the first command of a process and, on average, the later ones.

    `run(events, wrapper)` runs a process to its end. `event(process, number)` is the number-th command of a process: each process
    has an aggregate of its own, all with the same history.
    """
    events = lambda process, count: [event(process, number) for number in range(count)]
    start = counting.count(lambda wrapper: run([], wrapper))
    first = counting.count(lambda wrapper: run(events(0, 1), wrapper))
    every = counting.count(lambda wrapper: run(events(1, 1 + WARM), wrapper))
    cold, warm = run(events(2, 1)), run(events(3, 1 + WARM))
    return {
        "failed": warm.server.failed,
        "cold": figures(cold.server.calls, 1) | {"instructions": first - start},
        "warm": figures(warm.server.calls[len(cold.server.calls) :], WARM) | {"instructions": (every - first) / WARM},
        "peak_kilobytes": warm.peak_kilobytes,
    }


def commands_after(daybook, label, events, behind, size):
    """Measures commands of this size on aggregates with this history."""
    for process in range(4):
        daybook.seed(f"{label}-{process}", events, behind)
    return commands(daybook.run, lambda process, _: command(f"{label}-{process}", size))


def measure_sizes(daybook):
    """Warm commands by the size of their data, on an aggregate of ten events."""
    rows = []
    for size in SIZES:
        say("commands of", size, "bytes")
        rows.append((size, {"Daybook": commands_after(daybook, f"size-{size}", 10, None, size), "bare": bare_command(daybook, size)}))
    return rows


def bare_command(daybook, size):
    """The bare function, with the transaction and the response of a command of Daybook."""
    daybook.seed(f"bare-{size}", 10, None)
    captured = []

    def respond(operation, body):
        if operation == "TransactWriteItems":
            captured.append(body)
        return daybook.engine.respond(operation, body)

    run = Run(daybook.command, [command(f"bare-{size}", size)] * 2, respond, {}).wait()
    response = json.loads(run.server.responses[1])["body"]
    with tempfile.TemporaryDirectory() as folder:
        transaction, text = pathlib.Path(folder, "transaction"), pathlib.Path(folder, "response")
        transaction.write_bytes(captured[1])
        text.write_text(response)
        environment = {"BARE_TRANSACTION": str(transaction), "BARE_RESPONSE": str(text)}
        event = command(f"bare-{size}", size)
        run = lambda events, wrapper=(): Run([str(BINARIES / "bare-command")], events, canned, environment, wrapper).wait()
        return commands(run, lambda *_: event)


def measure_histories(daybook):
    """Commands by the number of events that the aggregate has, with and without a snapshot."""
    create = lambda process, number: http_event("/account", {"id": f"new-{process}-{number}"})
    say("commands that create an aggregate")
    rows = [(0, None, commands(daybook.run, create))]
    for events in HISTORIES:
        for behind in (None, SNAPSHOT_BEHIND):
            if behind is None or events > behind:
                say("commands after", events, "events, the snapshot", behind, "behind")
                label = f"history-{events}-{behind}"
                rows.append((events, behind, commands_after(daybook, label, events, behind, 100)))
    return rows


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
        row = figures(native.server.calls, 1) | {"instructions": first - start, "tail_units": tail}
        rows.append((events, behind, row))
    return rows


def messages(daybook, count):
    """New outbox rows of as many aggregates."""
    created = [
        http_event("/todo", {"id": f"relay-{n}", "title": "TODO", "message": "Make coffee"}) for n in range(count)
    ]
    daybook.check(daybook.run(created))
    rows = []
    for n in range(count):
        key = {"pk": {"S": f"AGGREGATE#todo#relay-{n}"}, "sk": {"S": "OUTBOX#000000000001#0"}}
        rows.append(daybook.engine.call("GetItem", TableName="daybook-bench", Key=key)["Item"])
    return rows


def measure_relay(daybook):
    """Batches of messages of distinct aggregates, by the relays of Daybook and of Node.js and by the bare function."""
    say("relay: messages")
    records = [stream_record(row, number) for number, row in enumerate(messages(daybook, 1_000))]
    with tempfile.TemporaryDirectory() as folder:
        entries = pathlib.Path(folder, "entries")

        def respond(operation, body):
            if operation == "PutEvents":
                entries.write_bytes(body)
            return canned(operation, body)

        Run([str(BINARIES / "stream-relay")], [json.dumps({"Records": records[:10]})], respond, {}).wait()
        relays = {
            "Daybook": ([str(BINARIES / "stream-relay")], 2),
            "bare": ([str(BINARIES / "bare-relay")], 2),
            # Node.js compiles hot code while it runs, so it gets more batches first.
            "Node.js": (["node", str(BENCH / "node" / "relay.mjs")], 0),
        }
        rows = []
        for size in (10, 1_000):
            batch = json.dumps({"Records": records[:size]}, separators=(",", ":"))
            row = {}
            for name, (command_line, few) in relays.items():
                say("relay: batches of", size, "records:", name)
                less, more = (few, few + max(2, 100 // size)) if few else (NODE_RECORDS // size, (NODE_RECORDS + 1_000) // size)

                def start(count, wrapper=()):
                    return Run(command_line, [batch] * count, canned, {"BARE_ENTRIES": str(entries)}, wrapper).wait()

                fewer = counting.count(lambda wrapper: start(less, wrapper))
                every = counting.count(lambda wrapper: start(more, wrapper))
                native = start(more)
                row[name] = {
                    "instructions": (every - fewer) / (more - less) / size,
                    "calls": len(native.server.calls) / more,
                    "peak_kilobytes": native.peak_kilobytes,
                    "failed": native.server.failed,
                }
            rows.append((size, row))
    return rows


def measure_starts():
    """Initialisation: the fastest of several starts, and the instructions until the first event is requested."""
    functions = {
        "command-handler": "empty-http",
        "stream-relay": "empty-stream",
        "empty-http": "empty-http",
        "empty-stream": "empty-stream",
    }
    start = lambda name, wrapper=(): Run([str(BINARIES / name)], [], canned, {}, wrapper).wait()
    times = {name: [] for name in functions}
    for turn in range(STARTS):
        say("starts:", turn + 1, "of", STARTS)
        for name in functions:
            times[name].append(start(name).initialisation)
    counted = {name: counting.count(lambda wrapper: start(name, wrapper)) for name in functions}
    return [
        (
            name,
            {
                "milliseconds": min(times[name]) * 1000,
                "instructions": counted[name],
                "times": min(times[name]) / min(times[base]),
                "times_instructions": counted[name] / counted[base],
            },
        )
        for name, base in functions.items()
    ]


def measure_hot(daybook):
    """One aggregate: many requests in one process, and one request at a time in each of several processes."""
    rows = []
    for processes, concurrency, each in ((1, 1, 500), (1, 64, 1_000), (10, 1, 100)):
        say("hot aggregate:", processes, "processes,", concurrency, "requests each")
        aggregate = f"hot-{processes}-{concurrency}"
        daybook.seed(aggregate, 10, None)
        environment = {"AWS_LAMBDA_MAX_CONCURRENCY": str(concurrency)} if concurrency > 1 else {}
        events = [command(aggregate)] * each
        runs = [Run(daybook.command, events, daybook.engine.respond, environment) for _ in range(processes)]
        threads = [threading.Thread(target=run.wait) for run in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        calls = [call for run in runs for call in run.server.calls]
        responses = [json.loads(response) for run in runs for response in run.server.responses.values()]
        accepted = sum(response.get("statusCode") == 200 for response in responses)
        latencies = sorted(latency for run in runs for latency in run.server.latencies)
        seconds = max(run.seconds - run.initialisation for run in runs)
        transactions = [call for call in calls if call.operation == "TransactWriteItems"]
        # The engine reports no units of a failed transaction, which costs as many as a successful one.
        units = [call.write_units for call in transactions if not call.failed]
        at = lambda share: latencies[int(share * (len(latencies) - 1))] * 1000
        row = {
            "accepted": accepted / len(responses),
            "transactions": len(transactions) / accepted,
            "write_units": sum(units) / len(units) * len(transactions) / accepted,
            "commands_a_second": accepted / seconds,
            "p50": at(0.5),
            "p99": at(0.99),
        }
        rows.append((processes, concurrency, row))
    return rows


def main():
    parts = sys.argv[1:]
    engine = Engine(str(WORKSPACE / "target" / "debug" / "daybook"), WORKSPACE)
    try:
        create_table(engine)
        daybook = Daybook(engine)
        measured = {
            "sizes": lambda: measure_sizes(daybook),
            "histories": lambda: measure_histories(daybook),
            "reads": lambda: measure_reads(daybook),
            "relay": lambda: measure_relay(daybook),
            "starts": measure_starts,
            "hot": lambda: measure_hot(daybook),
        }
        results = {name: part() for name, part in measured.items() if not parts or name in parts}
    finally:
        engine.stop()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=BENCH)
    (BENCH / "target" / "measured.json").write_text(json.dumps(results, indent=1))
    if parts:
        print(json.dumps(results, indent=1))
    else:
        report.write(results, counting.TOOL, commit.stdout.strip(), NODE_RECORDS, WARM)


if __name__ == "__main__":
    main()
