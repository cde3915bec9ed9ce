//! The dashboard: its metric math is evaluated over counted metrics, and compared with figures that are counted by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde_json::{Value, json};

use super::{expression, plain, plain_with_parts, read, text};

const HOUR: i64 = 60;
const DAY: i64 = 24 * HOUR;

/// Values of a metric in a minute, each with the number of its occurrences.
type Samples = Vec<(f64, f64)>;

/// The metrics of an account: namespace, name and dimensions, as on the dashboard.
struct Account(BTreeMap<String, Box<dyn Fn(i64) -> Samples>>);

impl Account {
    /// These sums of metrics, all of them in the first minute.
    fn of_sums(sums: &[(&str, f64)]) -> Self {
        let mut account = Self(BTreeMap::new());
        for &(metric, sum) in sums {
            account.set(metric, move |minute| if minute == 0 { vec![(sum, 1.0)] } else { vec![] });
        }
        account
    }

    fn set(&mut self, metric: &str, samples: impl Fn(i64) -> Samples + 'static) {
        self.0.insert(metric.to_owned(), Box::new(samples));
    }

    /// A statistic of a metric over some minutes; `None` without a value in any of them.
    fn statistic(&self, metric: &str, statistic: &str, minutes: Range<i64>) -> Option<f64> {
        let samples: Samples = minutes.flat_map(|minute| self.0.get(metric).map_or(vec![], |of| of(minute))).collect();
        let count =
            |of: &dyn Fn(f64) -> bool| samples.iter().filter(|(value, _)| of(*value)).map(|(_, count)| count).sum();
        let all: f64 = count(&|_| true);
        if all == 0.0 {
            return None;
        }
        if statistic == "Sum" {
            return Some(samples.iter().map(|(value, count)| value * count).sum());
        }
        // The percentage of the values up to a bound.
        let bound = statistic.strip_prefix("PR(:").and_then(|rest| rest.strip_suffix(')')?.parse().ok());
        let bound: f64 = bound.unwrap_or_else(|| panic!("{statistic} is not known here"));
        Some(100.0 * count(&|value| value <= bound) / all)
    }
}

/// A line of a widget: a metric or an expression.
enum Line {
    Metric { name: String, statistic: String },
    Expression(String),
}

struct Widget {
    title: String,
    properties: Value,
    /// The lines, by their ids. Those without an id have a number.
    lines: BTreeMap<String, Line>,
}

impl Widget {
    fn read(widget: &Value) -> Self {
        let properties = &widget["properties"];
        let (mut lines, mut before) = (BTreeMap::new(), Vec::<String>::new());
        for (number, row) in properties["metrics"].as_array().into_iter().flatten().enumerate() {
            let mut words: Vec<_> = row.as_array().unwrap().clone();
            let options = words.pop_if(|last| last.is_object()).unwrap_or_default();
            let words: Vec<_> =
                words.iter().map(|word| word.as_str().unwrap().replace("${", "").replace('}', "")).collect();
            let line = if let Some(expression) = options["expression"].as_str() {
                assert!(words.is_empty());
                Line::Expression(expression.to_owned())
            } else {
                // "..." stands for the words before the last ones of the metric before, and "." for the word at that place.
                let all: Vec<_> = match words.split_first() {
                    Some((first, rest)) if first == "..." => {
                        before[..before.len() - rest.len()].iter().chain(rest).cloned().collect()
                    }
                    _ => words
                        .iter()
                        .enumerate()
                        .map(|(at, word)| if word == "." { &before[at] } else { word }.clone())
                        .collect(),
                };
                let dimensions = all[2..].iter().skip(1).step_by(2);
                let name = all[..2].iter().chain(dimensions).cloned().collect::<Vec<_>>().join(" ");
                before = all;
                let statistic = options.get("stat").unwrap_or(&properties["stat"]).as_str().unwrap_or("Average");
                Line::Metric { name, statistic: statistic.to_owned() }
            };
            let id = options["id"].as_str().map_or(number.to_string(), str::to_owned);
            assert!(lines.insert(id, line).is_none(), "two lines have the same id: {row}");
        }
        Self { title: properties["title"].as_str().unwrap().to_owned(), properties: properties.clone(), lines }
    }

