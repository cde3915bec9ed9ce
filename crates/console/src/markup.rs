//! What the pages share.
//!
//! - `frame`: the frame of a page, with the navigation. `json`: JSON as it was written, and cut if it is long.
//! - `time`: times, relative and exact. `chart`: figures over time.

pub(crate) mod chart;
pub(crate) mod frame;
pub(crate) mod json;
pub(crate) mod time;
