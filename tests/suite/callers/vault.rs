//! An aggregate with a rule for each kind of access.

use daybook_decider::{
    Access, Aggregate, Authorization, Caller, Claim, Commands, Context, Decision, EventType, Registry, Rejection,
};
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

/// A vault, which its holder can give to somebody else. Everybody but the couriers may read it, visitors only a part.
struct Vault;

pub(crate) fn registry() -> Registry {
    Registry::new().with::<Vault>().unwrap()
}

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct State {
    holder: Option<String>,
}

/// What visitors see.
#[derive(Serialize, JsonSchema)]
struct Part {
    is_held: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    #[serde(alias = "Make")]
    Open {},
    #[serde(alias = "Pass")]
    Give { to: String },
    /// Gives it to the holder of another vault.
    GiveToHolderOf { vault: String },
    /// Rejected with the holder in the text; with an event if it is recorded.
    Seize { is_recorded: bool },
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    VaultOpened { holder: Option<String> },
    VaultGiven { to: String },
}

impl Aggregate for Vault {
    const TYPE: &'static str = "vault";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Open", update: Some("Give"), delete: None };
    const EVENTS: &'static [EventType] =
        &[EventType::new("VaultOpened", 1), EventType::new("VaultGiven", 1).also_stored_as(&[("VaultPassed", 1)])];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![match command {
            Command::Open {} => Event::VaultOpened { holder: context.caller().principal.clone() },
            Command::Give { to } => Event::VaultGiven { to },
            Command::GiveToHolderOf { vault } => {
                let other = context.involve::<Self>(&vault)?;
                Event::VaultGiven { to: other.and_then(|other| other.holder.clone()).unwrap_or_default() }
            }
            Command::Seize { is_recorded } => {
                let holder = state.holder.clone().unwrap_or_default();
                let rejection = Rejection::new("Held", format!("{holder} holds it"));
                let held = Event::VaultGiven { to: holder };
                return Err(if is_recorded { rejection.recording(held) } else { rejection });
            }
        }])
    }

    fn evolve(_: State, event: &Event) -> State {
        match event.clone() {
            Event::VaultOpened { holder } => State { holder },
            Event::VaultGiven { to } => State { holder: Some(to) },
        }
    }

    /// Only carol has a claim: others may have several vaults.
    fn claims(state: &State) -> Vec<Claim> {
        let carol = state.holder.iter().filter(|holder| *holder == "carol");
        carol.map(|holder| Claim::new("vault-holder", holder)).collect()
    }

    fn part_schema() -> Option<Schema> {
        Some(schema_for!(Part))
    }

    fn authorize(
        caller: &Caller,
        access: Access<'_, Command>,
        _: Option<&str>,
        state: Option<&State>,
    ) -> Authorization {
        match (access, state) {
            (Access::Command(Command::Give { .. }), Some(state)) => (caller.principal == state.holder).into(),
            (Access::Read, _) if caller.is_in_group("couriers") => Authorization::Denied,
            (Access::Read, None) if caller.is_in_group("visitors") => Authorization::Allowed,
            (Access::Read, Some(state)) if caller.is_in_group("visitors") => {
                Authorization::part(&Part { is_held: state.holder.is_some() })
            }
            (Access::ReadMeta, _) => caller.is_in_group("auditors").into(),
            (Access::Rebuild, _) => caller.is_in_group("operators").into(),
            (Access::List, _) => caller.has_scope("vault/list").into(),
            (Access::Feed(event), _) => (caller.claim("feed") == Some(event)).into(),
            _ => Authorization::Unrestricted,
        }
    }
}