    /// The minutes of a data point. If the period is set to the time range, the range is the only one.
    fn minutes(&self) -> i64 {
        if self.properties["setPeriodToTimeRange"] == true {
            let days =
                self.properties["start"].as_str().unwrap().strip_prefix("-P").unwrap().strip_suffix('D').unwrap();
            return days.parse::<i64>().unwrap() * DAY;
        }
        self.properties["period"].as_i64().unwrap() / 60
    }

    /// The value of a line in the data point that begins with a minute.
    fn value(&self, id: &str, account: &Account, begin: i64) -> Option<f64> {
        let line = self.lines.get(id).unwrap_or_else(|| panic!("{} has no line {id}", self.title));
        match line {
            Line::Metric { name, statistic } => account.statistic(name, statistic, begin..begin + self.minutes()),
            Line::Expression(text) => expression::value(text, &|id| self.value(id, account, begin)),
        }
    }
}

/// A text in which the variables of `Fn::Sub` are replaced. The processor is arm64.
fn substituted(value: &Value, template: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) if parts[0] == "Prices" => {
            let price = &template["Mappings"]["Prices"][parts[1].as_str().unwrap()][parts[2].as_str().unwrap()];
            price.as_str().unwrap_or_else(|| panic!("{value} is no price")).to_owned()
        }
        Value::Array(parts) if parts[0] == "UsesArm" => substituted(&parts[1], template),
        Value::Object(members) if members.contains_key("Fn::Sub") => {
            let variables = members["Fn::Sub"][1].as_object().unwrap();
            let text = substituted(&members["Fn::Sub"][0], template);
            variables.iter().fold(text, |text, (name, value)| {
                assert!(text.contains(&format!("${{{name}}}")), "{name} is not used");
                text.replace(&format!("${{{name}}}"), &substituted(value, template))
            })
        }
        other => panic!("{other} is not known here"),
    }
}

/// The body of the dashboard.
fn body(parts: bool) -> Value {
    let plain = if parts { plain_with_parts } else { plain };
    let nested = plain(&read("deploy/monitoring.yaml"));
    let body = substituted(&nested["Resources"]["Dashboard"]["Properties"]["DashboardBody"], &nested);
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// The widgets that show metrics.
fn widgets(parts: bool) -> Vec<Widget> {
    let body = body(parts);
    let all = body["widgets"].as_array().unwrap().iter();
    all.filter(|widget| widget["type"] == "metric").map(Widget::read).collect()
}

fn widget(parts: bool, title: &str) -> Widget {
    let found = widgets(parts).into_iter().find(|widget| widget.title == title);
    found.unwrap_or_else(|| panic!("no widget has the title {title}"))
}

fn assert_near(value: Option<f64>, expected: f64, what: &str) {
    let value = value.unwrap_or_else(|| panic!("{what} has no value"));
    assert!((value - expected).abs() < 1e-6 * expected.abs().max(1.0), "{what} is {value}, expected {expected}");
}

// Limits of CloudWatch.

#[test]
fn dashboard_is_within_the_limits_of_cloudwatch() {
    for parts in [false, true] {
        let body = body(parts);
        // Otherwise the time range of the dashboard would change the windows of the burn rates.
        assert_eq!(body["periodOverride"], "inherit");
        let mut places = BTreeSet::new();
        for widget in body["widgets"].as_array().unwrap() {
            let [x, y, width, height] = ["x", "y", "width", "height"].map(|name| widget[name].as_u64().unwrap());
            assert!(x + width <= 24, "{widget}");
            for place in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
                assert!(places.insert(place), "two widgets are at {place:?}: {widget}");
            }
        }
        // https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_limits.html
        let widgets = widgets(parts);
        assert!(widgets.iter().all(|widget| widget.lines.len() <= 500) && widgets.len() <= 500);
        assert!(widgets.iter().map(|widget| widget.lines.len()).sum::<usize>() <= 2500);
        let nothing = Account::of_sums(&[]);
        for widget in &widgets {
            assert_eq!(widget.properties["period"].as_i64().unwrap() % 60, 0, "{}", widget.title);
            for (id, line) in &widget.lines {
                let Line::Expression(text) = line else { continue };
                assert!(id.starts_with(char::is_lowercase) && id.chars().all(char::is_alphanumeric), "{id}");
                // https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_MetricDataQuery.html
                assert!(text.len() <= 2048, "{id} has {} characters", text.len());
                // All ids are known. Without requests and commands, there is no point.
                assert_eq!(widget.value(id, &nothing, 0), None, "{}: {id}", widget.title);
            }
        }
    }
}

