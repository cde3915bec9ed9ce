//! The administrative calls on the embedded engine, behind a proxy that records its calls and injects faults.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod claims;
mod deadlines;
mod import;
mod verify;
mod verify_checksums;
mod verify_during_writes;
