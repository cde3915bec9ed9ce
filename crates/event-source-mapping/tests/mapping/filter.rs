//! The rules of `FilterCriteria`, one by one.

use daybook_event_source_mapping::RecordFilter;
use serde_json::{Value, json};

#[track_caller]
fn filter<const N: usize>(patterns: [&str; N]) -> RecordFilter {
    let mut filter = RecordFilter::default();
    patterns.into_iter().for_each(|pattern| filter.add(pattern).unwrap());
    filter
}

#[track_caller]
fn matches(pattern: Value, record: Value) -> bool {
    filter([&pattern.to_string()]).matches(&record)
}

#[track_caller]
fn error_of(pattern: &str) -> String {
    RecordFilter::default().add(pattern).unwrap_err().to_string()
}

fn outbox_row() -> Value {
    json!({
        "eventName": "INSERT", "eventSource": "aws:dynamodb",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_700_000_000, "SizeBytes": 26, "SequenceNumber": "100",
            "Keys": {"pk": {"S": "AGGREGATE#account#1"}, "sk": {"S": "OUTBOX#000000000001#0"}},
            "NewImage": {
                "seqNum": {"N": "1"}, "snapshotDue": {"BOOL": true}, "ttl": {"NULL": true},
                "tags": {"L": [{"S": "a"}, {"S": "b"}]}, "empty": {"S": ""}
            }
        }
    })
}

fn new_image(name: &str, leaf: Value) -> Value {
    json!({"dynamodb": {"NewImage": {name: leaf}}})
}

#[test]
fn without_patterns_every_record_matches() {
    assert!(RecordFilter::default().matches(&outbox_row()));
    assert!(RecordFilter::default().matches(&json!({})));
}

#[test]
fn an_exact_value_matches_itself_only() {
    assert!(matches(json!({"eventName": ["INSERT"]}), outbox_row()));
    assert!(!matches(json!({"eventName": ["insert"]}), outbox_row()));
    assert!(!matches(json!({"eventName": ["INS"]}), outbox_row()));
    assert!(matches(new_image("snapshotDue", json!({"BOOL": [true]})), outbox_row()));
    assert!(!matches(new_image("snapshotDue", json!({"BOOL": [false]})), outbox_row()));
    assert!(!matches(new_image("snapshotDue", json!({"BOOL": ["true"]})), outbox_row()));
    assert!(matches(new_image("empty", json!({"S": [""]})), outbox_row()));
    assert!(matches(json!({"dynamodb": {"SizeBytes": [26]}}), outbox_row()));
    assert!(!matches(json!({"dynamodb": {"SizeBytes": [27]}}), outbox_row()));
}

#[test]
fn null_matches_a_null_and_not_an_absent_field() {
    assert!(matches(json!({"user": [null]}), json!({"user": null})));
    assert!(!matches(json!({"user": [null]}), json!({"other": 1})));
    assert!(!matches(json!({"user": [null]}), json!({"user": ""})));
}

#[test]
fn alternatives_are_joined_by_or_and_keys_by_and() {
    assert!(matches(json!({"eventName": ["MODIFY", "INSERT"]}), outbox_row()));
    assert!(matches(json!({"eventName": ["INSERT"], "eventSource": ["aws:dynamodb"]}), outbox_row()));
    assert!(!matches(json!({"eventName": ["INSERT"], "eventSource": ["aws:kinesis"]}), outbox_row()));
}

