//! The random choice of the actions.

use jiff::SignedDuration;

use crate::random::Random;
use crate::run::{Action, Attempt, Run};
use crate::simulation::Simulation;

/// The choices of one seed. Each has likings of its own, so that some schedules have many races, and others late messages.
pub(crate) struct Schedule {
    random: Random,
    actions: u64,
    /// For each kind of action, how often it is chosen.
    weights: [u64; 6],
    /// The longest time that passes at once, in milliseconds.
    longest_wait: u64,
    requests: u64,
}

impl Schedule {
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut random = Random(seed);
        let (actions, longest_wait) = (5 + random.below(60), 10_u64.pow(2 + random.below(7) as u32));
        let weights = std::array::from_fn(|_| random.below(5));
        Self { random, actions, weights, longest_wait, requests: 0 }
    }

    /// The next action; `None` at the end of the schedule.
    pub(crate) fn next(&mut self, simulation: &Simulation, run: &Run<'_>) -> Option<Action> {
        self.actions = self.actions.checked_sub(1)?;
        let kinds = self.weights.iter().enumerate().flat_map(|(kind, &weight)| (0..weight).map(move |_| kind));
        let kinds: Vec<_> = kinds.chain([5]).collect();
        let action = match *self.random.one_of(&kinds) {
            0 => self.one_of(run.requests()).map(|id| Action::Attempt { id, attempt: self.attempt() }),
            1 => self.one_of(run.deliveries(false)),
            2 => self.one_of(run.deliveries(true)),
            3 => self.one_of(run.folds()),
            4 => {
                let wait = 1 + self.random.below(self.longest_wait);
                let wait = Some(SignedDuration::from_millis(wait.cast_signed()));
                let is_for_deadline = run.until_deadline().is_some() && self.random.below(2) == 0;
                Some(Action::Wait(wait.filter(|_| !is_for_deadline)))
            }
            _ => None,
        };
        Some(match action {
            Some(Action::Deliver { consumer, of, seq, .. }) => {
                let crash = !simulation.consumers[consumer].is_ordered && self.random.below(5) == 0;
                Action::Deliver { consumer, of, seq, crash }
            }
            Some(action) => action,
            None => {
                self.requests += 1;
                let id = format!("client {} (request {})", 1 + self.random.below(simulation.clients), self.requests);
                let request = Box::new((simulation.request)(&mut self.random));
                Action::Send { id, request, attempt: self.attempt() }
            }
        })
    }

    fn one_of<T>(&mut self, mut all: Vec<T>) -> Option<T> {
        (!all.is_empty()).then(|| all.swap_remove(self.random.below(all.len() as u64) as usize))
    }

    fn attempt(&mut self) -> Attempt {
        use Attempt::{Crash, Delay, LoseAnswer, Whole};
        *self.random.one_of(&[Whole, Whole, Whole, Whole, Delay, Delay, Crash, LoseAnswer])
    }
}
