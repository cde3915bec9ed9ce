//! The metrics of each failure, minute by minute.

use super::evaluation::Series;

/// The minute in which each failure begins, after as much normal operation as the longest alarm evaluates.
pub(super) const BEGIN: i64 = 30;
/// The minute in which each failure ends. An alarm on snapshots rings after an hour.
pub(super) const END: i64 = BEGIN + 90;

/// The value of a metric during a failure.
pub(super) enum Moves {
    To(f64),
    /// Minutes since the beginning, in milliseconds: the age of a record that is not settled.
    Ages,
    /// Minutes since the beginning, in seconds: the age of a message that is not deleted.
    AgesInSeconds,
    Stops,
}
use Moves::{Ages, AgesInSeconds, Stops, To};

pub(super) struct Failure {
    /// Its name in the table of the runbook.
    pub(super) name: &'static str,
    moves: &'static [(&'static str, Moves)],
}

impl Failure {
    pub(super) fn series(&self) -> Series {
        let mut series = healthy();
        for (metric, moves) in self.moves {
            match *moves {
                To(value) => series.replace(metric, BEGIN..END, move |_| Some(value)),
                #[expect(clippy::cast_precision_loss, reason = "a few minutes")]
                Ages => series.replace(metric, BEGIN..END, |minute| Some((minute + 1 - BEGIN) as f64 * 60_000.0)),
                #[expect(clippy::cast_precision_loss, reason = "a few minutes")]
                AgesInSeconds => series.replace(metric, BEGIN..END, |minute| Some((minute + 1 - BEGIN) as f64 * 60.0)),
                Stops => series.replace(metric, BEGIN..END, |_| None),
            }
        }
        series
    }
}

const SENT: &str = "MetricsNamespace MessagesSent";
const APPENDED: &str = "MetricsNamespace MessagesAppended";
const LOGGED: &str = "MetricsNamespace ErrorsLogged";
const FAILED: &str = "AWS/Lambda FailedInvokeEventCount StreamRelayOutboxRows";
const RELAY_AGE: &str = "AWS/Lambda IteratorAge StreamRelay";
const RELAY_TIME: &str = "AWS/Lambda Duration StreamRelay";
const POLLED: [&str; 2] =
    ["AWS/Lambda PolledEventCount StreamRelayOutboxRows", "AWS/Lambda PolledEventCount SnapshotterDueEvents"];

const PROJECTOR_BEHIND: &str = "AWS/SQS ApproximateAgeOfOldestMessage Changes.QueueName";
const CHANGES_UNREAD: &str = "AWS/SQS ApproximateNumberOfMessagesVisible UnreadChanges.QueueName";
const PROJECTOR_ERRORS: &str = "AWS/Lambda Errors Projector";
const SUSPENDED: &str = "Daybook/${MainStack} ProjectionsSuspended";

/// Metrics that have values with and without load.
const ALWAYS: [(&str, f64); 7] = [
    (PROJECTOR_BEHIND, 0.0),
    (CHANGES_UNREAD, 0.0),
    (POLLED[0], 60.0),
    (POLLED[1], 60.0),
    ("AWS/SQS ApproximateNumberOfMessagesVisible DeadLetterQueue", 0.0),
    ("AWS/SQS NumberOfMessagesSent DeadLetterQueue", 0.0),
    ("AWS/Lambda ConcurrentExecutions", 5.0),
];

