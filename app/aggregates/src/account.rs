//! A bank account in a ledger. Its balance may go below zero, down to an overdraft limit. A transaction beyond that
//! limit is rejected, and the rejection is recorded as an event. An account publishes only two messages: that it became
//! overdrawn, and that a transaction failed.

use daybook::{Aggregate, Context, Decision, Message, Rejection};
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

/// The aggregate `account`.
pub struct Account;

/// The lowest balance that is allowed, in minor units.
const OVERDRAFT_LIMIT: i64 = -1000;

/// The state of an account. Amounts are in minor units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The id of the account.
    pub id: String,
    /// The owner's first name.
    pub owner_first: String,
    /// The owner's last name.
    pub owner_last: String,
    /// The sum of all accepted transactions.
    pub balance: i64,
    /// The lowest balance that is allowed.
    pub minimum_balance: i64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            id: String::new(),
            owner_first: String::new(),
            owner_last: String::new(),
            balance: 0,
            minimum_balance: OVERDRAFT_LIMIT,
        }
    }
}

/// The commands of an account.
#[daybook::commands(create = OpenAccount, update = UpdateOwner)]
#[serde(rename_all_fields = "camelCase")]
pub enum Command {
    /// Opens the account with a balance of zero.
    OpenAccount {},
    /// Sets the owner's name.
    UpdateOwner {
        /// The owner's first name.
        #[schemars(example = &"John")]
        owner_first: String,
        /// The owner's last name.
        #[schemars(example = &"Brown")]
        owner_last: String,
    },
    /// Records a deposit or a withdrawal.
    RecordTransaction {
        /// The purpose of the transaction.
        #[schemars(example = &"Groceries")]
        desc: String,
        /// The amount in minor units; a withdrawal is negative.
        #[schemars(example = -300)]
        amount: i64,
    },
}

/// The events of an account. The names are a stored format.
#[daybook::events]
#[serde(rename_all_fields = "camelCase")]
pub enum Event {
    /// The account was opened.
    #[event("AccountOpened")]
    Opened {
        /// The id of the account.
        id: String,
    },
    /// The owner's name was set.
    #[event("OwnerUpdated")]
    OwnerUpdated {
        /// The owner's first name.
        owner_first: String,
        /// The owner's last name.
        owner_last: String,
    },
    /// A deposit or a withdrawal was recorded.
    #[event("TransactionAccepted")]
    TransactionAccepted {
        /// The purpose of the transaction.
        desc: String,
        /// The amount in minor units; a withdrawal is negative.
        amount: i64,
    },
    /// A transaction was rejected.
    #[event("TransactionFailed")]
    TransactionFailed {
        /// The purpose of the transaction.
        desc: String,
        /// The amount in minor units; a withdrawal is negative.
        amount: i64,
    },
}

/// The messages of an account.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", content = "data", rename_all_fields = "camelCase")]
enum Announcement {
    /// The balance fell from zero or more to below zero.
    #[serde(rename = "accountOverdrawn")]
    Overdrawn {
        /// The id of the account.
        account_id: String,
    },
    /// A transaction was rejected.
    #[serde(rename = "transactionFailed")]
    TransactionFailed {
        /// The id of the account.
        account_id: String,
        /// The purpose of the transaction.
        desc: String,
        /// The amount in minor units; a withdrawal is negative.
        amount: i64,
    },
}

