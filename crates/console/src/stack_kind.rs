//! Which kind of stack the pages show, and what that changes.

/// Which kind of stack the pages show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StackKind {
    /// The local stack. Its HTTP interface also returns the messages on the bus, and has the API, the queues and the
    /// faults.
    Local,
    /// A stack on AWS.
    Deployed(DeployedStack),
}

/// A stack on AWS. Its bus stores no messages, so the rows of the outbox stand for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployedStack {
    /// The name of its table.
    pub table: String,
    /// Whether dead-letter messages are listed, and can be sent again and deleted. To list messages, SQS must hide them
    /// from other readers for a moment, so that is a write, too.
    pub allow_writes: bool,
}

/// The path of the page of the faults.
pub(crate) const FAULTS: &str = "/faults";

impl StackKind {
    /// Whether the stack is the local one.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Local)
    }

    /// The pages that the navigation lists: their names and their paths.
    pub(crate) fn pages(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Local => &[
                ("Aggregates", ""),
                ("Bus", "/bus"),
                ("Dead-letter messages", "/dead-letters"),
                ("Correlation", "/correlation"),
                ("Stream", "/stream"),
                ("Faults", FAULTS),
            ],
            Self::Deployed(_) => &[
                ("Aggregates", ""),
                ("Messages", "/messages"),
                ("Dead-letter messages", "/dead-letters"),
                ("Stream", "/stream"),
                ("Health", "/health"),
            ],
        }
    }
}
