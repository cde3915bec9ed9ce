//! The commands, one file each.

pub mod dev;
pub mod dlq;
pub mod openapi;
pub mod republish;
pub mod snapshot;
pub mod verify;
