//! One aggregate in three releases. From the second to the third, the opening event is renamed, another event gets a second
//! version, and the state gets another shape. The second release already reads the events of the third; the first
//! equals the second, but cannot read them.

use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Registry, StoredEvent, Upcast};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The commands of all releases.
#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum Command {
    Send { to: String },
    Scan { town: String, country: String },
}

const COMMANDS: Commands = Commands { create: "Send", update: Some("Scan"), delete: None };

/// The first release, and with `READS_AHEAD` the second.
pub(crate) struct Old<const READS_AHEAD: bool>;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OldState {
    to: String,
    places: Vec<String>,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum OldEvent {
    ParcelSent { to: String },
    ParcelScanned { place: String },
}

impl<const READS_AHEAD: bool> Aggregate for Old<READS_AHEAD> {
    const TYPE: &'static str = "parcel";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = COMMANDS;
    const EVENTS: &'static [EventType] = if READS_AHEAD {
        &[
            EventType::new("ParcelSent", 1).also_stored_as(&[("ParcelPosted", 1)]),
            EventType::new("ParcelScanned", 1).reads(2),
        ]
    } else {
        &[EventType::new("ParcelSent", 1), EventType::new("ParcelScanned", 1)]
    };

    type State = OldState;
    type Command = Command;
    type Event = OldEvent;

    fn decide(_: &OldState, command: Command, _: &Context<'_, OldEvent>) -> Decision<OldEvent> {
        Ok(vec![match command {
            Command::Send { to } => OldEvent::ParcelSent { to },
            Command::Scan { town, country } => OldEvent::ParcelScanned { place: format!("{town}, {country}") },
        }])
    }

    fn evolve(mut parcel: OldState, event: &OldEvent) -> OldState {
        match event.clone() {
            OldEvent::ParcelSent { to } => parcel.to = to,
            OldEvent::ParcelScanned { place } => parcel.places.push(place),
        }
        parcel
    }

    fn upcast(event: StoredEvent) -> Upcast {
        match (event.name.as_str(), event.version) {
            ("ParcelPosted", 1) => Ok(vec![StoredEvent::new("ParcelSent", 1, &event.data)?]),
            ("ParcelScanned", 2) => {
                let Place { town, country } = event.read()?;
                Ok(vec![StoredEvent::new("ParcelScanned", 1, &json!({"place": format!("{town}, {country}")}))?])
            }
            _ => Ok(vec![event]),
        }
    }
}

/// The third release.
pub(crate) struct New;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NewState {
    to: String,
    seen: Vec<Place>,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Place {
    town: String,
    country: String,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum NewEvent {
    ParcelPosted { to: String },
    ParcelScanned(Place),
}

impl Aggregate for New {
    const TYPE: &'static str = "parcel";
    const STATE_VERSION: u32 = 2;
    const COMMANDS: Commands = COMMANDS;
    const EVENTS: &'static [EventType] =
        &[EventType::new("ParcelPosted", 1).also_stored_as(&[("ParcelSent", 1)]), EventType::new("ParcelScanned", 2)];

    type State = NewState;
    type Command = Command;
    type Event = NewEvent;

    fn decide(_: &NewState, command: Command, _: &Context<'_, NewEvent>) -> Decision<NewEvent> {
        Ok(vec![match command {
            Command::Send { to } => NewEvent::ParcelPosted { to },
            Command::Scan { town, country } => NewEvent::ParcelScanned(Place { town, country }),
        }])
    }

    fn evolve(mut parcel: NewState, event: &NewEvent) -> NewState {
        match event.clone() {
            NewEvent::ParcelPosted { to } => parcel.to = to,
            NewEvent::ParcelScanned(place) => parcel.seen.push(place),
        }
        parcel
    }

    fn upcast(event: StoredEvent) -> Upcast {
        match (event.name.as_str(), event.version) {
            ("ParcelSent", 1) => Ok(vec![StoredEvent::new("ParcelPosted", 1, &event.data)?]),
            ("ParcelScanned", 1) => {
                let place = event.data["place"].as_str().unwrap_or_default();
                let (town, country) = place.split_once(", ").unwrap_or((place, ""));
                Ok(vec![StoredEvent::new("ParcelScanned", 2, &json!({"town": town, "country": country}))?])
            }
            _ => Ok(vec![event]),
        }
    }
}

/// The deployed release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// The first release, which cannot read events of the third.
    Rash,
    /// The second release, which writes like the first and reads events of the third.
    Old,
    /// The third release.
    New,
}

impl Release {
    pub(crate) fn registry(self) -> Registry {
        let registry = Registry::new();
        match self {
            Self::Rash => registry.with::<Old<false>>(),
            Self::Old => registry.with::<Old<true>>(),
            Self::New => registry.with::<New>(),
        }
        .unwrap()
    }
}
