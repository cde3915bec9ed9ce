//! Something to do: created, updated, deleted. The smallest aggregate, and it publishes every event.

use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The to-do.
pub struct Todo;

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Todo")]
pub struct State {
    /// The id that it was created under.
    pub id: String,
    /// A line.
    pub title: String,
    /// The whole text.
    pub message: String,
    /// Whether it was deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// What can be asked of a to-do.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
#[schemars(rename = "TodoCommand")]
pub enum Command {
    /// Write it down.
    CreateTodo {
        /// A line; not empty.
        #[schemars(example = &"TODO")]
        title: String,
        /// The whole text.
        #[schemars(example = &"Make coffee")]
        message: String,
    },
    /// Change both texts.
    UpdateTodo {
        /// A line; not empty.
        #[schemars(example = &"TODO")]
        title: String,
        /// The whole text.
        #[schemars(example = &"Make 2 coffees")]
        message: String,
    },
    /// Strike it out.
    DeleteTodo {},
}

/// What happened to a to-do. The names are a stored format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
#[schemars(rename = "TodoEvent")]
pub enum Event {
    /// It was written down.
    #[serde(rename = "TodoCreated")]
    Created {
        /// Its id.
        id: String,
        /// A line.
        title: String,
        /// The whole text.
        message: String,
    },
    /// Both texts were replaced.
    #[serde(rename = "TodoUpdated")]
    Updated {
        /// A line.
        title: String,
        /// The whole text.
        message: String,
    },
    /// It was struck out.
    #[serde(rename = "TodoDeleted")]
    Deleted {},
}

impl Aggregate for Todo {
    const TYPE: &'static str = "todo";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands =
        Commands { create: "CreateTodo", update: Some("UpdateTodo"), delete: Some("DeleteTodo") };
    const EVENTS: &'static [EventType] =
        &[EventType::new("TodoCreated", 1), EventType::new("TodoUpdated", 1), EventType::new("TodoDeleted", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::CreateTodo { title, message } => {
                let title = a_title(title)?;
                Ok(vec![Event::Created { id: context.aggregate_id().to_owned(), title, message }])
            }
            Command::UpdateTodo { title, message } => {
                let title = a_title(title)?;
                let unchanged = state.title == title && state.message == message;
                Ok(if unchanged { vec![] } else { vec![Event::Updated { title, message }] })
            }
            Command::DeleteTodo {} => Ok(vec![Event::Deleted {}]),
        }
    }

    fn evolve(state: State, event: &Event) -> State {
        match event.clone() {
            Event::Created { id, title, message } => State { id, title, message, deleted: false },
            Event::Updated { title, message } => State { title, message, ..state },
            Event::Deleted {} => State { deleted: true, ..state },
        }
    }

    fn is_deleted(state: &State) -> bool {
        state.deleted
    }
}

fn a_title(title: String) -> Result<String, Rejection<Event>> {
    if title.trim().is_empty() {
        return Err(Rejection::new("TitleMissing", "a to-do needs a title"));
    }
    Ok(title)
}

#[cfg(test)]
mod tests {
    use daybook_decider::given::{ID, given};

    use super::*;

    fn created() -> Event {
        Event::Created { id: ID.into(), title: "TODO".into(), message: "Make coffee".into() }
    }

    #[test]
    fn creating_writes_both_texts_down() {
        given::<Todo>([])
            .when(Command::CreateTodo { title: "TODO".into(), message: "Make coffee".into() })
            .then([created()])
            .announces(["TodoCreated"]);
    }

    #[test]
    fn a_todo_needs_a_title() {
        for title in ["", " \t"] {
            given::<Todo>([])
                .when(Command::CreateTodo { title: title.into(), message: "Make coffee".into() })
                .then_rejected("TitleMissing", []);
            given::<Todo>([created()])
                .when(Command::UpdateTodo { title: title.into(), message: "Make tea".into() })
                .then_rejected("TitleMissing", []);
        }
    }

    #[test]
    fn updating_replaces_both_texts() {
        let updated = Event::Updated { title: "TODO".into(), message: "Make 2 coffees".into() };
        given::<Todo>([created()])
            .when(Command::UpdateTodo { title: "TODO".into(), message: "Make 2 coffees".into() })
            .then([updated.clone()])
            .announces(["TodoUpdated"]);
        assert_eq!(given::<Todo>([created(), updated]).state().message, "Make 2 coffees");
    }

    #[test]
    fn updating_to_the_same_texts_is_no_event() {
        given::<Todo>([created()])
            .when(Command::UpdateTodo { title: "TODO".into(), message: "Make coffee".into() })
            .then([])
            .announces([]);
    }

    #[test]
    fn deleting_keeps_the_texts_on_record() {
        given::<Todo>([created()]).when(Command::DeleteTodo {}).then([Event::Deleted {}]).announces(["TodoDeleted"]);
        let state = given::<Todo>([created(), Event::Deleted {}]).state();
        assert!(Todo::is_deleted(&state));
        assert_eq!(state.title, "TODO");
    }
}
