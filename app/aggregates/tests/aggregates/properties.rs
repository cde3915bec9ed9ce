//! Properties that hold for every sequence of commands.

use std::sync::LazyLock;

use aggregates::{account, order, todo};
use daybook::jiff::Timestamp;
use daybook_decider::{
    Aggregate, Caller, CommandRequest, DecisionInput, Folded, Json, Meta, Model, OutboxMessage, RecordedEvent, Registry,
};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use ulid::Ulid;

const ID: &str = "1";

/// Built once for all test cases.
static REGISTRY: LazyLock<Registry> = LazyLock::new(|| aggregates::registry().unwrap());

fn model(aggregate_type: &str) -> &'static dyn Model {
    REGISTRY.get(aggregate_type).unwrap()
}

type Command = (&'static str, Value);

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just("a".to_owned()), Just("b".to_owned()), any::<String>()]
}

/// Amounts near the overdraft limit, near zero, and anywhere.
fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![8 => -1_100..1_100_i64, 2 => -1_001..=-999_i64, 2 => -1..=1_i64, 1 => any::<i64>()]
}

fn on_an_account() -> BoxedStrategy<Command> {
    prop_oneof![
        1 => Just(("OpenAccount", json!({}))),
        2 => (text(), text()).prop_map(|(first, last)| {
            ("UpdateOwner", json!({"ownerFirst": first, "ownerLast": last}))
        }),
        8 => (text(), amount()).prop_map(|(desc, amount)| {
            ("RecordTransaction", json!({"desc": desc, "amount": amount}))
        }),
    ]
    .boxed()
}

fn on_a_todo() -> BoxedStrategy<Command> {
    let texts =
        |name| (text(), text()).prop_map(move |(title, message)| (name, json!({"title": title, "message": message})));
    prop_oneof![2 => texts("CreateTodo"), 6 => texts("UpdateTodo"), 1 => Just(("DeleteTodo", json!({})))].boxed()
}

/// Most amounts are equal, so that most payments are accepted.
fn on_an_order() -> BoxedStrategy<Command> {
    let price = || prop_oneof![6 => Just(4_500_i64), 1 => any::<i64>()];
    let items = vec((text(), 0..3_u32), 0..3).prop_map(|items| {
        items
            .into_iter()
            .map(|(product, quantity)| json!({"productId": product, "quantity": quantity}))
            .collect::<Value>()
    });
    prop_oneof![
        2 => (text(), items, price()).prop_map(|(customer, items, total)| {
            ("PlaceOrder", json!({"customerId": customer, "items": items, "total": total}))
        }),
        4 => price().prop_map(|amount| ("ProcessPayment", json!({"amount": amount}))),
        4 => text().prop_map(|number| ("ShipOrder", json!({"trackingNumber": number}))),
        4 => Just(("DeliverOrder", json!({}))),
        1 => price().prop_map(|amount| ("RefundOrder", json!({"amount": amount}))),
    ]
    .boxed()
}

/// A sequence of commands, which in most cases begins with the create command `first`.
fn story(first: Command, command: BoxedStrategy<Command>) -> impl Strategy<Value = Vec<Command>> {
    (prop::bool::weighted(0.8), vec(command, 0..24)).prop_map(move |(created, mut commands)| {
        if created {
            commands.insert(0, first.clone());
        }
        commands
    })
}

fn of_an_account() -> impl Strategy<Value = Vec<Command>> {
    story(("OpenAccount", json!({})), on_an_account())
}

fn of_a_todo() -> impl Strategy<Value = Vec<Command>> {
    story(("CreateTodo", json!({"title": "a", "message": "b"})), on_a_todo())
}

fn of_an_order() -> impl Strategy<Value = Vec<Command>> {
    let items = json!([{"productId": "coffee", "quantity": 1}]);
    story(("PlaceOrder", json!({"customerId": "alice", "items": items, "total": 4_500})), on_an_order())
}

/// A command that the rules decided on.
struct Step {
    before: Folded,
    events: Vec<RecordedEvent>,
    messages: Vec<OutboxMessage>,
    after: Folded,
}

