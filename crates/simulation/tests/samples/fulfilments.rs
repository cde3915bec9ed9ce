//! The sample process, with bugs.

use aggregates::fulfilment::{Command, Event, State, Status};
use aggregates::{Account, Fulfilment, Order, Payment, Shipment, account, order, payment, shipment};
use daybook_decider::{
    Access, Aggregate, Answer, Authorization, Caller, Commands, Context, Deadline, Decision, Dispatch, EventType,
    FollowedEvent, Reacts, RegistrationError, Registry, Sources,
};
use daybook_simulation::{Random, Request, Simulation, simulate};

use crate::find;

const NO_BUG: u8 = 0;
/// It does not follow shipments that are lost.
const FORGETS_COMPENSATION: u8 = 1;
/// It pays back when the shipment is late, and again when it is abandoned.
const REFUNDS_TWICE: u8 = 2;
/// It does not handle that a shipment which is to be abandoned was never requested.
const IGNORES_REJECTION: u8 = 3;
/// It relies on it that no payment comes after its deadline.
const RELIES_ON_ORDER: u8 = 4;
/// It takes the accepted request for the payment.
const TAKES_ANSWER_FOR_RESULT: u8 = 5;

struct Process<const BUG: u8>;

impl<const BUG: u8> Aggregate for Process<BUG> {
    const TYPE: &'static str = Fulfilment::TYPE;
    const STATE_VERSION: u32 = Fulfilment::STATE_VERSION;
    const COMMANDS: Commands = Fulfilment::COMMANDS;
    const EVENTS: &'static [EventType] = Fulfilment::EVENTS;

    type State = State;
    type Command = Command;
    type Event = Event;

    fn sources() -> Sources<Self> {
        Sources::of::<Order>().and::<Payment>().and::<Shipment>()
    }

    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        if BUG == RELIES_ON_ORDER && state.status == Status::Abandoned {
            return Ok(vec![]);
        }
        Fulfilment::decide(state, command, context)
    }

    fn evolve(state: State, event: &Event) -> State {
        Fulfilment::evolve(state, event)
    }

    fn deadlines(state: &State) -> Vec<Deadline<Command>> {
        Fulfilment::deadlines(state)
    }

    /// Besides those of the sample, a deposit in the customer's account pays back.
    fn dispatches(state: &State) -> Vec<Dispatch> {
        let mut dispatches = Fulfilment::dispatches(state);
        let deposit = account::Command::RecordTransaction { desc: state.order_id.clone(), amount: state.total };
        match state.status {
            Status::Refunded => dispatches.push(Dispatch::new::<Account>("deposit", "ann", &deposit)),
            Status::AwaitsRecall if BUG == REFUNDS_TWICE => {
                dispatches.push(Dispatch::new::<Account>("deposit-late", "ann", &deposit));
            }
            _ => {}
        }
        dispatches
    }

    fn authorize(
        caller: &Caller,
        access: Access<'_, Command>,
        id: Option<&str>,
        state: Option<&State>,
    ) -> Authorization {
        Fulfilment::authorize(caller, access, id, state)
    }
}

impl<const BUG: u8> Reacts<Order> for Process<BUG> {
    fn input(event: &FollowedEvent<'_, order::Event>) -> Option<(String, Command)> {
        <Fulfilment as Reacts<Order>>::input(event)
    }
}

impl<const BUG: u8> Reacts<Payment> for Process<BUG> {
    fn input(event: &FollowedEvent<'_, payment::Event>) -> Option<(String, Command)> {
        <Fulfilment as Reacts<Payment>>::input(event)
    }

    fn answered(answer: &Answer<'_, payment::Command>) -> Option<Command> {
        let is_accepted =
            matches!(answer.command, payment::Command::RequestPayment { .. }) && answer.rejection.is_none();
        if BUG == TAKES_ANSWER_FOR_RESULT && is_accepted {
            return Some(Command::RecordPayment {});
        }
        <Fulfilment as Reacts<Payment>>::answered(answer)
    }
}

impl<const BUG: u8> Reacts<Shipment> for Process<BUG> {
    fn input(event: &FollowedEvent<'_, shipment::Event>) -> Option<(String, Command)> {
        let is_lost = *event.event == shipment::Event::Lost {};
        if BUG == FORGETS_COMPENSATION && is_lost {
            return None;
        }
        <Fulfilment as Reacts<Shipment>>::input(event)
    }

