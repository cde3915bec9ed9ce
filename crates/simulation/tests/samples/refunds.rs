//! Purchases that are paid from a wallet. A consumer refunds those that are returned.

use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, RegistrationError, Registry, Rejection};
use daybook_simulation::{Random, Request, Simulation, World, simulate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::find;

struct Purchase;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct PurchaseState {
    price: u64,
    is_returned: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum PurchaseCommand {
    Buy { price: u64 },
    Return {},
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum PurchaseEvent {
    Bought { price: u64 },
    Returned { price: u64 },
}

impl Aggregate for Purchase {
    const TYPE: &'static str = "purchase";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Buy", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Bought", 1), EventType::new("Returned", 1)];

    type State = PurchaseState;
    type Command = PurchaseCommand;
    type Event = PurchaseEvent;

    fn decide(
        purchase: &PurchaseState,
        command: PurchaseCommand,
        _: &Context<'_, PurchaseEvent>,
    ) -> Decision<PurchaseEvent> {
        match command {
            PurchaseCommand::Buy { price } => Ok(vec![PurchaseEvent::Bought { price }]),
            PurchaseCommand::Return {} if purchase.is_returned => {
                Err(Rejection::new("Returned", "it was returned before"))
            }
            PurchaseCommand::Return {} => Ok(vec![PurchaseEvent::Returned { price: purchase.price }]),
        }
    }

    fn evolve(purchase: PurchaseState, event: &PurchaseEvent) -> PurchaseState {
        match *event {
            PurchaseEvent::Bought { price } => PurchaseState { price, is_returned: false },
            PurchaseEvent::Returned { .. } => PurchaseState { is_returned: true, ..purchase },
        }
    }
}

struct Wallet;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct WalletState {
    refunded: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum WalletCommand {
    Open {},
    Refund { amount: u64 },
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum WalletEvent {
    WalletOpened {},
    Refunded { amount: u64 },
}

impl Aggregate for Wallet {
    const TYPE: &'static str = "wallet";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Open", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("WalletOpened", 1), EventType::new("Refunded", 1)];

    type State = WalletState;
    type Command = WalletCommand;
    type Event = WalletEvent;

    fn decide(_: &WalletState, command: WalletCommand, _: &Context<'_, WalletEvent>) -> Decision<WalletEvent> {
        Ok(vec![match command {
            WalletCommand::Open {} => WalletEvent::WalletOpened {},
            WalletCommand::Refund { amount } => WalletEvent::Refunded { amount },
        }])
    }

    fn evolve(wallet: WalletState, event: &WalletEvent) -> WalletState {
        match event {
            WalletEvent::WalletOpened {} => wallet,
            WalletEvent::Refunded { amount } => WalletState { refunded: wallet.refunded + amount },
        }
    }
}

fn registry() -> Result<Registry, RegistrationError> {
    Registry::new().with::<Purchase>()?.with::<Wallet>()
}

fn any_request(random: &mut Random) -> Request {
    let id = *random.one_of(&["p1", "p2", "p3"]);
    match random.below(2) {
        0 => Request::to::<Purchase>(id, &PurchaseCommand::Buy { price: 1 + random.below(9) }),
        _ => Request::to::<Purchase>(id, &PurchaseCommand::Return {}),
    }
}

/// Refunds what is returned, with an `Idempotency-Key` or without one.
fn simulation(has_key: bool) -> Simulation {
    let returned = |world: &World<'_>| -> u64 {
        world.states::<Purchase>().filter(|purchase| purchase.is_returned).map(|purchase| purchase.price).sum()
    };
    let refunded = |world: &World<'_>| world.state::<Wallet>("ann").map_or(0, |wallet| wallet.refunded);
    simulate(registry())
        .consumer_at_least_once("refunds", move |(): &mut (), message| match message.event::<Purchase>() {
            Some(PurchaseEvent::Returned { price }) => {
                let refund = Request::to::<Wallet>("ann", &WalletCommand::Refund { amount: price });
                vec![if has_key { refund } else { refund.without_key() }]
            }
            _ => vec![],
        })
        .starting_with([Request::to::<Wallet>("ann", &WalletCommand::Open {})])
        .clients(2, any_request)
        .always(move |world| refunded(world) <= returned(world))
        .finally(move |world| refunded(world) == returned(world))
}

#[test]
fn refunds_with_a_key_pass() {
    simulation(true).seeds(1_000);
}

#[test]
fn double_refund_is_found() {
    let report = find(
        &simulation(false),
        &[
            " sends Buy {",
            " sends Return {} to purchase/",
            "       it will send Refund {",
            ") sends Refund {",
            "wallet/ann 2: Refunded {",
            "Refund {",
            "wallet/ann 3: Refunded {",
            "it saw\n  purchase/",
        ],
    );
    let again = simulation(false).first_failure(1_000).unwrap();
    assert_eq!(again, report, "the same seed gives another schedule");

    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/simulation.md");
    let page = std::fs::read_to_string(page).unwrap();
    let shown = page.split_once("```text\n").unwrap().1.split_once("```").unwrap().0;
    // Without the number of the line.
    let comparable = |text: &str| text.split_once(" does not hold").map(|(_, rest)| rest.trim_end().to_owned());
    assert_eq!(comparable(shown), comparable(&report), "docs/simulation.md shows another failure");
}
