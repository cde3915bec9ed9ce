//! Orders of seats. The consumer `box-office` carries requests between the orders and the concerts: it reserves the seats of an
//! order, and releases those of a cancelled one.

use std::collections::BTreeMap;

use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, RegistrationError, Registry, Rejection};
use daybook_projection::{FollowedEvent, Follows, Projection, ProjectionRegistrationError, Projections, Source};
use daybook_simulation::{Message, Random, Request, Simulation, simulate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::find;

struct Concert;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ConcertState {
    capacity: u32,
    /// The reserved seats, by order.
    reserved: BTreeMap<String, u32>,
}

impl ConcertState {
    fn sold(&self) -> u32 {
        self.reserved.values().sum()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum ConcertCommand {
    Announce { capacity: u32 },
    Reserve { order: String, seats: u32 },
    Release { order: String },
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum ConcertEvent {
    ConcertAnnounced { capacity: u32 },
    SeatsReserved { order: String, seats: u32 },
    ReservationRejected { order: String },
    SeatsReleased { order: String },
}

impl Aggregate for Concert {
    const TYPE: &'static str = "concert";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Announce", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[
        EventType::new("ConcertAnnounced", 1),
        EventType::new("SeatsReserved", 1),
        EventType::new("ReservationRejected", 1),
        EventType::new("SeatsReleased", 1),
    ];

    type State = ConcertState;
    type Command = ConcertCommand;
    type Event = ConcertEvent;

    fn decide(
        concert: &ConcertState,
        command: ConcertCommand,
        _: &Context<'_, ConcertEvent>,
    ) -> Decision<ConcertEvent> {
        match command {
            ConcertCommand::Announce { capacity } => Ok(vec![ConcertEvent::ConcertAnnounced { capacity }]),
            ConcertCommand::Reserve { order, .. } if concert.reserved.contains_key(&order) => Ok(vec![]),
            ConcertCommand::Reserve { order, seats } if concert.sold() + seats > concert.capacity => {
                let detail = format!("{} of {} seats are sold", concert.sold(), concert.capacity);
                Err(Rejection::new("SoldOut", detail).recording(ConcertEvent::ReservationRejected { order }))
            }
            ConcertCommand::Reserve { order, seats } => Ok(vec![ConcertEvent::SeatsReserved { order, seats }]),
            ConcertCommand::Release { order } if concert.reserved.contains_key(&order) => {
                Ok(vec![ConcertEvent::SeatsReleased { order }])
            }
            ConcertCommand::Release { .. } => Ok(vec![]),
        }
    }

    fn evolve(mut concert: ConcertState, event: &ConcertEvent) -> ConcertState {
        match event.clone() {
            ConcertEvent::ConcertAnnounced { capacity } => concert.capacity = capacity,
            ConcertEvent::SeatsReserved { order, seats } => drop(concert.reserved.insert(order, seats)),
            ConcertEvent::SeatsReleased { order } => drop(concert.reserved.remove(&order)),
            ConcertEvent::ReservationRejected { .. } => {}
        }
        concert
    }
}

struct Order;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct OrderState {
    concert: String,
    seats: u32,
    status: Status,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
enum Status {
    #[default]
    Placed,
    Confirmed,
    Rejected,
    Cancelled,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum OrderCommand {
    Place { concert: String, seats: u32 },
    Confirm {},
    Reject {},
    Cancel {},
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum OrderEvent {
    OrderPlaced {
        concert: String,
        seats: u32,
    },
    OrderConfirmed {},
    OrderRejected {},
    OrderCancelled {
        concert: String,
    },
    /// The seats were reserved when the order was cancelled already.
    ConfirmationRefused {
        concert: String,
    },
}

impl Aggregate for Order {
    const TYPE: &'static str = "order";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Place", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[
        EventType::new("OrderPlaced", 1),
        EventType::new("OrderConfirmed", 1),
        EventType::new("OrderRejected", 1),
        EventType::new("OrderCancelled", 1),
        EventType::new("ConfirmationRefused", 1),
    ];

    type State = OrderState;
    type Command = OrderCommand;
    type Event = OrderEvent;

    fn decide(order: &OrderState, command: OrderCommand, _: &Context<'_, OrderEvent>) -> Decision<OrderEvent> {
        let concert = order.concert.clone();
        match (command, order.status) {
            (OrderCommand::Place { concert, seats }, _) => Ok(vec![OrderEvent::OrderPlaced { concert, seats }]),
            (OrderCommand::Confirm {}, Status::Placed) => Ok(vec![OrderEvent::OrderConfirmed {}]),
            (OrderCommand::Confirm {}, Status::Confirmed) => Ok(vec![]),
            (OrderCommand::Confirm {}, Status::Cancelled | Status::Rejected) => {
                let rejection = Rejection::new("NotPlaced", "the order waits for no seats");
                Err(rejection.recording(OrderEvent::ConfirmationRefused { concert }))
            }
            (OrderCommand::Reject {}, Status::Placed) => Ok(vec![OrderEvent::OrderRejected {}]),
            (OrderCommand::Reject {}, _) => Ok(vec![]),
            (OrderCommand::Cancel {}, Status::Placed | Status::Confirmed) => {
                Ok(vec![OrderEvent::OrderCancelled { concert }])
            }
            (OrderCommand::Cancel {}, _) => Err(Rejection::new("NotPlaced", "there is nothing to cancel")),
        }
    }

    fn evolve(order: OrderState, event: &OrderEvent) -> OrderState {
        match event.clone() {
            OrderEvent::OrderPlaced { concert, seats } => OrderState { concert, seats, status: Status::Placed },
            OrderEvent::OrderConfirmed {} => OrderState { status: Status::Confirmed, ..order },
            OrderEvent::OrderRejected {} => OrderState { status: Status::Rejected, ..order },
            OrderEvent::OrderCancelled { .. } => OrderState { status: Status::Cancelled, ..order },
            OrderEvent::ConfirmationRefused { .. } => order,
        }
    }
}

/// The seats that are sold for each concert.
struct Sales<const COUNTS_TWICE: bool>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct SalesRow {
    seats: u32,
}

impl<const COUNTS_TWICE: bool> Projection for Sales<COUNTS_TWICE> {
    const NAME: &'static str = "sales";
    const VERSION: u32 = 1;

    type Row = SalesRow;
    type Change = (bool, u32);

    fn sources() -> Vec<Source<Self>> {
        vec![Source::of::<Order>()]
    }

    fn apply(row: Option<SalesRow>, (is_more, seats): &(bool, u32)) -> Option<SalesRow> {
        let SalesRow { seats: before } = row.unwrap_or_default();
        Some(SalesRow { seats: if *is_more { before + seats } else { before.saturating_sub(*seats) } })
    }
}

impl<const COUNTS_TWICE: bool> Follows<Order> for Sales<COUNTS_TWICE> {
    type State = OrderState;

    fn advance(order: OrderState, event: &FollowedEvent<'_, OrderEvent>) -> OrderState {
        Order::evolve(order, event.event)
    }

    fn changes(
        before: &OrderState,
        event: &FollowedEvent<'_, OrderEvent>,
        after: &OrderState,
    ) -> Vec<(String, (bool, u32))> {
        let is_sold = match event.event {
            // The bug: a placed order is counted, and once more when it is confirmed.
            OrderEvent::OrderPlaced { .. } if COUNTS_TWICE => true,
            OrderEvent::OrderConfirmed {} => true,
            OrderEvent::OrderCancelled { .. } if before.status == Status::Confirmed => false,
            _ => return Vec::new(),
        };
        vec![(after.concert.clone(), (is_sold, after.seats))]
    }
}

fn registry() -> Result<Registry, RegistrationError> {
    Registry::new().with::<Concert>()?.with::<Order>()
}

fn projections<const COUNTS_TWICE: bool>() -> Result<Projections, ProjectionRegistrationError> {
    Projections::new().with::<Sales<COUNTS_TWICE>>()
}

fn any_request(random: &mut Random) -> Request {
    let (order, concert) = (*random.one_of(&["o1", "o2", "o3", "o4"]), *random.one_of(&["jazz", "rock"]));
    let seats = 1 + random.below(2) as u32;
    match random.below(2) {
        0 => Request::to::<Order>(order, &OrderCommand::Place { concert: concert.into(), seats }),
        _ => Request::to::<Order>(order, &OrderCommand::Cancel {}),
    }
}

/// What the box office leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Bug {
    None,
    ForgetsToRelease,
    IgnoresRejections,
}

fn box_office(message: &Message<'_>, bug: Bug) -> Vec<Request> {
    let to_concert = |concert: &str, command| vec![Request::to::<Concert>(concert, &command)];
    let order = message.aggregate.id.clone();
    match message.event::<Order>() {
        Some(OrderEvent::OrderPlaced { concert, seats }) => {
            return to_concert(&concert, ConcertCommand::Reserve { order, seats });
        }
        Some(OrderEvent::ConfirmationRefused { .. }) if bug == Bug::ForgetsToRelease => return Vec::new(),
        Some(OrderEvent::OrderCancelled { concert } | OrderEvent::ConfirmationRefused { concert }) => {
            return to_concert(&concert, ConcertCommand::Release { order });
        }
        Some(OrderEvent::OrderConfirmed {} | OrderEvent::OrderRejected {}) | None => {}
    }
    match message.event::<Concert>() {
        Some(ConcertEvent::SeatsReserved { order, .. }) => {
            vec![Request::to::<Order>(order, &OrderCommand::Confirm {})]
        }
        Some(ConcertEvent::ReservationRejected { order }) if bug != Bug::IgnoresRejections => {
            vec![Request::to::<Order>(order, &OrderCommand::Reject {})]
        }
        _ => Vec::new(),
    }
}

fn simulation<const COUNTS_TWICE: bool>(bug: Bug) -> Simulation {
    simulate(registry())
        .projections(projections::<COUNTS_TWICE>())
        .consumer("box-office", move |(): &mut (), message| box_office(message, bug))
        .starting_with(
            ["jazz", "rock"].map(|concert| Request::to::<Concert>(concert, &ConcertCommand::Announce { capacity: 3 })),
        )
        .clients(4, any_request)
        .always(|world| world.states::<Concert>().all(|concert| concert.sold() <= concert.capacity))
        .finally(|world| world.states::<Order>().all(|order| order.status != Status::Placed))
        .finally(|world| {
            world.aggregates::<Concert>().all(|(id, concert)| {
                let orders = world.states::<Order>().filter(|order| order.concert == id);
                let confirmed = orders.filter(|order| order.status == Status::Confirmed);
                concert.sold() == confirmed.map(|order| order.seats).sum::<u32>()
            })
        })
        .finally(|world| {
            let sales = world.rows::<Sales<COUNTS_TWICE>>();
            let sold = |id| sales.get(id).map_or(0, |row| row.seats);
            world.aggregates::<Concert>().all(|(id, concert)| sold(id) == concert.sold())
        })
        .finally(|world| world.views_equal_their_folds())
}

#[test]
fn correct_box_office_passes() {
    simulation::<false>(Bug::None).seeds(1_000);
}

#[test]
fn forgotten_compensation_is_found() {
    find(
        &simulation::<false>(Bug::ForgetsToRelease),
        &[
            " sends Place {",
            " sends Cancel {} to order/",
            ") sends Release {",
            "       accepted, without effect\n     from here on, nothing fails, and everything is completed\n",
            ") sends Reserve {",
            ": SeatsReserved {",
            ": ConfirmationRefused {",
            "       rejected: NotPlaced, the order waits for no seats\n\nAt 2030-01-01T00:00:00",
            r#","reserved":{"o"#,
            r#""status":"Cancelled"}"#,
        ],
    );
}

#[test]
fn unhandled_rejection_is_found() {
    find(
        &simulation::<false>(Bug::IgnoresRejections),
        &[": ReservationRejected {", "       rejected: SoldOut, 2 of 3 seats are sold\n", r#""status":"Placed"}"#],
    );
}

#[test]
fn view_that_counts_twice_is_found() {
    find(
        &simulation::<true>(Bug::None),
        &[
            "the view sales folds event 1 of order/",
            r#"its row "#,
            "the view sales folds event 2 of order/",
            r#" is now {"seats":2}"#,
            "concert/",
            r#":1}}"#,
            "view sales, row ",
            r#": {"seats":2}"#,
        ],
    );
}
