//! The subscription of a student to a course: a decision over three aggregates, in one transaction.
//!
//! It reads both others, and sends them commands. A course without a free seat, or a student with too many courses, rejects
//! its command, and nothing is appended.

use daybook::{Aggregate, Claim, Context, Decision, Rejection};

use crate::course::{self, Course};
use crate::student::{self, Student};

/// The aggregate `subscription`.
pub struct Subscription;

/// The state of a subscription.
#[daybook::state]
pub struct State {
    /// The id of the course.
    pub course: String,
    /// The id of the student.
    pub student: String,
    /// Whether the subscription was cancelled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
}

/// The commands of a subscription.
#[daybook::commands(create = Subscribe, delete = Cancel)]
pub enum Command {
    /// Subscribes the student to the course.
    Subscribe {
        /// The id of the course.
        #[schemars(example = &"rust")]
        course: String,
        /// The id of the student.
        #[schemars(example = &"ann")]
        student: String,
    },
    /// Cancels the subscription.
    Cancel {},
}

/// The events of a subscription. The names are a stored format.
#[daybook::events]
pub enum Event {
    /// The student was subscribed to the course.
    #[event("StudentSubscribed")]
    Subscribed {
        /// The id of the course.
        course: String,
        /// The id of the student.
        student: String,
    },
    /// The subscription was cancelled.
    #[event("SubscriptionCancelled")]
    Cancelled {},
}

#[daybook::aggregate("subscription")]
impl Aggregate for Subscription {
    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::Subscribe { course, student } => {
                // Both are asked for before the first `?`, so that they are read at once.
                let (found_course, found_student) =
                    (context.involve::<Course>(&course), context.involve::<Student>(&student));
                if found_course?.is_none() {
                    return Err(Rejection::new("NoSuchCourse", format!("there is no course {course}")));
                }
                if found_student?.is_none() {
                    return Err(Rejection::new("NoSuchStudent", format!("there is no student {student}")));
                }
                context.send::<Course>(&course, &course::Command::TakeSeat {});
                context.send::<Student>(&student, &student::Command::JoinCourse {});
                Ok(vec![Event::Subscribed { course, student }])
            }
            Command::Cancel {} => {
                context.send::<Course>(&state.course, &course::Command::ReleaseSeat {});
                context.send::<Student>(&state.student, &student::Command::LeaveCourse {});
                Ok(vec![Event::Cancelled {}])
            }
        }
    }

    fn evolve(state: State, event: &Event) -> State {
        match event.clone() {
            Event::Subscribed { course, student } => State { course, student, cancelled: false },
            Event::Cancelled {} => State { cancelled: true, ..state },
        }
    }

    /// A student subscribes to a course once.
    fn claims(state: &State) -> Vec<Claim> {
        vec![Claim::new("subscription", format!("{}/{}", state.course, state.student))]
    }

    fn is_deleted(state: &State) -> bool {
        state.cancelled
    }
}

#[cfg(test)]
mod tests {
    use daybook::given::{Given, given};

    use super::*;

    fn subscribe() -> Command {
        Command::Subscribe { course: "rust".into(), student: "ann".into() }
    }

    fn subscribed() -> Event {
        Event::Subscribed { course: "rust".into(), student: "ann".into() }
    }

    fn with_both() -> Given<Subscription> {
        given::<Subscription>([])
            .involving::<Course>("rust", [course::Event::Created { seats: 20 }])
            .involving::<Student>("ann", [student::Event::Enrolled {}])
    }

    #[test]
    fn subscription_takes_a_seat_for_the_student() {
        with_both()
            .when(subscribe())
            .claims([Claim::new("subscription", "rust/ann")])
            .then([subscribed()])
            .sends::<Course>("rust", &course::Command::TakeSeat {})
            .sends::<Student>("ann", &student::Command::JoinCourse {})
            .announces(["StudentSubscribed"]);
    }

    #[test]
    fn student_subscribes_to_a_course_once() {
        with_both().beside([Claim::new("subscription", "rust/ann")]).when(subscribe()).then_taken("subscription");
    }

    #[test]
    fn course_and_student_must_exist() {
        given::<Subscription>([]).when(subscribe()).then_rejected("NoSuchCourse", []).sends_nothing();
        given::<Subscription>([])
            .involving::<Course>("rust", [course::Event::Created { seats: 20 }])
            .when(subscribe())
            .then_rejected("NoSuchStudent", []);
    }

    #[test]
    fn cancellation_releases_the_seat() {
        given::<Subscription>([subscribed()])
            .when(Command::Cancel {})
            .claims([])
            .then([Event::Cancelled {}])
            .sends::<Course>("rust", &course::Command::ReleaseSeat {})
            .sends::<Student>("ann", &student::Command::LeaveCourse {});
    }
}
