//! History files: the events of aggregates as lines of JSON, which `export` writes and `import` reads.
//!
//! Invariant: the format is stable. A change that an earlier `daybook` cannot read gets another format version.
//!
//! In reading order:
//! - [`mod@line`]: the lines, and how a file is written, with a summary that shows whether it is complete.
//! - [`source`]: reads a file: checks all its lines, and returns the lines of one aggregate after the other.

pub mod line;
pub mod source;
