//! A projection with personal values in its rows and in its state.

use aggregates::Customer;
use aggregates::customer::Event;
use daybook_decider::Personal;
use daybook_projection::{FollowedEvent, Follows, Projection, Source};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The names of customers by id.
#[derive(Debug)]
pub struct Names;

/// The row of a customer.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Name {
    name: Personal<String>,
}

/// What the projection knows of a customer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Known {
    never_set: Personal<String>,
    email: Personal<String>,
}

impl Projection for Names {
    const NAME: &'static str = "names";
    const VERSION: u32 = 1;
    type Row = Name;
    type Change = Personal<String>;

    fn sources() -> Vec<Source<Self>> {
        vec![Source::of::<Customer>()]
    }

    fn apply(_: Option<Name>, name: &Personal<String>) -> Option<Name> {
        Some(Name { name: name.clone() })
    }
}

impl Follows<Customer> for Names {
    type State = Known;

    fn advance(known: Known, event: &FollowedEvent<'_, Event>) -> Known {
        match event.event {
            Event::Registered { email, .. } => Known { email: email.clone(), ..known },
            _ => known,
        }
    }

    fn changes(_: &Known, event: &FollowedEvent<'_, Event>, _: &Known) -> Vec<(String, Personal<String>)> {
        match event.event {
            Event::Registered { name, .. } => vec![(event.aggregate_id.to_owned(), name.clone())],
            Event::Forgotten {} => vec![(event.aggregate_id.to_owned(), Personal::forgotten())],
            _ => Vec::new(),
        }
    }
}
