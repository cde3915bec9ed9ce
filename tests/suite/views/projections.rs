//! Projections with keys of any form, large rows, rows in parts, and rules about callers.

use aggregates::{Account, Todo};
use daybook_decider::{Authorization, Caller};
use daybook_projection::{FollowedEvent, Follows, Parts, Projection, Source, ViewAccess};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The transactions of all accounts by their description. Only auditors may list them, and read secret ones.
pub(crate) struct ByDescription;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Transactions {
    transactions: u64,
    /// Makes the row large.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    ballast: String,
}

impl Projection for ByDescription {
    const NAME: &'static str = "by-description";
    const VERSION: u32 = 1;
    const PARTS: Parts<Transactions> = Parts::merged(2, add);

    type Row = Transactions;
    type Change = &'static str;

    fn sources() -> Vec<Source<Self>> {
        vec![Source::of::<Account>()]
    }

    fn apply(row: Option<Transactions>, ballast: &&'static str) -> Option<Transactions> {
        let transactions = row.unwrap_or_default().transactions + 1;
        Some(Transactions { transactions, ballast: ballast.repeat(300_000) })
    }

    fn authorize(caller: &Caller, access: ViewAccess<'_>, _row: Option<&Transactions>) -> Authorization {
        let is_secret = match access {
            ViewAccess::Read(key) => key.starts_with("secret"),
            ViewAccess::List(_) => true,
        };
        (!is_secret || !caller.is_authenticated || caller.is_in_group("auditors")).into()
    }
}

fn add(one: Transactions, other: Transactions) -> Transactions {
    Transactions { transactions: one.transactions + other.transactions, ballast: one.ballast.max(other.ballast) }
}

impl Follows<Account> for ByDescription {
    type State = ();

    fn advance((): (), _event: &FollowedEvent<'_, aggregates::account::Event>) {}

    fn changes((): &(), event: &FollowedEvent<'_, aggregates::account::Event>, (): &()) -> Vec<(String, &'static str)> {
        match event.event {
            aggregates::account::Event::TransactionAccepted { desc, .. } => {
                vec![(desc.clone(), if desc.starts_with("large") { "x" } else { "" })]
            }
            _ => Vec::new(),
        }
    }
}

/// The number of to-dos by their first title. A to-do has an owner, a row has none.
pub(crate) struct TodosByTitle;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Todos {
    todos: u64,
}

impl Projection for TodosByTitle {
    const NAME: &'static str = "todos-by-title";
    const VERSION: u32 = 1;

    type Row = Todos;
    type Change = ();

    fn sources() -> Vec<Source<Self>> {
        vec![Source::of::<Todo>()]
    }

    fn apply(row: Option<Todos>, (): &()) -> Option<Todos> {
        Some(Todos { todos: row.unwrap_or_default().todos + 1 })
    }
}

impl Follows<Todo> for TodosByTitle {
    type State = ();

    fn advance((): (), _event: &FollowedEvent<'_, aggregates::todo::Event>) {}

    fn changes((): &(), event: &FollowedEvent<'_, aggregates::todo::Event>, (): &()) -> Vec<(String, ())> {
        match event.event {
            aggregates::todo::Event::Created { title, .. } => vec![(title.clone(), ())],
            _ => Vec::new(),
        }
    }
}
