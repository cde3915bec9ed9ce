//! The alarms ring after failures, and only then: the templates' alarms are evaluated in virtual time, over the metrics that
//! move in a failure.
//!
//! In reading order: the tests, then `failures` (the metrics of each failure), `trials` (a test causes the failure and observes
//! the metrics) and `evaluation` (when CloudWatch sets an alarm's state, with the metric math of `template/expression`).

mod evaluation;
mod failures;
mod names;
mod trials;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use self::evaluation::{Alarm, Series};
use self::failures::{BEGIN, END, FAILURES, Failure, Moves, Tried, api_with_requests, healthy, idle};
use self::names::{QUOTA, SERVER_ERRORS};
use self::trials::{Observed, Trial};
use super::monitoring::{all_templates, templates};
use super::{plain, read, resources, template_of};

/// The alarms that notify, by their section in the runbook.
fn alarms() -> BTreeMap<String, Alarm> {
    let all = all_templates().map(|template| resources(&template, "AWS::CloudWatch::Alarm").into_values());
    let notifying = all.into_iter().flatten().filter(|alarm| alarm["Properties"].get("AlarmActions").is_some());
    notifying.map(|alarm| Alarm::read(&alarm["Properties"])).map(|alarm| (alarm.section.clone(), alarm)).collect()
}

/// The minutes from the beginning of the failure until each alarm rings.
fn ringing(alarms: &BTreeMap<String, Alarm>, series: &Series) -> BTreeSet<(i64, String)> {
    let rings = |(section, alarm): (&String, &Alarm)| {
        let minute = alarm.states(series, END).into_iter().find(|(_, in_alarm)| *in_alarm)?.0;
        Some((minute - BEGIN, section.clone()))
    };
    alarms.iter().filter_map(rings).collect()
}

#[test]
fn no_alarm_rings_without_a_failure() {
    let alarms = alarms();
    assert!(alarms.len() > 25, "{}", alarms.len());
    for (load, series) in [("load", healthy()), ("no load", idle())] {
        assert_eq!(ringing(&alarms, &series), BTreeSet::new(), "{load}");
    }
}

#[test]
fn each_failure_rings_the_alarms_in_the_runbook_after_the_minutes_there() {
    let alarms = alarms();
    let runbook = read("docs/runbook.md");
    let (mut rung, mut missing) = (BTreeSet::new(), Vec::new());
    for failure in FAILURES {
        let ringing = ringing(&alarms, &failure.series());
        assert!(!ringing.is_empty(), "no alarm rings: {}", failure.name);
        // Silence too rings within ten minutes.
        assert!(ringing.iter().next().unwrap().0 <= 10, "{}: {ringing:?}", failure.name);
        let listed: Vec<_> =
            ringing.iter().map(|(minutes, section)| format!("[{section}](#{section}) {minutes}")).collect();
        let row = format!("| {} | {} |", failure.name, listed.join(", "));
        if !runbook.contains(&row) {
            missing.push(row);
        }
        rung.extend(ringing.into_iter().map(|(_, section)| section));
    }
    assert!(missing.is_empty(), "docs/runbook.md lacks\n{}", missing.join("\n"));
    let never: Vec<_> = alarms.keys().filter(|section| !rung.contains(*section)).collect();
    assert!(never.is_empty(), "no failure rings {never:?}");
}

#[test]
fn failing_or_slow_api_rings_at_one_four_and_sixty_requests_a_minute() {
    let alarms = alarms();
    let rings = |series: &Series| {
        let ringing = ringing(&alarms, series).into_iter();
        ringing.filter(|(_, section)| section.starts_with("api-")).collect::<Vec<_>>()
    };
    for requests in [1.0, 4.0, 60.0] {
        let first = |series, section: &str| {
            let found = rings(&series).into_iter().find(|(_, ringing)| ringing == section);
            found.unwrap_or_else(|| panic!("{section} is silent at {requests} requests a minute")).0
        };
        assert!(first(api_with_requests(requests, 1.0, 50.0), "api-failing") <= 3);
        assert!(first(api_with_requests(requests, 0.25, 50.0), "api-failing") <= 12);
        assert!(first(api_with_requests(requests, 0.0, 3_000.0), "api-slow") <= 3);
        // A single failed request among others needs nobody.
        let mut series = api_with_requests(requests, 0.0, 50.0);
        series.replace(SERVER_ERRORS, BEGIN..BEGIN + 1, |_| Some(1.0));
        assert_eq!(rings(&series), []);
    }
}

#[test]
fn each_function_rings_if_it_is_throttled_or_slow() {
    let alarms = alarms();
    for function in ["CommandHandler", "StreamRelay", "Snapshotter", "ProjectorName", "ReactorName"] {
        for (metric, value, section) in
            [("Throttles", 1.0, "functions-throttled"), ("Duration", 24_500.0, "functions-near-timeout")]
        {
            let mut series = healthy();
            series.replace(&format!("AWS/Lambda {metric} {function}"), BEGIN..END, move |_| Some(value));
            assert!(ringing(&alarms, &series).iter().any(|(_, ringing)| ringing == section), "{section}: {function}");
        }
    }
}

