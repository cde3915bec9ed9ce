//! Unique user names. The name of a closed account can be taken three days later.

use daybook_decider::given::{Given, given};
use daybook_decider::{
    Access, Aggregate, Authorization, Caller, Claim, Commands, Context, Decision, EventType, Rejection,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const RETAINED_SECONDS: i64 = 3 * 24 * 60 * 60;

/// An account with a user name.
pub(crate) struct Account;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {
    /// None when another account has got it.
    name: Option<String>,
    closed_at: Option<i64>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum Command {
    Register {
        name: String,
    },
    Close {},
    /// Releases the name of a closed account. Another account sends it.
    ReleaseName {},
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum Event {
    #[serde(rename = "UserRegistered")]
    Registered { name: String },
    #[serde(rename = "UserClosed")]
    Closed { at: i64 },
    #[serde(rename = "UserNameReleased")]
    NameReleased {},
}

fn user_name(name: &str) -> Claim {
    Claim::new("user-name", name.to_lowercase())
}

impl Aggregate for Account {
    const TYPE: &'static str = "user";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Register", update: None, delete: None };
    const EVENTS: &'static [EventType] =
        &[EventType::new("UserRegistered", 1), EventType::new("UserClosed", 1), EventType::new("UserNameReleased", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        let now = context.now().as_second();
        match command {
            Command::Register { name } => {
                if let Some((id, holder)) = context.involve_holder::<Account>(&user_name(&name))?
                    && holder.closed_at.is_some_and(|closed| now - closed >= RETAINED_SECONDS)
                {
                    context.send::<Account>(id, &Command::ReleaseName {});
                }
                Ok(vec![Event::Registered { name }])
            }
            Command::Close {} if state.closed_at.is_some() => Ok(vec![]),
            Command::Close {} => Ok(vec![Event::Closed { at: now }]),
            Command::ReleaseName {} if state.closed_at.is_none() => {
                Err(Rejection::new("NotClosed", "the account is open"))
            }
            Command::ReleaseName {} => Ok(vec![Event::NameReleased {}]),
        }
    }

    fn evolve(state: State, event: &Event) -> State {
        match event.clone() {
            Event::Registered { name } => State { name: Some(name), closed_at: None },
            Event::Closed { at } => State { closed_at: Some(at), ..state },
            Event::NameReleased {} => State { name: None, ..state },
        }
    }

    fn claims(state: &State) -> Vec<Claim> {
        state.name.iter().map(|name| user_name(name)).collect()
    }

    fn authorize(_: &Caller, access: Access<'_, Command>, _: Option<&str>, _: Option<&State>) -> Authorization {
        match access {
            Access::Command(Command::ReleaseName {}) => Authorization::Denied,
            _ => Authorization::Unrestricted,
        }
    }
}

/// A new account, beside one that has the name, and was closed at the beginning of 1970.
fn beside_a_closed_one() -> Given<Account> {
    let events = [Event::Registered { name: "ann".into() }, Event::Closed { at: 0 }];
    given::<Account>([]).involving::<Account>("old", events)
}

fn register() -> Command {
    Command::Register { name: "Ann".into() }
}

#[test]
fn user_name_belongs_to_one_account() {
    let registered = || Event::Registered { name: "Ann".into() };
    given::<Account>([]).when(register()).claims([user_name("ann")]).then([registered()]).sends_nothing();
    given::<Account>([]).beside([user_name("ann")]).when(register()).then_taken("user-name");
}

#[test]
fn name_of_a_closed_account_is_free_after_three_days() {
    let early = beside_a_closed_one().at("1970-01-03T23:59:59Z").beside([user_name("ann")]);
    early.when(register()).then_taken("user-name");
    beside_a_closed_one()
        .at("1970-01-04T00:00:00Z")
        .when(register())
        .then([Event::Registered { name: "Ann".into() }])
        .sends::<Account>("old", &Command::ReleaseName {});
    let closed = || [Event::Registered { name: "ann".into() }, Event::Closed { at: 0 }];
    given::<Account>(closed()).when(Command::ReleaseName {}).claims([]).then([Event::NameReleased {}]);
    given::<Account>(closed()).when(Command::Close {}).claims([user_name("ann")]).then([]);
    given::<Account>(closed()).by(Caller::named("bob")).forbids(Access::Command(&Command::ReleaseName {}));
    let open = given::<Account>([Event::Registered { name: "ann".into() }]);
    open.when(Command::ReleaseName {}).then_rejected("NotClosed", []);
}
