//! The search for a seed that fails, in a random schedule of actions, and for its shortest schedule that still fails.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use daybook_decider::{Model, personal};
use jiff::SignedDuration;

use crate::fault::Fault;
use crate::random::Random;
use crate::run::{Action, Attempt, Run};
use crate::simulation::Simulation;
use crate::table::ACCEPTED;

/// Maximum schedules that are tried to find a shorter one.
const MAX_TRIALS: usize = 3_000;

/// Maximum answers that the report of a simulation without accepted requests contains.
const MAX_ANSWERS: usize = 5;

/// What schedules have reached.
#[derive(Default)]
struct Found {
    /// The number of the answers to clients, by their texts.
    answers: BTreeMap<String, u64>,
    events: BTreeMap<String, u64>,
}

impl Simulation {
    /// Runs the schedules of the seeds from 0 up to `count`. Panics with the text of the first failure. Otherwise, prints how often
    /// each event was appended, which `cargo test -- --nocapture` shows.
    #[track_caller]
    pub fn seeds(self, count: u64) {
        assert!(count > 0, "`.seeds(0)` tests nothing");
        let mut found = Found::default();
        if let Some(failure) = self.failure_of(count, &mut found) {
            panic!("{failure}");
        }
        eprint!("{}", self.reached(count, &found.events));
    }

    /// Runs the schedule of one seed. Panics with the text of its failure.
    #[track_caller]
    pub fn seed(self, seed: u64) {
        if let Some(failure) = self.failure(seed, &mut Found::default()) {
            panic!("{failure}");
        }
    }

    /// The text of the first failure among the seeds from 0 up to `count`, for a test that expects one.
    pub fn first_failure(&self, count: u64) -> Option<String> {
        self.failure_of(count, &mut Found::default())
    }

    fn failure_of(&self, count: u64, found: &mut Found) -> Option<String> {
        (0..count).find_map(|seed| self.failure(seed, found)).or_else(|| nothing_changes(&found.answers))
    }

    /// How often each event was appended, a line for each aggregate type.
    fn reached(&self, count: u64, events: &BTreeMap<String, u64>) -> String {
        let line = |model: &dyn Model| {
            let names = model.events().iter().map(|event| event.name);
            let (happened, never): (Vec<_>, Vec<_>) = names.partition(|name| events.contains_key(*name));
            let happened = happened.iter().map(|name| format!(", {name} {}", events[*name]));
            let never = never.iter().map(|name| format!(", never {name}"));
            let counts: String = happened.chain(never).collect();
            format!("{count} schedules of {}: {}\n", model.type_name(), counts.trim_start_matches(", "))
        };
        self.registry.iter().map(line).collect()
    }

    /// What a seed finds, with the shortest schedule that still shows it.
    fn failure(&self, seed: u64, found: &mut Found) -> Option<String> {
        let (actions, fault) = self.run_seed(seed, found)?;
        let all = actions.len();
        let shortest = self.shorten(seed, &fault.what, actions);
        let (again, log) = self.replay(seed, &shortest);
        let Fault { what, detail } = again.unwrap_or_else(|| {
            Fault::new(fault.what, "The same actions do not fail again: the code depends on more than its input.\n")
        });
        let (log, left): (String, _) = (log.iter().map(|line| format!("{line}\n")).collect(), shortest.len());
        let alone = format!("`.seed({seed})` in the place of `.seeds(…)` runs this seed alone");
        let text =
            format!("seed {seed}: {what}\n{alone}. Its {all} actions can be shortened to {left}:\n\n{log}\n{detail}");
        Some(personal::shown(&text).into_owned())
    }

    /// The actions of a seed up to the fault, if there is one.
    fn run_seed(&self, seed: u64, found: &mut Found) -> Option<(Vec<Action>, Fault)> {
        let (mut run, mut schedule, mut actions) = (Run::new(self, seed), Schedule::of_seed(seed), Vec::new());
        let mut result = run.set_up();
        while result.is_ok()
            && let Some(action) = schedule.next(self, &run)
        {
            actions.push(action.clone());
            result = run.perform(action);
        }
        let fault = result.and_then(|()| run.come_to_rest()).err();
        run.event_types().for_each(|name| *found.events.entry(name.to_owned()).or_default() += 1);
        run.answers.into_iter().for_each(|answer| *found.answers.entry(answer).or_default() += 1);
        fault.map(|fault| (actions, fault))
    }

    /// Runs these actions. Returns the fault, and what has happened.
    fn replay(&self, seed: u64, actions: &[Action]) -> (Option<Fault>, Vec<String>) {
        let mut run = Run::new(self, seed);
        let result = run.set_up().and_then(|()| actions.iter().try_for_each(|action| run.perform(action.clone())));
        (result.and_then(|()| run.come_to_rest()).err(), run.log)
    }

