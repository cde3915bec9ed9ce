//! A to-do, which is created, updated and deleted. It is the smallest example, and it publishes every event.
//!
//! If the authorizer of the API names the caller who creates a to-do, that caller owns it: nobody else may read or
//! change it. A to-do of an unnamed caller has no owner: everybody may read and change it.

use daybook::{Access, Aggregate, Authorization, Caller, Context, Decision, Rejection};

/// The aggregate `todo`.
pub struct Todo;

/// The state of a to-do.
#[daybook::state]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The id of the to-do.
    pub id: String,
    /// The title, in one line.
    pub title: String,
    /// The whole text.
    pub message: String,
    /// The caller who created the to-do, if the authorizer named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Whether the to-do was deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// The commands of a to-do.
#[daybook::commands(create = CreateTodo, update = UpdateTodo, delete = DeleteTodo)]
pub enum Command {
    /// Creates the to-do.
    CreateTodo {
        /// The title, in one line; not empty.
        #[schemars(example = &"TODO")]
        title: String,
        /// The whole text.
        #[schemars(example = &"Make coffee")]
        message: String,
    },
    /// Replaces the title and the text.
    UpdateTodo {
        /// The title, in one line; not empty.
        #[schemars(example = &"TODO")]
        title: String,
        /// The whole text.
        #[schemars(example = &"Make 2 coffees")]
        message: String,
    },
    /// Deletes the to-do.
    DeleteTodo {},
}

/// The events of a to-do. The names are a stored format.
#[daybook::events]
pub enum Event {
    /// The to-do was created.
    #[event("TodoCreated")]
    Created {
        /// The id of the to-do.
        id: String,
        /// The title, in one line.
        title: String,
        /// The whole text.
        message: String,
        /// The caller who created the to-do, if the authorizer named one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
    },
    /// The title and the text were replaced.
    #[event("TodoUpdated")]
    Updated {
        /// The title, in one line.
        title: String,
        /// The whole text.
        message: String,
    },
    /// The to-do was deleted.
    #[event("TodoDeleted")]
    Deleted {},
}

#[daybook::aggregate("todo", state_version = 2)]
impl Aggregate for Todo {
    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::CreateTodo { title, message } => {
                let title = checked_title(title)?;
                let (id, owner) = (context.aggregate_id().to_owned(), context.caller().principal.clone());
                Ok(vec![Event::Created { id, title, message, owner }])
            }
            Command::UpdateTodo { title, message } => {
                let title = checked_title(title)?;
                let unchanged = state.title == title && state.message == message;
                Ok(if unchanged { vec![] } else { vec![Event::Updated { title, message }] })
            }
            Command::DeleteTodo {} => Ok(vec![Event::Deleted {}]),
        }
    }

    fn evolve(state: State, event: &Event) -> State {
        match event.clone() {
            Event::Created { id, title, message, owner } => State { id, title, message, owner, deleted: false },
            Event::Updated { title, message } => State { title, message, ..state },
            Event::Deleted {} => State { deleted: true, ..state },
        }
    }

    fn authorize(
        caller: &Caller,
        access: Access<'_, Command>,
        _: Option<&str>,
        state: Option<&State>,
    ) -> Authorization {
        let is_allowed = match (access, state) {
            (Access::Read | Access::ReadMeta | Access::Command(_), Some(State { owner: Some(owner), .. })) => {
                caller.principal.as_ref() == Some(owner)
            }
            // A list and a feed show the to-dos of all owners. Without an authorizer, to-dos have no owners.
            (Access::List | Access::Feed(_) | Access::ReadMeta, None) => !caller.is_authenticated,
            _ => true,
        };
        is_allowed.into()
    }

    fn is_deleted(state: &State) -> bool {
        state.deleted
    }
}

/// Rejects a title that is empty or only white space.
fn checked_title(title: String) -> Result<String, Rejection<Event>> {
    if title.trim().is_empty() {
        return Err(Rejection::new("TitleMissing", "a to-do needs a title"));
    }
    Ok(title)
}

#[cfg(test)]
mod tests {
    use daybook::given::{ID, given};

    use super::*;

    fn created() -> Event {
        created_by(None)
    }

    fn created_by(owner: Option<&str>) -> Event {
        let owner = owner.map(str::to_owned);
        Event::Created { id: ID.into(), title: "TODO".into(), message: "Make coffee".into(), owner }
    }

    fn create() -> Command {
        Command::CreateTodo { title: "TODO".into(), message: "Make coffee".into() }
    }

    /// An authenticated caller whom the authorizer does not name.
    fn nameless() -> Caller {
        Caller { is_authenticated: true, ..Caller::anonymous() }
    }

    #[test]
    fn create_with_title_appends_and_publishes_created() {
        given::<Todo>([]).when(create()).then([created()]).announces(["TodoCreated"]);
    }

    #[test]
    fn create_by_a_named_caller_records_the_owner() {
        let create = || Command::CreateTodo { title: "TODO".into(), message: "Make coffee".into() };
        given::<Todo>([]).by(Caller::named("ann")).when(create()).then([created_by(Some("ann"))]);
        given::<Todo>([]).by(nameless()).when(create()).then([created()]);
    }

    #[test]
    fn todo_of_an_owner_is_forbidden_to_others() {
        let of_ann = || given::<Todo>([created_by(Some("ann"))]);
        for access in [Access::Read, Access::ReadMeta, Access::Command(&Command::DeleteTodo {})] {
            of_ann().by(Caller::named("ann")).allows(access);
            for other in [Caller::named("bob"), nameless(), Caller::anonymous()] {
                of_ann().by(other).forbids(access);
            }
        }
    }

    #[test]
    fn todo_without_an_owner_is_allowed_to_everybody() {
        for caller in [Caller::named("bob"), nameless(), Caller::anonymous()] {
            let owned_by_nobody = given::<Todo>([created()]).by(caller.clone());
            owned_by_nobody
                .allows(Access::Read)
                .allows(Access::ReadMeta)
                .allows(Access::Command(&Command::DeleteTodo {}));
            given::<Todo>([]).by(caller).allows(Access::Command(&create())).allows(Access::Rebuild);
        }
    }

    #[test]
    fn list_and_feed_are_forbidden_to_authenticated_callers() {
        for access in [Access::List, Access::Feed("TodoCreated")] {
            given::<Todo>([]).by(Caller::named("ann")).forbids(access);
            given::<Todo>([]).by(nameless()).forbids(access);
            given::<Todo>([]).allows(access);
        }
    }

    #[test]
    fn create_and_update_without_title_are_rejected() {
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
    fn update_with_other_texts_replaces_both() {
        let updated = Event::Updated { title: "TODO".into(), message: "Make 2 coffees".into() };
        given::<Todo>([created()])
            .when(Command::UpdateTodo { title: "TODO".into(), message: "Make 2 coffees".into() })
            .then([updated.clone()])
            .announces(["TodoUpdated"]);
        assert_eq!(given::<Todo>([created(), updated]).state().message, "Make 2 coffees");
    }

    #[test]
    fn update_with_same_texts_appends_nothing() {
        given::<Todo>([created()])
            .when(Command::UpdateTodo { title: "TODO".into(), message: "Make coffee".into() })
            .then([])
            .announces([]);
    }

    #[test]
    fn delete_of_existing_todo_keeps_texts_in_state() {
        given::<Todo>([created()]).when(Command::DeleteTodo {}).then([Event::Deleted {}]).announces(["TodoDeleted"]);
        let state = given::<Todo>([created(), Event::Deleted {}]).state();
        assert!(Todo::is_deleted(&state));
        assert_eq!(state.title, "TODO");
    }
}
