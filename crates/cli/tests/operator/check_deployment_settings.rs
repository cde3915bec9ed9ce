//! `daybook check-deployment`: the checks that only read settings, of alarms, their recipients and event source mappings.

use axum::Router;
use axum::http::Uri;
use daybook_cli::operator::Exit;
use daybook_local_aws::messaging::Server;
use daybook_operations::health::alarm_names;
use serde_json::{Value, json};

use crate::check_deployment::line_of;
use crate::load::local_stack;

/// A service that returns `body` to each request.
async fn returning(body: Value) -> Server {
    returning_text(body.to_string()).await
}

async fn returning_text(body: String) -> Server {
    let respond = async move || body;
    Server::start(Router::new().fallback(respond)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn alarms_must_exist_and_be_ok() {
    let stack = local_stack().await;
    let monitoring =
        include_str!("../../../../deploy/monitoring.yaml").to_owned() + include_str!("../../../../template.yaml");
    let names = monitoring.split("AlarmName: !Sub \"${").skip(1).map(|rest| rest.split_once("}-").unwrap().1);
    let names: Vec<_> = names.map(|name| name.split('"').next().unwrap()).collect();
    let alarms = async |state_of: fn(&str) -> &'static str, exit| {
        let alarm = |name: &&str| json!({"AlarmName": format!("prod-{name}"), "StateValue": state_of(name)});
        let service = returning(json!({"MetricAlarms": names.iter().map(alarm).collect::<Vec<_>>()})).await;
        line_of(&stack, &[("AWS_ENDPOINT_URL_CLOUDWATCH", service.url())], "alarms --stack prod", exit).await
    };
    let all_ok = format!("{} alarms are OK", alarm_names().count());
    assert_eq!(alarms(|_| "OK", Exit::Clean).await, format!("as-expected alarms: {all_ok}"));
    let one = |name: &str| if name == "api-slow" { "INSUFFICIENT_DATA" } else { "OK" };
    let line = alarms(one, Exit::Findings).await;
    let expected = format!("differs alarms: expected {all_ok}; seen api-slow INSUFFICIENT_DATA;");
    assert!(line.starts_with(&expected), "{line}");
    let none = returning(json!({"MetricAlarms": []})).await;
    let line =
        line_of(&stack, &[("AWS_ENDPOINT_URL_CLOUDWATCH", none.url())], "alarms --stack prod", Exit::Findings).await;
    assert!(line.contains("messages-late missing"), "{line}");
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn alarms_must_have_a_recipient_unless_an_operator_wants_none() {
    let stack = local_stack().await;
    let line = async |email: &str, outputs: &str, subscriptions: &str, exit| {
        let parameter = format!("<ParameterKey>AlarmEmail</ParameterKey><ParameterValue>{email}</ParameterValue>");
        let described = format!("<D><S>{parameter}{outputs}<StackStatus>UPDATE_COMPLETE</StackStatus></S></D>");
        let subscriptions = format!("<L><S>{subscriptions}</S></L>");
        let (cloudformation, sns) = (returning_text(described).await, returning_text(subscriptions).await);
        let others = [("AWS_ENDPOINT_URL_CLOUDFORMATION", cloudformation.url()), ("AWS_ENDPOINT_URL_SNS", sns.url())];
        line_of(&stack, &others, "alarm-recipients --stack prod", exit).await
    };
    let output =
        |key: &str| format!("<O><OutputKey>{key}</OutputKey><OutputValue>arn:aws:sns:us-east-1:1:a</OutputValue></O>");
    let monitored = output("DashboardUrl") + &output("TicketsTopic");
    let confirmed = "<m><Endpoint>me@example.com</Endpoint><SubscriptionArn>arn:aws:sns:1</SubscriptionArn></m>";
    let expected = "as-expected alarm-recipients: somebody gets the alarms, or AlarmEmail is none";
    assert_eq!(line("me@example.com", &monitored, confirmed, Exit::Clean).await, expected);
    assert_eq!(line("none", &monitored, confirmed, Exit::Clean).await, expected);
    // A staging without a subscriber is silent, which is no finding, but is not hidden.
    let seen = line("none", &monitored, "", Exit::Clean).await;
    assert_eq!(seen, "as-expected alarm-recipients: AlarmEmail is none, and nobody gets some alarms");
    let seen = line("", &output("TicketsTopic"), confirmed, Exit::Findings).await;
    assert!(seen.contains("; seen there are no alarms and no dashboard: set AlarmEmail in samconfig.toml"), "{seen}");
    let seen = line("me@example.com", &monitored, "", Exit::Findings).await;
    assert!(seen.contains("; seen nobody gets the alarms: set AlarmEmail"), "{seen}");
    let pending = confirmed.replace("arn:aws:sns:1", "PendingConfirmation");
    let seen = line("me@example.com", &monitored, &pending, Exit::Findings).await;
    assert!(seen.contains("; seen me@example.com gets no alarms yet"), "{seen}");
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_source_mappings_must_be_those_of_the_template() {
    let stack = local_stack().await;
    let template = include_str!("../../../../template.yaml");
    let patterns: Vec<_> = template.lines().filter_map(|line| line.trim().strip_prefix("- Pattern: ")).collect();
    let [outbox, metadata, soon, due]: [&str; 4] = patterns.try_into().unwrap();
    let queue_mapping = || json!({"State": "Enabled", "FunctionResponseTypes": ["ReportBatchItemFailures"]});
    let mapping = |patterns: &[&str]| {
        let filters: Vec<_> = patterns.iter().map(|pattern| json!({"Pattern": pattern.trim_matches('\'')})).collect();
        json!({
            "State": "Enabled", "FilterCriteria": {"Filters": filters},
            "MaximumRetryAttempts": -1, "MaximumRecordAgeInSeconds": 82800,
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
            "DestinationConfig": {"OnFailure": {"Destination": "arn:aws:s3:::discarded"}},
        })
    };
    let mappings = json!([mapping(&[outbox]), mapping(&[due])]);
    let with_views = json!([mapping(&[outbox, metadata]), mapping(&[due])]);
    let with_reactor = json!([mapping(&[outbox, soon]), mapping(&[due])]);
    let line_of_all = async |of_stream: &Value, of_queues: &Value, others: &[(&'static str, &str)], exit| {
        let (of_stream, of_queues) = (of_stream.clone(), of_queues.clone());
        let list = async move |uri: Uri| {
            let is_of_queue = uri.query().unwrap().starts_with("EventSourceArn=arn%3Aaws%3Asqs%3A");
            json!({ "EventSourceMappings": if is_of_queue { of_queues } else { of_stream } }).to_string()
        };
        let service = Server::start(Router::new().fallback(list)).await.unwrap();
        let settings = [others, &[("AWS_ENDPOINT_URL_LAMBDA", service.url())]].concat();
        line_of(&stack, &settings, "event-source-mappings", exit).await
    };
    let line_with = async |mappings: &Value, others: &[(&'static str, &str)], exit| {
        line_of_all(mappings, &json!([queue_mapping()]), others, exit).await
    };
    let line = async |mappings: &Value, exit| line_with(mappings, &[], exit).await;
    // A queue that exists.
    let queue = &*format!("{}/000000000000/daybook-dlq", stack.bus_url());
    let views: &[(&str, &str)] = &[("VIEWS_TABLE_NAME", "views"), ("CHANGES_QUEUE_URL", queue)];
    let reactor: &[(&str, &str)] = &[("REACTIONS_QUEUE_URL", queue), ("REACTOR", "deadlines")];
    let processes: &[(&str, &str)] = &[("REACTIONS_QUEUE_URL", queue), ("REACTOR", "processes")];
    let with_processes = json!([mapping(&[outbox, metadata, soon]), mapping(&[due])]);
    for (mappings, others) in
        [(&mappings, &[] as &[_]), (&with_views, views), (&with_reactor, reactor), (&with_processes, processes)]
    {
        let seen = line_with(mappings, others, Exit::Clean).await;
        assert!(seen.starts_with("as-expected event-source-mappings: Enabled, filter "), "{seen}");
    }
    for (mappings, others) in
        [(&mappings, views), (&with_views, &[]), (&with_reactor, processes), (&with_processes, reactor)]
    {
        let seen = line_with(mappings, others, Exit::Findings).await;
        assert!(seen.starts_with("differs event-source-mappings: "), "{seen}");
    }
    for (pointer, value) in [
        ("/0/FilterCriteria/Filters/0/Pattern", json!("{}")),
        ("/0/State", json!("Disabled")),
        ("/1/FunctionResponseTypes", json!([])),
        ("/1/MaximumRetryAttempts", json!(3)),
        ("/1/MaximumRecordAgeInSeconds", json!(-1)),
        ("/0/DestinationConfig/OnFailure/Destination", json!("arn:aws:sqs:eu-central-1:1:q")),
    ] {
        let mut other = mappings.clone();
        *other.pointer_mut(pointer).unwrap() = value;
        let seen = line(&other, Exit::Findings).await;
        assert!(seen.starts_with("differs event-source-mappings: "), "{pointer}: {seen}");
    }
    for of_queue in [
        json!([]),
        json!([{"State": "Enabled"}]),
        json!([{"State": "Disabled", "FunctionResponseTypes": ["ReportBatchItemFailures"]}]),
        json!([queue_mapping(), queue_mapping()]),
    ] {
        for (mappings, others) in [(&with_views, views), (&with_reactor, reactor)] {
            let seen = line_of_all(mappings, &of_queue, others, Exit::Findings).await;
            assert!(seen.starts_with("differs event-source-mappings: "), "{of_queue}: {seen}");
        }
    }
    stack.stop().await;
}