    /// Leaves out actions, and faults of the actions, as long as the same fault is found.
    fn shorten(&self, seed: u64, what: &str, mut actions: Vec<Action>) -> Vec<Action> {
        let mut trials = 0;
        let mut fails = |actions: &[Action]| {
            trials += 1;
            trials <= MAX_TRIALS && self.replay(seed, actions).0.is_some_and(|fault| fault.what == what)
        };
        // An action that fails no more may make others superfluous.
        loop {
            leave_out(&mut actions, &mut fails);
            if !calm(&mut actions, &mut fails) {
                return actions;
            }
        }
    }
}

/// Leaves out actions, many at once at first.
fn leave_out(actions: &mut Vec<Action>, fails: &mut impl FnMut(&[Action]) -> bool) {
    let mut chunk = actions.len().div_ceil(2);
    while chunk > 0 {
        let (before, mut at) = (actions.len(), 0);
        while at < actions.len() {
            let shorter = [&actions[..at], &actions[(at + chunk).min(actions.len())..]].concat();
            if fails(&shorter) { *actions = shorter } else { at += chunk }
        }
        if chunk > 1 || actions.len() == before {
            chunk /= 2;
        }
    }
}

/// Takes faults out of actions. Returns whether one was.
fn calm(actions: &mut Vec<Action>, fails: &mut impl FnMut(&[Action]) -> bool) -> bool {
    let mut is_calmer = false;
    for index in 0..actions.len() {
        let mut calmer = actions.clone();
        match &mut calmer[index] {
            Action::Send { attempt, .. } | Action::Attempt { attempt, .. } if *attempt != Attempt::Whole => {
                *attempt = Attempt::Whole;
            }
            Action::Deliver { crash: crash @ true, .. } => *crash = false,
            _ => continue,
        }
        if fails(&calmer) {
            (*actions, is_calmer) = (calmer, true);
        }
    }
    is_calmer
}

/// The choices of one seed. Each has likings of its own, so that some schedules have many races, and others late messages.
struct Schedule {
    random: Random,
    actions: u64,
    /// For each kind of action, how often it is chosen.
    weights: [u64; 6],
    /// The longest time that passes at once, in milliseconds.
    longest_wait: u64,
    requests: u64,
}

impl Schedule {
    fn of_seed(seed: u64) -> Self {
        let mut random = Random(seed);
        let (actions, longest_wait) = (5 + random.below(60), 10_u64.pow(2 + random.below(7) as u32));
        let weights = std::array::from_fn(|_| random.below(5));
        Self { random, actions, weights, longest_wait, requests: 0 }
    }

    /// The next action; `None` at the end of the schedule.
    fn next(&mut self, simulation: &Simulation, run: &Run<'_>) -> Option<Action> {
        self.actions = self.actions.checked_sub(1)?;
        let kinds = self.weights.iter().enumerate().flat_map(|(kind, &weight)| (0..weight).map(move |_| kind));
        let kinds: Vec<_> = kinds.chain([5]).collect();
        let mut action = match *self.random.one_of(&kinds) {
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
        if let Some(Action::Deliver { consumer, crash, .. }) = &mut action {
            *crash = !simulation.consumers[*consumer].is_ordered && self.random.below(5) == 0;
        }
        Some(action.unwrap_or_else(|| {
            self.requests += 1;
            let id = format!("client {} (request {})", 1 + self.random.below(simulation.clients), self.requests);
            let request = Box::new((simulation.request)(&mut self.random));
            Action::Send { id, request, attempt: self.attempt() }
        }))
    }

    fn one_of<T>(&mut self, mut all: Vec<T>) -> Option<T> {
        (!all.is_empty()).then(|| all.swap_remove(self.random.below(all.len() as u64) as usize))
    }

    fn attempt(&mut self) -> Attempt {
        use Attempt::{Crash, Delay, LoseAnswer, Whole};
        *self.random.one_of(&[Whole, Whole, Whole, Whole, Delay, Delay, Crash, LoseAnswer])
    }
}

/// The failure of a simulation that tests nothing, because no request of a client has changed anything; with the answers, the most
/// frequent ones first.
fn nothing_changes(answers: &BTreeMap<String, u64>) -> Option<String> {
    if answers.is_empty() || answers.contains_key(ACCEPTED) {
        return None;
    }
    let mut answers: Vec<_> = answers.iter().collect();
    answers.sort_by_key(|(_, count)| Reverse(**count));
    let lines = answers.iter().take(MAX_ANSWERS).map(|(text, count)| format!("\n  {count} times: {text}"));
    let lines: String = lines.collect();
    Some(format!(
        "no request of a client changes anything, so nothing is tested: correct `.clients(…)`. The answers:{lines}"
    ))
}