#[test]
fn concurrency_rings_at_eighty_percent_of_the_quota_of_the_account() {
    let alarms = alarms();
    for (quota, used, rings) in [(10.0, 8.0, false), (10.0, 9.0, true), (1_000.0, 9.0, false), (1_000.0, 801.0, true)] {
        let mut series = healthy();
        series.set(QUOTA, move |_| Some(quota));
        series.set("AWS/Usage ResourceCount Lambda Resource ConcurrentExecutions None", move |_| Some(used));
        let ringing = ringing(&alarms, &series);
        assert_eq!(ringing.iter().any(|(_, one)| one == "concurrency-high"), rings, "{used} of {quota}: {ringing:?}");
    }
}

/// Whether a trial observed the value that a failure assumes.
fn is_as_assumed(failure: &Failure, metric: &str, observed: Option<f64>) -> bool {
    let is_time = ["Age", "Duration", "Latency"].iter().any(|word| metric.contains(word));
    let moves = failure.moves.iter().find(|(name, _)| *name == metric).map(|(_, moves)| moves);
    match (moves, failure.without().value(metric, BEGIN + 1), observed) {
        (Some(Moves::Stops), _, observed) => observed.is_none(),
        (Some(Moves::Ages | Moves::AgesInSeconds | Moves::AgesWhenReceived | Moves::AgesUntil(_)), _, observed) => {
            observed.is_some_and(|age| age > 0.0)
        }
        (Some(Moves::To(value) | Moves::AtFirst(value) | Moves::After(_, value)), _, observed) => {
            observed.is_some_and(|it| it >= *value)
        }
        (None, None, observed) => observed.is_none(),
        (None, Some(usual), Some(observed)) if is_time => observed <= usual,
        (None, Some(0.0), Some(observed)) => observed == 0.0,
        (None, Some(usual), Some(observed)) => observed >= usual,
        (None, Some(_), None) => false,
    }
}

/// What a trial observed, and the failure does not assume.
fn misfits(failure: &Failure, observed: &Observed) -> Vec<String> {
    let unobserved = failure.moves.iter().filter(|(metric, _)| !observed.contains_key(metric));
    let unobserved = unobserved.map(|(metric, _)| format!("{}: {metric} is not observed", failure.name));
    let others = observed.iter().filter(|(metric, value)| !is_as_assumed(failure, metric, **value));
    unobserved.chain(others.map(|(metric, value)| format!("{}: {metric} is {value:?}", failure.name))).collect()
}

#[test]
fn each_failure_that_a_test_can_cause_moves_the_metrics_that_are_assumed() {
    let trials: Vec<(&Failure, &Trial)> = FAILURES
        .iter()
        .flat_map(|failure| match failure.tried {
            Tried::By(trials) => trials.iter().map(|trial| (failure, trial)).collect(),
            Tried::Not(reason) => {
                assert!(reason.len() > 30, "{}: {reason}", failure.name);
                vec![]
            }
        })
        .collect();
    assert!(trials.len() > 20, "{}", trials.len());
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // Counters and log lines are those of a thread, and each thread runs one trial at a time.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((failure, trial)) = trials.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    let observed = catch_unwind(AssertUnwindSafe(|| runtime.block_on(trial())));
                    let panics = |_| vec![format!("{}: the trial panics", failure.name)];
                    let misfits = observed.map_or_else(panics, |observed| misfits(failure, &observed));
                    found.lock().unwrap().extend(misfits);
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "not as assumed:\n{}", found.join("\n"));
}

#[test]
fn each_alarm_ends_after_its_failure() {
    let alarms = alarms();
    for failure in FAILURES {
        let series = failure.series();
        for (section, alarm) in &alarms {
            let states = alarm.states(&series, END + 30);
            assert!(!states.last().unwrap().1, "{section} does not end after: {}", failure.name);
        }
    }
}

#[test]
fn disabled_or_deleted_rule_rings_after_a_day() {
    const DAY: i64 = 1_440;
    for file in ["deploy/fan-out.yaml", "app/order-mails/template.yaml"] {
        let properties = &plain(&read(file))["Resources"]["RuleSilent"]["Properties"];
        let rule = properties["Dimensions"][1]["Value"].as_str().unwrap();
        let mut series = Series::new();
        // A message every four hours, but none on the third and the fourth day.
        series.set(&format!("AWS/Events TriggeredRules EventBusName {rule}"), |minute| {
            (minute % 240 == 0 && !(2 * DAY..4 * DAY).contains(&minute)).then_some(1.0)
        });
        let states = Alarm::read(properties).states(&series, 5 * DAY);
        let in_alarm = |minute| states[usize::try_from(minute).unwrap()].1;
        assert!((DAY..3 * DAY - 240).chain(4 * DAY + 60..5 * DAY).all(|minute| !in_alarm(minute)), "{file}");
        assert!((3 * DAY..4 * DAY).all(in_alarm), "{file}");
    }
}

