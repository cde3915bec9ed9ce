"""Writes docs/performance.md."""

import json
import os
import platform

from functions import BENCH

BARS = BENCH / "bars.json"
DOCUMENT = BENCH.parent / "docs" / "performance.md"

BEFORE = """# Performance

`bench/run` measures the functions of this repository beside the smallest functions that make the same calls, and beside a relay
for Node.js. It writes this page. Do not edit the page: edit `bench/`.

"""

HOW = """## Repeat the measurement

```sh
bench/run
```

It needs Rust, Node.js with npm, Python 3.11, and `perf` or `valgrind`. It builds everything with the profile of the deployed
binaries and then measures for about {minutes} minutes. `bench/` is a workspace of its own: nothing else builds or tests it.
`bench/run relay` measures one part and prints its figures as JSON, without this page. The parts are {parts}.

"""

METHOD = """## Method

- **Functions** run as Lambda runs them: a small server replaces the Runtime API, passes one event after another, and takes the
  responses.
- **DynamoDB** is the engine of the local stack, in memory, with a table that has no stream. A proxy in front of it counts
  calls, bytes of both bodies, and the capacity units that the engine reports. EventBridge is a server that accepts every entry.
  The bare functions and the relays call only servers that respond at once.
- **Instructions** are those of the function's process in user mode. Callgrind simulates a processor without instructions for
  SHA-256, so signatures and checksums take more of them than on a real one. A figure of a command is the difference between two
  processes that differ in the number of commands alone: {warm} more for a warm command, one more for a cold one.
- **Warm** is a later command of a process for the same aggregate. **Cold** is the first command of a process, with the
  connection that initialisation has opened.
- **Peak memory** is the largest resident size of the process.
- The **bare command** is the same runtime and the same SDK call with the request that Daybook sent for this command, prepared
  when the process starts, and nothing else: it reads nothing of the HTTP request, decides nothing and checks nothing. The
  **bare relay** does the same with a prepared `PutEvents` request for each ten records.
- The relay for **Node.js** is `bench/node/relay.mjs`: the AWS SDK for JavaScript, and no ordering, retries or dead-letter queue.
  It handles {node} records before the counted ones, so that its hot code is compiled.

"""


def thousand(number):
    return "–" if number is None else f"{number / 1000:,.0f} k"


def short(number):
    return f"{number:,.2f}".rstrip("0").rstrip(".")


def megabytes(kilobytes):
    return f"{kilobytes / 1024:.0f} MB"


def table(heads, rows):
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines) + "\n"


def bars(results):
    """The measured value of each bar."""
    sizes, reads = dict(results["sizes"]), {(e, b): r for e, b, r in results["reads"]}
    relays, starts = dict(results["relay"]), dict(results["starts"])
    hot = {(p, c): r for p, c, r in results["hot"]}
    warm = lambda name: sizes[100][name]["warm"]["instructions"]
    relay = lambda size, name: relays[size]["Daybook"][name[0]] / relays[size][name[1]][name[0]]
    return {
        "command, instructions": warm("Daybook") / warm("bare"),
        "command, calls": sizes[100]["Daybook"]["warm"]["calls"],
        "command, write units": sizes[100]["Daybook"]["warm"]["write_units"],
        "relay, instructions, batches of 10": relay(10, ("instructions", "bare")),
        "relay, instructions, batches of 1,000": relay(1_000, ("instructions", "bare")),
        "relay, instructions against Node.js": relay(1_000, ("instructions", "Node.js")),
        "relay, memory against Node.js": relay(1_000, ("peak_kilobytes", "Node.js")),
        "cold read, snapshot 3 behind, read units": reads[1_000, 3]["read_units"],
        "cold read, snapshot 50 behind, read units": reads[1_000, 50]["read_units"],
        "initialisation, command handler": starts["command-handler"]["times"],
        "initialisation, relay": starts["stream-relay"]["times"],
        "64 requests in a process, write units": hot[1, 64]["write_units"],
        "10 processes, transactions": hot[10, 1]["transactions"],
        "10 processes, p99 against p50": hot[10, 1]["p99"] / hot[10, 1]["p50"],
    }


def summary(results):
    measured, rows, missed = bars(results), [], []
    reads = {(e, b): r for e, b, r in results["reads"]}
    for bar in json.loads(BARS.read_text()):
        value = measured[bar["name"]]
        most = bar["most"] or 3 + 1.25 * reads[1_000, 50]["tail_units"]
        met = value <= most
        rows.append([bar["name"], bar["unit"], short(value), short(most), "yes" if met else "**no**"])
        if not met:
            missed.append(f"- **{bar['name'][0].upper()}{bar['name'][1:]}**: {bar['reason']}\n")
    text = "## Bars\n\n" + table(["what", "unit", "measured", "at most", "met"], rows)
    return text + ("Reasons for the rows that miss their bar:\n\n" + "".join(missed) + "\n" if missed else "")


