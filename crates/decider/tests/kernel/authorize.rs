//! Checks whether the caller may send a command, on the state that the command is decided on.

use std::panic::catch_unwind;

use daybook_decider::given::given;
use daybook_decider::{
    Access, Aggregate, Authorization, Caller, CommandError, Commands, Context, Decision, DecisionInput, EventType,
    IamIdentity, PoolUser,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::support::{ID, Subject, decision_input, names};

/// A thing that has one holder, who can give it to somebody else.
struct Token;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct State {
    holder: String,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    #[serde(alias = "Begin")]
    Take {},
    #[serde(alias = "Donate", alias = "Pass")]
    Give { to: String },
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Taken { by: String },
    Given { to: String },
}

impl Aggregate for Token {
    const TYPE: &'static str = "token";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Take", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Taken", 1), EventType::new("Given", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![match command {
            Command::Take {} => Event::Taken { by: context.caller().principal.clone().unwrap_or_default() },
            Command::Give { to } => Event::Given { to },
        }])
    }

    fn evolve(_: State, event: &Event) -> State {
        let (Event::Taken { by: holder } | Event::Given { to: holder }) = event.clone();
        State { holder }
    }

    fn authorize(
        caller: &Caller,
        access: Access<'_, Command>,
        id: Option<&str>,
        state: Option<&State>,
    ) -> Authorization {
        match (access, state) {
            (Access::Command(Command::Take {}), None) => caller.is_in_group("takers").into(),
            (Access::Command(Command::Give { to }), _) if Some(to.as_str()) == id => Authorization::Denied,
            (_, Some(state)) => (caller.principal.as_deref() == Some(state.holder.as_str())).into(),
            _ => Authorization::Unrestricted,
        }
    }
}

fn by(name: &str) -> DecisionInput {
    let caller = Caller::named(name).in_group("takers");
    DecisionInput { caller, ..decision_input() }
}

#[test]
fn command_of_a_caller_without_authorization_is_forbidden() {
    let token = Subject::of::<Token>();
    let give = [("Give", json!({"to": "bob"}))];
    let forbidden = |command: &str| CommandError::Forbidden { index: 0, command: command.to_owned() };
    let stranger = DecisionInput { caller: Caller::named("eve"), ..decision_input() };
    let taking = token.decide_under(&stranger, &token.unborn(), &[("Take", json!({}))]);
    assert_eq!(taking.unwrap_err(), forbidden("Take"));
    // For an aggregate that does not exist, only the creation is checked.
    assert_eq!(token.decide_under(&stranger, &token.unborn(), &give).unwrap_err(), CommandError::Missing);

    let taken = token.decide_under(&by("ann"), &token.unborn(), &[("Take", json!({}))]).unwrap().after;
    assert_eq!(token.decide_under(&by("bob"), &taken, &give).unwrap_err(), forbidden("Give"));
    // A stranger does not learn that the command would fail anyway, except for its data, whose form everybody knows.
    let wrong = token.decide_under(&by("bob"), &taken, &[("Give", json!({"colour": "red"}))]);
    assert!(matches!(wrong.unwrap_err(), CommandError::Invalid { .. }));
    let again = token.decide_under(&by("bob"), &taken, &[("Take", json!({}))]);
    assert_eq!(again.unwrap_err(), forbidden("Take"));
    let given = token.decide_under(&by("ann"), &taken, &give).unwrap().after;
    assert_eq!(token.decide_under(&by("ann"), &given, &give).unwrap_err(), forbidden("Give"));
}

#[test]
fn check_has_the_data_of_the_command_and_the_id_of_the_aggregate() {
    let token = Subject::of::<Token>();
    let taken = token.decide_under(&by("ann"), &token.unborn(), &[("Take", json!({}))]).unwrap().after;
    let giving = token.decide_under(&by("ann"), &taken, &[("Give", json!({"to": ID}))]);
    assert_eq!(giving.unwrap_err(), CommandError::Forbidden { index: 0, command: "Give".to_owned() });
    let taken = || given::<Token>([Event::Taken { by: "ann".into() }]).with_id("a").by(by("ann").caller);
    taken().forbids(Access::Command(&Command::Give { to: "a".into() }));
    taken().allows(Access::Command(&Command::Give { to: "b".into() }));
    // The API rejects this id.
    assert!(catch_unwind(|| given::<Token>([]).with_id("a/b")).is_err());
    assert!(catch_unwind(|| given::<Token>([]).involving::<Token>("a/b", [])).is_err());
}

#[test]
fn alias_of_a_command_is_checked_as_the_command() {
    let token = Subject::of::<Token>();
    let taken = token.decide_under(&by("ann"), &token.unborn(), &[("Begin", json!({}))]).unwrap().after;
    let given = token.decide_under(&by("ann"), &taken, &[("Pass", json!({"to": "bob"}))]).unwrap();
    assert_eq!(names(&given), ["Given"]);
    for (alias, command, data) in
        [("Pass", "Give", json!({"to": "bob"})), ("Donate", "Give", json!({"to": "eve"})), ("Begin", "Take", json!({}))]
    {
        let error = token.decide_under(&by("bob"), &taken, &[(alias, data)]).unwrap_err();
        assert_eq!(error, CommandError::Forbidden { index: 0, command: command.to_owned() });
    }
    // An alias of the create command creates no aggregate again.
    let again = token.decide_under(&by("ann"), &taken, &[("Begin", json!({}))]).unwrap_err();
    assert_eq!(again, CommandError::Exists { index: 0 });
}

#[test]
fn each_command_of_a_batch_is_checked_on_the_state_before_it() {
    let token = Subject::of::<Token>();
    let give = || ("Give", json!({"to": "bob"}));
    let batch = [("Take", json!({})), give()];
    assert_eq!(names(&token.decide_under(&by("ann"), &token.unborn(), &batch).unwrap()), ["Taken", "Given"]);
    let error = token.decide_under(&by("ann"), &token.unborn(), &[("Take", json!({})), give(), give()]).unwrap_err();
    assert_eq!(error, CommandError::Forbidden { index: 2, command: "Give".to_owned() });
}

#[test]
fn actor_names_the_session_of_a_role_and_the_user_of_an_identity_pool() {
    let arn = "arn:aws:sts::123456789012:assumed-role/teller/jane";
    let iam = IamIdentity { user_arn: Some(arn.into()), ..IamIdentity::default() };
    let signed = Caller { iam: Some(iam.clone()), ..Caller::named("AROAIOSFODNN7EXAMPLE") };
    assert_eq!(signed.actor(), Some(arn));
    let iam = IamIdentity { pool_user: Some(PoolUser::default()), ..iam };
    assert_eq!(Caller { iam: Some(iam), ..Caller::named("eu-central-1:ann") }.actor(), Some("eu-central-1:ann"));
    assert_eq!((Caller::named("ann").actor(), Caller::anonymous().actor()), (Some("ann"), None));
}
