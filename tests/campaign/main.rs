//! The failure campaign: seeded schedules of all faults between a command and the bus, in one process and in virtual
//! time. After each schedule, every guarantee must hold.
//!
//! - `cargo test -p suite-tests --test campaign` runs 120 schedules, and the tests of the cost of outages and
//!   failures. The seeds are always the same, so that a failure is the change's own. `.ci/run` sets
//!   `CAMPAIGN_FIRST_SEED` to the time and so runs new schedules each time. Each night, 20,000 new ones run.
//! - `CAMPAIGN_SCHEDULES=100000 cargo test --profile campaign -p suite-tests --test campaign schedules` runs that many.
//!   With `CAMPAIGN_PART="read models"`, each is one of this part alone; otherwise some seeds have schedules of several parts.
//! - `CAMPAIGN_SEED=7 cargo test -p suite-tests --test campaign schedules -- --nocapture` runs one, and prints its log.
//!
//! Guarantees that are checked after each schedule:
//! - An acknowledged append is stored, a failed one is not, and one with an unknown outcome is stored completely or not
//!   at all. Events and messages are numbered without gap or duplicate, and the metadata agree.
//! - A request with an idempotency key that is repeated after a lost answer, is sent twice at the same time, or is repeated
//!   later by any process, takes effect at most once. Every answer to it equals the first, and its response is stored exactly
//!   if it took effect.
//! - A claim belongs to at most one aggregate, whose state has it, and each state has its claims.
//! - Within an aggregate, the times and ids of events never run backwards, although the clocks of the writers differ. An
//!   event is visible within `SETTLE_WRITES` of its time plus that difference, unless its call arrived later than calls
//!   should.
//! - Every message of a stored event was delivered, or is complete in the dead-letter queue, or, if the mapping limits
//!   retries or record ages, complete in the on-failure destination.
//! - Every delivered message was committed, and has the same bytes each time.
//! - If the stream keeps the order of commits and batches are delivered one by one, first deliveries of an aggregate
//!   are in the order of `messageSeq`, except after a message that was dead-lettered or discarded. This also holds with
//!   retries, splits, crashes, repeated batches and late arrivals, and when a shard closes and the records of an aggregate
//!   go on in another shard.
//! - If the stream keeps only the order per item, as DynamoDB guarantees, or batches are concurrent, the order holds
//!   within each batch: no message is sent while an earlier message of its aggregate in the batch is unsettled.
//! - The schedule ends after the faults of the bus and the queue have ended. For this, the mapping splits batches, as
//!   the template's does, or the function has time enough for a whole batch and the bus rejects no message permanently.
//!   Otherwise a schedule with a stream out of order may never end: the checkpoint of an unfinished batch is then a
//!   message that is late in its aggregate's order, so that each retry begins with the same messages.
//! - A process of the relay sends no message again that a service accepted from it. No message is sent after the bus has
//!   rejected the deployment or the time is up. The response contains the lowest unsettled sequence number.
//! - Messages are dead-lettered only for permanent errors, or because they fail transiently for a time in several attempts,
//!   and the bus accepts others. Throttled messages are not.
//! - An invocation uses its time: it does not respond early while an unsettled message could be tried. [`ledger`] has the
//!   exact rule.
//! - A record that the snapshotter settles has its snapshot in the table.
//! - Every snapshot equals the fold of its events, and a load from it equals a load from the first event. Unless the
//!   mapping of the snapshotter discards a record, every aggregate that is due has its snapshot in the end.
//! - `daybook dlq redrive` deletes a message from the queue only after the bus has accepted it. After the faults, it sends
//!   each message that can be sent, and the queue contains only the others. `daybook republish` sends exactly the
//!   messages of its time window, and while writers go on, all that were committed before it began. Both send the
//!   messages of an aggregate in their order, and each with the bytes of its row.
//!
//! - Decisions over several aggregates: [`joint`] has a schedule of its own for some of the seeds, with its guarantees.
//! - Read models: [`read_models`] has a schedule of its own for some of the seeds, with its guarantees.
//! - Deadlines: [`deadlines`] has a schedule of its own for some of the seeds, with its guarantees.
//! - Processes: [`processes`] has a schedule of its own for some of the seeds, with its guarantees.
//! - Erasure: [`erasure`] has a schedule of its own for some of the seeds, with its guarantees.
//!
//! In reading order:
//! - [`schedule`]: the schedule of a seed; [`dice`], [`clock`], [`log`]: random numbers, time and log.
//! - [`writers`] send [`requests`] to a [`database`] that loses calls and responses; [`bell`]: an aggregate with many
//!   messages.
//! - [`delivery`]: the part of the relay. [`stream`]: the records of the commits in their shards; [`shard`]: their
//!   delivery by a mapping; [`lambda`]: the relay's invocations; [`snapshots`]: those of the snapshotter.
//! - [`services`]: a bus and a queue with [`faults`]; [`ledger`]: the checks of each call of the relay, with the
//!   [`evidence`] of earlier invocations.
//! - [`operator`], [`early_republish`]: commands of the `daybook` binary.
//! - [`schedules`]: runs all schedules.
//! - [`joint_requests`]: the clients of joint schedules and those of deadlines and processes. [`torn`] tables, their [`live_stream`], a
//!   [`hint_queue`] and the [`queue_function`] behind it: what the schedules of read models and of [`reactions`] share.
//! - [`checks`], [`expiry`]: the checks at the end of a schedule.
//! - [`network`], [`process`]: calls without a network, and processes that crash.
//! - [`counts`], [`outage`], [`one_message`]: the cost of failures, an hour without a bus, and a message that holds a shard.
//! - [`contention`]: many writers to one [`account`]. [`own_feed`]: a feed beside writers of its own process. [`queue_kinds`]:
//!   kinds of the queue of the projector. [`shared_row`]: many instances of the projector that change one row.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod account;
mod bell;
mod checks;
mod clock;
mod contention;
mod counts;
mod database;
mod deadlines;
mod delivery;
mod dice;
mod early_republish;
mod erasure;
mod evidence;
mod expiry;
mod faults;
mod hint_queue;
mod joint;
mod joint_requests;
mod lambda;
mod ledger;
mod live_stream;
mod log;
mod network;
mod one_message;
mod operator;
mod outage;
mod own_feed;
mod process;
mod processes;
mod queue_function;
mod queue_kinds;
mod reactions;
mod read_models;
mod requests;
mod schedule;
mod schedules;
mod services;
mod shard;
mod shared_row;
mod snapshots;
mod stream;
mod torn;
mod writers;