def cells(row, kind):
    of = row[kind]
    return [short(of["calls"]), short(of["read_units"]), short(of["write_units"]), short(of["kilobytes"]), thousand(of["instructions"])]


def commands(results):
    heads = ["calls", "read units", "write units", "kB", "instructions"]
    rows = []
    for size, row in results["sizes"]:
        for name, of in row.items():
            own = cells(of, "warm")
            if name == "bare":
                name, own[1:3] = "bare command", ["–", "–"]
            rows.append([f"{size:,} B", name, *own, megabytes(of["peak_kilobytes"])])
    text = "## Warm commands by size\n\nOne event of that many bytes, on an aggregate of 10 events.\n\n"
    text += table(["size", "function", *heads, "peak memory"], rows)
    for kind, title in (("warm", "Warm"), ("cold", "Cold")):
        rows = []
        for events, behind, of in results["histories"]:
            rows.append([f"{events:,}" + ("" if behind is None else f", snapshot {behind} behind"), *cells(of, kind)])
        text += f"## {title} commands by the events of the aggregate\n\nOne event of 100 B; the aggregate of 0 events is created.\n\n"
        text += table(["events", *heads], rows)
    return text


def reads(results):
    rows = []
    for events, behind, row in results["reads"]:
        history = f"{events:,}" + (", no snapshot" if behind is None else f", snapshot {behind} behind")
        tail = "–" if behind is None else short(row["tail_units"])
        rows.append([history, short(row["calls"]), short(row["read_units"]), tail, short(row["kilobytes"]), thousand(row["instructions"])])
    text = "## Cold reads\n\nThe first read of a process. The tail is the read units of the events after the snapshot.\n\n"
    return text + table(["events", "calls", "read units", "tail", "kB", "instructions"], rows)


def relay(results):
    rows = []
    for size, row in results["relay"]:
        for name, of in row.items():
            name = "bare relay" if name == "bare" else name
            rows.append([f"{size:,}", name, thousand(of["instructions"]), short(of["calls"]), megabytes(of["peak_kilobytes"])])
    text = "## Relay\n\nBatches of messages of distinct aggregates. Instructions are for each record, calls for each batch.\n\n"
    return text + table(["records", "function", "instructions", "calls", "peak memory"], rows)


def starts(results):
    rows = []
    for name, of in results["starts"]:
        rows.append([name, f"{of['milliseconds']:.2f} ms", short(of["times"]), thousand(of["instructions"]), short(of["times_instructions"])])
    text = (
        "## Initialisation\n\nFrom the start of the process until it requests its first event; the fastest of several starts. The "
        "functions of Daybook make one call to AWS in it. The ratios are against the empty function of the same kind. "
        "`.ci/init-times.py` measures the other functions.\n\n"
    )
    return text + table(["function", "time", "ratio", "instructions", "ratio"], rows)


def hot(results):
    rows = []
    for processes, concurrency, of in results["hot"]:
        rows.append(
            [
                processes,
                concurrency,
                short(of["transactions"]),
                short(of["write_units"]),
                f"{of['commands_a_second']:,.0f}",
                f"{of['p50']:.1f} ms",
                f"{of['p99']:.1f} ms",
                f"{of['accepted']:.1%}",
            ]
        )
    text = (
        "## One hot aggregate\n\nCommands of one small event without `If-Match`. Transactions and write units are for each accepted "
        "command; failed transactions count. The rates are bounded by the measuring server, which shares the machine.\n\n"
    )
    heads = ["processes", "requests in each", "transactions", "write units", "commands a second", "p50", "p99", "accepted"]
    return text + table(heads, rows)


def write(results, tool, commit, node_records, warm):
    parts = ", ".join(f"`{part}`" for part in results)
    text = BEFORE
    text += f"Measured on commit {commit}, {platform.machine()}, {os.cpu_count()} cores; instructions by {tool}.\n\n"
    text += summary(results)
    text += commands(results) + reads(results) + relay(results) + starts(results) + hot(results)
    text += METHOD.format(warm=warm, node=f"{node_records:,}") + HOW.format(minutes=30, parts=parts)
    DOCUMENT.write_text(text.rstrip("\n") + "\n")