#[test]
fn dashboard_shows_optional_parts_only_if_they_are_deployed() {
    let titles = |parts| widgets(parts).into_iter().map(|widget| widget.title).collect::<BTreeSet<_>>();
    let (without, with) = (titles(false), titles(true));
    let added: Vec<_> = with.difference(&without).collect();
    let expected = [
        "Messages of the projector",
        "Messages of the reactor",
        "Oldest due deadline or message of the reactor, s",
        "Oldest message of the projector, s",
        "Projector",
        "Reactor",
    ];
    assert_eq!(added, expected);
    let text = body(false).to_string();
    assert!(
        !["ProjectorName", "\"views\"", "ReactorName", "\"reactor\""].iter().any(|name| text.contains(name)),
        "{text}"
    );
}

// Costs.

/// A million commands, with the quantities of the table "Costs" in docs/deploy.md.
const MILLION: [(&str, f64); 17] = [
    ("Daybook/MonitoredStack CommandsExecuted", 1e6),
    ("AWS/ApiGateway Count HttpApi", 1e6),
    ("AWS/Lambda Invocations CommandHandler", 1e6),
    ("AWS/Lambda Invocations StreamRelay", 1e6),
    ("AWS/Lambda Invocations Snapshotter", 10_000.0),
    ("AWS/Lambda Duration CommandHandler", 15e6),
    ("AWS/Lambda Duration StreamRelay", 30e6),
    ("AWS/Lambda Duration Snapshotter", 500_000.0),
    ("AWS/DynamoDB ConsumedWriteCapacityUnits Table", 10_040_000.0),
    ("AWS/DynamoDB ConsumedWriteCapacityUnits Table gsi1", 2e6),
    ("AWS/DynamoDB ConsumedReadCapacityUnits Table", 2_110_000.0),
    ("AWS/DynamoDB ConsumedReadCapacityUnits Table gsi1", 260_000.0),
    ("Daybook/MonitoredStack MessagesSent", 1e6),
    ("AWS/Logs IncomingBytes ApiLogs", 0.5e9),
    ("AWS/Logs IncomingBytes /aws/lambda/MonitoredStack/command-handler", 0.9e9),
    ("AWS/Logs IncomingBytes /aws/lambda/MonitoredStack/stream-relay", 1.0e9),
    ("AWS/Logs IncomingBytes /aws/lambda/MonitoredStack/snapshotter", 0.1e9),
];

#[test]
fn cost_of_a_million_commands_is_that_of_the_costs_page() {
    let costs = widget(false, "Cost of a million commands, US dollars");
    assert_eq!(costs.minutes(), HOUR);
    let account = Account::of_sums(&MILLION);
    let parts = [
        ("api", 1.0),
        // 2,010,000 requests, and 7,500 + 7,500 + 250 GB-seconds, of 1,024 MB each.
        ("functions", 0.402 + 15_250.0 * 0.000_013_333_4),
        ("table", 12.04 * 0.625 + 2.37 * 0.125),
        ("bus", 1.0),
        ("logs", 1.25),
    ];
    for (id, expected) in parts {
        assert_near(costs.value(id, &account, 0), expected, id);
    }
    let together: f64 = parts.iter().map(|(_, part)| part).sum();
    assert_near(costs.value("together", &account, 0), together, "together");
    // Without the archive, which no metric counts, it is the sum of the page.
    let page = read("docs/deploy.md");
    let last = |begin: &str| -> f64 {
        let row = page.lines().find(|line| line.starts_with(begin)).unwrap();
        row.trim_end_matches([' ', '|', '*']).rsplit([' ', '*']).next().unwrap().parse().unwrap()
    };
    assert!((together - (last("| **together**") - last("| EventBridge, archive"))).abs() < 0.01, "{together}");
    // Half as many commands with the same requests cost twice as much.
    let mut half = account;
    half.set(
        "Daybook/MonitoredStack CommandsExecuted",
        |minute| if minute == 0 { vec![(500_000.0, 1.0)] } else { vec![] },
    );
    assert_near(costs.value("together", &half, 0), 2.0 * together, "half as many commands");
}

