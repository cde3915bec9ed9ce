//! The rules of patterns, with the operators of event buses.

use daybook_event_pattern::EventPattern;
use serde_json::{Value, json};

/// Whether an event matches a valid pattern.
fn matches(pattern: &Value, event: &Value) -> bool {
    EventPattern::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}")).matches(event)
}

#[test]
fn event_matches_if_each_field_has_one_of_its_values() {
    let event = json!({"source": "daybook", "resources": ["todo/1"], "detail": {"metadata": {"seqNum": 2}}});
    for (pattern, expected) in [
        (json!({"source": ["other", "daybook"]}), true),
        (json!({"source": ["daybook"], "resources": [{"prefix": "todo/"}]}), true),
        (json!({"resources": [{"prefix": "account/"}]}), false),
        (json!({"detail": {"metadata": {"seqNum": [2]}}}), true),
        (json!({"detail": {"metadata": {"seqNum": ["2"]}}}), false),
        (json!({"detail-type": ["x"]}), false),
    ] {
        assert_eq!(matches(&pattern, &event), expected, "{pattern}");
    }
}

/// The examples of the user guide ("Creating event patterns", "Comparison operators").
#[test]
fn pattern_of_the_guide_selects_the_events_of_the_guide() {
    let instance = json!({
        "version": "0", "id": "6a7e8feb-b491-4cf7-a9f1-bf3703467718",
        "detail-type": "EC2 Instance State-change Notification", "source": "aws.ec2", "account": "111122223333",
        "time": "2017-12-22T18:43:48Z", "region": "us-west-1",
        "resources": ["arn:aws:ec2:us-west-1:123456789012:instance/i-1234567890abcdef0"],
        "detail": {"instance-id": "i-1234567890abcdef0", "state": "terminated"},
    });
    for (pattern, expected) in [
        (json!({"source": ["aws.ec2"], "detail": {"state": ["terminated"]}}), true),
        (json!({"source": ["aws.ec2"], "detail": {"state": ["running"]}}), false),
        (json!({"time": [{"prefix": "2017-12-22"}]}), true),
        (json!({"source": [{"prefix": {"equals-ignore-case": "AWS.E"}}]}), true),
        (json!({"resources": [{"suffix": "abcdef0"}]}), true),
        (json!({"resources": [{"suffix": {"equals-ignore-case": "ABCDEF0"}}]}), true),
        (json!({"detail": {"state": [{"anything-but": "initializing"}]}}), true),
        (json!({"detail": {"state": [{"anything-but": ["stopped", "terminated"]}]}}), false),
        (json!({"detail": {"state": [{"anything-but": {"prefix": "init"}}]}}), true),
        (json!({"detail": {"state": [{"anything-but": {"suffix": "ed"}}]}}), false),
        (json!({"detail": {"state": [{"anything-but": {"equals-ignore-case": ["TERMINATED"]}}]}}), false),
        (json!({"detail": {"state": [{"anything-but": {"wildcard": "*mina*"}}]}}), false),
        (json!({"detail": {"other": [{"anything-but": "initializing"}]}}), false),
        (json!({"detail-type": [{"equals-ignore-case": "ec2 instance state-change notification"}]}), true),
        (json!({"detail": {"state": [{"exists": true}]}}), true),
        (json!({"detail": {"state": [{"exists": false}]}}), false),
        (json!({"detail": {"c-count": [{"exists": false}]}}), true),
        // Only a field that has a value exists.
        (json!({"detail": [{"exists": true}]}), false),
        (json!({"resources": [{"wildcard": "arn:aws:ec2:*:*:instance/*"}]}), true),
        (json!({"resources": [{"wildcard": "arn:aws:ec2:*:*:volume/*"}]}), false),
    ] {
        assert_eq!(matches(&pattern, &instance), expected, "{pattern}");
    }
}

#[test]
fn numbers_addresses_and_nulls_are_compared_as_the_guide_describes() {
    let detail = json!({
        "c-count": 5, "d-count": 10, "x-limit": 3.018e2, "responseElements": null, "flag": true, "eventName": "",
        "sourceIPAddress": "10.0.0.123", "v6": "2001:db8::1",
    });
    for (pattern, expected) in [
        (json!({"c-count": [{"numeric": [">", 0, "<=", 5]}]}), true),
        (json!({"d-count": [{"numeric": ["<", 10]}]}), false),
        (json!({"x-limit": [{"numeric": ["=", 301.8]}]}), true),
        (json!({"c-count": [{"numeric": [">=", 6]}]}), false),
        (json!({"flag": [{"numeric": [">", 0]}]}), false),
        (json!({"c-count": [{"anything-but": [1, 2]}]}), true),
        (json!({"c-count": [{"anything-but": 5}]}), false),
        (json!({"responseElements": [null]}), true),
        (json!({"eventName": [null]}), false),
        (json!({"eventName": [""]}), true),
        (json!({"flag": [true]}), true),
        (json!({"responseElements": [{"exists": true}]}), true),
        (json!({"sourceIPAddress": [{"cidr": "10.0.0.0/24"}]}), true),
        (json!({"sourceIPAddress": [{"cidr": "10.0.1.0/24"}]}), false),
        (json!({"v6": [{"cidr": "2001:db8::/32"}]}), true),
        (json!({"sourceIPAddress": [{"cidr": "2001:db8::/32"}]}), false),
        (json!({"sourceIPAddress": [{"cidr": "0.0.0.0/0"}]}), true),
    ] {
        assert_eq!(matches(&json!({"detail": pattern}), &json!({"detail": detail})), expected, "{pattern}");
    }
}

