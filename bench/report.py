"""Writes docs/performance.md and README.md from the figures in measured.json."""

import json

from functions import BENCH, PEER_SNAPSHOT_EVERY

BARS = BENCH / "bars.json"
README = BENCH / "README.md"
RESULTS = BENCH / "measured.json"
DOCUMENT = BENCH.parent / "docs" / "performance.md"

BEFORE = """# Performance

`bench/run` measures the functions of this repository beside the smallest functions that make the same calls ("bare"), beside
two other event stores for DynamoDB, and beside a relay for Node.js. It writes this page: do not edit it. A **cold** command is the
first one of an instance, a **warm** one a later command for the same aggregate. [bench/README.md](../bench/README.md) describes the
method, and has further figures.

"""

README_BEFORE = """# Measurements

How the figures of [performance.md](../docs/performance.md) are measured, figures of parts of Daybook alone, and goals. `report.py`
writes this page: do not edit it.

"""

SUMMARY = """## What the figures mean

- **A warm command takes one call**, on a cached state, where the other event stores take two or more. So its cost does not grow
  with the history: {few} instructions at 10 events and {many} at 10,000, where `event-store-adapter-rs` takes {adapter_few} and
  {adapter_many}. It takes {units} write units; `dynamo-es` takes {dynamo_units}, `event-store-adapter-rs` {adapter_units}.
- **A cold command takes more calls, read units and instructions**: {cold_calls} calls and {cold_units} read units for 1,000
  events with a snapshot 50 behind, where `event-store-adapter-rs` takes {adapter_cold_calls} and {adapter_cold_units}
  ([why](#commands-by-the-events-of-the-aggregate)). Without snapshots, long histories are expensive in all three.
- **Over a bare command**, Daybook takes {bare:.2f} times the instructions. It adds the decision, its rows, and the request.
- **The relay**, in batches of 1,000, takes {relay:.2f} times the instructions of a bare one, which does not read the records. It
  takes {node:.2f} times the instructions and {memory:.2f} times the memory of the relay for Node.js.
- **Initialization** takes the command handler {start:.2f} ms and the relay {relay_start:.2f} ms, where an empty function takes
  {empty:.2f} ms, without a client of AWS.
- **One hot aggregate** accepts {rate} commands a second of {clients} clients of one instance, because commands that wait share
  transactions: {hot_units} write units for each, where one client alone takes {alone_units}.

"""

HOW = """## Repeat the measurement

```sh
bench/run
```

It needs Linux, Rust, Node.js with npm, Python 3.11, and `perf` or `valgrind`. It builds the functions with `cargo lambda`, as they
are deployed, and measures for about {minutes} minutes. Other programs on the machine change the times and the rates, but hardly
any other figure. `sudo nice -n -20 bench/run` gives the measurement priority over them. No CI step runs it.

With the names of parts, such as `bench/run relay starts`, it measures only those. `bench/measured.json` stores the figures of
each part with the commit that they were measured on. The parts are {parts}.
The part `opt-levels` builds the functions once more, so it runs only when it is named. `tests/suite/performance.rs` checks both
pages, and that the bare functions have the dependencies and the profile of the deployed ones.

"""

