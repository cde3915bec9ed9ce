//! The payment of an order. A fulfilment requests it; whoever receives the money records that.

use daybook::{Aggregate, Context, Decision, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The aggregate `payment`.
pub struct Payment;

/// The state of a payment.
#[daybook::state]
pub struct State {
    /// The amount in minor units.
    pub amount: i64,
    /// The progress of the payment.
    pub status: Status,
}

/// The progress of a payment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    /// The customer has not paid yet.
    #[default]
    Requested,
    /// The customer has paid.
    Received,
    /// The customer has got the money back.
    Refunded,
    /// Nobody waits for the money any more.
    GivenUp,
}

/// The commands of a payment.
#[daybook::commands(create = RequestPayment)]
pub enum Command {
    /// Requests the payment.
    RequestPayment {
        /// The amount in minor units; from 0 to 1,000,000.
        #[schemars(example = 4500)]
        amount: i64,
    },
    /// Records that the customer has paid.
    ReceivePayment {},
    /// Pays the money back.
    RefundPayment {},
    /// Stops waiting for the money.
    GiveUpPayment {},
}

/// The events of a payment. The names are a stored format.
#[daybook::events]
pub enum Event {
    /// The payment was requested.
    #[event("PaymentRequested")]
    Requested {
        /// The amount in minor units.
        amount: i64,
    },
    /// The customer has paid.
    #[event("PaymentReceived")]
    Received {},
    /// The customer has got the money back.
    #[event("PaymentRefunded")]
    Refunded {},
    /// Nobody waits for the money any more.
    #[event("PaymentGivenUp")]
    GivenUp {},
}

#[daybook::aggregate("payment")]
impl Aggregate for Payment {
    fn decide(payment: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        use Status::{GivenUp, Received, Requested};
        let (event, expected): (_, &[Status]) = match command {
            Command::RequestPayment { amount } if !(0..=1_000_000).contains(&amount) => {
                return Err(Rejection::new("WrongAmount", format!("an amount is from 0 to 1,000,000, not {amount}")));
            }
            Command::RequestPayment { amount } => (Event::Requested { amount }, &[Requested]),
            // Money that comes too late has come all the same.
            Command::ReceivePayment {} => (Event::Received {}, &[Requested, GivenUp]),
            Command::RefundPayment {} => (Event::Refunded {}, &[Received]),
            Command::GiveUpPayment {} => (Event::GivenUp {}, &[Requested]),
        };
        if expected.contains(&payment.status) {
            return Ok(vec![event]);
        }
        Err(Rejection::new("WrongStatus", format!("the payment is {:?}, expected {expected:?}", payment.status)))
    }

    fn evolve(payment: State, event: &Event) -> State {
        match *event {
            Event::Requested { amount } => State { amount, status: Status::Requested },
            Event::Received {} => State { status: Status::Received, ..payment },
            Event::Refunded {} => State { status: Status::Refunded, ..payment },
            Event::GivenUp {} => State { status: Status::GivenUp, ..payment },
        }
    }
}

#[cfg(test)]
mod tests {
    use daybook::given::given;

    use super::*;

    fn requested() -> Event {
        Event::Requested { amount: 4500 }
    }

    #[test]
    fn payment_is_requested_received_and_refunded() {
        given::<Payment>([]).when(Command::RequestPayment { amount: 4500 }).then([requested()]);
        given::<Payment>([requested()]).when(Command::ReceivePayment {}).then([Event::Received {}]);
        let received = || [requested(), Event::Received {}];
        given::<Payment>(received()).when(Command::RefundPayment {}).then([Event::Refunded {}]);
        given::<Payment>(received()).when(Command::GiveUpPayment {}).then_rejected("WrongStatus", []);
    }

    #[test]
    fn amount_has_limits() {
        for amount in [-1, 1_000_001] {
            given::<Payment>([]).when(Command::RequestPayment { amount }).then_rejected("WrongAmount", []);
        }
    }

    #[test]
    fn money_also_comes_after_nobody_waits_for_it() {
        given::<Payment>([requested()]).when(Command::GiveUpPayment {}).then([Event::GivenUp {}]);
        let given_up = || [requested(), Event::GivenUp {}];
        given::<Payment>(given_up()).when(Command::ReceivePayment {}).then([Event::Received {}]);
        given::<Payment>(given_up()).when(Command::RefundPayment {}).then_rejected("WrongStatus", []);
    }
}
