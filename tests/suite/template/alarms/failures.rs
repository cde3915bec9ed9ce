//! The metrics of each failure, minute by minute, and the trials that cause it.

use futures_util::FutureExt;

use super::evaluation::Series;
use super::names::{
    API_TIME, APPENDED, ARCHIVED, BREAKER, CHANGE_FAILED, CHANGES_UNREAD, DEAD_LETTER_AGE, DEAD_LETTERED, DISCARDED,
    FAILED, FORBIDDEN, GIVEN_UP, HANDLER_TIME, INDEX_THROTTLED, LOGGED, LOGGED_5XX, OLDEST_DEADLINE, POLLED,
    PROJECTOR_BEHIND, PROJECTOR_ERRORS, QUEUED, QUOTA, REACTION_FAILED, REACTIONS_UNREAD, REACTOR_BEHIND,
    REACTOR_ERRORS, RELAY_AGE, RELAY_TIME, REQUESTS, SENT, SENT_TO_QUEUE, SERVER_ERRORS, SNAPSHOTTER_AGE,
    SNAPSHOTTER_FAILED, SUSPENDED, TABLE_THROTTLED, TOO_LARGE, UNREADABLE,
};
use super::trials::{self, Trial};

/// The minute in which each failure begins, after as much normal operation as the longest alarm evaluates.
pub(super) const BEGIN: i64 = 30;
/// The minute in which each failure ends. An alarm on snapshots goes into ALARM state after an hour.
pub(super) const END: i64 = BEGIN + 90;

/// The value of a metric during a failure.
pub(super) enum Moves {
    To(f64),
    /// A value in the first minute only.
    AtFirst(f64),
    /// Minutes since the beginning, in milliseconds: the age of a record that is not settled.
    Ages,
    /// Minutes since the beginning, in seconds: the age of a message that is not deleted.
    AgesInSeconds,
    /// The same, every third minute: the age of a message that fails each time it is received.
    AgesWhenReceived,
    /// The same, until it is given up after this many minutes.
    AgesUntil(i64),
    /// A value this many minutes after the beginning.
    After(i64, f64),
    Stops,
}
use Moves::{After, Ages, AgesInSeconds, AgesUntil, AgesWhenReceived, AtFirst, Stops, To};

/// How often a message is received that fails, in minutes.
const RECEIVED_EVERY: i64 = 3;

/// The minutes after which what cannot be done is given up, with the attempt after that.
const GIVEN_UP_AFTER: i64 = 12;

pub(super) struct Failure {
    /// Its name in the table of the runbook.
    pub(super) name: &'static str,
    pub(super) moves: &'static [(&'static str, Moves)],
    /// How many requests the API gets meanwhile.
    load: Load,
    pub(super) tried: Tried,
}

#[derive(Clone, Copy)]
enum Load {
    Normal,
    NoRequests,
}
use Load::{NoRequests, Normal};

/// An API that gets this many requests a minute, all of which fail or are slow from the minute of the failure on.
pub(super) fn api_with_requests(requests: f64, share_failing: f64, latency: f64) -> Series {
    let mut series = healthy();
    series.set(REQUESTS, move |_| Some(requests));
    for metric in [SERVER_ERRORS, LOGGED_5XX] {
        series.set(metric, move |minute| Some(if minute < BEGIN { 0.0 } else { requests * share_failing }));
    }
    series.set(API_TIME, move |minute| Some(if minute < BEGIN { 50.0 } else { latency }));
    series
}

