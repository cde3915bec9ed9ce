//! The tables of the simulation: all of them in tests/src/scale/tables.md, and two in docs/scale.md.

use super::command::{Command, PARTITION_UNITS, feed_queries};
use super::hot_aggregate::HotAggregate;
use super::load::Load;

const STEPS: [u32; 6] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];
const LARGE: Command = Command::with_data(1_024);
const SMALL: Command = Command::with_data(256);

/// A table, by rows.
type Table = Vec<Vec<String>>;

/// The tables of docs/scale.md.
pub fn page_tables() -> [String; 2] {
    [markdown(&steps()), markdown(&settings())]
}

/// The text of tests/src/scale/tables.md.
pub fn document() -> String {
    let sections = [
        ("What each step needs, with 1 KB of data", needs(LARGE)),
        ("What each step needs, with 256 bytes of data", needs(SMALL)),
        ("Defaults that each step exceeds", exceeded()),
        ("Commands that share a transaction", groups()),
        ("Instances that write to one aggregate", hot_aggregates()),
        ("Shards of an event type", event_type_shards()),
        ("Costs of `SnapshotEvery`", snapshots()),
    ];
    let sections = sections.iter().map(|(title, table)| format!("\n## {title}\n\n{}\n", markdown(table)));
    std::iter::once(BEFORE.to_owned()).chain(sections).collect()
}

const BEFORE: &str = "# Tables of the simulation

`tables.rs` computes these tables; do not edit them. [scale.md](../../../docs/scale.md) describes the assumptions, and what follows
for a stack.

- Units and requests are for one second. \"Index\" is the index of the table that feeds and lists read.
- The factor after a default is the need of the load with 1 KB of data, divided by the default. Factors above 10 are rounded up.
- \"Transactions a command\" includes cancelled transactions. p50 and p99 are percentiles of the time of a command. \"Limited by
  races\" means that the instances wait for each other. \"Limited by partition\" means that the transactions would need more than
  1,000 write units a second; DynamoDB throttles the excess, so the times are longer. There is no row with two instances, because
  their result varies: often, one of them has the aggregate for itself for a while.
";

/// What each step needs in short, and the defaults that it exceeds.
fn steps() -> Table {
    let head = [
        "commands a second",
        "write units, table and index",
        "partitions and stream shards",
        "concurrent command handlers",
        "US dollars an hour",
        "defaults that they exceed",
    ];
    // Without their heads.
    let (needs, exceeded) = (needs(LARGE).split_off(2), exceeded().split_off(2));
    let row = |(&commands, (needs, exceeded)): (&u32, (&Vec<String>, &Vec<String>))| {
        let load = Load::new(commands, LARGE);
        let units = whole(load.table_units() + load.index_units());
        let [commands, partitions, handlers, cost] = [0, 4, 5, 9].map(|column| needs[column].clone());
        vec![commands, units, partitions, handlers, cost, exceeded[1].clone()]
    };
    table(&head, STEPS.iter().zip(needs.iter().zip(&exceeded)).map(row))
}

/// What each step needs.
fn needs(command: Command) -> Table {
    let head = [
        "commands a second",
        "write units of the table",
        "of the index",
        "read units",
        "partitions and stream shards",
        "concurrent command handlers",
        "relays",
        "snapshotters",
        "requests to the bus",
        "US dollars an hour",
    ];
    let row = |commands| {
        let load = Load::new(commands, command);
        let numbers = [
            load.table_units(),
            load.index_units(),
            load.read_units(),
            load.partitions(),
            load.handlers(),
            load.relays(),
            load.snapshotters(),
            load.put_events(),
        ];
        let numbers = numbers.map(whole).into_iter();
        let cost = load.cost_of_an_hour();
        let cost = if cost < 100.0 { format!("{cost:.2}") } else { whole(cost) };
        [whole(f64::from(commands))].into_iter().chain(numbers).chain([cost]).collect()
    };
    table(&head, STEPS.map(row))
}

/// The defaults that each step exceeds.
fn exceeded() -> Table {
    let row = |commands| {
        let limits = Load::new(commands, LARGE).exceeded();
        let ratio = |ratio: f64| if ratio < 10.0 { format!("{ratio:.1}") } else { whole(ratio) };
        let all: Vec<_> =
            limits.iter().map(|limit| format!("{} {} ×", limit.name, ratio(limit.need / limit.default))).collect();
        let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        vec![whole(f64::from(commands)), all]
    };
    table(&["commands a second", "defaults that they exceed"], STEPS.map(row))
}