/// Metrics that have values only with load.
const WITH_LOAD: [(&str, f64); 27] = [
    (PROJECTOR_ERRORS, 0.0),
    ("AWS/ApiGateway Count HttpApi", 100.0),
    ("AWS/ApiGateway 5xx HttpApi", 0.0),
    ("AWS/ApiGateway Latency HttpApi", 50.0),
    ("AWS/Lambda Errors CommandHandler", 0.0),
    ("AWS/Lambda Errors StreamRelay", 0.0),
    ("AWS/Lambda Errors Snapshotter", 0.0),
    ("AWS/Lambda Throttles CommandHandler", 0.0),
    ("AWS/Lambda Throttles StreamRelay", 0.0),
    ("AWS/Lambda Throttles Snapshotter", 0.0),
    ("AWS/Lambda Duration CommandHandler", 200.0),
    (RELAY_TIME, 200.0),
    ("AWS/Lambda Duration Snapshotter", 200.0),
    (RELAY_AGE, 100.0),
    ("AWS/Lambda IteratorAge Snapshotter", 1_000.0),
    (FAILED, 0.0),
    ("AWS/Lambda FailedInvokeEventCount SnapshotterDueEvents", 0.0),
    ("AWS/Lambda DroppedEventCount StreamRelayOutboxRows", 0.0),
    ("AWS/Lambda DroppedEventCount SnapshotterDueEvents", 0.0),
    ("AWS/Lambda OnFailureDestinationDeliveredEventCount StreamRelayOutboxRows", 0.0),
    ("AWS/Lambda OnFailureDestinationDeliveredEventCount SnapshotterDueEvents", 0.0),
    (APPENDED, 60.0),
    (SENT, 60.0),
    ("MetricsNamespace Responses401", 0.0),
    ("MetricsNamespace Responses403", 0.0),
    ("MetricsNamespace Responses409", 3.0),
    ("MetricsNamespace Responses429", 0.0),
];

/// Metrics that have values only in failures.
const IN_FAILURES: [&str; 14] = [
    SUSPENDED,
    LOGGED,
    "MetricsNamespace MessagesDeadLettered",
    "MetricsNamespace BreakerOpened",
    "MetricsNamespace SnapshotsTooLarge",
    "MetricsNamespace RowsUnreadable",
    "AWS/DynamoDB ReadThrottleEvents Table",
    "AWS/DynamoDB WriteThrottleEvents Table",
    "AWS/DynamoDB ReadThrottleEvents Table gsi1",
    "AWS/DynamoDB WriteThrottleEvents Table gsi1",
    "AWS/DynamoDB SystemErrors Table TransactWriteItems",
    "AWS/DynamoDB SystemErrors Table Query",
    "AWS/DynamoDB SystemErrors Table GetItem",
    "AWS/DynamoDB SystemErrors Table PutItem",
];

/// Normal operation, a message each second. A message can be sent in the minute after it was appended.
pub(super) fn healthy() -> Series {
    let mut series = idle();
    for (metric, value) in WITH_LOAD {
        series.set(metric, move |_| Some(value));
    }
    series.set(SENT, |minute| Some(if minute % 30 == 0 { 40.0 } else { 60.0 }));
    series
}

/// Nobody calls the API.
pub(super) fn idle() -> Series {
    let mut series = Series::new();
    for metric in WITH_LOAD.map(|(metric, _)| metric).into_iter().chain(IN_FAILURES) {
        series.set(metric, |_| None);
    }
    for (metric, value) in ALWAYS {
        series.set(metric, move |_| Some(value));
    }
    series
}

