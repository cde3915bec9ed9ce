//! A course with a number of seats. Only subscriptions take and release seats.

use daybook::{Access, Aggregate, Authorization, Caller, Context, Decision, Rejection};

/// The aggregate `course`.
pub struct Course;

/// The state of a course.
#[daybook::state]
pub struct State {
    /// The number of seats.
    pub seats: u32,
    /// The number of seats that are taken.
    pub taken: u32,
}

/// The commands of a course.
#[daybook::commands(create = CreateCourse, update = ChangeSeats)]
pub enum Command {
    /// Creates the course.
    CreateCourse {
        /// The number of seats.
        #[schemars(example = 20)]
        seats: u32,
    },
    /// Replaces the number of seats.
    ChangeSeats {
        /// The number of seats, at least as many as are taken.
        #[schemars(example = 30)]
        seats: u32,
    },
    /// Takes a seat. A subscription sends it.
    TakeSeat {},
    /// Releases a seat. A subscription sends it.
    ReleaseSeat {},
}

/// The events of a course. The names are a stored format.
#[daybook::events]
pub enum Event {
    /// The course was created.
    #[event("CourseCreated")]
    Created {
        /// The number of seats.
        seats: u32,
    },
    /// The number of seats was replaced.
    #[event("CourseSeatsChanged")]
    SeatsChanged {
        /// The new number of seats.
        seats: u32,
    },
    /// A seat was taken.
    #[event("CourseSeatTaken")]
    SeatTaken {},
    /// A seat was released.
    #[event("CourseSeatReleased")]
    SeatReleased {},
}

#[daybook::aggregate("course")]
impl Aggregate for Course {
    fn decide(state: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::CreateCourse { seats } => Ok(vec![Event::Created { seats }]),
            Command::ChangeSeats { seats } if seats == state.seats => Ok(vec![]),
            Command::ChangeSeats { seats } if seats < state.taken => {
                Err(Rejection::new("SeatsTaken", format!("{} seats are taken", state.taken)))
            }
            Command::ChangeSeats { seats } => Ok(vec![Event::SeatsChanged { seats }]),
            Command::TakeSeat {} if state.taken >= state.seats => {
                Err(Rejection::new("CourseFull", format!("all {} seats are taken", state.seats)))
            }
            Command::TakeSeat {} => Ok(vec![Event::SeatTaken {}]),
            Command::ReleaseSeat {} => Ok(vec![Event::SeatReleased {}]),
        }
    }

    fn evolve(state: State, event: &Event) -> State {
        match *event {
            Event::Created { seats } => State { seats, taken: 0 },
            Event::SeatsChanged { seats } => State { seats, ..state },
            Event::SeatTaken {} => State { taken: state.taken + 1, ..state },
            Event::SeatReleased {} => State { taken: state.taken.saturating_sub(1), ..state },
        }
    }

    /// What other aggregates send needs no authorization.
    fn authorize(_: &Caller, access: Access<'_, Command>, _: Option<&str>, _: Option<&State>) -> Authorization {
        match access {
            Access::Command(Command::TakeSeat {} | Command::ReleaseSeat {}) => Authorization::Denied,
            _ => Authorization::Unrestricted,
        }
    }
}

#[cfg(test)]
mod tests {
    use daybook::given::given;

    use super::*;

    #[test]
    fn seats_are_taken_until_none_is_free() {
        let created = || Event::Created { seats: 2 };
        given::<Course>([created(), Event::SeatTaken {}]).when(Command::TakeSeat {}).then([Event::SeatTaken {}]);
        let full = || given::<Course>([created(), Event::SeatTaken {}, Event::SeatTaken {}]);
        full().when(Command::TakeSeat {}).then_rejected("CourseFull", []);
        full().when(Command::ReleaseSeat {}).then([Event::SeatReleased {}]);
        full().when(Command::ChangeSeats { seats: 1 }).then_rejected("SeatsTaken", []);
        full().when(Command::ChangeSeats { seats: 3 }).then([Event::SeatsChanged { seats: 3 }]);
        full().when(Command::ChangeSeats { seats: 2 }).then([]);
    }

    #[test]
    fn no_caller_takes_a_seat() {
        let course = || given::<Course>([Event::Created { seats: 2 }]).by(Caller::named("ann"));
        course().forbids(Access::Command(&Command::TakeSeat {})).forbids(Access::Command(&Command::ReleaseSeat {}));
        course().allows(Access::Command(&Command::ChangeSeats { seats: 3 }));
    }
}
