//! What holds for every aggregate that ships: whatever commands come, and whatever was stored by earlier code.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod golden;
mod properties;
mod shape;
