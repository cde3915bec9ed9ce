//! Processes: what they get for events of other aggregates and for answers, and the commands that they dispatch.

use daybook_decider::given::{ID, given};
use daybook_decider::{
    Aggregate, AggregateKey, Answer, CommandError, CommandRejection, Commands, Context, Deadline, Decision,
    DeclaredDeadline, Dispatch, Due, EventType, FollowedEvent, Input, Reacts, RegistrationError, Registry, Rejection,
    Source, Sources, StoredEvent, UnreadableKind, Upcast, joint,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{Subject, decision_input, request, stored};

/// A process that begins with a job, and has the dispatches that a command names.
struct Clerk;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct State {
    total: i64,
    dispatch: usize,
    left: bool,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Begin { at: i64 },
    Note { amount: i64, dispatch: usize },
    Refuse {},
    Leave {},
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    #[serde(rename = "ClerkBegan")]
    Began { at: i64 },
    #[serde(rename = "ClerkNoted")]
    Noted { amount: i64, dispatch: usize },
    #[serde(rename = "ClerkLeft")]
    Left {},
}

impl Aggregate for Clerk {
    const TYPE: &'static str = "clerk";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Begin", update: None, delete: Some("Leave") };
    const EVENTS: &'static [EventType] =
        &[EventType::new("ClerkBegan", 1), EventType::new("ClerkNoted", 1), EventType::new("ClerkLeft", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn sources() -> Sources<Self> {
        Sources::of::<Job>()
    }

    fn decide(_: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::Begin { at } => Ok(vec![Event::Began { at }]),
            Command::Note { amount, dispatch } => Ok(vec![Event::Noted { amount, dispatch }]),
            Command::Refuse {} => {
                Err(Rejection::new("Refused", "no").recording(Event::Noted { amount: 0, dispatch: 1 }))
            }
            Command::Leave {} => Ok(vec![Event::Left {}]),
        }
    }

    fn evolve(state: State, event: &Event) -> State {
        match *event {
            Event::Began { at } => State { total: at, ..state },
            Event::Noted { amount, dispatch } => State { total: state.total + amount, dispatch, ..state },
            Event::Left {} => State { left: true, ..state },
        }
    }

    fn deadlines(state: &State) -> Vec<Deadline<Command>> {
        let name = if state.dispatch == 77 { "report-0" } else { "review" };
        vec![Deadline::new(name, Timestamp::UNIX_EPOCH, &Command::Leave {})]
    }

    fn dispatches(state: &State) -> Vec<Dispatch> {
        let (id, count) = match state.dispatch {
            99 => ("a b", 1),
            77 => ("7", 1),
            count => ("7", count),
        };
        let report = JobCommand::Report { total: state.total };
        (0..count).rev().map(|number| Dispatch::new::<Job>(format!("report-{number}"), id, &report)).collect()
    }

    fn is_deleted(state: &State) -> bool {
        state.left
    }
}

impl Reacts<Job> for Clerk {
    fn input(event: &FollowedEvent<'_, JobEvent>) -> Option<(String, Command)> {
        match event.event {
            JobEvent::Opened { at: 13 } => panic!("thirteen"),
            JobEvent::Opened { at: 99 } => Some(("a b".to_owned(), Command::Leave {})),
            JobEvent::Opened { at } => Some((event.aggregate_id.to_owned(), Command::Begin { at: *at })),
            JobEvent::Step { of, amount } => Some((of.clone(), Command::Note { amount: *amount, dispatch: 0 })),
            JobEvent::Reported {} => None,
        }
    }

    fn answered(answer: &Answer<'_, JobCommand>) -> Option<Command> {
        let JobCommand::Report { total } = answer.command else { panic!("only reports are dispatched") };
        assert_eq!(answer.aggregate_id, "7");
        let rejection = answer.rejection?;
        (rejection.name != "Ignored").then_some(Command::Note { amount: -total, dispatch: 0 })
    }
}

/// The source of the process. An old event of it is read as several.
struct Job;

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum JobCommand {
    Open {},
    Report { total: i64 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum JobEvent {
    #[serde(rename = "JobOpened")]
    Opened { at: i64 },
    #[serde(rename = "JobStep")]
    Step { of: String, amount: i64 },
    #[serde(rename = "JobReported")]
    Reported {},
}

impl Aggregate for Job {
    const TYPE: &'static str = "job";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Open", update: None, delete: None };
    const EVENTS: &'static [EventType] =
        &[EventType::new("JobOpened", 1), EventType::new("JobStep", 2), EventType::new("JobReported", 1)];

    type State = ();
    type Command = JobCommand;
    type Event = JobEvent;

    fn decide((): &(), _: JobCommand, _: &Context<'_, JobEvent>) -> Decision<JobEvent> {
        Ok(vec![])
    }

    fn evolve((): (), _: &JobEvent) {}

    fn upcast(event: StoredEvent) -> Upcast {
        let steps: Vec<(String, i64)> = event.read()?;
        steps.iter().map(|(of, amount)| StoredEvent::new("JobStep", 2, &json!({"of": of, "amount": amount}))).collect()
    }
}

fn clerk() -> Subject {
    Subject::beside::<Clerk>(Registry::new().with::<Job>().unwrap())
}

fn source(clerk: &Subject) -> Source {
    *clerk.model().source("job").unwrap()
}

fn input(event_type: &str, version: u32, data: &Value) -> Result<Option<Input>, (UnreadableKind, String)> {
    let input = source(&clerk()).input("7", &stored(3, event_type, version, data));
    input.map_err(|error| (error.kind, error.reason))
}

fn of_clerk(id: &str, commands: &[(&str, Value)]) -> Input {
    let commands = commands.iter().map(|(command, data)| request(command, data)).collect();
    Input { process: AggregateKey::new("clerk", id), commands }
}

#[test]
fn stored_event_of_a_source_is_read_as_input() {
    assert_eq!(input("JobOpened", 1, &json!({"at": 5})), Ok(Some(of_clerk("7", &[("Begin", json!({"at": 5}))]))));
    assert_eq!(input("JobReported", 1, &json!({})), Ok(None));
    let note = |amount| ("Note", json!({"amount": amount, "dispatch": 0}));
    let both = of_clerk("a", &[note(1), note(2)]);
    assert_eq!(input("JobStep", 1, &json!([["a", 1], ["a", 2]])), Ok(Some(both)), "it is read as two events");
    assert_eq!(input("JobStep", 1, &json!([])), Ok(None), "it is read as no event");
}

#[test]
fn event_that_is_no_valid_input_is_an_error() {
    let wrong = |event_type, version, data| input(event_type, version, &data).unwrap_err();
    assert_eq!(wrong("JobStep", 3, json!({})).0, UnreadableKind::Newer);
    assert_eq!(wrong("JobOpened", 1, json!({})).0, UnreadableKind::Corrupt);
    let (kind, reason) = wrong("JobOpened", 1, json!({"at": 13}));
    assert_eq!(kind, UnreadableKind::Panicked);
    assert!(reason.starts_with("input of clerk panicked at ") && reason.ends_with(": thirteen"), "{reason}");
    let (_, reason) = wrong("JobOpened", 1, json!({"at": 99}));
    assert_eq!(reason, format!("a command to clerk/a b: {}", daybook_decider::aggregate_key::ID_RULE));
    let (_, reason) = wrong("JobStep", 1, json!([["a", 1], ["b", 2]]));
    assert_eq!(reason, "it is read as several events, which are input of several processes of clerk");
}

#[test]
fn answer_is_read_as_a_command_of_the_process() {
    let source = source(&clerk());
    let rejected = |name: &str| CommandRejection { name: name.into(), detail: String::new() };
    let report = request("Report", &json!({"total": 4}));
    let answered = |name: &str| source.answered("7", &report, Some(&rejected(name)));
    assert_eq!(source.answered("7", &report, None), Ok(None));
    assert_eq!(answered("Ignored"), Ok(None));
    assert_eq!(answered("Closed"), Ok(Some(request("Note", &json!({"amount": -4, "dispatch": 0})))));
    let panicked = source.answered("7", &request("Open", &json!({})), None).unwrap_err();
    assert!(panicked.starts_with("answered of clerk panicked at "), "{panicked}");
    let unreadable = source.answered("7", &request("Report", &json!({"sum": 4})), None).unwrap_err();
    assert!(unreadable.contains("sum"), "{unreadable}");
}

fn report(number: usize, total: i64) -> DeclaredDeadline {
    let to = Some(AggregateKey::new("job", "7"));
    let command = request("Report", &json!({ "total": total }));
    DeclaredDeadline { name: format!("report-{number}"), due: None, to, command }
}

fn note(amount: i64, dispatch: usize) -> (&'static str, Value) {
    ("Note", json!({"amount": amount, "dispatch": dispatch}))
}

#[test]
fn state_declares_what_is_dispatched_and_each_name_is_set_when_it_appears() {
    let clerk = clerk();
    let began = clerk.after(&[("Begin", json!({"at": 5}))]);
    let names = |set: &[(String, Due)]| set.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let noted = clerk.decide(&began, &[note(1, 1), note(2, 2)]).unwrap();
    assert_eq!(names(&noted.deadlines.set), ["report-1", "report-0"], "in their order");
    assert!(noted.deadlines.set.iter().all(|(_, due)| matches!(due, Due::Now(_))), "{:?}", noted.deadlines);
    let declared = clerk.model().deadlines(&noted.after).unwrap();
    assert_eq!(declared[0].name, "review", "deadlines come first");
    assert_eq!(declared[1..], [report(1, 8), report(0, 8)]);

    let more = clerk.decide(&noted.after, &[note(1, 3)]).unwrap();
    assert_eq!(names(&more.deadlines.set), ["report-2"]);
    let fewer = clerk.decide(&more.after, &[note(1, 1)]).unwrap().deadlines;
    assert_eq!((fewer.set, fewer.dropped), (vec![], vec!["report-2".to_owned(), "report-1".to_owned()]));
    let recorded = clerk.decide(&began, &[("Refuse", json!({}))]).unwrap();
    assert_eq!(names(&recorded.deadlines.set), ["report-0"], "also by an event that records a rejection");
    let left = clerk.decide(&noted.after, &[("Leave", json!({}))]).unwrap();
    assert_eq!((left.deadlines.set.len(), left.deadlines.dropped.len()), (0, 3));
    assert_eq!(clerk.model().deadlines(&left.after).unwrap(), []);
}

#[test]
fn dispatch_is_not_decided_as_a_deadline() {
    let clerk = clerk();
    let noted = clerk.after(&[("Begin", json!({"at": 5})), note(1, 1)]);
    let registry = Registry::new().with::<Job>().unwrap().with::<Clerk>().unwrap();
    let due = |name| {
        let (key, at) = (AggregateKey::new("clerk", "1"), Timestamp::UNIX_EPOCH);
        joint::decide_due(&registry, &key, &noted, (name, at), &decision_input())
    };
    assert!(due("report-0").is_none());
    due("review").unwrap().unwrap();
}

#[test]
fn dispatches_that_cannot_be_stored_are_an_error() {
    let clerk = clerk();
    let began = clerk.after(&[("Begin", json!({"at": 5}))]);
    assert_eq!(clerk.decide(&began, &[note(1, 19)]).unwrap().deadlines.set.len(), 19);
    for (dispatch, expected) in [
        (20, "it would have 21 deadlines and dispatches, the maximum is 20"),
        (77, "the name \"report-0\" occurs twice"),
        (99, "the command of report-0: a command to job/a b: an id has"),
    ] {
        let CommandError::Unwritable { event, reason } = clerk.decide(&began, &[note(1, dispatch)]).unwrap_err() else {
            panic!("it is unwritable")
        };
        assert_eq!(event, "a deadline of clerk");
        assert!(reason.starts_with(expected), "{reason}");
    }
}

#[test]
fn tests_of_a_process_follow_its_input() {
    let began = || Event::Began { at: 5 };
    given::<Clerk>([]).when_event::<Job>(ID, JobEvent::Opened { at: 5 }).then([began()]).dispatches([]);
    given::<Clerk>([began()]).ignores_event::<Job>(ID, JobEvent::Reported {});
    given::<Clerk>([began()])
        .with_id("a")
        .when_event::<Job>("7", JobEvent::Step { of: "a".into(), amount: 2 })
        .then([Event::Noted { amount: 2, dispatch: 0 }]);
    given::<Clerk>([began()])
        .when_answered::<Job>("7", &JobCommand::Report { total: 5 }, Err("Closed"))
        .then([Event::Noted { amount: -5, dispatch: 0 }]);
    given::<Clerk>([began()])
        .when(Command::Note { amount: 1, dispatch: 1 })
        .then([Event::Noted { amount: 1, dispatch: 1 }])
        .dispatches([Dispatch::new::<Job>("report-0", "7", &JobCommand::Report { total: 6 })]);
    given::<Clerk>([began(), Event::Noted { amount: 1, dispatch: 1 }])
        .when(Command::Note { amount: 1, dispatch: 1 })
        .then([Event::Noted { amount: 1, dispatch: 1 }])
        .dispatches([]);
}

#[test]
#[should_panic(expected = "Note is skipped")]
fn test_of_an_input_that_would_be_skipped_fails() {
    let step = JobEvent::Step { of: ID.into(), amount: 2 };
    given::<Clerk>([]).when_event::<Job>("7", step).then([Event::Noted { amount: 2, dispatch: 0 }]);
}

#[test]
#[should_panic(expected = "a command to job/a b: an id has 1 to 128 ASCII letters")]
fn test_that_expects_a_dispatch_to_no_id_fails() {
    let noted = Event::Noted { amount: 1, dispatch: 0 };
    let decided = given::<Clerk>([Event::Began { at: 5 }]).when(Command::Note { amount: 1, dispatch: 0 }).then([noted]);
    decided.dispatches([Dispatch::new::<Job>("report-0", "a b", &JobCommand::Report { total: 6 })]);
}

#[test]
#[should_panic(expected = "\"a b\" cannot be an id: an id has 1 to 128 ASCII letters")]
fn test_that_expects_a_command_to_no_id_fails() {
    let noted = Event::Noted { amount: 1, dispatch: 0 };
    let decided = given::<Clerk>([Event::Began { at: 5 }]).when(Command::Note { amount: 1, dispatch: 0 }).then([noted]);
    decided.sends::<Job>("a b", &JobCommand::Report { total: 6 });
}

#[test]
#[should_panic(expected = "it would have 22 deadlines and dispatches")]
fn test_of_a_decision_that_dispatches_too_much_fails() {
    let noted = Event::Noted { amount: 1, dispatch: 21 };
    given::<Clerk>([Event::Began { at: 5 }]).when(Command::Note { amount: 1, dispatch: 21 }).then([noted]);
}

/// An aggregate that dispatches: with its source twice, or with none.
struct Other<const HAS_SOURCES: bool>;

impl<const HAS_SOURCES: bool> Aggregate for Other<HAS_SOURCES> {
    const TYPE: &'static str = Clerk::TYPE;
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Clerk::COMMANDS;
    const EVENTS: &'static [EventType] = Clerk::EVENTS;

    type State = State;
    type Command = Command;
    type Event = Event;

    fn sources() -> Sources<Self> {
        if HAS_SOURCES { Sources::of::<Job>().and::<Job>() } else { Sources::none() }
    }

    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        Clerk::decide(state, command, context)
    }

    fn evolve(state: State, event: &Event) -> State {
        Clerk::evolve(state, event)
    }

    fn dispatches(_: &State) -> Vec<Dispatch> {
        vec![Dispatch::new::<Job>("report", "7", &JobCommand::Open {})]
    }
}

impl<const HAS_SOURCES: bool> Reacts<Job> for Other<HAS_SOURCES> {
    fn input(event: &FollowedEvent<'_, JobEvent>) -> Option<(String, Command)> {
        Clerk::input(event)
    }
}

#[test]
fn source_of_a_process_is_registered_before_it_and_once() {
    let reason = |registered: Result<Registry, RegistrationError>| registered.err().unwrap().reason;
    let rust_type = std::any::type_name::<Job>();
    assert_eq!(
        reason(Registry::new().with::<Clerk>()),
        format!(r#"its source "job" is not registered: add .with::<{rust_type}>() before this type"#)
    );
    let twice = Registry::new().with::<Job>().unwrap().with::<Other<true>>();
    assert_eq!(reason(twice), r#"sources() contains "job" twice"#);
}

#[test]
fn aggregate_without_sources_dispatches_nothing() {
    let other = Subject::of::<Other<false>>();
    let error = other.decide(&other.unborn(), &[("Begin", json!({"at": 1}))]).unwrap_err();
    let reason = "it dispatches report, but sources() is empty, so it is no process: list what it reacts to";
    assert_eq!(error, CommandError::Unwritable { event: "a deadline of clerk".to_owned(), reason: reason.to_owned() });
}