METHOD = """## Method

- **Functions** run as Lambda runs them: a small server replaces the Runtime API, passes one event after another, and takes the
  responses. The run stops when a function does not accept an event.
- **DynamoDB** is the engine of the local stack, in memory, with tables that have no stream. A proxy in front of it counts
  calls, bytes of both bodies, and the capacity units that the engine reports. EventBridge is a server that accepts every entry.
  The bare functions and the relays call only servers that respond at once. The engine is built with the profile of the tests, so
  it is slow; this affects times and rates, but no other figure.
- **Instructions** are those of the function's process in user mode. Callgrind simulates a processor without instructions for
  SHA-256, so signatures and checksums take more of them than on a real one. A figure of a command is the difference between two
  processes that differ in the number of commands alone: 10 more for a warm command, one more for a cold one. For another
  event store that reads 10,000 events for each command, it is 2 more for a warm one.
- A **cold** command is the first command of an instance, with the connection that initialization has opened. A **warm** command is
  a later command of the instance for the same aggregate. In the row of 0 events, each command creates another aggregate.
- **Peak memory** is the largest resident size of the process, after its cold and its warm commands.
- The **bare command** is the same runtime and the same SDK call with the request that Daybook sent for this command, prepared
  when the process starts, and nothing else: it reads nothing of the HTTP request, decides nothing and checks nothing. The
  **bare relay** does the same with a prepared `PutEvents` request for each ten records.
- The **other event stores** are the published crates, each in the smallest function around it (`bench/peers`): the same runtime
  and HTTP client; it reads the command, loads the aggregate, decides by the same rule, persists the event, and responds. Their
  histories are copies of rows that they wrote themselves. With snapshots, they take one every {every} events.
- The relay for **Node.js** is `bench/node/relay.mjs`: the AWS SDK for JavaScript, and no ordering, retries or dead-letter queue.
  It handles 2,000 records before the counted ones, so that its hot code is compiled. Its instructions still differ by a tenth from
  run to run.
- For **one hot aggregate**, `bench/clients` replaces the Runtime API and forwards the calls to the engine, because a server in
  Python would limit the rate. The cases take turns.

"""

PEERS = """The other event stores do less for a command: they have no outbox, no index of events by type, no idempotency key, no
authorization, no actor, correlation id and checksum in a row, and no cache. This event publishes no message. Of its 5 write units
for 100 B, 2 are for the event, 1 for the index, and 2 for the version of the aggregate. `event-store-adapter-rs` writes the event
twice, the second time in the row with the version; `dynamo-es` writes the event alone.

"""

COLD = """A cold command of Daybook on an existing aggregate needs more than that of the other event stores:

- **Calls**: it reads the latest four events and the snapshot at the same time, and then the events between them in another call.
- **Read units**: the row of an event has 2 to 2.6 times the bytes of theirs. `dynamo-es` reads the events after a snapshot with
  eventual consistency, for half the units.
- **Instructions**: in all three, an event takes about 5,400 for each attribute of its row, of which Daybook has 17,
  `event-store-adapter-rs` 5, and `dynamo-es` 8.

"""


def store(name, part):
    """Replaces the figures of a part."""
    results = load()
    results[name] = json.loads(json.dumps(part), parse_float=lambda number: float(f"{float(number):.6g}"))
    texts = []
    for name, part in results.items():
        # A line for each row.
        rows = ",\n  ".join(json.dumps(row) for row in part["rows"])
        source = json.dumps({key: value for key, value in part.items() if key != "rows"})
        texts.append(f' "{name}": {source[:-1]}, "rows": [\n  {rows}\n ]}}')
    RESULTS.write_text("{\n" + ",\n".join(texts) + "\n}\n")


def load():
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def thousand(number):
    return f"{number / 1000:,.0f} k"


def short(number):
    return f"{number:,.2f}".rstrip("0").rstrip(".")


def megabytes(kilobytes):
    return f"{kilobytes / 1024:.0f} MB"


def table(heads, rows):
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines) + "\n"


def section(title, part):
    """The heading of a section, and where its figures are from."""
    return f"## {title}\n\nMeasured on commit {part['commit']}, {part['machine']}; instructions by {part['counter']}. "


