//! The names of metrics: namespace, metric and dimensions, as in the templates.

/// Lambda's quota of concurrent executions, for the function `SERVICE_QUOTA` of metric math.
pub(super) const QUOTA: &str = "SERVICE_QUOTA";
pub(super) const SENT: &str = "Daybook/${MonitoredStack} MessagesSent";
pub(super) const APPENDED: &str = "Daybook/${MonitoredStack} MessagesAppended";
pub(super) const LOGGED: &str = "Daybook/${MonitoredStack} ErrorsLogged";
pub(super) const DEAD_LETTERED: &str = "Daybook/${MonitoredStack} MessagesDeadLettered";
pub(super) const BREAKER: &str = "Daybook/${MonitoredStack} BreakerOpened";
pub(super) const TOO_LARGE: &str = "Daybook/${MonitoredStack} SnapshotsTooLarge";
pub(super) const UNREADABLE: &str = "Daybook/${MonitoredStack} RowsUnreadable";
pub(super) const FAILED: &str = "AWS/Lambda FailedInvokeEventCount StreamRelayOutboxRows";
pub(super) const DISCARDED: &str = "AWS/Lambda OnFailureDestinationDeliveredEventCount StreamRelayOutboxRows";
pub(super) const RELAY_AGE: &str = "AWS/Lambda IteratorAge StreamRelay";
pub(super) const RELAY_TIME: &str = "AWS/Lambda Duration StreamRelay";
pub(super) const SNAPSHOTTER_AGE: &str = "AWS/Lambda IteratorAge Snapshotter";
pub(super) const SNAPSHOTTER_FAILED: &str = "AWS/Lambda FailedInvokeEventCount SnapshotterDueEvents";
pub(super) const HANDLER_TIME: &str = "AWS/Lambda Duration CommandHandler";
pub(super) const POLLED: [&str; 2] =
    ["AWS/Lambda PolledEventCount StreamRelayOutboxRows", "AWS/Lambda PolledEventCount SnapshotterDueEvents"];
pub(super) const REQUESTS: &str = "AWS/ApiGateway Count HttpApi";
pub(super) const SERVER_ERRORS: &str = "AWS/ApiGateway 5xx HttpApi";
pub(super) const API_TIME: &str = "AWS/ApiGateway Latency HttpApi";
pub(super) const SENT_TO_QUEUE: &str = "AWS/SQS NumberOfMessagesSent DeadLetterQueue";
pub(super) const QUEUED: &str = "AWS/SQS ApproximateNumberOfMessagesVisible DeadLetterQueue";
pub(super) const TABLE_THROTTLED: &str = "AWS/DynamoDB WriteThrottleEvents Table";
pub(super) const INDEX_THROTTLED: &str = "AWS/DynamoDB WriteThrottleEvents Table gsi1";
pub(super) const FORBIDDEN: &str = "Daybook/${MonitoredStack} Responses403";
pub(super) const LOGGED_5XX: &str = "Daybook/${MonitoredStack} Responses5xx";
pub(super) const ARCHIVED: &str = "AWS/Events TriggeredRules EventBus Events-Archive-${Archive}";
pub(super) const DEAD_LETTER_AGE: &str = "AWS/SQS ApproximateAgeOfOldestMessage DeadLetterQueue";
pub(super) const PROJECTOR_BEHIND: &str = "AWS/SQS ApproximateAgeOfOldestMessage ChangesQueueName";
pub(super) const CHANGE_FAILED: &str = "Daybook/${MonitoredStack} OldestChangeFailed";
pub(super) const CHANGES_UNREAD: &str = "AWS/SQS ApproximateNumberOfMessagesVisible UnreadChangesName";
pub(super) const PROJECTOR_ERRORS: &str = "AWS/Lambda Errors ProjectorName";
pub(super) const OLDEST_DEADLINE: &str = "Daybook/${MonitoredStack} OldestDeadline";
pub(super) const GIVEN_UP: &str = "Daybook/${MonitoredStack} ReactionsGivenUp";
pub(super) const REACTOR_BEHIND: &str = "AWS/SQS ApproximateAgeOfOldestMessage ReactionsQueueName";
pub(super) const REACTION_FAILED: &str = "Daybook/${MonitoredStack} OldestReactionFailed";
pub(super) const REACTIONS_UNREAD: &str = "AWS/SQS ApproximateNumberOfMessagesVisible UnreadReactionsName";
pub(super) const REACTOR_ERRORS: &str = "AWS/Lambda Errors ReactorName";
pub(super) const SUSPENDED: &str = "Daybook/${MonitoredStack} AggregatesSuspended";
