//! The failure campaign: seeded schedules of everything that can go wrong between a command and the bus, in one process
//! and in virtual time. After each, every promise must have been kept.
//!
//! - `cargo test -p suite-tests --test campaign` runs 1,000 schedules, and the tests of what outages and failures cost.
//! - `CAMPAIGN_SCHEDULES=100000 cargo test --profile campaign -p suite-tests --test campaign schedules` runs that many.
//! - `CAMPAIGN_SEED=7 cargo test -p suite-tests --test campaign schedules -- --nocapture` runs one, and tells its story.
//!
//! What is promised, and checked after each schedule:
//! - An append that was acknowledged is stored, one that was refused is not, and one in doubt is stored whole or not at
//!   all. Events and messages are numbered without gap or duplicate, and the metadata agree.
//! - Every message of an event that is stored was delivered, or is whole in the dead-letter queue, or, where the
//!   mapping's retries or ages are limited, whole in its on-failure destination.
//! - What was delivered was committed, and has the same bytes each time.
//! - Where the stream keeps the order of commits and its batches go one by one, first deliveries of an aggregate are in
//!   the order of `messageSeq`, except after a message that was parked or given up. Retries, splits, crashes, repeated
//!   batches and late arrivals change nothing of that.
//! - Where the stream keeps the order per item only, as DynamoDB promises, or batches go side by side, the order holds
//!   within each batch: nothing is sent while an earlier message of its aggregate in the batch is unsettled.
//! - It comes to an end, once the bus and the queue are well. That takes a mapping that splits batches, as the template's
//!   does, or time enough for a whole batch: where the stream is out of order, a batch that is never finished has its
//!   checkpoint at a message that is late in its aggregate's order, and begins with the same messages each time.
//! - In each invocation nothing that is settled is sent again, nothing is parked but for a reason that does not pass,
//!   nothing is sent once the deployment is refused or the time is up, and the answer names the lowest sequence number of
//!   what is unsettled.
//!
//! In reading order:
//! - [`schedule`]: what a seed comes to; [`dice`], [`clock`], [`log`]: chance, time and what is told.
//! - [`writers`] on a [`database`] that loses calls and answers; [`bell`]: an aggregate with many messages.
//! - [`stream`]: what comes of their commits; [`shard`]: how a mapping delivers it; [`lambda`]: how the relay is run.
//! - [`services`]: a bus and a queue with [`faults`]; [`ledger`]: what a relay may do by what it was told.
//! - [`schedules`]: all of them.
//! - [`checks`]: what must hold when everything has come to rest.
//! - [`wire`], [`process`]: calls without a network, and processes that die.
//! - [`counts`], [`outage`]: what failures cost, and an hour without a bus.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bell;
mod checks;
mod clock;
mod counts;
mod database;
mod dice;
mod faults;
mod lambda;
mod ledger;
mod log;
mod outage;
mod process;
mod schedule;
mod schedules;
mod services;
mod shard;
mod stream;
mod wire;
mod writers;