def bars(results):
    """The part and the measured value of each bar."""
    rows = {name: part["rows"] for name, part in results.items()}
    sizes, reads = dict(rows["sizes"]), {(e, b): r for e, b, r in rows["reads"]}
    relays, starts = dict(rows["relay"]), dict(rows["starts"])
    hot = {(p, c): r for p, c, r in rows["hot"]}
    warm = lambda name: sizes[100][name]["warm"]
    relay = lambda size, figure, other: relays[size]["Daybook"][figure] / relays[size][other][figure]
    return {
        "command, instructions": ("sizes", warm("Daybook")["instructions"] / warm("bare")["instructions"]),
        "command, calls": ("sizes", warm("Daybook")["calls"]),
        "command, write units": ("sizes", warm("Daybook")["write_units"]),
        "relay, instructions, batches of 10": ("relay", relay(10, "instructions", "bare")),
        "relay, instructions, batches of 1,000": ("relay", relay(1_000, "instructions", "bare")),
        "relay, instructions against Node.js": ("relay", relay(1_000, "instructions", "Node.js")),
        "relay, memory against Node.js": ("relay", relay(1_000, "peak_kilobytes", "Node.js")),
        "cold read, snapshot 3 behind, read units": ("reads", reads[1_000, 3]["read_units"]),
        "cold read, snapshot 50 behind, read units": ("reads", reads[1_000, 50]["read_units"]),
        "initialization, command handler": ("starts", starts["command-handler"]["own_times"]),
        "initialization, relay": ("starts", starts["stream-relay"]["own_times"]),
        "64 clients of a process, rate": ("hot", hot[1, 64]["commands_a_second"]),
        "64 clients of a process, write units": ("hot", hot[1, 64]["write_units"]),
        "10 processes, transactions": ("hot", hot[10, 1]["transactions"]),
        "10 processes, p99 against p50": ("hot", hot[10, 1]["p99"] / hot[10, 1]["p50"]),
    }


def goals(results):
    measured, rows, missed = bars(results), [], []
    tail = {(e, b): r for e, b, r in results["reads"]["rows"]}[1_000, 50]["tail_units"]
    for bar in json.loads(BARS.read_text()):
        part, value = measured[bar["name"]]
        value = round(value, 2)
        if "least" in bar:
            sign, limit, met = "≥", bar["least"], value >= bar["least"]
        else:
            limit = 3 + 1.25 * tail if bar["most"] == "3 + 1.25 × the tail" else bar["most"]
            sign, met = "≤", value <= limit
        cells = [bar["name"], bar["unit"], short(value), f"{sign} {short(limit)}", "yes" if met else "**no**"]
        rows.append([*cells, results[part]["commit"]])
        if not met:
            missed.append(f"- **{bar['name'][0].upper()}{bar['name'][1:]}**: {bar['reason']}\n")
    text = "## Goals\n\nThe figures that a change should not make worse, beside the bars of `bars.json`.\n\n"
    text += table(["what", "unit", "measured", "bar", "met", "commit"], rows)
    return text + ("Reasons for the rows that miss their bar:\n\n" + "".join(missed) + "\n" if missed else "")


def cells(row, kind):
    if "error" in row:
        return ["fails", "", "", "", "", ""]
    of = row[kind]
    costs = [short(of["calls"]), short(of["read_units"]), short(of["write_units"]), short(of["kilobytes"])]
    return [*costs, thousand(of["instructions"]), megabytes(row["peak_kilobytes"])]


HEADS = ["calls", "read units", "write units", "kB", "instructions", "peak memory"]
HISTORY_HEADS = [f"{kind}: {what}" for kind in ("warm", "cold") for what in ("calls", "read units", "kB", "instructions")]
HISTORY_HEADS += ["write units", "peak memory"]


def sizes(part):
    rows = []
    for size, row in part["rows"]:
        for name, of in row.items():
            own = cells(of, "warm")
            if name == "bare":
                # Its server reports no units.
                name, own[1:3] = "bare command", ["–", "–"]
            rows.append([f"{size:,} B", name, *own])
    text = section("Warm commands by size", part) + "One event of that many bytes, on an aggregate of 10 events without a snapshot.\n\n"
    return text + PEERS + table(["size", "function", *HEADS], rows)


