//! A student, who is in a limited number of courses. Only subscriptions let a student join and leave courses.

use daybook::{Access, Aggregate, Authorization, Caller, Context, Decision, Rejection};

/// The maximum courses of a student.
pub const MAX_COURSES: u32 = 10;

/// The aggregate `student`.
pub struct Student;

/// The state of a student.
#[daybook::state]
pub struct State {
    /// The number of courses.
    pub courses: u32,
}

/// The commands of a student.
#[daybook::commands(create = Enrol)]
pub enum Command {
    /// Enrols the student.
    Enrol {},
    /// Joins a course. A subscription sends it.
    JoinCourse {},
    /// Leaves a course. A subscription sends it.
    LeaveCourse {},
}

/// The events of a student. The names are a stored format.
#[daybook::events]
pub enum Event {
    /// The student was enrolled.
    #[event("StudentEnrolled")]
    Enrolled {},
    /// The student joined a course.
    #[event("StudentJoinedCourse")]
    JoinedCourse {},
    /// The student left a course.
    #[event("StudentLeftCourse")]
    LeftCourse {},
}

#[daybook::aggregate("student")]
impl Aggregate for Student {
    fn decide(state: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::Enrol {} => Ok(vec![Event::Enrolled {}]),
            Command::JoinCourse {} if state.courses >= MAX_COURSES => {
                Err(Rejection::new("TooManyCourses", format!("a student has at most {MAX_COURSES} courses")))
            }
            Command::JoinCourse {} => Ok(vec![Event::JoinedCourse {}]),
            Command::LeaveCourse {} => Ok(vec![Event::LeftCourse {}]),
        }
    }

    fn evolve(state: State, event: &Event) -> State {
        match event {
            Event::Enrolled {} => State { courses: 0 },
            Event::JoinedCourse {} => State { courses: state.courses + 1 },
            Event::LeftCourse {} => State { courses: state.courses.saturating_sub(1) },
        }
    }

    /// What other aggregates send needs no authorization.
    fn authorize(_: &Caller, access: Access<'_, Command>, _: Option<&str>, _: Option<&State>) -> Authorization {
        match access {
            Access::Command(Command::JoinCourse {} | Command::LeaveCourse {}) => Authorization::Denied,
            _ => Authorization::Unrestricted,
        }
    }
}

#[cfg(test)]
mod tests {
    use daybook::given::given;

    use super::*;

    #[test]
    fn student_joins_a_limited_number_of_courses() {
        let in_courses = |count| {
            given::<Student>(std::iter::once(Event::Enrolled {}).chain((0..count).map(|_| Event::JoinedCourse {})))
        };
        in_courses(MAX_COURSES - 1).when(Command::JoinCourse {}).then([Event::JoinedCourse {}]);
        in_courses(MAX_COURSES).when(Command::JoinCourse {}).then_rejected("TooManyCourses", []);
        in_courses(MAX_COURSES).when(Command::LeaveCourse {}).then([Event::LeftCourse {}]);
    }

    #[test]
    fn no_caller_joins_a_course_without_a_subscription() {
        let student = given::<Student>([Event::Enrolled {}]).by(Caller::named("ann"));
        student.forbids(Access::Command(&Command::JoinCourse {})).forbids(Access::Command(&Command::LeaveCourse {}));
    }
}
