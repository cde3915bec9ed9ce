//! The response to a command, and its stored form.

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandResponse {
    /// The status code, which the store only passes on.
    pub status: u16,
    /// The version of the aggregate.
    pub version: u64,
    /// The `STATE_VERSION` of the state in the body.
    pub state_version: u32,
    pub body: String,
}

/// A response, and the digest that distinguishes its request from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// SHA-256 of the request, in hexadecimal digits.
    pub digest: String,
    pub response: CommandResponse,
}
