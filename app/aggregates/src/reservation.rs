//! A reservation of seats for a concert: held for ten minutes, then expired unless it is paid. A deadline.

use daybook::jiff::{SignedDuration, Timestamp};
use daybook::{Access, Aggregate, Authorization, Caller, Context, Deadline, Decision, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The time within which a reservation has to be paid.
const HELD_FOR: SignedDuration = SignedDuration::from_mins(10);

/// The price of a seat, in cents.
const PRICE: u32 = 4_000;

/// The aggregate `reservation`.
pub struct Reservation;

/// The state of a reservation.
#[daybook::state]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The id of the concert.
    pub concert: String,
    /// The number of seats.
    pub seats: u32,
    /// When it expires, unless it is paid.
    pub held_until: Timestamp,
    /// Whether the seats are still held.
    pub status: Status,
}

/// The status of a reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    /// The seats are held until they are paid.
    #[default]
    Held,
    /// The seats are paid.
    Paid,
    /// The seats were not paid in time.
    Expired,
}

/// The commands of a reservation.
#[daybook::commands(create = Reserve, update = Pay)]
pub enum Command {
    /// Holds seats for ten minutes.
    Reserve {
        /// The id of the concert.
        #[schemars(example = &"fidelio")]
        concert: String,
        /// The number of seats, 1 to 10.
        #[schemars(range(min = 1, max = 10), example = &2)]
        seats: u32,
    },
    /// Pays for the seats.
    Pay {
        /// The amount in cents: 4,000 for each seat.
        #[schemars(example = &8_000)]
        amount: u32,
    },
    /// Frees seats that were not paid in time. Only the system sends it.
    Expire {},
}

/// The events of a reservation. The names are a stored format.
#[daybook::events]
pub enum Event {
    /// Seats are held.
    #[event("SeatsReserved")]
    #[serde(rename_all = "camelCase")]
    Reserved {
        /// The id of the concert.
        concert: String,
        /// The number of seats.
        seats: u32,
        /// When the reservation expires, unless it is paid.
        held_until: Timestamp,
    },
    /// The seats were paid.
    #[event("SeatsPaid")]
    Paid {
        /// The amount in cents.
        amount: u32,
    },
    /// The seats were not paid in time.
    #[event("ReservationExpired")]
    Expired {},
}

#[daybook::aggregate("reservation")]
impl Aggregate for Reservation {
    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        match (command, state.status) {
            (Command::Reserve { seats: 0 | 11.., .. }, _) => {
                Err(Rejection::new("SeatsInvalid", "a reservation is for 1 to 10 seats"))
            }
            (Command::Reserve { concert, seats }, _) => {
                Ok(vec![Event::Reserved { concert, seats, held_until: context.now() + HELD_FOR }])
            }
            (Command::Pay { .. }, Status::Paid) | (Command::Expire {}, Status::Paid | Status::Expired) => Ok(vec![]),
            (Command::Pay { .. }, Status::Expired) => Err(Rejection::new("Expired", "the seats were not paid in time")),
            (Command::Pay { amount }, Status::Held) if amount != state.seats * PRICE => {
                Err(Rejection::new("WrongAmount", format!("the seats cost {} cents", state.seats * PRICE)))
            }
            (Command::Pay { amount }, Status::Held) => Ok(vec![Event::Paid { amount }]),
            (Command::Expire {}, Status::Held) => Ok(vec![Event::Expired {}]),
        }
    }

    fn evolve(state: State, event: &Event) -> State {
        match event.clone() {
            Event::Reserved { concert, seats, held_until } => {
                State { concert, seats, held_until, status: Status::Held }
            }
            Event::Paid { .. } => State { status: Status::Paid, ..state },
            Event::Expired {} => State { status: Status::Expired, ..state },
        }
    }

    /// Seats that are held expire.
    fn deadlines(state: &State) -> Vec<Deadline<Command>> {
        match state.status {
            Status::Held => vec![Deadline::new("hold", state.held_until, &Command::Expire {})],
            Status::Paid | Status::Expired => Vec::new(),
        }
    }

    fn authorize(caller: &Caller, access: Access<'_, Command>, _: Option<&str>, _: Option<&State>) -> Authorization {
        match access {
            Access::Command(Command::Expire {}) => caller.is_system().into(),
            _ => Authorization::Unrestricted,
        }
    }
}

#[cfg(test)]
mod tests {
    use daybook::given::{Given, given};

    use super::*;

    fn reserved() -> Event {
        let held_until = "2026-11-28T10:10:00Z".parse().unwrap();
        Event::Reserved { concert: "fidelio".into(), seats: 2, held_until }
    }

    fn held() -> Given<Reservation> {
        given([reserved()])
    }

    #[test]
    fn seats_are_held_for_ten_minutes() {
        given::<Reservation>([])
            .at("2026-11-28T10:00:00Z")
            .when(Command::Reserve { concert: "fidelio".into(), seats: 2 })
            .then_deadline("hold", "2026-11-28T10:10:00Z")
            .then([reserved()])
            .announces(["SeatsReserved"]);
    }

    #[test]
    fn seats_that_are_not_paid_expire() {
        held().when_due("hold").then_no_deadline("hold").then([Event::Expired {}]).announces(["ReservationExpired"]);
        given::<Reservation>([reserved(), Event::Expired {}])
            .when(Command::Pay { amount: 8_000 })
            .then_rejected("Expired", []);
    }

    #[test]
    fn paid_seats_do_not_expire() {
        held().when(Command::Pay { amount: 8_000 }).then_no_deadline("hold").then([Event::Paid { amount: 8_000 }]);
        held()
            .when(Command::Pay { amount: 1 })
            .then_deadline("hold", "2026-11-28T10:10:00Z")
            .then_rejected("WrongAmount", []);
        for end in [Event::Paid { amount: 8_000 }, Event::Expired {}] {
            given::<Reservation>([reserved(), end]).when(Command::Expire {}).then([]);
        }
        given::<Reservation>([reserved(), Event::Paid { amount: 8_000 }]).when(Command::Pay { amount: 8_000 }).then([]);
    }

    #[test]
    fn only_the_system_expires_a_reservation() {
        held().by(Caller::system()).allows(Access::Command(&Command::Expire {}));
        held()
            .by(Caller::named("daybook"))
            .forbids(Access::Command(&Command::Expire {}))
            .allows(Access::Command(&Command::Pay { amount: 1 }));
        held().forbids(Access::Command(&Command::Expire {})).allows(Access::Read);
    }

    #[test]
    fn reservation_is_for_one_to_ten_seats() {
        for seats in [0, 11] {
            given::<Reservation>([])
                .when(Command::Reserve { concert: "fidelio".into(), seats })
                .then_rejected("SeatsInvalid", []);
        }
    }
}