#[test]
fn cost_with_all_parts_contains_the_projector_and_the_reactor() {
    let costs = widget(true, "Cost of a million commands, US dollars");
    let views = [
        ("AWS/Lambda Duration ProjectorName", 20e6),
        ("AWS/Lambda Invocations ProjectorName", 1e6),
        ("AWS/DynamoDB ConsumedWriteCapacityUnits ViewsTableName", 4e6),
        ("AWS/DynamoDB ConsumedReadCapacityUnits ViewsTableName", 3e6),
        ("AWS/SQS NumberOfMessagesSent ChangesQueueName", 1e6),
        ("AWS/SQS NumberOfMessagesReceived ChangesQueueName", 1e6),
        ("AWS/SQS NumberOfMessagesDeleted ChangesQueueName", 1e6),
        ("AWS/SQS NumberOfEmptyReceives ChangesQueueName", 500_000.0),
        ("AWS/Logs IncomingBytes /aws/lambda/MonitoredStack/projector", 1e9),
    ];
    let reactor = [
        ("AWS/Lambda Duration ReactorName", 10e6),
        ("AWS/Lambda Invocations ReactorName", 500_000.0),
        ("AWS/SQS NumberOfMessagesSent ReactionsQueueName", 1e6),
        ("AWS/SQS NumberOfMessagesReceived ReactionsQueueName", 1e6),
        ("AWS/SQS NumberOfMessagesDeleted ReactionsQueueName", 1e6),
        ("AWS/SQS NumberOfEmptyReceives ReactionsQueueName", 250_000.0),
        ("AWS/Logs IncomingBytes /aws/lambda/MonitoredStack/reactor", 0.5e9),
    ];
    let account = Account::of_sums(&[&MILLION[..], &views[..], &reactor[..]].concat());
    // 10,000 GB-seconds, 3.5 million messages and a GB of log.
    let expected = 0.20 + 10_000.0 * 0.000_013_333_4 + 4.0 * 0.625 + 3.0 * 0.125 + 3.5 * 0.40 + 0.50;
    assert_near(costs.value("views", &account, 0), expected, "views");
    // 5,000 GB-seconds, 3.25 million messages and half a GB of log.
    let expected = 0.10 + 5_000.0 * 0.000_013_333_4 + 3.25 * 0.40 + 0.25;
    assert_near(costs.value("reactor", &account, 0), expected, "reactor");
    let parts = ["api", "functions", "table", "bus", "logs", "views", "reactor"];
    let parts = parts.map(|id| costs.value(id, &account, 0).unwrap());
    assert_near(costs.value("together", &account, 0), parts.iter().sum(), "together");
}

#[test]
fn prices_and_memory_sizes_are_those_of_the_costs_page_and_of_the_functions() {
    let (outer, nested) = (plain(&text()), plain(&read("deploy/monitoring.yaml")));
    let page = read("docs/deploy.md");
    let prices = &nested["Mappings"]["Prices"]["us-east-1"];
    for name in ["ApiRequests", "FunctionRequests", "WriteUnits", "ReadUnits", "Messages"] {
        assert!(page.contains(&format!("| {} / M", prices[name].as_str().unwrap())), "{name}");
    }
    let per_second = prices["FunctionGbSecondsArm"].as_str().unwrap().parse::<f64>().unwrap() / 1e6;
    assert!(page.contains(&format!("{per_second:.7} / GB-s")), "{per_second}");
    assert!(page.contains(&format!("{} / GB | 1.25", prices["LogGigabytes"].as_str().unwrap())));

    let costs = read("deploy/monitoring.yaml");
    let memory = |function: &Value| function["Properties"]["MemorySize"].as_u64();
    let default = outer["Globals"]["Function"]["MemorySize"].as_u64();
    let projector = &plain(&read("deploy/read-models.yaml"))["Resources"]["Projector"];
    let reactor = &plain(&read("deploy/reactor.yaml"))["Resources"]["Reactor"];
    for (id, function) in [
        ("handlerMs", &outer["Resources"]["CommandHandler"]),
        ("relayMs", &outer["Resources"]["StreamRelay"]),
        ("snapshotterMs", &outer["Resources"]["Snapshotter"]),
        ("projectorMs", projector),
        ("reactorMs", reactor),
    ] {
        let size = memory(function).or(default).unwrap();
        assert!(costs.contains(&format!("FILL({id}, 0) * {size}")), "{id} has {size} MB");
    }
}

