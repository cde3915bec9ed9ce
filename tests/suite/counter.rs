use daybook::{Aggregate, Context, Decision, Rejection};

pub struct Counter;

#[daybook::state]
pub struct State {
    pub left: u32,
}

#[daybook::commands(create = Start)]
pub enum Command {
    Start { from: u32 },
    Tick {},
}

#[daybook::events]
pub enum Event {
    #[event("CounterStarted")]
    Started { from: u32 },
    #[event("CounterTicked")]
    Ticked {},
}

#[daybook::aggregate("counter")]
impl Aggregate for Counter {
    fn decide(state: &State, command: Command, _context: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::Start { from } => Ok(vec![Event::Started { from }]),
            Command::Tick {} if state.left == 0 => Err(Rejection::new("AtZero", "there is nothing left to count")),
            Command::Tick {} => Ok(vec![Event::Ticked {}]),
        }
    }

    fn evolve(state: State, event: &Event) -> State {
        match event {
            Event::Started { from } => State { left: *from },
            Event::Ticked {} => State { left: state.left.saturating_sub(1) },
        }
    }
}

#[cfg(test)]
mod tests {
    use daybook::given::given;
    use daybook::{Access, Caller};

    use super::*;

    #[test]
    fn tick_counts_down_by_one() {
        given::<Counter>([Event::Started { from: 1 }])
            .when(Command::Tick {})
            .then([Event::Ticked {}])
            .announces(["CounterTicked"]);
    }

    #[test]
    fn tick_at_zero_is_rejected() {
        given::<Counter>([Event::Started { from: 0 }]).when(Command::Tick {}).then_rejected("AtZero", []);
    }

    #[test]
    fn everybody_may_read_a_counter() {
        given::<Counter>([Event::Started { from: 1 }]).by(Caller::named("ann")).allows(Access::Read);
    }
}