def histories(part):
    rows, failed = [], []
    for events, behind, row in part["rows"]:
        history = f"{events:,}" + ("" if behind is None else f", snapshot {behind} behind")
        for name, of in row.items():
            if "error" in of:
                rows.append([history, name, "fails", *[""] * (len(HISTORY_HEADS) - 1)])
                failed.append(f"`{name}` fails at {history} events: `{of['error']}`. ")
                continue
            kinds = [of["warm"], of["cold"]]
            written = " / ".join(dict.fromkeys(short(kind["write_units"]) for kind in kinds))
            costs = [[short(kind["calls"]), short(kind["read_units"]), short(kind["kilobytes"]), thousand(kind["instructions"])] for kind in kinds]
            rows.append([history, name, *costs[0], *costs[1], written, megabytes(of["peak_kilobytes"])])
    text = section("Commands by the events of the aggregate", part)
    text += "One event of 100 B. In the rows of 0 events, the command creates the aggregate. A warm and a cold command take the same write units.\n\n"
    text += COLD + table(["events", "function", *HISTORY_HEADS], rows)
    if failed:
        text += "".join(failed) + "It reads only the first page of a query, which has 1 MB, and the events of this aggregate need more.\n\n"
    return text


def reads(part):
    rows = []
    for events, behind, row in part["rows"]:
        history = f"{events:,}" + (", no snapshot" if behind is None else f", snapshot {behind} behind")
        tail = "–" if behind is None else short(row["tail_units"])
        rows.append([history, short(row["calls"]), short(row["read_units"]), tail, short(row["kilobytes"]), thousand(row["instructions"])])
    text = section("Cold reads", part)
    text += "The first read of a process. The tail is the read units of the events after the snapshot.\n\n"
    return text + table(["events", "calls", "read units", "tail", "kB", "instructions"], rows)


def relay(part):
    rows = []
    for size, row in part["rows"]:
        for name, of in row.items():
            name = "bare relay" if name == "bare" else name
            rows.append([f"{size:,}", name, thousand(of["instructions"]), short(of["calls"]), megabytes(of["peak_kilobytes"])])
    text = section("Relay", part)
    text += "Batches of messages of distinct aggregates. Instructions are for each record, calls for each batch.\n\n"
    return text + table(["records", "function", "instructions", "calls", "peak memory"], rows)


def starts(part):
    rows = []
    for name, of in part["rows"]:
        own = [f"{of['own_milliseconds']:.2f} ms", short(of["own_times"])]
        called = [f"{of['milliseconds']:.2f} ms", short(of["times"])]
        rows.append([name, *own, *called, thousand(of["instructions"]), short(of["times_instructions"])])
    text = section("Initialization", part)
    text += (
        "From the start of the process until it requests its first event; the fastest of several starts. The functions of Daybook "
        "call AWS once during this time. The own time is that with an endpoint of AWS that refuses the connection. The time with the "
        "call contains the response of the measuring server, which is written in Python. The instructions are those with the call. "
        "The ratios are against the empty function of the same kind. `.ci/init-times.py` measures all functions of the repository.\n\n"
    )
    heads = ["function", "own time", "ratio", "time with the call", "ratio", "instructions", "ratio"]
    return text + table(heads, rows)


def hot(part):
    rows = []
    for processes, concurrency, of in part["rows"]:
        latencies = [f"{of['p50']:.1f} ms", f"{of['p99']:.1f} ms"]
        costs = [short(of["transactions"]), short(of["write_units"]), f"{of['processor_milliseconds']:.2f} ms"]
        costs.append(f"{of['commands_a_second']:,.0f}")
        rows.append([processes, concurrency, *costs, *latencies, f"{of['accepted']:.1%}"])
    text = section("One hot aggregate", part)
    text += (
        "Commands of one small event without `If-Match`; each client sends its next command when it has the response. Transactions "
        "and write units are for each accepted command; failed transactions count. The processor time is that of the function for "
        "a command. The function, the engine and the clients share the cores of the machine.\n\n"
    )
    heads = ["processes", "clients of each", "transactions", "write units", "processor", "commands a second", "p50", "p99", "accepted"]
    return text + table(heads, rows)


