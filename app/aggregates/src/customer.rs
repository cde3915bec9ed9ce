//! A customer, whose e-mail address belongs to no other customer: a claim. Name and address are personal data, which is forgotten on
//! request.

use daybook::{Aggregate, Claim, Context, Decision, Personal, Rejection};

/// The maximum length of an e-mail address.
const MAX_EMAIL: usize = 254;

/// The aggregate `customer`.
pub struct Customer;

/// The state of a customer.
#[daybook::state]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The e-mail address, as the customer writes it.
    pub email: Personal<String>,
    /// The name.
    pub name: Personal<String>,
    /// Whether the personal data was forgotten.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forgotten: bool,
    /// Whether the customer was deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// The commands of a customer.
#[daybook::commands(create = RegisterCustomer, update = ChangeEmail, delete = DeleteCustomer)]
pub enum Command {
    /// Registers the customer.
    RegisterCustomer {
        /// The e-mail address, which no other customer has.
        #[schemars(email, example = &"ann@example.com")]
        email: Personal<String>,
        /// The name.
        #[schemars(example = &"Ann")]
        name: Personal<String>,
    },
    /// Replaces the e-mail address.
    ChangeEmail {
        /// The e-mail address, which no other customer has.
        #[schemars(email, example = &"ann@example.org")]
        email: Personal<String>,
    },
    /// Forgets name and e-mail address, wherever they are stored. The address is then free.
    ForgetCustomer {},
    /// Deletes the customer, whose e-mail address is then free.
    DeleteCustomer {},
}

/// The events of a customer. The names are a stored format.
#[daybook::events]
pub enum Event {
    /// The customer was registered.
    #[event("CustomerRegistered")]
    Registered {
        /// The e-mail address.
        email: Personal<String>,
        /// The name.
        name: Personal<String>,
    },
    /// The e-mail address was replaced.
    #[event("CustomerEmailChanged")]
    EmailChanged {
        /// The new e-mail address.
        email: Personal<String>,
    },
    /// Name and e-mail address were forgotten.
    #[event("CustomerForgotten")]
    Forgotten {},
    /// The customer was deleted.
    #[event("CustomerDeleted")]
    Deleted {},
}

#[daybook::aggregate("customer")]
impl Aggregate for Customer {
    const FORGET: Option<&'static str> = Some("ForgetCustomer");

    fn decide(state: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::RegisterCustomer { email, name } => {
                Ok(vec![Event::Registered { email: checked_email(email)?, name }])
            }
            Command::ForgetCustomer {} if state.forgotten => Ok(vec![]),
            Command::ForgetCustomer {} => Ok(vec![Event::Forgotten {}]),
            Command::ChangeEmail { .. } if state.forgotten => {
                Err(Rejection::new("CustomerForgotten", "nothing more is stored about a customer who was forgotten"))
            }
            Command::ChangeEmail { email } if email == state.email => Ok(vec![]),
            Command::ChangeEmail { email } => Ok(vec![Event::EmailChanged { email: checked_email(email)? }]),
            Command::DeleteCustomer {} => Ok(vec![Event::Deleted {}]),
        }
    }

    fn evolve(state: State, event: &Event) -> State {
        match event.clone() {
            Event::Registered { email, name } => State { email, name, ..state },
            Event::EmailChanged { email } => State { email, ..state },
            Event::Forgotten {} => State { forgotten: true, ..state },
            Event::Deleted {} => State { deleted: true, ..state },
        }
    }

    /// Addresses that differ only in capitals are the same.
    fn claims(state: &State) -> Vec<Claim> {
        state.email.get().map(|email| Claim::new("personal-email", email.to_lowercase())).into_iter().collect()
    }

    fn is_forgotten(state: &State) -> bool {
        state.forgotten || state.deleted
    }

    fn is_deleted(state: &State) -> bool {
        state.deleted
    }
}