/// Carries out the commands. Leaves out those that did not reach the rules.
fn play(model: &dyn Model, commands: &[Command]) -> Vec<Step> {
    let mut before = model.before_first_event();
    let mut steps = Vec::new();
    for ((command, data), milliseconds) in commands.iter().zip(1_u64..) {
        let request = CommandRequest { command: (*command).to_owned(), data: Json::of(data).unwrap() };
        let input = DecisionInput::new(
            Timestamp::from_millisecond(i64::try_from(milliseconds).unwrap()).unwrap(),
            Ulid::from_parts(milliseconds, 0),
            Meta::default(),
            Caller::anonymous(),
            1,
        );
        if let Ok(decided) = model.decide(&before, ID, &[request], &input) {
            let after = decided.after;
            steps.push(Step { before, events: decided.events, messages: decided.messages, after: after.clone() });
            before = after;
        }
    }
    steps
}

fn state(model: &dyn Model, folded: &Folded) -> Value {
    model.state(folded).unwrap().read().unwrap()
}

/// Checks that a fold from a snapshot after any event gives the same result as a fold of all events and as the
/// decisions.
fn assert_snapshots_change_nothing(aggregate_type: &str, commands: &[Command]) -> Result<(), TestCaseError> {
    let model = model(aggregate_type);
    let whole = |folded: &Folded| {
        (folded.version(), folded.message_seq(), model.is_deleted(folded), model.state(folded).unwrap())
    };
    let steps = play(model, commands);
    let after = steps.last().map_or(model.before_first_event(), |step| step.after.clone());
    let events: Vec<_> = steps.into_iter().flat_map(|step| step.events).collect();
    for taken_at in 0..=events.len() {
        let (head, tail) = events.split_at(taken_at);
        let snapshot = model.fold(model.before_first_event(), head).unwrap();
        let stored = model.state(&snapshot).unwrap();
        let restored = model.restore(snapshot.version(), snapshot.message_seq(), &stored).unwrap();
        prop_assert_eq!(whole(&model.fold(restored, tail).unwrap()), whole(&after));
    }
    Ok(())
}

/// Checks that an event is equal after it was written to JSON and read again, and that `EVENTS` declares its name.
fn assert_round_trip<A: Aggregate>(event: &A::Event, name: &str) -> Result<(), TestCaseError>
where
    A::Event: std::fmt::Debug + PartialEq,
{
    let text = serde_json::to_string(event).unwrap();
    prop_assert_eq!(&serde_json::from_str::<A::Event>(&text).unwrap(), event);
    let tagged: Value = serde_json::from_str(&text).unwrap();
    prop_assert_eq!(&tagged["type"], name);

    // The kernel reads it as a row of the stream too.
    let version = A::EVENTS.iter().find(|known| known.name == name).unwrap().version;
    let row = RecordedEvent {
        seq_num: 1,
        event_id: Ulid::nil(),
        event_type: name.to_owned(),
        event_version: version,
        data: Json::of(&tagged["data"]).unwrap(),
        meta: Meta::default(),
        occurred_at: Timestamp::UNIX_EPOCH,
        message_seq: 0,
        message_epoch: 1,
        together: Vec::new(),
    };
    let model = model(A::TYPE);
    let read = model.fold(model.before_first_event(), &[row]).unwrap();
    let evolved = A::evolve(A::State::default(), event);
    prop_assert_eq!(model.state(&read).unwrap(), Json::of(&evolved).unwrap());
    Ok(())
}

fn account_event() -> impl Strategy<Value = (&'static str, account::Event)> {
    use account::Event::{Opened, OwnerUpdated, TransactionAccepted, TransactionFailed};
    (0..account::Account::EVENTS.len(), any::<(String, String, i64)>()).prop_map(|(which, (one, two, amount))| {
        let name = account::Account::EVENTS[which].name;
        let event = match name {
            "AccountOpened" => Opened { id: one },
            "OwnerUpdated" => OwnerUpdated { owner_first: one, owner_last: two },
            "TransactionAccepted" => TransactionAccepted { desc: one, amount },
            "TransactionFailed" => TransactionFailed { desc: one, amount },
            other => panic!("no {other} is made here yet"),
        };
        (name, event)
    })
}

fn todo_event() -> impl Strategy<Value = (&'static str, todo::Event)> {
    use todo::Event::{Created, Deleted, Updated};
    (0..todo::Todo::EVENTS.len(), any::<[String; 3]>()).prop_map(|(which, [id, title, message])| {
        let name = todo::Todo::EVENTS[which].name;
        let event = match name {
            "TodoCreated" => Created { id, owner: (title.len() % 2 == 1).then(|| title.clone()), title, message },
            "TodoUpdated" => Updated { title, message },
            "TodoDeleted" => Deleted {},
            other => panic!("no {other} is made here yet"),
        };
        (name, event)
    })
}

