//! The balance of each account, and the sum over all accounts: the example of a row that many aggregates change.

use aggregates::Account;
use aggregates::account::Event;
use daybook::projection::{FollowedEvent, Follows, Parts, Projection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The projection `account-balances`. The key of an account's row is `account:<id>`, the key of the sum is `total`.
pub struct AccountBalances;

/// The balance of one account, or of all accounts together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// The number of accounts: 1 in the row of an account.
    pub accounts: u64,
    /// The balance in minor units.
    pub balance: i64,
}

/// What an event adds to a row.
#[derive(Debug)]
pub struct Added {
    accounts: u64,
    balance: i64,
}

#[daybook::projection("account-balances", of = [Account])]
impl Projection for AccountBalances {
    // Every transaction of every account changes the sum.
    const PARTS: Parts<Row> = Parts::merged(8, add);

    type Change = Added;

    fn apply(row: Option<Row>, added: &Added) -> Option<Row> {
        Some(add(row.unwrap_or_default(), Row { accounts: added.accounts, balance: added.balance }))
    }
}

fn add(one: Row, other: Row) -> Row {
    Row { accounts: one.accounts + other.accounts, balance: one.balance + other.balance }
}

impl Follows<Account> for AccountBalances {
    /// Nothing: each event holds what it adds.
    type State = ();

    fn advance((): (), _event: &FollowedEvent<'_, Event>) {}

    fn changes((): &(), event: &FollowedEvent<'_, Event>, (): &()) -> Vec<(String, Added)> {
        let (accounts, balance) = match event.event {
            Event::Opened { .. } => (1, 0),
            Event::TransactionAccepted { amount, .. } => (0, *amount),
            Event::OwnerUpdated { .. } | Event::TransactionFailed { .. } => return Vec::new(),
        };
        let rows = [format!("account:{}", event.aggregate_id), "total".to_owned()];
        rows.into_iter().map(|key| (key, Added { accounts, balance })).collect()
    }
}

#[cfg(test)]
mod tests {
    use daybook::projection::given::given;

    use super::*;

    fn opened(id: &str) -> Event {
        Event::Opened { id: id.into() }
    }

    fn transaction(amount: i64) -> Event {
        Event::TransactionAccepted { desc: "A".into(), amount }
    }

    #[test]
    fn transactions_count_for_their_account_and_for_the_total() {
        let failed = Event::TransactionFailed { desc: "B".into(), amount: -9000 };
        given::<AccountBalances>()
            .aggregate::<Account>("1", [opened("1"), transaction(500), transaction(-200), failed])
            .aggregate::<Account>("2", [opened("2"), transaction(50)])
            .shows("account:1", Row { accounts: 1, balance: 300 })
            .shows("account:2", Row { accounts: 1, balance: 50 })
            .shows("total", Row { accounts: 2, balance: 350 })
            .shows_nothing_at("account:3");
    }
}