#[test]
fn several_filters_are_joined_by_or() {
    let filter = filter([r#"{"eventName":["REMOVE"]}"#, r#"{"eventName":["INSERT"]}"#]);
    assert!(filter.matches(&outbox_row()));
    assert!(!filter.matches(&json!({"eventName": "MODIFY"})));
}

#[test]
fn prefix_and_suffix_match_the_ends_of_strings() {
    let sort_key = |operator: Value| json!({"dynamodb": {"Keys": {"sk": {"S": [operator]}}}});
    assert!(matches(sort_key(json!({"prefix": "OUTBOX#"})), outbox_row()));
    assert!(!matches(sort_key(json!({"prefix": "EVENT#"})), outbox_row()));
    assert!(matches(sort_key(json!({"suffix": "#0"})), outbox_row()));
    assert!(!matches(sort_key(json!({"suffix": "#1"})), outbox_row()));
    assert!(!matches(json!({"dynamodb": {"SizeBytes": [{"prefix": "2"}]}}), outbox_row()));
}

#[test]
fn equals_ignore_case_matches_in_any_case() {
    assert!(matches(json!({"eventName": [{"equals-ignore-case": "insert"}]}), outbox_row()));
    assert!(!matches(json!({"eventName": [{"equals-ignore-case": "inserted"}]}), outbox_row()));
}

#[test]
fn anything_but_excludes_values_and_prefixes() {
    let name = |operand: Value| json!({"eventName": [{"anything-but": operand}]});
    assert!(matches(name(json!(["MODIFY", "REMOVE"])), outbox_row()));
    assert!(!matches(name(json!(["INSERT", "REMOVE"])), outbox_row()));
    assert!(!matches(name(json!("INSERT")), outbox_row()));
    assert!(matches(name(json!({"prefix": "RE"})), outbox_row()));
    assert!(!matches(name(json!({"prefix": "IN"})), outbox_row()));
    assert!(!matches(name(json!(["INSERT"])), json!({"other": 1})), "the field must exist");
}

#[test]
fn numeric_compares_numbers_and_never_strings() {
    let size = |comparisons: Value| json!({"dynamodb": {"SizeBytes": [{"numeric": comparisons}]}});
    assert!(matches(size(json!(["=", 26.0])), outbox_row()));
    assert!(matches(size(json!([">", 25, "<=", 26])), outbox_row()));
    assert!(!matches(size(json!([">", 26])), outbox_row()));
    assert!(!matches(size(json!([">=", 27])), outbox_row()));
    assert!(!matches(size(json!(["<", 26])), outbox_row()));
    assert!(!matches(new_image("seqNum", json!({"N": [{"numeric": ["=", 1]}]})), outbox_row()), "N is a string");
    assert!(matches(new_image("seqNum", json!({"N": ["1"]})), outbox_row()));
}

#[test]
fn exists_matches_leaves_only() {
    assert!(matches(json!({"eventName": [{"exists": true}]}), outbox_row()));
    assert!(!matches(json!({"eventName": [{"exists": false}]}), outbox_row()));
    assert!(matches(json!({"userIdentity": [{"exists": false}]}), outbox_row()));
    assert!(matches(new_image("deleted", json!({"BOOL": [{"exists": false}]})), outbox_row()));
    assert!(!matches(json!({"dynamodb": [{"exists": true}]}), outbox_row()), "dynamodb is not a leaf");
}

#[test]
fn or_joins_patterns_of_several_fields() {
    let either = json!({"$or": [{"eventName": ["REMOVE"]}, {"dynamodb": {"SizeBytes": [26]}}]});
    assert!(matches(either.clone(), outbox_row()));
    assert!(!matches(either, json!({"eventName": "INSERT", "dynamodb": {"SizeBytes": 27}})));
    let and = json!({"eventSource": ["aws:kinesis"], "$or": [{"eventName": ["INSERT"]}, {"eventName": ["REMOVE"]}]});
    assert!(!matches(and, outbox_row()));
    let within = json!({"dynamodb": {"$or": [{"SizeBytes": [1]}, {"SequenceNumber": ["100"]}]}});
    assert!(matches(within, outbox_row()));
}

#[test]
fn an_array_in_the_record_matches_by_any_of_its_elements() {
    assert!(matches(new_image("tags", json!({"L": {"S": ["b"]}})), outbox_row()));
    assert!(!matches(new_image("tags", json!({"L": {"S": ["c"]}})), outbox_row()));
    assert!(matches(json!({"tags": ["b"]}), json!({"tags": ["a", "b"]})));
}

#[test]
fn fields_match_in_one_element_of_an_array_of_objects() {
    let lines = new_image(
        "lines",
        json!({"L": [
            {"M": {"sku": {"S": "a"}, "state": {"S": "open"}}},
            {"M": {"sku": {"S": "b"}, "state": {"S": "shipped"}}},
        ]}),
    );
    let line = |fields: Value| new_image("lines", json!({"L": {"M": fields}}));
    assert!(matches(line(json!({"sku": {"S": ["b"]}, "state": {"S": ["shipped"]}})), lines.clone()));
    assert!(!matches(line(json!({"sku": {"S": ["b"]}, "state": {"S": ["open"]}})), lines.clone()));
    let absent = json!([{"exists": false}]);
    assert!(matches(line(json!({"note": {"S": absent}})), lines.clone()));
    assert!(!matches(line(json!({"sku": {"S": absent}})), lines));
}

#[test]
fn unknown_operator_is_rejected() {
    assert_eq!(
        error_of(r#"{"dynamodb":{"Keys":{"sk":{"S":[{"wildcard":"OUTBOX#*"}]}}}}"#),
        r#"filter pattern: dynamodb.Keys.sk.S: unknown operator "wildcard""#
    );
}

#[test]
fn invalid_pattern_error_names_its_path() {
    for (pattern, message) in [
        ("{", "filter pattern: not JSON: "),
        ("[]", "filter pattern: a pattern is a JSON object"),
        ("{}", "filter pattern: an object of a pattern needs a field"),
        (r#"{"a":{}}"#, "filter pattern: a: an object of a pattern needs a field"),
        (r#"{"a":"x"}"#, r#"filter pattern: a: "x" must be an object, or an array with values"#),
        (r#"{"a":[]}"#, "filter pattern: a: [] must be an object, or an array with values"),
        (r#"{"a":[["x"]]}"#, r#"filter pattern: a: ["x"] is neither a value nor an operator"#),
        (r#"{"a":[{}]}"#, "filter pattern: a: an operator stands alone in its object"),
        (r#"{"a":[{"prefix":"x","suffix":"y"}]}"#, "filter pattern: a: an operator stands alone in its object"),
        (r#"{"a":[{"prefix":1}]}"#, "filter pattern: a: prefix needs a text"),
        (r#"{"a":[{"exists":"yes"}]}"#, "filter pattern: a: exists needs true or false"),
        (r#"{"a":[{"anything-but":[]}]}"#, "filter pattern: a: anything-but needs values, all texts or all numbers"),
        (
            r#"{"a":[{"anything-but":["x",1]}]}"#,
            "filter pattern: a: anything-but needs values, all texts or all numbers",
        ),
        (r#"{"a":[{"anything-but":true}]}"#, "filter pattern: a: anything-but needs values, all texts or all numbers"),
        (
            r#"{"a":[{"anything-but":{"suffix":"x"}}]}"#,
            r#"filter pattern: a: unknown operator "suffix" in anything-but"#,
        ),
        (r#"{"a":[{"anything-but":{"prefix":["x"]}}]}"#, "filter pattern: a: prefix needs a text"),
        (r#"{"a":[{"prefix":{"equals-ignore-case":"x"}}]}"#, "filter pattern: a: prefix needs a text"),
        (r#"{"a":[{"cidr":"10.0.0.0/8"}]}"#, r#"filter pattern: a: unknown operator "cidr""#),
        (r#"{"a":[{"numeric":[">"]}]}"#, "filter pattern: a: numeric needs one pair of an operator"),
        (r#"{"a":[{"numeric":["!",1]}]}"#, "filter pattern: a: numeric needs one pair of an operator"),
        (r#"{"a":[{"numeric":["<",1,">",0]}]}"#, "filter pattern: a: numeric needs one pair of an operator"),
        (r#"{"$or":[{"a":[1]}]}"#, "filter pattern: $or: $or needs two patterns or more"),
        (r#"{"$or":{"a":[1]}}"#, "filter pattern: $or: $or needs two patterns or more"),
    ] {
        let error = error_of(pattern);
        assert!(error.starts_with(message), "{pattern}: {error}");
    }
}
