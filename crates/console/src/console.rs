//! What the pages need, and from where they can be used.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use daybook_admin::{AdminCalls, IndexPartition};
use daybook_decider::{Model, Registry};
use daybook_event_store::EventStore;
use daybook_projection::Projections;
use daybook_view_store::ViewStore;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use crate::stack::StackSource;

pub struct Views {
    pub projections: Projections,
    pub store: ViewStore,
}

pub struct Console {
    pub registry: Registry,
    pub store: EventStore,
    pub stack: Arc<dyn StackSource>,
    pub kind: StackKind,
    /// `None` for a stack without read models.
    pub views: Option<Views>,
    pub access: ConsoleAccess,
    /// Every form carries it, so that no other site can send one. Consoles with the same token accept each other's forms.
    pub form_token: String,
}

pub enum StackKind {
    /// The local stack. Its bus stores messages.
    Local { api: Router },
    /// A stack on AWS. Its bus stores no messages.
    Deployed {
        table: String,
        /// Whether dead-letter messages are listed, and can be sent again and deleted, and suspended aggregates can be
        /// resumed. To list messages, SQS must hide them from other readers for a moment, so that is a write, too.
        allow_writes: bool,
    },
}

/// Maximum calls to the table that a page makes concurrently for single aggregates.
pub(crate) const CONCURRENCY: usize = 16;

pub(crate) const FAULTS: &str = "/faults";

impl StackKind {
    /// The pages that the navigation lists: their names and their paths.
    pub(crate) fn pages(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Local { .. } => &[
                ("Aggregates", ""),
                ("Model", "/model"),
                ("Events", "/events"),
                ("Bus", "/bus"),
                ("Dead-letter messages", "/dead-letters"),
                ("Correlation", "/correlation"),
                ("Stream", "/stream"),
                ("Faults", FAULTS),
            ],
            Self::Deployed { .. } => &[
                ("Aggregates", ""),
                ("Model", "/model"),
                ("Events", "/events"),
                ("Dead-letter messages", "/dead-letters"),
                ("Stream", "/stream"),
                ("Health", "/health"),
            ],
        }
    }
}

impl Console {
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.kind, StackKind::Local { .. })
    }

    pub(crate) fn allows_writes(&self) -> bool {
        !matches!(self.kind, StackKind::Deployed { allow_writes: false, .. })
    }

    /// Every name that the first event of an aggregate of this type may have, as partitions of the index.
    pub(crate) fn partitions(&self, model: &dyn Model) -> Vec<IndexPartition> {
        self.store.admin().index_partitions(&model.opening_events())
    }

    /// Every name that any event of an aggregate of this type may have, as partitions of the index.
    pub(crate) fn partitions_of_events(&self, model: &dyn Model) -> Vec<IndexPartition> {
        let names: BTreeSet<_> = model.stored_events().into_iter().map(|(name, _)| name).collect();
        self.store.admin().index_partitions(&names.into_iter().collect::<Vec<_>>())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConsoleAccess {
    /// From this machine, under a name of the machine itself. A page of another site that resolves its own name to this
    /// machine does not get in.
    Loopback,
    /// From everywhere, with this token: in the query of the first request, and then in a cookie.
    Token(String),
}

impl ConsoleAccess {
    pub fn with_new_token() -> Self {
        Self::Token(new_token())
    }

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
