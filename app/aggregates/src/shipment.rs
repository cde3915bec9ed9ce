//! The shipment of an order. A fulfilment requests it; the warehouse and the carrier report its progress.

use daybook::{Aggregate, Context, Decision, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The aggregate `shipment`.
pub struct Shipment;

/// The progress of a shipment, which is its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "camelCase")]
#[schemars(rename = "Shipment")]
pub enum State {
    /// The parcel is in the warehouse.
    #[default]
    Requested,
    /// The carrier has the parcel.
    Collected,
    /// The carrier has lost the parcel.
    Lost,
    /// The parcel stays in the warehouse.
    Abandoned,
}

/// The commands of a shipment.
#[daybook::commands(create = RequestShipment)]
#[serde(rename_all_fields = "camelCase")]
pub enum Command {
    /// Requests the shipment.
    RequestShipment {},
    /// Records that the carrier has the parcel.
    CollectShipment {
        /// The carrier's tracking number.
        #[schemars(example = &"T-1")]
        tracking_number: String,
    },
    /// Records that the carrier has lost the parcel.
    LoseShipment {},
    /// Keeps the parcel in the warehouse.
    AbandonShipment {},
}

/// The events of a shipment. The names are a stored format.
#[daybook::events]
#[serde(rename_all_fields = "camelCase")]
pub enum Event {
    /// The shipment was requested.
    #[event("ShipmentRequested")]
    Requested {},
    /// The carrier has the parcel.
    #[event("ShipmentCollected")]
    Collected {
        /// The carrier's tracking number.
        tracking_number: String,
    },
    /// The carrier has lost the parcel.
    #[event("ShipmentLost")]
    Lost {},
    /// The parcel stays in the warehouse.
    #[event("ShipmentAbandoned")]
    Abandoned {},
}

#[daybook::aggregate("shipment")]
impl Aggregate for Shipment {
    fn decide(state: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        let (event, expected) = match command {
            Command::RequestShipment {} => (Event::Requested {}, State::Requested),
            Command::CollectShipment { tracking_number } => (Event::Collected { tracking_number }, State::Requested),
            Command::LoseShipment {} => (Event::Lost {}, State::Collected),
            Command::AbandonShipment {} => (Event::Abandoned {}, State::Requested),
        };
        if *state == expected {
            return Ok(vec![event]);
        }
        Err(Rejection::new("WrongStatus", format!("the shipment is {state:?}, expected {expected:?}")))
    }

    fn evolve(_: State, event: &Event) -> State {
        match event {
            Event::Requested {} => State::Requested,
            Event::Collected { .. } => State::Collected,
            Event::Lost {} => State::Lost,
            Event::Abandoned {} => State::Abandoned,
        }
    }
}

#[cfg(test)]
mod tests {
    use daybook::given::given;

    use super::*;

    #[test]
    fn shipment_is_requested_collected_and_lost() {
        given::<Shipment>([]).when(Command::RequestShipment {}).then([Event::Requested {}]);
        let (collect, collected) = {
            let tracking_number = || "T-1".to_owned();
            let collect = Command::CollectShipment { tracking_number: tracking_number() };
            (collect, Event::Collected { tracking_number: tracking_number() })
        };
        given::<Shipment>([Event::Requested {}]).when(collect).then([collected.clone()]);
        given::<Shipment>([Event::Requested {}, collected]).when(Command::LoseShipment {}).then([Event::Lost {}]);
    }

    #[test]
    fn only_a_parcel_in_the_warehouse_is_abandoned() {
        given::<Shipment>([Event::Requested {}]).when(Command::AbandonShipment {}).then([Event::Abandoned {}]);
        let collected = Event::Collected { tracking_number: "T-1".into() };
        given::<Shipment>([Event::Requested {}, collected])
            .when(Command::AbandonShipment {})
            .then_rejected("WrongStatus", []);
        given::<Shipment>([Event::Requested {}]).when(Command::LoseShipment {}).then_rejected("WrongStatus", []);
    }
}