/// The failures of the runbook's table.
pub(super) const FAILURES: &[Failure] = &[
    Failure {
        name: "the relay's event source mapping is disabled or deleted, or its role may not read the stream",
        moves: &[(POLLED[0], Stops), (SENT, Stops), (RELAY_AGE, Stops), (FAILED, Stops), (RELAY_TIME, Stops)],
    },
    Failure {
        name: "the same without load",
        moves: &[(POLLED[0], Stops), (SENT, Stops), (APPENDED, Stops), (RELAY_AGE, Stops)],
    },
    Failure {
        name: "the snapshotter's event source mapping is disabled or deleted, or its role may not read the stream",
        moves: &[(POLLED[1], Stops), ("AWS/Lambda IteratorAge Snapshotter", Stops)],
    },
    Failure {
        name: "the filter of the relay's mapping passes nothing, or the relay may not write its log",
        moves: &[(SENT, Stops), (RELAY_AGE, Stops)],
    },
    Failure { name: "the relay is not invoked for one of four shards", moves: &[(SENT, To(45.0))] },
    Failure {
        name: "the relay may not send to the bus",
        moves: &[(SENT, Stops), (LOGGED, To(1.0)), (FAILED, To(60.0)), (RELAY_AGE, Ages)],
    },
    Failure {
        name: "the bus rejects every message",
        moves: &[
            (SENT, Stops),
            (LOGGED, To(1.0)),
            (FAILED, To(60.0)),
            (RELAY_AGE, Ages),
            ("MetricsNamespace BreakerOpened", To(1.0)),
        ],
    },
    Failure {
        name: "the bus does not respond",
        moves: &[(SENT, Stops), (LOGGED, To(1.0)), (FAILED, To(60.0)), (RELAY_AGE, Ages), (RELAY_TIME, To(29_000.0))],
    },
    Failure {
        name: "the bus rejects single messages",
        moves: &[
            ("MetricsNamespace MessagesDeadLettered", To(1.0)),
            ("AWS/SQS NumberOfMessagesSent DeadLetterQueue", To(1.0)),
            ("AWS/SQS ApproximateNumberOfMessagesVisible DeadLetterQueue", To(1.0)),
        ],
    },
    Failure {
        name: "a mapping discards records after 23 hours",
        moves: &[("AWS/Lambda OnFailureDestinationDeliveredEventCount StreamRelayOutboxRows", To(10.0))],
    },
    Failure {
        name: "a mapping discards records, and the bucket does not accept them",
        moves: &[("AWS/Lambda DroppedEventCount StreamRelayOutboxRows", To(10.0))],
    },
    Failure {
        name: "the relay crashes",
        moves: &[("AWS/Lambda Errors StreamRelay", To(5.0)), (SENT, Stops), (FAILED, To(60.0)), (RELAY_AGE, Ages)],
    },
    Failure {
        name: "the snapshotter crashes",
        moves: &[
            ("AWS/Lambda Errors Snapshotter", To(5.0)),
            ("AWS/Lambda FailedInvokeEventCount SnapshotterDueEvents", To(5.0)),
            ("AWS/Lambda IteratorAge Snapshotter", Ages),
        ],
    },
    Failure {
        name: "the command handler crashes",
        moves: &[
            ("AWS/Lambda Errors CommandHandler", To(100.0)),
            ("AWS/ApiGateway 5xx HttpApi", To(100.0)),
            (APPENDED, Stops),
            (SENT, Stops),
        ],
    },
    Failure {
        name: "requests wait for the table until their time is up",
        moves: &[
            ("AWS/Lambda Duration CommandHandler", To(27_000.0)),
            ("AWS/ApiGateway Latency HttpApi", To(27_000.0)),
            ("AWS/ApiGateway 5xx HttpApi", To(50.0)),
            (LOGGED, To(50.0)),
        ],
    },
    Failure {
        name: "the account's concurrency is used up",
        moves: &[("AWS/Lambda ConcurrentExecutions", To(1_000.0)), ("AWS/Lambda Throttles CommandHandler", To(10.0))],
    },
    Failure { name: "the tokens of callers are rejected", moves: &[("MetricsNamespace Responses401", To(50.0))] },
    Failure { name: "callers are not allowed", moves: &[("MetricsNamespace Responses403", To(50.0))] },
    Failure { name: "callers use outdated versions", moves: &[("MetricsNamespace Responses409", To(50.0))] },
    Failure { name: "callers exceed the rate", moves: &[("MetricsNamespace Responses429", To(50.0))] },
    Failure { name: "the table throttles", moves: &[("AWS/DynamoDB WriteThrottleEvents Table", To(10.0))] },
    Failure { name: "the index throttles", moves: &[("AWS/DynamoDB WriteThrottleEvents Table gsi1", To(10.0))] },
    Failure {
        name: "DynamoDB has internal errors",
        moves: &[("AWS/DynamoDB SystemErrors Table TransactWriteItems", To(1.0))],
    },
    Failure { name: "a stored row cannot be read", moves: &[("MetricsNamespace RowsUnreadable", To(1.0))] },
    Failure { name: "an aggregate's state exceeds an item", moves: &[("MetricsNamespace SnapshotsTooLarge", To(1.0))] },
    Failure {
        name: "the projector's event source mapping is disabled or deleted, or its role may not use the tables",
        moves: &[(PROJECTOR_BEHIND, AgesInSeconds)],
    },
    Failure {
        name: "the projector crashes or times out",
        moves: &[(PROJECTOR_ERRORS, To(10.0)), (PROJECTOR_BEHIND, AgesInSeconds)],
    },
    Failure { name: "an event cannot be folded into a view", moves: &[(SUSPENDED, To(1.0))] },
    Failure { name: "the projector fails a hundred times on a message", moves: &[(CHANGES_UNREAD, To(1.0))] },
];