#[test]
fn second_dead_letter_message_rings_again() {
    let mut series = healthy();
    // The first message is never deleted.
    series.set("AWS/SQS ApproximateNumberOfMessagesVisible DeadLetterQueue", |minute| {
        Some(if minute < BEGIN { 0.0 } else { 1.0 })
    });
    series.set("AWS/SQS NumberOfMessagesSent DeadLetterQueue", |minute| {
        Some(if [BEGIN + 1, BEGIN + 30].contains(&minute) { 1.0 } else { 0.0 })
    });
    let alarms = alarms();
    let times = |section: &str| {
        let states = alarms[section].states(&series, END);
        states.windows(2).filter(|pair| !pair[0].1 && pair[1].1).count()
    };
    assert_eq!((times("dead-letter-messages"), times("dead-letter-arrived")), (1, 2));
}

#[test]
fn each_alarm_notifies_when_it_ends() {
    for template in all_templates() {
        for (name, alarm) in resources(&template, "AWS::CloudWatch::Alarm") {
            let properties = &alarm["Properties"];
            // An arrival has no end, the messages of an empty queue may have expired, and what was given up stays so.
            let silent = [
                "AggregatesSuspended",
                "ChangesUnread",
                "DeadLetterArrived",
                "DeadLetterMessages",
                "DeadLetterOld",
                "ReactionsGivenUp",
                "ReactionsUnread",
                "RecordsDiscarded",
                "RecordsDropped",
            ];
            let expected = if silent.contains(&name.as_str()) { &Value::Null } else { &properties["AlarmActions"] };
            assert_eq!(properties.get("OKActions").unwrap_or(&Value::Null), expected, "{name}");
        }
    }
}

#[test]
fn alarms_are_within_the_limits_of_cloudwatch() {
    for (section, alarm) in alarms() {
        // https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_limits.html
        assert!(alarm.metrics() <= 10, "{section} has {} metrics", alarm.metrics());
        assert!(alarm.seconds() <= 86_400, "{section} evaluates {} seconds", alarm.seconds());
    }
}

#[test]
fn timeouts_in_an_alarm_are_those_of_the_functions() {
    let [_, nested, ..] = all_templates();
    let expression = nested["Resources"]["FunctionsNearTimeout"]["Properties"]["Metrics"][0]["Expression"].to_string();
    for (id, metric) in [
        ("CommandHandler", "handler"),
        ("StreamRelay", "relay"),
        ("Snapshotter", "snapshotter"),
        ("Projector", "projector"),
        ("Reactor", "reactor"),
    ] {
        let template = template_of(id);
        let own = &template["Resources"][id]["Properties"]["Timeout"];
        let seconds = own.as_u64().or(template["Globals"]["Function"]["Timeout"].as_u64()).unwrap();
        assert!(expression.contains(&format!("FILL({metric}, 0) / {}", seconds * 10)), "{id}: {expression}");
    }
}

#[test]
fn costs_page_counts_the_metrics_of_the_alarms() {
    let (outer, nested) = templates();
    let all = [outer, nested].map(|template| resources(&template, "AWS::CloudWatch::Alarm").into_values());
    // Those on the projector and the reactor exist only with these parts.
    let usual = all.into_iter().flatten().filter(|alarm| alarm.get("Condition").is_none());
    let count: usize = usual.map(|alarm| Alarm::read(&alarm["Properties"]).billed()).sum();
    let page = read("docs/deploy.md");
    assert!(page.contains(&format!("{count} metrics under alarms cost 0.10 each")), "{count} metrics are under alarms");
    let of_deployments = resources(&templates().0, "AWS::CloudWatch::Alarm").into_values();
    let always: usize = of_deployments.map(|alarm| Alarm::read(&alarm["Properties"]).billed()).sum();
    assert!(page.contains(&format!("only the {always} metrics of deployments")), "{always} metrics without AlarmEmail");
    let [_, nested, read_models, reactor] = all_templates();
    for (page, condition, part) in
        [("read-models", "HasReadModels", &read_models), ("deadlines", "HasReactor", &reactor)]
    {
        let of_monitoring = resources(&nested, "AWS::CloudWatch::Alarm").into_values();
        let of_monitoring = of_monitoring.filter(|alarm| alarm["Condition"] == condition);
        let all = of_monitoring.chain(resources(part, "AWS::CloudWatch::Alarm").into_values());
        // Two alarms on all functions have one more metric.
        let further = 2 + all.map(|alarm| Alarm::read(&alarm["Properties"]).billed()).sum::<usize>();
        let page = read(&format!("docs/{page}.md"));
        assert!(page.contains(&format!("{further} metrics under alarms")), "{further} more");
    }
}
