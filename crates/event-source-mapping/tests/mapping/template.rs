//! Reads the suite's template, and templates with errors.

use std::time::Duration;

use daybook_event_source_mapping::template::{Function, Setting, StreamEvent};
use daybook_event_source_mapping::{MappingSettings, RecordFilter, Template};

fn suite() -> Template {
    Template::parse(include_str!("../../../../template.yaml")).unwrap()
}

fn known(text: &str) -> Setting {
    Setting::Known(text.to_owned())
}

fn unresolved(text: &str) -> Setting {
    Setting::Unresolved(text.to_owned())
}

fn variables(function: &Function) -> Vec<(&str, Setting)> {
    function.environment.iter().map(|(name, value)| (name.as_str(), value.clone())).collect()
}

#[test]
fn template_of_the_suite_has_three_functions() {
    let template = suite();
    let binaries: Vec<_> =
        template.functions.iter().map(|(id, function)| (id.as_str(), function.binary.clone())).collect();
    assert_eq!(
        binaries,
        [
            ("CommandHandler", Some(known("command-handler"))),
            ("Snapshotter", Some(known("snapshotter"))),
            ("StreamRelay", Some(known("stream-relay"))),
        ]
    );
}

#[test]
fn filter_of_the_relay_passes_outbox_rows() {
    let relay = &suite().functions["StreamRelay"];
    let mut filter = RecordFilter::default();
    filter.add(r#"{"eventName":["INSERT"],"dynamodb":{"Keys":{"sk":{"S":[{"prefix":"OUTBOX#"}]}}}}"#).unwrap();
    assert_eq!(
        relay.streams["OutboxRows"],
        StreamEvent {
            enabled: true,
            settings: MappingSettings {
                batch_size: 100,
                batching_window: Duration::ZERO,
                parallelization_factor: 1,
                bisect_batch_on_function_error: true,
                maximum_retry_attempts: None,
                maximum_record_age: Some(Duration::from_secs(23 * 3600)),
                report_batch_item_failures: true,
                filter,
            },
        }
    );
}

#[test]
fn filter_of_the_snapshotter_passes_due_events() {
    let snapshotter = &suite().functions["Snapshotter"];
    let settings = &snapshotter.streams["DueEvents"].settings;
    assert_eq!(settings.parallelization_factor, 2);
    assert_eq!(settings.batching_window, Duration::from_secs(1));
    assert!(settings.bisect_batch_on_function_error && settings.report_batch_item_failures);

    let event = |name: &str, sk: &str, image: &str| {
        let text =
            format!(r#"{{"eventName":"{name}","dynamodb":{{"Keys":{{"sk":{{"S":"{sk}"}}}},"NewImage":{image}}}}}"#);
        serde_json::from_str(&text).unwrap()
    };
    let due = r#"{"snapshotDue":{"BOOL":true}}"#;
    assert!(settings.filter.matches(&event("INSERT", "EVENT#000000000100", due)));
    assert!(!settings.filter.matches(&event("INSERT", "EVENT#000000000101", "{}")));
    assert!(!settings.filter.matches(&event("INSERT", "#SNAPSHOT", due)));
    assert!(!settings.filter.matches(&event("REMOVE", "EVENT#000000000100", due)));
}

/// A function whose only event has these properties in addition to the required ones.
fn with(properties: &str) -> String {
    format!(
        "Parameters: {{Size: {{Type: Number, Default: 7}}, Bare: {{Type: Number}}}}
Resources:
  F:
    Type: AWS::Serverless::Function
    Properties:
      Events:
        E: {{Type: DynamoDB, Properties: {{Stream: !GetAtt T.StreamArn, StartingPosition: LATEST, {properties}}}}}
"
    )
}

#[track_caller]
fn settings(properties: &str) -> MappingSettings {
    Template::parse(&with(properties)).unwrap().functions["F"].streams["E"].settings.clone()
}

#[track_caller]
fn error(properties: &str) -> String {
    Template::parse(&with(properties)).unwrap_err().to_string()
}

#[test]
fn missing_settings_have_lambdas_defaults() {
    assert_eq!(settings(""), MappingSettings::default());
    assert_eq!(settings("MaximumRetryAttempts: -1, MaximumRecordAgeInSeconds: -1"), MappingSettings::default());
    let function = &Template::parse(&with("")).unwrap().functions["F"];
    assert_eq!(function.timeout, Duration::from_secs(3));
    assert!(function.streams["E"].enabled);
}

#[test]
fn a_setting_can_be_a_string_or_a_parameters_default() {
    assert_eq!(settings("BatchSize: '20'").batch_size, 20);
    assert_eq!(settings("BatchSize: !Ref Size").batch_size, 7);
    assert_eq!(settings("BatchSize: {Ref: Size}").batch_size, 7);
    assert_eq!(settings("MaximumRetryAttempts: 0").maximum_retry_attempts, Some(0));
}

#[test]
fn error_names_the_path_and_the_accepted_values() {
    let place = "template at \"Resources.F.Properties.Events.E.Properties.";
    for (properties, message) in [
        ("BatchSize: 0", "BatchSize\": \"0\" is not a whole number from 1 to 10000"),
        ("BatchSize: many", "BatchSize\": \"many\" is not a whole number from 1 to 10000"),
        ("BatchSize: [1]", "BatchSize\": must be a single value"),
        (
            "BatchSize: !Ref Bare",
            "BatchSize\": !Ref Bare is not known before the deployment; use a literal, or !Ref to a parameter",
        ),
        ("BatchSize: !If [Big, !Ref Size, 1]", "BatchSize\": !If … is not known before the deployment"),
        ("MaximumBatchingWindowInSeconds: 301", "MaximumBatchingWindowInSeconds\": \"301\" is not"),
        ("ParallelizationFactor: 11", "ParallelizationFactor\": \"11\" is not"),
        ("MaximumRetryAttempts: -2", "MaximumRetryAttempts\": \"-2\" is not"),
        ("MaximumRecordAgeInSeconds: 59", "MaximumRecordAgeInSeconds\": \"59\" is not"),
        ("BisectBatchOnFunctionError: 1", "BisectBatchOnFunctionError\": \"1\" is not true or false"),
        ("FunctionResponseTypes: [Other]", "FunctionResponseTypes.0\": \"Other\" is not ReportBatchItemFailures"),
        ("TumblingWindowInSeconds: 60", "TumblingWindowInSeconds\": tumbling windows are not supported"),
        ("BatchSise: 1", "BatchSise\": is not a property of a DynamoDB event"),
        (
            "FilterCriteria: {Filters: [{Pattern: '{}'}]}",
            "FilterCriteria.Filters.0.Pattern\": filter pattern: an object of a pattern",
        ),
        ("FilterCriteria: {Filters: [{}]}", "FilterCriteria.Filters.0\": Pattern is missing"),
        ("DestinationConfig: {OnFailure: {Type: SQS}}", "DestinationConfig.OnFailure\": Destination is missing"),
    ] {
        let error = error(properties);
        assert!(error.starts_with(&format!("{place}{message}")), "{properties}: {error}");
    }
}

#[test]
fn more_than_ten_filters_are_rejected() {
    let filters =
        |count| format!("FilterCriteria: {{Filters: [{}]}}", vec!["{Pattern: '{\"a\":[1]}'}"; count].join(", "));
    assert!(Template::parse(&with(&filters(10))).is_ok());
    assert!(error(&filters(11)).ends_with("Filters\": more than 10 filters"));
}

#[test]
fn a_stream_event_needs_a_stream_and_a_starting_position() {
    let template = |properties: &str| {
        format!(
            "Resources: {{F: {{Type: AWS::Serverless::Function, Properties: {{Events: {{E: {{Type: DynamoDB, Properties: {properties}}}}}}}}}}}"
        )
    };
    let error = |properties| Template::parse(&template(properties)).unwrap_err().to_string();
    assert!(error("{StartingPosition: LATEST}").ends_with("Stream is missing"));
    assert!(error("{Stream: arn}").ends_with("StartingPosition is missing"));
    assert!(error("{Stream: arn, StartingPosition: AT_TIMESTAMP}").ends_with("is not TRIM_HORIZON or LATEST"));
}

#[test]
fn nested_tags_and_unrelated_resources_and_events_are_accepted() {
    let template = Template::parse(
        r#"
Conditions: {Big: !Not [!Equals [!Ref Stage, dev]]}
Globals: {Function: {Timeout: 9, Environment: {Variables: {A: global, B: global}}}}
Resources:
  Queue: {Type: AWS::SQS::Queue}
  F:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: {Bucket: b, Key: k}
      Environment:
        Variables:
          B: own
          C: !Join ["-", [!Ref AWS::StackName, !If [Big, !GetAtt Queue.Arn, !Sub "${Queue}-x"]]]
          D: !Sub "${AWS::StackName}-d"
          E: {"Fn::GetAtt": [Queue, Arn]}
          G: !ImportValue shared
          H: true
      Events: {Queue: {Type: SQS, Properties: {Queue: !GetAtt Queue.Arn}}}
"#,
    )
    .unwrap();
    let function = &template.functions["F"];
    assert_eq!((template.functions.len(), function.streams.len()), (1, 0));
    assert_eq!(function.timeout, Duration::from_secs(9));
    assert_eq!(
        variables(function),
        [
            ("A", known("global")),
            ("B", known("own")),
            ("C", unresolved("!Join …")),
            ("D", unresolved("!Sub ${AWS::StackName}-d")),
            ("E", unresolved("!GetAtt Queue.Arn")),
            ("G", unresolved("!ImportValue shared")),
            ("H", known("true")),
        ]
    );
}

#[test]
fn function_whose_condition_does_not_hold_is_left_out() {
    let text = r#"
Parameters: { Subnets: { Type: String, Default: "" } }
Conditions:
  HasSubnets: !Not [!Equals [!Ref Subnets, ""]]
  OfStack: !Equals [!Ref AWS::StackName, a]
Resources:
  A: { Type: AWS::Serverless::Function, Condition: HasSubnets, Properties: {} }
  B: { Type: AWS::Serverless::Function, Condition: OfStack, Properties: {} }
  C: { Type: AWS::Serverless::Function, Properties: {} }
"#;
    let ids = |values: &[(&str, &str)]| {
        Template::with_parameters(text, values).unwrap().functions.into_keys().collect::<Vec<_>>()
    };
    // Only a deployment knows whether the second condition holds.
    assert_eq!(ids(&[]), ["B", "C"]);
    assert_eq!(ids(&[("Subnets", "subnet-1")]), ["A", "B", "C"]);
}

#[test]
fn parse_rejects_text_that_is_not_a_template() {
    assert_eq!(Template::parse("a: [").unwrap_err().to_string(), "template is not YAML");
    assert_eq!(Template::parse("a: 1").unwrap_err().to_string(), "template at \"\": Resources is missing");
    assert_eq!(Template::parse("[]").unwrap_err().to_string(), "template at \"\": must be a map");
}
