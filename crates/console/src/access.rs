//! From where the console can be used.

use serde::{Deserialize, Serialize};
use ulid::Ulid;

/// From where the console can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// From this machine, under a name of the machine itself. A page of another site that resolves its own name to this
    /// machine does not get in.
    Loopback,
    /// From everywhere, with this token: in the query of the first request, and then in a cookie.
    Token(String),
}

impl Access {
    /// Access with a new token.
    pub fn with_new_token() -> Self {
        Self::Token(new_token())
    }

    /// The address of the console of a stack, with the token if it needs one.
    pub fn address(&self, stack_url: &str) -> String {
        match self {
            Self::Loopback => format!("{stack_url}/_console"),
            Self::Token(token) => format!("{stack_url}/_console?token={token}"),
        }
    }
}

/// A text that nobody can guess: 160 random bits.
pub fn new_token() -> String {
    format!("{}{}", &Ulid::generate().to_string()[10..], &Ulid::generate().to_string()[10..])
}