#[test]
fn alternatives_hold_together_with_the_other_fields() {
    let pattern = json!({
        "source": ["aws.cloudwatch"],
        "detail": {
            "state": ["on"],
            "$or": [
                {"c-count": [{"numeric": [">", 0, "<=", 5]}]},
                {"d-count": [{"numeric": ["<", 10]}]},
                {"x-limit": [{"numeric": ["=", 3.018e2]}]},
            ],
        },
    });
    for (detail, expected) in [
        (json!({"state": "on", "c-count": 1}), true),
        (json!({"state": "on", "c-count": 6, "d-count": 9}), true),
        (json!({"state": "on", "c-count": 6}), false),
        (json!({"state": "off", "c-count": 1}), false),
    ] {
        let event = json!({"source": "aws.cloudwatch", "detail": detail});
        assert_eq!(matches(&pattern, &event), expected, "{event}");
    }
    let top = json!({"$or": [{"source": ["a"]}, {"detail-type": ["b"]}]});
    assert!(matches(&top, &json!({"source": "x", "detail-type": "b"})));
    assert!(!matches(&top, &json!({"source": "x", "detail-type": "c"})));
}

#[test]
fn array_in_an_event_matches_by_one_of_its_elements() {
    let event = json!({"tags": ["a", "b"], "empty": [], "people": [
        {"first": "Anna", "last": "Smith"}, {"first": "Ben", "last": "Jones"}, {"first": "Cy"},
    ]});
    for (pattern, expected) in [
        (json!({"tags": ["b", "c"]}), true),
        (json!({"tags": ["c"]}), false),
        (json!({"tags": [{"anything-but": "a"}]}), true),
        (json!({"empty": [{"exists": false}]}), true),
        (json!({"people": {"first": ["Anna"], "last": ["Smith"]}}), true),
        // No element has both.
        (json!({"people": {"first": ["Anna"], "last": ["Jones"]}}), false),
        // An element has it, or none has.
        (json!({"people": {"last": [{"exists": false}]}}), false),
        (json!({"people": {"age": [{"exists": false}]}}), true),
        (json!({"empty": {"age": [{"exists": false}]}}), true),
        (json!({"people": {"last": [{"exists": false}], "first": ["Cy"]}}), true),
    ] {
        assert_eq!(matches(&pattern, &event), expected, "{pattern}");
    }
}

#[test]
fn wrong_pattern_is_rejected_with_field_and_reason() {
    for (pattern, expected) in [
        (json!("x"), "a pattern is a JSON object"),
        (json!({}), "an object of a pattern needs a field"),
        (json!({"source": "daybook"}), "source: \"daybook\" must be an object, or an array with values"),
        (json!({"source": []}), "source: [] must be an object, or an array with values"),
        (json!({"detail": {"a": [{"glob": "x"}]}}), "detail.a: unknown operator \"glob\""),
        (json!({"a": [{"anything-but": {"cidr": "10.0.0.0/8"}}]}), "a: unknown operator \"cidr\" in anything-but"),
        (json!({"a": [{"prefix": "x", "suffix": "y"}]}), "a: an operator stands alone in its object"),
        (json!({"a": [{"prefix": 1}]}), "a: prefix needs a text"),
        (json!({"a": [{"exists": "yes"}]}), "a: exists needs true or false"),
        (
            json!({"a": [{"numeric": [">", "1"]}]}),
            "a: numeric needs one pair of an operator (=, <, <=, >, >=) and a number, or a lower limit and an upper one",
        ),
        (
            json!({"a": [{"numeric": []}]}),
            "a: numeric needs one pair of an operator (=, <, <=, >, >=) and a number, or a lower limit and an upper one",
        ),
        (
            json!({"a": [{"cidr": "10.0.0.0/33"}]}),
            "a: cidr needs an address with the length of a prefix, such as 10.0.0.0/24",
        ),
        (json!({"a": [{"wildcard": "a**"}]}), "a: wildcard must not have two * in a row"),
        (json!({"a": [{"wildcard": "a\\b"}]}), "a: in a wildcard, \\ stands only before * and \\"),
        (json!({"a": [{"anything-but": []}]}), "a: anything-but needs values, all texts or all numbers"),
        (json!({"a": [["x"]]}), "a: [\"x\"] is neither a value nor an operator"),
        (json!({"$or": [{"a": ["x"]}]}), "$or: $or needs two patterns or more"),
    ] {
        assert_eq!(EventPattern::new(&pattern).unwrap_err().to_string(), expected, "{pattern}");
    }
}