#[daybook::aggregate("account")]
impl Aggregate for Account {
    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::OpenAccount {} => Ok(vec![Event::Opened { id: context.aggregate_id().to_owned() }]),
            Command::UpdateOwner { owner_first, owner_last } => {
                let unchanged = state.owner_first == owner_first && state.owner_last == owner_last;
                Ok(if unchanged { vec![] } else { vec![Event::OwnerUpdated { owner_first, owner_last }] })
            }
            Command::RecordTransaction { desc, amount } => match state.balance.checked_add(amount) {
                None => Err(Rejection::new(
                    "AmountOutOfRange",
                    format!("a balance of {} cannot take {amount}", state.balance),
                )),
                Some(balance) if balance < state.minimum_balance => Err(Rejection::new(
                    "InsufficientFunds",
                    format!("the balance would be {balance}, it may not go below {}", state.minimum_balance),
                )
                .recording(Event::TransactionFailed { desc, amount })),
                Some(_) => Ok(vec![Event::TransactionAccepted { desc, amount }]),
            },
        }
    }

    fn evolve(state: State, event: &Event) -> State {
        match event.clone() {
            Event::Opened { id } => State { id, ..state },
            Event::OwnerUpdated { owner_first, owner_last } => State { owner_first, owner_last, ..state },
            Event::TransactionAccepted { amount, .. } => {
                State { balance: state.balance.saturating_add(amount), ..state }
            }
            Event::TransactionFailed { .. } => state,
        }
    }

    fn announce(before: &State, event: &Event, after: &State) -> Vec<Message> {
        let account_id = after.id.clone();
        match event.clone() {
            Event::TransactionAccepted { .. } if before.balance >= 0 && after.balance < 0 => {
                vec![Message::of(&Announcement::Overdrawn { account_id })]
            }
            Event::TransactionFailed { desc, amount } => {
                vec![Message::of(&Announcement::TransactionFailed { account_id, desc, amount })]
            }
            Event::Opened { .. } | Event::OwnerUpdated { .. } | Event::TransactionAccepted { .. } => vec![],
        }
    }

    fn message_schema() -> Schema {
        schema_for!(Announcement)
    }
}

#[cfg(test)]
mod tests {
    use daybook::given::{ID, given};
    use serde_json::json;

    use super::*;

    fn opened() -> Event {
        Event::Opened { id: ID.into() }
    }

    fn transaction(desc: &str, amount: i64) -> Command {
        Command::RecordTransaction { desc: desc.into(), amount }
    }

    fn accepted(desc: &str, amount: i64) -> Event {
        Event::TransactionAccepted { desc: desc.into(), amount }
    }

    fn failed(desc: &str, amount: i64) -> Event {
        Event::TransactionFailed { desc: desc.into(), amount }
    }

    #[test]
    fn opening_publishes_nothing_and_starts_at_zero() {
        given::<Account>([]).when(Command::OpenAccount {}).then([opened()]).announces([]);
        let state = given::<Account>([opened()]).state();
        assert_eq!((state.id.as_str(), state.balance, state.minimum_balance), (ID, 0, -1000));
    }

    #[test]
    fn update_owner_with_same_name_appends_nothing() {
        let command = Command::UpdateOwner { owner_first: "John".into(), owner_last: "Brown".into() };
        let updated = Event::OwnerUpdated { owner_first: "John".into(), owner_last: "Brown".into() };
        given::<Account>([opened()]).when(command.clone()).then([updated.clone()]).announces([]);
        given::<Account>([opened(), updated]).when(command).then([]).announces([]);
    }

    #[test]
    fn balance_after_transactions_is_their_sum() {
        let events = [opened(), accepted("A", 200), accepted("B", -300), accepted("C", 50)];
        assert_eq!(given::<Account>(events).state().balance, -50);
    }

    #[test]
    fn transaction_below_zero_publishes_overdrawn_once() {
        let published =
            given::<Account>([opened(), accepted("A", 200)]).when(transaction("B", -300)).then([accepted("B", -300)]);
        published.announces(["accountOverdrawn"]);
        assert_eq!(published.data(0), json!({"accountId": ID}));

        given::<Account>([opened(), accepted("A", -100)])
            .when(transaction("B", -1))
            .then([accepted("B", -1)])
            .announces([]);
        given::<Account>([opened(), accepted("A", -100)])
            .when(transaction("B", 100))
            .then([accepted("B", 100)])
            .announces([]);
    }

    #[test]
    fn transaction_to_the_overdraft_limit_is_accepted() {
        given::<Account>([opened()])
            .when(transaction("all of it", -1000))
            .then([accepted("all of it", -1000)])
            .announces(["accountOverdrawn"]);
    }

    #[test]
    fn transaction_beyond_the_limit_is_rejected_and_recorded() {
        let published = given::<Account>([opened()])
            .when(transaction("too much", -1001))
            .then_rejected("InsufficientFunds", [failed("too much", -1001)]);
        published.announces(["transactionFailed"]);
        assert_eq!(published.data(0), json!({"accountId": ID, "desc": "too much", "amount": -1001}));
        assert_eq!(given::<Account>([opened(), failed("too much", -1001)]).state().balance, 0);
    }

    #[test]
    fn transaction_beyond_the_integer_range_is_rejected() {
        given::<Account>([opened(), accepted("A", i64::MAX)])
            .when(transaction("one more", 1))
            .then_rejected("AmountOutOfRange", []);
    }
}