    fn answered(answer: &Answer<'_, shipment::Command>) -> Option<Command> {
        <Fulfilment as Reacts<Shipment>>::answered(answer).filter(|_| BUG != IGNORES_REJECTION)
    }
}

fn registry<const BUG: u8>() -> Result<Registry, RegistrationError> {
    let registry = Registry::new().with::<Order>()?.with::<Payment>()?.with::<Shipment>()?.with::<Account>()?;
    registry.with::<Process<BUG>>()
}

fn any_request(random: &mut Random) -> Request {
    let id = random.below(2).to_string();
    let shipment = |command| Request::to::<Shipment>(&*id, &command);
    match random.below(6) {
        0 => {
            let items = vec![order::Item { product_id: "coffee".to_owned(), quantity: 1 }];
            // The second one is too expensive for a payment.
            let total = *random.one_of(&[4_500, 2_000_000]);
            Request::to::<Order>(id, &order::Command::PlaceOrder { customer_id: "ann".to_owned(), items, total })
        }
        1 | 2 => Request::to::<Payment>(id, &payment::Command::ReceivePayment {}),
        3 => shipment(shipment::Command::CollectShipment { tracking_number: "T-1".to_owned() }),
        4 => shipment(shipment::Command::LoseShipment {}),
        _ => shipment(shipment::Command::AbandonShipment {}),
    }
}

fn simulation<const BUG: u8>() -> Simulation {
    simulate(registry::<BUG>())
        .starting_with([Request::to::<Account>("ann", &account::Command::OpenAccount {})])
        .clients(3, any_request)
        .always(|world| {
            let is_paid =
                |id| world.state::<Payment>(id).is_some_and(|payment| payment.status != payment::Status::Requested);
            world.aggregates::<Shipment>().all(|(id, _)| is_paid(id))
        })
        .finally(|world| {
            let mut fulfilments = world.states::<Process<BUG>>();
            fulfilments.all(|state| {
                !matches!(state.status, Status::AwaitsPayment | Status::AwaitsShipment | Status::AwaitsRecall)
            })
        })
        .finally(|world| {
            let refunded = world.states::<Payment>().filter(|payment| payment.status == payment::Status::Refunded);
            world
                .state::<Account>("ann")
                .is_some_and(|account| account.balance == refunded.map(|payment| payment.amount).sum::<i64>())
        })
        .finally(|world| {
            world.aggregates::<Payment>().filter(|(_, payment)| payment.status == payment::Status::Received).all(
                |(id, _)| world.state::<Shipment>(id).is_some_and(|shipment| *shipment == shipment::State::Collected),
            )
        })
}

#[test]
fn fulfilment_that_makes_good_what_it_did_passes() {
    simulation::<NO_BUG>().seeds(300);
}

#[test]
fn forgotten_compensation_is_found() {
    find(
        &simulation::<FORGETS_COMPENSATION>(),
        &[" sends LoseShipment {} to shipment/", "it saw\n  payment/", "received"],
    );
}

#[test]
fn double_refund_is_found() {
    find(&simulation::<REFUNDS_TWICE>(), &[" the dispatch deposit-late of fulfilment/", "it saw\n  account/ann"]);
}

#[test]
fn unhandled_rejection_is_found() {
    find(
        &simulation::<IGNORES_REJECTION>(),
        &[" sends AbandonShipment {} to shipment/", "it does not exist", "it saw\n  fulfilment/", "awaitsRecall"],
    );
}

#[test]
fn deadline_that_assumes_order_is_found() {
    find(
        &simulation::<RELIES_ON_ORDER>(),
        &[
            " the deadline payment of fulfilment/",
            " sends RecordPayment {} to fulfilment/",
            "without effect",
            "it saw\n  payment/",
            "received",
        ],
    );
}

#[test]
fn answer_that_is_taken_for_the_result_is_found() {
    find(
        &simulation::<TAKES_ANSWER_FOR_RESULT>(),
        &[
            " the answer to request-payment of fulfilment/",
            " sends RequestShipment {} to shipment/",
            "it saw\n  payment/",
        ],
    );
}