/// Whether a test causes the failure.
pub(super) enum Tried {
    /// Each trial causes it, and observes the metrics.
    By(&'static [Trial]),
    /// No test can cause it, for this reason.
    Not(&'static str),
}
use Tried::{By, Not};

impl Failure {
    /// The metrics without the failure.
    pub(super) fn without(&self) -> Series {
        match self.load {
            Normal => healthy(),
            NoRequests => idle(),
        }
    }

    pub(super) fn series(&self) -> Series {
        let mut series = self.without();
        for (metric, moves) in self.moves {
            match *moves {
                To(value) => series.replace(metric, BEGIN..END, move |_| Some(value)),
                AtFirst(value) => series.replace(metric, BEGIN..BEGIN + 1, move |_| Some(value)),
                #[expect(clippy::cast_precision_loss, reason = "a few minutes")]
                Ages => series.replace(metric, BEGIN..END, |minute| Some((minute + 1 - BEGIN) as f64 * 60_000.0)),
                #[expect(clippy::cast_precision_loss, reason = "a few minutes")]
                AgesInSeconds => series.replace(metric, BEGIN..END, |minute| Some((minute + 1 - BEGIN) as f64 * 60.0)),
                AgesWhenReceived => series.replace(metric, BEGIN..END, age_when_received),
                AgesUntil(minutes) => series.replace(metric, BEGIN..BEGIN + minutes, age_when_received),
                After(minutes, value) => {
                    series.replace(metric, BEGIN + minutes..BEGIN + minutes + 1, move |_| Some(value));
                }
                Stops => series.replace(metric, BEGIN..END, |_| None),
            }
        }
        series
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few minutes")]
fn age_when_received(minute: i64) -> Option<f64> {
    let age = minute - BEGIN;
    (age % RECEIVED_EVERY == 0).then_some(age as f64 * 60.0)
}

/// The milliseconds of an invocation of the relay that retries until its time is up: 30 seconds, less one for its response, and
/// less the time until a retry that would come too late, which is up to five.
const RELAY_WAITS: f64 = 24_500.0;

/// The milliseconds of a request that waits for the table until its time is up: 28 seconds, less the time for the response and
/// for an attempt that would end too late.
const HANDLER_WAITS: f64 = 25_000.0;

/// Metrics that have values with and without load.
const ALWAYS: [(&str, f64); 15] = [
    (QUOTA, 1_000.0),
    (OLDEST_DEADLINE, 0.0),
    (REACTOR_BEHIND, 0.0),
    (REACTIONS_UNREAD, 0.0),
    (REACTOR_ERRORS, 0.0),
    ("AWS/Lambda Throttles ReactorName", 0.0),
    ("AWS/Lambda Duration ReactorName", 100.0),
    (DEAD_LETTER_AGE, 0.0),
    (PROJECTOR_BEHIND, 0.0),
    (CHANGES_UNREAD, 0.0),
    (POLLED[0], 60.0),
    (POLLED[1], 60.0),
    (QUEUED, 0.0),
    (SENT_TO_QUEUE, 0.0),
    ("AWS/Usage ResourceCount Lambda Resource ConcurrentExecutions None", 5.0),
];

/// Metrics that have values only with load.
const WITH_LOAD: [(&str, f64); 30] = [
    (PROJECTOR_ERRORS, 0.0),
    ("AWS/Lambda Throttles ProjectorName", 0.0),
    ("AWS/Lambda Duration ProjectorName", 200.0),
    (REQUESTS, 100.0),
    (LOGGED_5XX, 0.0),
    (ARCHIVED, 12.0),
    (SERVER_ERRORS, 0.0),
    (API_TIME, 50.0),
    ("AWS/Lambda Errors CommandHandler", 0.0),
    ("AWS/Lambda Errors StreamRelay", 0.0),
    ("AWS/Lambda Errors Snapshotter", 0.0),
    ("AWS/Lambda Throttles CommandHandler", 0.0),
    ("AWS/Lambda Throttles StreamRelay", 0.0),
    ("AWS/Lambda Throttles Snapshotter", 0.0),
    (HANDLER_TIME, 200.0),
    (RELAY_TIME, 200.0),
    ("AWS/Lambda Duration Snapshotter", 200.0),
    (RELAY_AGE, 100.0),
    (SNAPSHOTTER_AGE, 1_000.0),
    (FAILED, 0.0),
    (SNAPSHOTTER_FAILED, 0.0),
    ("AWS/Lambda DroppedEventCount StreamRelayOutboxRows", 0.0),
    ("AWS/Lambda DroppedEventCount SnapshotterDueEvents", 0.0),
    (DISCARDED, 0.0),
    ("AWS/Lambda OnFailureDestinationDeliveredEventCount SnapshotterDueEvents", 0.0),
    (APPENDED, 12.0),
    (SENT, 12.0),
    ("Daybook/${MonitoredStack} Responses401", 0.0),
    (FORBIDDEN, 0.0),
    ("Daybook/${MonitoredStack} Responses429", 0.0),
];

/// Metrics that have values only in failures.
const IN_FAILURES: [&str; 13] = [
    CHANGE_FAILED,
    REACTION_FAILED,
    GIVEN_UP,
    SUSPENDED,
    LOGGED,
    DEAD_LETTERED,
    BREAKER,
    TOO_LARGE,
    UNREADABLE,
    "AWS/DynamoDB ReadThrottleEvents Table",
    TABLE_THROTTLED,
    "AWS/DynamoDB ReadThrottleEvents Table gsi1",
    INDEX_THROTTLED,
];

/// Normal operation, a message every five seconds. A message can be sent in the minute after it was appended.
pub(super) fn healthy() -> Series {
    let mut series = idle();
    for (metric, value) in WITH_LOAD {
        series.set(metric, move |_| Some(value));
    }
    series.set(SENT, |minute| Some(if minute % 30 == 0 { 8.0 } else { 12.0 }));
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
        load: Normal,
        tried: By(&[|| trials::relay_is_disabled().boxed_local()]),
    },
    Failure {
        name: "the same without load",
        moves: &[(POLLED[0], Stops)],
        load: NoRequests,
        tried: By(&[|| trials::relay_is_disabled_without_load().boxed_local()]),
    },
    Failure {
        name: "the snapshotter's event source mapping is disabled or deleted, or its role may not read the stream",
        moves: &[(POLLED[1], Stops), (SNAPSHOTTER_AGE, Stops)],
        load: Normal,
        tried: By(&[|| trials::snapshotter_is_disabled().boxed_local()]),
    },
    Failure {
        name: "the filter of the relay's mapping passes nothing, or the relay may not write its log",
        moves: &[(SENT, Stops), (RELAY_AGE, Stops), (FAILED, Stops), (RELAY_TIME, Stops)],
        load: Normal,
        tried: By(&[|| trials::filter_passes_nothing().boxed_local()]),
    },
    Failure {
        name: "the relay is not invoked for one of four shards",
        moves: &[(SENT, To(9.0))],
        load: Normal,
        tried: Not("the stream of the local table has one shard"),
    },
    Failure {
        name: "the relay may not send to the bus",
        moves: &[(SENT, Stops), (LOGGED, To(1.0)), (FAILED, To(12.0)), (RELAY_AGE, Ages)],
        load: Normal,
        tried: By(&[|| trials::bus_denies_requests().boxed_local(), || trials::bus_denies_entries().boxed_local()]),
    },
    Failure {
        // The first two rejected messages could be bad messages.
        name: "the bus rejects every message",
        moves: &[
            (SENT, Stops),
            (LOGGED, To(1.0)),
            (FAILED, To(12.0)),
            (RELAY_AGE, Ages),
            (BREAKER, To(1.0)),
            (DEAD_LETTERED, AtFirst(2.0)),
            (SENT_TO_QUEUE, AtFirst(2.0)),
            (QUEUED, To(2.0)),
        ],
        load: Normal,
        tried: By(&[|| trials::bus_rejects_everything().boxed_local()]),
    },
    Failure {
        name: "the bus does not respond, throttles or fails",
        moves: &[
            (SENT, Stops),
            (LOGGED, To(1.0)),
            (FAILED, To(12.0)),
            (RELAY_AGE, Ages),
            (RELAY_TIME, To(RELAY_WAITS)),
        ],
        load: Normal,
        tried: By(&[
            || trials::bus_hangs().boxed_local(),
            || trials::bus_throttles().boxed_local(),
            || trials::bus_fails().boxed_local(),
        ]),
    },
    Failure {
        name: "the bus fails one message, which blocks its shard",
        moves: &[(SENT, Stops), (LOGGED, To(1.0)), (FAILED, To(1.0)), (RELAY_AGE, Ages), (RELAY_TIME, To(RELAY_WAITS))],
        load: Normal,
        tried: By(&[|| trials::bus_fails_one_message().boxed_local()]),
    },
    Failure {
        name: "the bus rejects single messages, or the relay cannot read a row",
        moves: &[(DEAD_LETTERED, To(1.0)), (SENT_TO_QUEUE, To(1.0)), (QUEUED, To(1.0))],
        load: Normal,
        tried: By(&[
            || trials::bus_rejects_one_message().boxed_local(),
            || trials::row_is_unreadable_to_the_relay().boxed_local(),
        ]),
    },
    Failure {
        name: "the dead-letter queue does not accept a message, which blocks its shard",
        moves: &[(SENT, Stops), (LOGGED, To(1.0)), (FAILED, To(1.0)), (RELAY_AGE, Ages)],
        load: Normal,
        tried: By(&[|| trials::queue_rejects_messages().boxed_local()]),
    },
    Failure {
        name: "a dead-letter message is left for five days",
        moves: &[(QUEUED, To(1.0)), (DEAD_LETTER_AGE, To(433_000.0))],
        load: Normal,
        tried: Not("SQS counts the age of its messages; the local queue does not"),
    },
    Failure {
        name: "the bus was deleted within the last minute, or its archive was deleted",
        moves: &[(ARCHIVED, Stops)],
        load: Normal,
        tried: Not("EventBridge counts the messages that rules match; the local bus does not"),
    },
    Failure {
        name: "a mapping discards records after 23 hours",
        moves: &[(DISCARDED, To(10.0))],
        load: Normal,
        tried: By(&[|| trials::records_are_discarded().boxed_local()]),
    },
    Failure {
        name: "a mapping discards records, and the bucket does not accept them",
        moves: &[("AWS/Lambda DroppedEventCount StreamRelayOutboxRows", To(10.0))],
        load: Normal,
        tried: Not("Lambda counts the records that it drops; the local bucket accepts all records"),
    },
    Failure {
        name: "the relay crashes",
        moves: &[("AWS/Lambda Errors StreamRelay", To(5.0)), (SENT, Stops), (FAILED, To(12.0)), (RELAY_AGE, Ages)],
        load: Normal,
        tried: Not("Lambda counts errors; no input is known that crashes the relay"),
    },
    Failure {
        name: "the snapshotter crashes",
        moves: &[("AWS/Lambda Errors Snapshotter", To(5.0)), (SNAPSHOTTER_FAILED, To(5.0)), (SNAPSHOTTER_AGE, Ages)],
        load: Normal,
        tried: Not("Lambda counts errors; no aggregate of the local stack crashes the snapshotter"),
    },
    Failure {
        name: "the command handler crashes",
        moves: &[
            ("AWS/Lambda Errors CommandHandler", To(100.0)),
            (SERVER_ERRORS, To(100.0)),
            (LOGGED_5XX, To(100.0)),
            (APPENDED, Stops),
            (SENT, Stops),
        ],
        load: Normal,
        tried: Not("Lambda counts errors; no request is known that crashes the command handler"),
    },
    Failure {
        name: "the snapshotter may not read or write the table",
        moves: &[(SNAPSHOTTER_FAILED, To(1.0)), (SNAPSHOTTER_AGE, Ages)],
        load: Normal,
        tried: By(&[|| trials::table_denies_snapshots().boxed_local()]),
    },
    Failure {
        name: "the command handler may not read or write the table",
        moves: &[
            (SERVER_ERRORS, To(12.0)),
            (LOGGED_5XX, To(12.0)),
            (LOGGED, To(12.0)),
            (APPENDED, Stops),
            (SENT, Stops),
        ],
        load: Normal,
        tried: By(&[|| trials::table_denies_commands().boxed_local()]),
    },
    Failure {
        name: "requests wait for the table until their time is up",
        moves: &[
            (HANDLER_TIME, To(HANDLER_WAITS)),
            (API_TIME, To(HANDLER_WAITS)),
            (SERVER_ERRORS, To(50.0)),
            (LOGGED_5XX, To(50.0)),
        ],
        load: Normal,
        tried: By(&[|| trials::table_hangs().boxed_local()]),
    },
    Failure {
        name: "the account's concurrency is used up",
        moves: &[
            ("AWS/Usage ResourceCount Lambda Resource ConcurrentExecutions None", To(1_000.0)),
            ("AWS/Lambda Throttles CommandHandler", To(10.0)),
        ],
        load: Normal,
        tried: Not("Lambda limits and counts concurrent executions"),
    },
    Failure {
        name: "the tokens of callers are rejected",
        moves: &[("Daybook/${MonitoredStack} Responses401", To(50.0))],
        load: Normal,
        tried: Not("API Gateway rejects tokens, and writes the log that the metric is read from"),
    },
    Failure {
        name: "callers send requests that `authorize` does not allow",
        moves: &[(FORBIDDEN, To(50.0))],
        load: Normal,
        tried: By(&[|| trials::callers_are_forbidden().boxed_local()]),
    },
    Failure {
        name: "callers exceed the rate",
        moves: &[("Daybook/${MonitoredStack} Responses429", To(50.0))],
        load: Normal,
        tried: Not("API Gateway limits the rate, and writes the log that the metric is read from"),
    },
    Failure {
        name: "the table throttles",
        moves: &[(TABLE_THROTTLED, To(10.0))],
        load: Normal,
        tried: By(&[|| trials::table_throttles().boxed_local()]),
    },
    Failure {
        name: "the index throttles",
        moves: &[(INDEX_THROTTLED, To(10.0))],
        load: Normal,
        tried: By(&[|| trials::index_throttles().boxed_local()]),
    },
    Failure {
        name: "a stored row cannot be read",
        moves: &[(UNREADABLE, To(1.0))],
        load: Normal,
        tried: By(&[|| trials::stored_event_is_unreadable().boxed_local()]),
    },
    Failure {
        name: "an aggregate's state exceeds the size of an item",
        moves: &[(TOO_LARGE, To(1.0))],
        load: Normal,
        tried: By(&[|| trials::state_is_too_large().boxed_local()]),
    },
    Failure {
        name: "the projector's event source mapping is disabled or deleted, or its role may not use the tables",
        moves: &[(PROJECTOR_BEHIND, AgesInSeconds)],
        load: Normal,
        tried: Not("SQS counts the age of its messages; the local queue does not"),
    },
    Failure {
        name: "the projector crashes or times out",
        moves: &[(PROJECTOR_ERRORS, To(10.0)), (PROJECTOR_BEHIND, AgesInSeconds)],
        load: Normal,
        tried: Not("Lambda counts errors; no event is known that crashes the projector"),
    },
    Failure {
        name: "an event cannot be folded into a view",
        moves: &[(SUSPENDED, To(1.0))],
        load: Normal,
        tried: By(&[|| trials::event_cannot_be_folded().boxed_local()]),
    },
    Failure {
        name: "the projector fails again and again on a message",
        moves: &[(CHANGE_FAILED, AgesWhenReceived)],
        load: Normal,
        tried: By(&[|| trials::message_of_the_projector_fails().boxed_local()]),
    },
    Failure {
        name: "the projector fails a hundred times on a message",
        moves: &[(CHANGES_UNREAD, To(1.0))],
        load: Normal,
        tried: Not("SQS moves the message to another queue; the local queue does not"),
    },
    Failure {
        name: "the reactor's schedule is disabled or deleted",
        moves: &[(OLDEST_DEADLINE, Stops)],
        load: NoRequests,
        tried: Not("EventBridge invokes the reactor; the schedule of the local stack cannot be disabled"),
    },
    Failure {
        name: "the reactor may not use the table or its queue",
        moves: &[(OLDEST_DEADLINE, Stops), (LOGGED, To(1.0))],
        load: NoRequests,
        tried: By(&[
            || trials::table_denies_the_tick().boxed_local(),
            || trials::queue_denies_the_tick().boxed_local(),
        ]),
    },
    Failure {
        name: "the reactor's event source mapping is disabled or deleted, or the table is not available",
        moves: &[(OLDEST_DEADLINE, AgesInSeconds), (REACTOR_BEHIND, AgesInSeconds)],
        load: Normal,
        tried: By(&[|| trials::messages_of_the_reactor_are_lost().boxed_local()]),
    },
    Failure {
        name: "the same without a deadline or a dispatch that is due",
        moves: &[(REACTOR_BEHIND, AgesInSeconds)],
        load: Normal,
        tried: Not("SQS counts the age of its messages; the local queue does not"),
    },
    Failure {
        name: "the reactor crashes or times out",
        moves: &[(REACTOR_ERRORS, To(1.0)), (OLDEST_DEADLINE, Stops), (REACTOR_BEHIND, AgesInSeconds)],
        load: Normal,
        tried: Not("Lambda counts errors; no event is known that crashes the reactor"),
    },
    Failure {
        name: "the command of a deadline cannot be executed, or an event cannot be handled",
        moves: &[
            (REACTION_FAILED, AgesUntil(GIVEN_UP_AFTER)),
            (GIVEN_UP, After(GIVEN_UP_AFTER, 1.0)),
            (LOGGED, After(GIVEN_UP_AFTER, 1.0)),
        ],
        load: Normal,
        tried: By(&[
            || trials::command_of_a_deadline_cannot_be_executed().boxed_local(),
            || trials::event_cannot_be_handled().boxed_local(),
        ]),
    },
    Failure {
        name: "the reactor fails again and again on a message",
        moves: &[(REACTION_FAILED, AgesWhenReceived)],
        load: Normal,
        tried: By(&[|| trials::message_of_the_reactor_fails().boxed_local()]),
    },
    Failure {
        name: "the reactor fails a hundred times on a message",
        moves: &[(REACTIONS_UNREAD, To(1.0))],
        load: Normal,
        tried: Not("SQS moves the message to another queue; the local queue does not"),
    },
];