fn order_event() -> impl Strategy<Value = (&'static str, order::Event)> {
    use order::Event::{Delivered, Paid, Placed, Refunded, Shipped};
    let items = vec(any::<(String, u32)>(), 0..4);
    (0..order::Order::EVENTS.len(), any::<(String, String, i64)>(), items).prop_map(
        |(which, (one, two, amount), items)| {
            let name = order::Order::EVENTS[which].name;
            let items = items.into_iter().map(|(product_id, quantity)| order::Item { product_id, quantity });
            let event = match name {
                "OrderPlaced" => Placed { id: one, customer_id: two, items: items.collect(), total: amount },
                "PaymentProcessed" => Paid { amount },
                "OrderShipped" => Shipped { tracking_number: one },
                "OrderDelivered" => Delivered {},
                "OrderRefunded" => Refunded { amount },
                other => panic!("no {other} is made here yet"),
            };
            (name, event)
        },
    )
}

proptest! {
    #[test]
    fn account_folded_from_any_snapshot_is_the_same(commands in of_an_account()) {
        assert_snapshots_change_nothing("account", &commands)?;
    }

    #[test]
    fn todo_folded_from_any_snapshot_is_the_same(commands in of_a_todo()) {
        assert_snapshots_change_nothing("todo", &commands)?;
    }

    #[test]
    fn order_folded_from_any_snapshot_is_the_same(commands in of_an_order()) {
        assert_snapshots_change_nothing("order", &commands)?;
    }

    #[test]
    fn balance_is_the_sum_of_accepted_transactions_and_never_below_the_limit(commands in of_an_account()) {
        let model = model("account");
        let mut sum = 0;
        for step in play(model, &commands) {
            for event in step.events.iter().filter(|event| event.event_type == "TransactionAccepted") {
                sum += event.data.read::<Value>().unwrap()["amount"].as_i64().unwrap();
            }
            let balance = state(model, &step.after)["balance"].as_i64().unwrap();
            prop_assert_eq!(balance, sum);
            prop_assert!(balance >= -1_000);
        }
    }

    #[test]
    fn overdrawn_is_published_exactly_when_the_balance_falls_below_zero(commands in of_an_account()) {
        let model = model("account");
        for step in play(model, &commands) {
            let [before, after] = [&step.before, &step.after].map(|at| state(model, at)["balance"].as_i64().unwrap());
            let overdrawn = step.messages.iter().filter(|message| message.message_type == "accountOverdrawn").count();
            prop_assert_eq!(overdrawn, usize::from(before >= 0 && after < 0), "from {} to {}", before, after);
            let failed = step.events.iter().filter(|event| event.event_type == "TransactionFailed").count();
            prop_assert_eq!(step.messages.len(), overdrawn + failed);
        }
    }

    #[test]
    fn order_publishes_every_event_with_the_whole_order(commands in of_an_order()) {
        let model = model("order");
        for step in play(model, &commands) {
            prop_assert_eq!(step.events.len(), step.messages.len());
            for (event, message) in step.events.iter().zip(&step.messages) {
                prop_assert_eq!(&event.event_type, &message.message_type);
                prop_assert_eq!(message.data.read::<Value>().unwrap(), state(model, &step.after));
            }
        }
    }

    #[test]
    fn every_message_fits_the_message_schema(
        account in of_an_account(), todo in of_a_todo(), order in of_an_order()
    ) {
        for (aggregate_type, commands) in [("account", account), ("todo", todo), ("order", order)] {
            let model = model(aggregate_type);
            let schema = Value::from(model.schemas().message.clone());
            let has_schema = |name: &str| {
                let mut variants = schema["oneOf"].as_array().unwrap().iter();
                variants.any(|variant| variant["properties"]["type"]["const"] == name)
            };
            for message in play(model, &commands).iter().flat_map(|step| &step.messages) {
                prop_assert!(has_schema(&message.message_type), "{}", message.message_type);
            }
        }
    }

    #[test]
    fn account_event_written_and_read_is_unchanged((name, event) in account_event()) {
        assert_round_trip::<account::Account>(&event, name)?;
    }

    #[test]
    fn todo_event_written_and_read_is_unchanged((name, event) in todo_event()) {
        assert_round_trip::<todo::Todo>(&event, name)?;
    }

    #[test]
    fn order_event_written_and_read_is_unchanged((name, event) in order_event()) {
        assert_round_trip::<order::Order>(&event, name)?;
    }
}