/// Rejects a text that is no e-mail address.
fn checked_email(email: Personal<String>) -> Result<Personal<String>, Rejection<Event>> {
    let is_address = |email: &String| {
        let parts = email.split_once('@').is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty());
        parts && email.len() <= MAX_EMAIL && !email.contains(char::is_whitespace)
    };
    if email.get().is_some_and(is_address) {
        return Ok(email);
    }
    Err(Rejection::new("EmailInvalid", format!("an e-mail address has an @ and at most {MAX_EMAIL} bytes")))
}

#[cfg(test)]
mod tests {
    use daybook::given::given;

    use super::*;

    fn personal(text: &str) -> Personal<String> {
        Personal::new(text.to_owned())
    }

    fn registered(email: &str) -> Event {
        Event::Registered { email: personal(email), name: personal("Ann") }
    }

    fn claim(email: &str) -> Claim {
        Claim::new("personal-email", email)
    }

    fn change(email: &str) -> Command {
        Command::ChangeEmail { email: personal(email) }
    }

    #[test]
    fn register_takes_the_address_without_its_capitals() {
        given::<Customer>([])
            .when(Command::RegisterCustomer { email: personal("Ann@example.com"), name: personal("Ann") })
            .claims([claim("ann@example.com")])
            .then([registered("Ann@example.com")])
            .announces(["CustomerRegistered"]);
    }

    #[test]
    fn address_of_another_customer_is_taken() {
        let beside = || given::<Customer>([registered("ann@example.com")]).beside([claim("bob@example.com")]);
        given::<Customer>([registered("ann@example.com")])
            .beside([Claim::new("personal-email", "bob@example.com")])
            .when(Command::ChangeEmail { email: personal("Bob@example.com") })
            .then_taken("personal-email");
        beside().when(change("bob@example.org")).then([Event::EmailChanged { email: personal("bob@example.org") }]);
        given::<Customer>([])
            .beside([claim("ann@example.com")])
            .when(Command::RegisterCustomer { email: personal("ann@example.com"), name: personal("Ann") })
            .then_taken("personal-email");
    }

    #[test]
    fn change_replaces_the_claim() {
        let ann = || given::<Customer>([registered("ann@example.com")]);
        ann().when(change("ann@example.org")).claims([claim("ann@example.org")]);
        ann().when(change("ann@example.com")).then([]).announces([]);
    }

    #[test]
    fn delete_frees_the_address() {
        given::<Customer>([registered("ann@example.com")])
            .when(Command::DeleteCustomer {})
            .claims([])
            .then([Event::Deleted {}]);
    }

    #[test]
    fn forgotten_customer_has_no_address_and_gets_none() {
        let ann = || given::<Customer>([registered("ann@example.com")]);
        ann().when(Command::ForgetCustomer {}).claims([]).then([Event::Forgotten {}]);
        let forgotten = given::<Customer>([registered("ann@example.com"), Event::Forgotten {}]);
        forgotten.when(change("ann@example.org")).then_rejected("CustomerForgotten", []);
        let forgotten = given::<Customer>([registered("ann@example.com"), Event::Forgotten {}]);
        forgotten.when(Command::ForgetCustomer {}).then([]);
        // A stored value contains its subject.
        let stored = |text: &str| Personal::about("customer", "9", text.to_owned());
        let stored = Event::Registered { email: stored("ann@example.com"), name: stored("Ann") };
        given::<Customer>([stored])
            .with_id("9")
            .when(Command::ForgetCustomer {})
            .claims([])
            .then([Event::Forgotten {}]);
    }

    #[test]
    fn text_that_is_no_address_is_rejected() {
        let long = format!("{}@example.com", "a".repeat(MAX_EMAIL));
        for email in ["", "ann", "@example.com", "ann@", "a b@example.com", &long] {
            given::<Customer>([registered("ann@example.com")]).when(change(email)).then_rejected("EmailInvalid", []);
        }
    }
}
