//! Tests of the whole suite over HTTP, and of its structure.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod account;
mod architecture;
mod bad_input;
mod base_path;
mod beside_writers;
mod bounded_work;
mod budgets;
mod bus_failures;
mod caches;
mod callers;
mod canary;
mod claims;
mod connections;
mod costs;
#[expect(unreachable_pub, reason = "it is written to be a module of `aggregates`")]
mod counter;
mod deadlines;
mod deployment_scripts;
mod epoch;
mod evolution;
mod feeds;
mod fixtures;
mod gateway;
mod generated;
mod golden_rows;
mod http_corners;
mod idempotency;
mod identity;
mod instance;
mod joint;
mod joint_requests;
mod large_states;
mod links;
mod message_schemas;
mod odd_input;
mod openapi;
mod order;
mod outages;
mod panics;
mod performance;
mod races;
mod read_model_budgets;
mod read_your_writes;
mod readme;
mod reads;
mod rolling;
mod rules;
mod scale;
mod snapshots;
mod template;
mod todo;
mod values;
mod views;
mod views_seen;
