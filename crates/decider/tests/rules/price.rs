//! Orders at the prices that were displayed: a price stays valid for ten minutes after it has changed.

use daybook_decider::given::{Given, given};
use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const GRACE_SECONDS: i64 = 10 * 60;

/// A product.
pub(crate) struct Product;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ProductState {
    price: u64,
    /// Earlier prices, each with the time until which it is valid.
    earlier: Vec<(u64, i64)>,
}

impl ProductState {
    fn has_price(&self, price: u64, now: i64) -> bool {
        price == self.price || self.earlier.iter().any(|&(earlier, until)| price == earlier && now <= until)
    }
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum ProductCommand {
    DefineProduct { price: u64 },
    ChangePrice { price: u64 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum ProductEvent {
    #[serde(rename = "ProductDefined")]
    Defined { price: u64 },
    #[serde(rename = "ProductPriceChanged")]
    PriceChanged { price: u64, at: i64 },
}

impl Aggregate for Product {
    const TYPE: &'static str = "product";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "DefineProduct", update: Some("ChangePrice"), delete: None };
    const EVENTS: &'static [EventType] =
        &[EventType::new("ProductDefined", 1), EventType::new("ProductPriceChanged", 1)];

    type State = ProductState;
    type Command = ProductCommand;
    type Event = ProductEvent;

    fn decide(
        _: &ProductState,
        command: ProductCommand,
        context: &Context<'_, ProductEvent>,
    ) -> Decision<ProductEvent> {
        match command {
            ProductCommand::DefineProduct { price } => Ok(vec![ProductEvent::Defined { price }]),
            ProductCommand::ChangePrice { price } => {
                Ok(vec![ProductEvent::PriceChanged { price, at: context.now().as_second() }])
            }
        }
    }

    fn evolve(mut state: ProductState, event: &ProductEvent) -> ProductState {
        match *event {
            ProductEvent::Defined { price } => ProductState { price, earlier: Vec::new() },
            ProductEvent::PriceChanged { price, at } => {
                state.earlier.retain(|&(_, until)| at <= until);
                state.earlier.push((state.price, at + GRACE_SECONDS));
                ProductState { price, ..state }
            }
        }
    }
}

/// An order of products.
pub(crate) struct Order;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Item {
    product: String,
    price: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {
    items: Vec<Item>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum Command {
    PlaceOrder { items: Vec<Item> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum Event {
    #[serde(rename = "OrderPlaced")]
    Placed { items: Vec<Item> },
}

impl Aggregate for Order {
    const TYPE: &'static str = "order";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "PlaceOrder", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("OrderPlaced", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        let Command::PlaceOrder { items } = command;
        // All are asked for before the first `?`, so that they are read at once.
        let products: Vec<_> = items.iter().map(|item| context.involve::<Product>(&item.product)).collect();
        for (item, product) in items.iter().zip(products) {
            let now = context.now().as_second();
            if !product?.is_some_and(|product| product.has_price(item.price, now)) {
                return Err(Rejection::new("PriceNotValid", format!("{} has another price", item.product)));
            }
        }
        Ok(vec![Event::Placed { items }])
    }

    fn evolve(_: State, event: &Event) -> State {
        let Event::Placed { items } = event.clone();
        State { items }
    }
}

fn place(items: &[(&str, u64)]) -> Command {
    let item = |&(product, price): &(&str, u64)| Item { product: product.into(), price };
    Command::PlaceOrder { items: items.iter().map(item).collect() }
}

/// Tea got a new price at the beginning of 1970; coffee never did.
fn products() -> Given<Order> {
    let changed = ProductEvent::PriceChanged { price: 134, at: 0 };
    given::<Order>([])
        .involving::<Product>("tea", [ProductEvent::Defined { price: 123 }, changed])
        .involving::<Product>("coffee", [ProductEvent::Defined { price: 321 }])
}

#[test]
fn order_is_placed_at_prices_that_are_valid() {
    for (tea, time, is_valid) in [
        (134, "1970-01-01T00:00:00Z", true),
        (123, "1970-01-01T00:10:00Z", true),
        (123, "1970-01-01T00:10:01Z", false),
        (134, "1970-01-01T00:10:01Z", true),
        (100, "1970-01-01T00:00:00Z", false),
    ] {
        let decided = products().at(time).when(place(&[("coffee", 321), ("tea", tea)]));
        if is_valid {
            let Command::PlaceOrder { items } = place(&[("coffee", 321), ("tea", tea)]);
            decided.then([Event::Placed { items }]).sends_nothing();
        } else {
            decided.then_rejected("PriceNotValid", []);
        }
    }
    products().when(place(&[("milk", 1)])).then_rejected("PriceNotValid", []);
}

#[test]
fn earlier_price_stays_in_the_state_while_it_is_valid() {
    let change = |price, at| ProductEvent::PriceChanged { price, at };
    given::<Product>([ProductEvent::Defined { price: 1 }])
        .at("1970-01-01T00:00:05Z")
        .when(ProductCommand::ChangePrice { price: 2 })
        .then([change(2, 5)]);
    let events = [ProductEvent::Defined { price: 1 }, change(2, 0), change(3, 600), change(4, 700)];
    let expected = ProductState { price: 4, earlier: vec![(2, 1200), (3, 1300)] };
    assert_eq!(given::<Product>(events).state(), expected);
}