// Objectives.

/// 1,000 requests an hour. In the last hour of `minutes`, ten get a 5xx, and thirty take more than a second.
fn one_bad_hour(minutes: i64) -> Account {
    let is_bad = move |minute: i64| minute >= minutes - HOUR;
    let mut account = Account(BTreeMap::new());
    account.set("AWS/ApiGateway Count HttpApi", |_| vec![(1.0, 1_000.0 / 60.0)]);
    account.set("AWS/ApiGateway 5xx HttpApi", move |minute| {
        let bad = if is_bad(minute) { 10.0 / 60.0 } else { 0.0 };
        vec![(1.0, bad), (0.0, 1_000.0 / 60.0 - bad)]
    });
    account.set("AWS/ApiGateway Latency HttpApi", move |minute| {
        let slow = if is_bad(minute) { 30.0 / 60.0 } else { 0.0 };
        // A request that takes a second exactly is fast enough.
        vec![(1_001.0, slow), (1_000.0, 100.0 / 60.0), (50.0, 900.0 / 60.0 - slow)]
    });
    account
}

#[test]
fn burn_rates_are_shares_of_the_error_budget_in_an_hour_and_in_six() {
    let hour = widget(false, "Burn rate of an hour");
    let account = one_bad_hour(6 * HOUR);
    assert_eq!(hour.minutes(), HOUR);
    // 1 % of the requests fail where 0.1 % may, and 3 % are slow where 1 % may be.
    assert_near(hour.value("availability", &account, 5 * HOUR), 10.0, "availability");
    assert_near(hour.value("latency", &account, 5 * HOUR), 3.0, "latency");
    assert_near(hour.value("availability", &account, 0), 0.0, "availability before");

    let six = widget(false, "Burn rate of six hours");
    assert_eq!(six.minutes(), 6 * HOUR);
    assert_near(six.value("availability", &account, 0), 10.0 / 6.0, "availability of six hours");
    assert_near(six.value("latency", &account, 0), 0.5, "latency of six hours");

    // At the lines of the graphs, this share of the budget of 30 days is used.
    for (widget, share) in [(&hour, 0.02), (&six, 0.05)] {
        let line = widget.properties["annotations"]["horizontal"][0]["value"].as_f64().unwrap();
        #[expect(clippy::cast_precision_loss, reason = "a few days")]
        let part = widget.minutes() as f64 / (30 * DAY) as f64;
        assert_near(Some(line * part), share, &widget.title);
    }
}

#[test]
fn error_budget_is_what_thirty_days_leave() {
    let budget = widget(false, "Error budget that is left, percent of 30 days");
    assert_eq!((budget.minutes(), &budget.properties["view"]), (30 * DAY, &json!("singleValue")));
    let account = one_bad_hour(30 * DAY);
    // Of 720,000 requests, 720 may fail and 7,200 may be slow.
    assert_near(budget.value("availabilityLeft", &account, 0), 100.0 - 100.0 * 10.0 / 720.0, "availability");
    assert_near(budget.value("latencyLeft", &account, 0), 100.0 - 100.0 * 30.0 / 7_200.0, "latency");
    // A budget that is overspent is negative.
    let mut down = one_bad_hour(30 * DAY);
    down.set("AWS/ApiGateway 5xx HttpApi", |_| vec![(1.0, 10.0 / 60.0), (0.0, 990.0 / 60.0)]);
    assert_near(budget.value("availabilityLeft", &down, 0), -900.0, "availability");
}
