//! The limits of a row's key.

/// Maximum characters of a row's key.
pub const MAX_KEY: usize = 512;

/// Maximum bytes of a row's key in UTF-8. A sort key of DynamoDB has up to 1,024 bytes, and the query of a list adds up
/// to four to a key.
pub const MAX_KEY_BYTES: usize = 1020;
