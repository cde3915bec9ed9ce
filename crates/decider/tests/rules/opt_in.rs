//! An account that is created with a token that its owner got by e-mail. The token works once, and for an hour.

use daybook_decider::given::{Given, given};
use daybook_decider::{Aggregate, Claim, Commands, Context, Decision, EventType, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const VALID_SECONDS: i64 = 60 * 60;

/// A sign-up that waits for its confirmation.
pub(crate) struct SignUp;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SignUpState {
    email: String,
    expires: i64,
    /// None after the confirmation.
    token: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum SignUpCommand {
    SignUp { email: String, token: String },
    Confirm {},
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum SignUpEvent {
    #[serde(rename = "SignUpInitiated")]
    Initiated { email: String, token: String, expires: i64 },
    #[serde(rename = "SignUpConfirmed")]
    Confirmed {},
}

fn opt_in_token(token: &str) -> Claim {
    Claim::new("opt-in-token", token)
}

impl Aggregate for SignUp {
    const TYPE: &'static str = "sign-up";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "SignUp", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("SignUpInitiated", 1), EventType::new("SignUpConfirmed", 1)];

    type State = SignUpState;
    type Command = SignUpCommand;
    type Event = SignUpEvent;

    fn decide(_: &SignUpState, command: SignUpCommand, context: &Context<'_, SignUpEvent>) -> Decision<SignUpEvent> {
        match command {
            SignUpCommand::SignUp { email, token } => {
                let expires = context.now().as_second() + VALID_SECONDS;
                Ok(vec![SignUpEvent::Initiated { email, token, expires }])
            }
            SignUpCommand::Confirm {} => Ok(vec![SignUpEvent::Confirmed {}]),
        }
    }

    fn evolve(state: SignUpState, event: &SignUpEvent) -> SignUpState {
        match event.clone() {
            SignUpEvent::Initiated { email, token, expires } => SignUpState { email, expires, token: Some(token) },
            SignUpEvent::Confirmed {} => SignUpState { token: None, ..state },
        }
    }

    fn claims(state: &SignUpState) -> Vec<Claim> {
        state.token.iter().map(|token| opt_in_token(token)).collect()
    }
}

/// An account, which exists when the address is confirmed.
pub(crate) struct Account;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {
    email: String,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum Command {
    OpenAccount { email: String, token: String },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum Event {
    #[serde(rename = "AccountOpened")]
    Opened { email: String },
}

impl Aggregate for Account {
    const TYPE: &'static str = "account";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "OpenAccount", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("AccountOpened", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        let Command::OpenAccount { email, token } = command;
        let found = context.involve_holder::<SignUp>(&opt_in_token(&token))?;
        let Some((id, sign_up)) = found.filter(|(_, sign_up)| sign_up.email == email) else {
            return Err(Rejection::new("NoSuchToken", "no sign-up of this address has the token"));
        };
        if context.now().as_second() > sign_up.expires {
            return Err(Rejection::new("TokenExpired", "the token has expired"));
        }
        context.send::<SignUp>(id, &SignUpCommand::Confirm {});
        Ok(vec![Event::Opened { email }])
    }

    fn evolve(_: State, event: &Event) -> State {
        let Event::Opened { email } = event.clone();
        State { email }
    }
}

fn initiated() -> SignUpEvent {
    SignUpEvent::Initiated { email: "ann@example.com".into(), token: "t".into(), expires: 3600 }
}

fn with_sign_up(events: impl IntoIterator<Item = SignUpEvent>) -> Given<Account> {
    given::<Account>([]).involving::<SignUp>("1", events)
}

fn open(email: &str) -> Command {
    Command::OpenAccount { email: email.into(), token: "t".into() }
}

#[test]
fn token_opens_an_account_once() {
    given::<SignUp>([])
        .when(SignUpCommand::SignUp { email: "ann@example.com".into(), token: "t".into() })
        .claims([opt_in_token("t")])
        .then([initiated()]);
    with_sign_up([initiated()])
        .at("1970-01-01T01:00:00Z")
        .when(open("ann@example.com"))
        .then([Event::Opened { email: "ann@example.com".into() }])
        .sends::<SignUp>("1", &SignUpCommand::Confirm {});
    given::<SignUp>([initiated()]).when(SignUpCommand::Confirm {}).claims([]).then([SignUpEvent::Confirmed {}]);
    with_sign_up([initiated(), SignUpEvent::Confirmed {}])
        .when(open("ann@example.com"))
        .then_rejected("NoSuchToken", [])
        .sends_nothing();
}

#[test]
fn token_is_for_one_address_and_for_an_hour() {
    with_sign_up([initiated()]).when(open("bob@example.com")).then_rejected("NoSuchToken", []);
    with_sign_up([]).when(open("ann@example.com")).then_rejected("NoSuchToken", []);
    let later = with_sign_up([initiated()]).at("1970-01-01T01:00:01Z");
    later.when(open("ann@example.com")).then_rejected("TokenExpired", []);
}