def opt_levels(part):
    rows = [[name, f'"{level}"' if level == "s" else level, thousand(of["instructions"]), f"{of['zipped']:,} B"] for name, level, of in part["rows"]]
    figures = {(name, level): of for name, level, of in part["rows"]}
    difference = lambda figure, name: figures[name, "3"][figure] / figures[name, "s"][figure] - 1
    text = section("Optimization level", part)
    text += (
        'The deployed functions have `opt-level = "s"`. Instructions are for a warm command of 100 B, and for a record in batches '
        "of 10.\n\n"
    )
    text += table(["function", "opt-level", "instructions", "zipped package"], rows)
    return text + DECISION.format(
        command=-difference("instructions", "command-handler"),
        relay=-difference("instructions", "stream-relay"),
        handler_package=difference("zipped", "command-handler"),
        relay_package=difference("zipped", "stream-relay"),
    )


DECISION = """With opt-level 3, a command takes {command:.0%} fewer instructions and a record {relay:.0%} fewer, and the packages are {handler_package:.0%} and
{relay_package:.0%} larger. The functions keep `"s"`: a command would save less than 0.1 ms of a processor, which is less than 0.4 ms with
the share of a processor that the command handler's 512 MB give it. It waits several milliseconds for DynamoDB. A cold start,
which takes longest, loads the whole package.

"""


def summary(results):
    rows = {name: part["rows"] for name, part in results.items()}
    warm, relays, starts = dict(rows["sizes"])[100], dict(rows["relay"])[1_000], dict(rows["starts"])
    histories = {(events, behind): row for events, behind, row in rows["histories"]}
    hot = {(processes, clients): of for processes, clients, of in rows["hot"]}
    daybook, adapter, dynamo = list(warm)[:3]
    instructions = lambda name, events: thousand(histories[events, None][name]["warm"]["instructions"])
    cold = {name: histories[1_000, 50][name]["cold"] for name in (daybook, adapter)}
    ratio = lambda rows, figure, other: rows[daybook][figure] / rows[other][figure]
    clients = max(clients for processes, clients in hot if processes == 1)
    return SUMMARY.format(
        few=instructions(daybook, 10),
        many=instructions(daybook, 10_000),
        adapter_few=instructions(adapter, 10),
        adapter_many=instructions(adapter, 10_000),
        units=short(warm[daybook]["warm"]["write_units"]),
        adapter_units=short(warm[adapter]["warm"]["write_units"]),
        dynamo_units=short(warm[dynamo]["warm"]["write_units"]),
        cold_calls=short(cold[daybook]["calls"]),
        cold_units=short(cold[daybook]["read_units"]),
        adapter_cold_calls=short(cold[adapter]["calls"]),
        adapter_cold_units=short(cold[adapter]["read_units"]),
        bare=warm[daybook]["warm"]["instructions"] / warm["bare"]["warm"]["instructions"],
        relay=ratio(relays, "instructions", "bare"),
        node=ratio(relays, "instructions", "Node.js"),
        memory=ratio(relays, "peak_kilobytes", "Node.js"),
        start=starts["command-handler"]["own_milliseconds"],
        relay_start=starts["stream-relay"]["own_milliseconds"],
        empty=starts["empty-http"]["own_milliseconds"],
        rate=f"{hot[1, clients]['commands_a_second']:,.0f}",
        clients=clients,
        hot_units=short(hot[1, clients]["write_units"]),
        alone_units=short(hot[1, 1]["write_units"]),
    )


PAGE = {"sizes": sizes, "histories": histories, "relay": relay, "starts": starts, "hot": hot}
DETAILS = {"reads": reads, "opt-levels": opt_levels}


def ended(text):
    return text.rstrip("\n") + "\n"


def page():
    """The text of docs/performance.md."""
    results = load()
    return ended(BEFORE + summary(results) + "".join(write_part(results[name]) for name, write_part in PAGE.items()))


def readme():
    """The text of README.md."""
    results = load()
    text = README_BEFORE + HOW.format(minutes=8, parts=", ".join(f"`{name}`" for name in PAGE | DETAILS))
    text += METHOD.format(every=PEER_SNAPSHOT_EVERY)
    text += "".join(write_part(results[name]) for name, write_part in DETAILS.items())
    return ended(text + goals(results))


def write():
    DOCUMENT.write_text(page())
    README.write_text(readme())


if __name__ == "__main__":
    write()