/// What to set at each step. Peaks are twice the average.
fn settings() -> Table {
    let head = [
        "commands a second",
        "`ThrottleRate`",
        "`EventTypeShards`",
        "event types, at least",
        "quota of Lambda",
        "warm write units",
        "quota of the table",
        "quota of API Gateway",
        "quota of PutEvents",
    ];
    let row = |commands: u32| {
        let peak = Load::new(2 * commands, LARGE);
        let rate = f64::from(peak.commands);
        let shards = peak.event_type_shards();
        let above = |value: f64, default: f64| if value > default { whole(value) } else { "default".to_owned() };
        vec![
            whole(f64::from(commands)),
            above(rate, Load::THROTTLE_RATE),
            above(shards.min(Load::MAX_EVENT_TYPE_SHARDS), 1.0),
            whole((shards / Load::MAX_EVENT_TYPE_SHARDS).ceil()),
            above(peak.concurrency_quota(), Load::CONCURRENCY),
            above(peak.table_units(), Load::NEW_TABLE),
            above(peak.table_units(), Load::TABLE_QUOTA),
            above(rate, Load::API_GATEWAY),
            above(peak.put_events(), Load::PUT_EVENTS),
        ]
    };
    table(&head, STEPS.map(row))
}

/// Commands that share a transaction.
fn groups() -> Table {
    let head =
        ["commands in a transaction", "write units a command, table and index", "commands a second of one aggregate"];
    let row = |group: u32| {
        let units = SMALL.append(group);
        let group_size = f64::from(group);
        vec![
            group.to_string(),
            format!("{:.2}", f64::from(units.sum()) / group_size),
            whole((PARTITION_UNITS * group_size / f64::from(units.table)).floor()),
        ]
    };
    table(&head, [1, 2, 4, 8, 16, SMALL.largest_group()].map(row))
}

/// Instances that write to one aggregate.
fn hot_aggregates() -> Table {
    let head = [
        "instances",
        "requests at once in each",
        "commands a second",
        "limited by",
        "transactions a command",
        "write units a command",
        "p50",
        "p99",
    ];
    let row = |(processes, requests): (u32, u32)| {
        let commands = 6_400 / (processes * requests);
        let simulated = HotAggregate { processes, requests, commands, command: SMALL }.simulate();
        let (by_races, by_partition) = (simulated.throughput(), simulated.partition_limit());
        let milliseconds = |percent| format!("{} ms", whole((1_000.0 * simulated.percentile(percent)).round()));
        vec![
            processes.to_string(),
            requests.to_string(),
            whole(by_races.min(by_partition).round()),
            if by_races < by_partition { "races" } else { "partition" }.to_owned(),
            format!("{:.2}", simulated.transactions_per_command()),
            format!("{:.1}", simulated.units_per_command()),
            milliseconds(50),
            milliseconds(99),
        ]
    };
    table(&head, [(1, 1), (1, 16), (1, 64), (3, 16), (3, 64), (8, 1), (10, 1), (64, 1)].map(row))
}

/// The events of one type that the index accepts.
fn event_type_shards() -> Table {
    let head = ["`EventTypeShards`", "events a second with 1 KB", "with 256 bytes", "queries for a page of a feed"];
    let row = |shards: u32| {
        let events = |command: Command| whole(PARTITION_UNITS * f64::from(shards) / f64::from(command.append(1).index));
        vec![shards.to_string(), events(LARGE), events(SMALL), feed_queries(shards).to_string()]
    };
    table(&head, [1, 2, 4, 8, 16, 32, 64].map(row))
}

/// The costs of `SnapshotEvery`.
fn snapshots() -> Table {
    let head = [
        "`SnapshotEvery`",
        "read units of a load, on average",
        "read units of a snapshot",
        "write units of snapshots for a million commands",
        "US dollars for a million commands",
    ];
    let row = |every: u32| {
        let load = Load { snapshot_every: every, ..Load::new(1, LARGE) };
        let (read, write) = LARGE.snapshot(every);
        vec![
            whole(f64::from(every)),
            whole(f64::from(LARGE.load(every / 2))),
            whole(f64::from(read)),
            whole(1e6 * f64::from(write) / f64::from(every)),
            format!("{:.2}", load.cost_of_a_million()),
        ]
    };
    table(&head, [10, 25, 50, 100, 250, 1_000].map(row))
}

fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let rule = vec!["---".to_owned(); head.len()];
    let head = head.iter().map(|&name| name.to_owned()).collect();
    [head, rule].into_iter().chain(rows).collect()
}

fn markdown(table: &Table) -> String {
    let row = |row: &Vec<String>| match row.iter().all(|cell| cell == "---") {
        true => format!("|{}|", row.join("|")),
        false => format!("| {} |", row.join(" | ")),
    };
    table.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// A number without decimals, with commas between thousands. Needs are rounded up.
fn whole(number: f64) -> String {
    let digits = format!("{:.0}", number.ceil());
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group)).collect();
    groups.join(",")
}
