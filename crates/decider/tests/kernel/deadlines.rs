//! Deadlines in decisions: the difference of each, and the command of one that is due.

use daybook_decider::given::given;
use daybook_decider::{
    Access, Addressed, AggregateKey, Caller, CommandError, CommandRequest, DeadlineChanges, Decided, DecisionInput,
    Decisions, DeclaredDeadline, Due, Folded, Involved, JointError, Registry, joint,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::{decision_input, request};
use crate::timer::{Command, Event, Timer};

const ONE: &str = "2026-11-28T10:00:00Z";
const TWO: &str = "2026-11-28T11:00:00.5Z";

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn changes(set: &[(&str, &str)], dropped: &[&str]) -> DeadlineChanges {
    let set = set.iter().map(|(name, due)| ((*name).to_owned(), Due::At(time(due)))).collect();
    DeadlineChanges { set, dropped: dropped.iter().map(|name| (*name).to_owned()).collect() }
}

fn registry() -> Registry {
    Registry::new().with::<Timer>().unwrap()
}

fn unborn() -> Folded {
    registry().get("timer").unwrap().before_first_event()
}

fn decide_all(before: &Folded, commands: &[CommandRequest]) -> Decided {
    registry().get("timer").unwrap().decide(before, "1", commands, &decision_input()).unwrap()
}

fn decide(before: &Folded, name: &str, at: Value) -> Decided {
    decide_all(before, &[request(name, &json!({ "at": at }))])
}

fn stop(before: &Folded) -> Decided {
    decide_all(before, &[request("Stop", &json!({}))])
}

fn declared(after: &Folded) -> Vec<DeclaredDeadline> {
    registry().get("timer").unwrap().deadlines(after).unwrap()
}

#[test]
fn decision_has_the_difference_of_the_deadlines() {
    let started = decide(&unborn(), "Start", json!({"a": ONE, "b": ONE}));
    assert_eq!(started.deadlines, changes(&[("a", ONE), ("b", ONE)], &[]));
    let moved = decide(&started.after, "Set", json!({"b": TWO, "c": ONE}));
    assert_eq!(moved.deadlines, changes(&[("b", TWO), ("c", ONE)], &["a"]));
    let same = decide(&moved.after, "Set", json!({"b": TWO, "c": ONE}));
    assert_eq!((same.events.len(), same.deadlines), (1, DeadlineChanges::default()));
    let stopped = stop(&moved.after);
    assert_eq!(stopped.deadlines, changes(&[], &["b", "c"]));
    assert_eq!(declared(&stopped.after), []);
    assert_eq!(declared(&unborn()), []);

    let declared = declared(&moved.after);
    let declared: Vec<_> = declared.iter().map(|of| (&*of.name, of.due.unwrap(), &*of.command.command)).collect();
    assert_eq!(declared, [("b", time(TWO), "Ring"), ("c", time(ONE), "Ring")]);
    // What the first command of a request sets, the second one drops.
    let batch = [json!({"at": {"d": ONE}}), json!({"at": {"b": ONE}})].map(|data| request("Set", &data));
    assert_eq!(decide_all(&moved.after, &batch).deadlines, changes(&[("b", ONE)], &["c"]));
}

#[test]
fn deadline_that_cannot_be_stored_is_an_error_of_the_aggregate() {
    let many: serde_json::Map<_, _> = (0..21).map(|number| (format!("n{number}"), ONE.into())).collect();
    for (at, reason) in [(json!({"A": ONE}), "the name \"A\" must be"), (many.into(), "it would have 21 deadlines")] {
        let start = request("Start", &json!({ "at": at }));
        let decided = registry().get("timer").unwrap().decide(&unborn(), "1", &[start], &decision_input());
        let error = decided.unwrap_err().to_string();
        assert!(error.contains("a deadline of timer") && error.contains(reason), "{error}");
    }
}

fn due(before: &Folded, name: &str, at: &str, caller: Caller) -> Option<Result<Decisions, JointError>> {
    let input = DecisionInput { caller, ..decision_input() };
    joint::decide_due(&registry(), &AggregateKey::new("timer", "1"), before, (name, time(at)), &input)
}

#[test]
fn command_of_a_deadline_is_decided_while_the_state_declares_it() {
    let started = decide(&unborn(), "Start", json!({"a": ONE, "refuse": ONE, "panic": ONE})).after;
    let rung = due(&started, "a", ONE, Caller::system()).unwrap().unwrap().own;
    assert_eq!((rung.events.len(), rung.deadlines), (1, changes(&[], &["a"])));
    // It has another time, has no such deadline any more, or is deleted.
    assert!(due(&started, "a", TWO, Caller::system()).is_none());
    assert!(due(&rung.after, "a", ONE, Caller::system()).is_none());
    assert!(due(&stop(&started).after, "a", ONE, Caller::system()).is_none());

    let refused = due(&started, "refuse", ONE, Caller::system()).unwrap().unwrap().own;
    assert_eq!((refused.rejection.unwrap().name, refused.events.len()), ("Refused", 0));
    let panicked = due(&started, "panic", ONE, Caller::system()).unwrap().unwrap_err();
    assert!(matches!(panicked.error, CommandError::Panicked(_)), "{panicked:?}");
    // The rules decide who may send it, like any command.
    let forbidden = due(&started, "a", ONE, Caller::named("daybook")).unwrap().unwrap_err();
    assert!(matches!(forbidden.error, CommandError::Forbidden { .. }), "{forbidden:?}");
}

#[test]
fn deadlines_of_all_aggregates_of_a_joint_decision_change() {
    let [one, two] = ["1", "2"].map(|id| AggregateKey::new("timer", id));
    let started = decide(&unborn(), "Start", json!({"a": ONE})).after;
    let both = [request("SetBoth", &json!({"other": "2", "at": {"b": TWO}}))];
    let again = [request("Set", &json!({"at": {"a": ONE}}))];
    let requests = [Addressed::new(&one, &both), Addressed::new(&one, &again)];
    let involved = Involved { aggregates: [(two.clone(), started.clone())].into(), ..Involved::default() };
    let decisions =
        joint::decide(&registry(), &started, &requests, &DecisionInput { involved, ..decision_input() }).unwrap();
    // It was dropped in between.
    assert_eq!(decisions.own.deadlines, changes(&[("a", ONE)], &["b"]));
    assert_eq!(decisions.others.len(), 1);
    assert_eq!((&decisions.others[0].0, &decisions.others[0].1.deadlines), (&two, &changes(&[("b", TWO)], &["a"])));
}

#[test]
fn test_of_a_deadline_decides_its_command_at_its_time_as_the_system() {
    let set =
        |names: &[&str]| Event::TimerSet { at: names.iter().map(|name| ((*name).to_owned(), time(ONE))).collect() };
    given::<Timer>([set(&["a", "b"])]).when_due("a").then_no_deadline("a").then_deadline("b", ONE).then([set(&["b"])]);
    let decided = given::<Timer>([set(&["a", "b"])]).when_due("a").then([set(&["b"])]);
    decided.then_no_deadline("a").then_deadline("b", ONE).announces(["TimerSet"]);
    given::<Timer>([set(&["refuse"])]).when_due("refuse").then_deadline("refuse", ONE).then_rejected("Refused", []);
    given::<Timer>([set(&["a"])]).by(Caller::system()).allows(Access::Command(&Command::Ring { name: "a".into() }));
    given::<Timer>([set(&["a"])]).when(Command::Stop {}).then_no_deadline("a").then([Event::TimerStopped {}]);
}

#[test]
#[should_panic(expected = "left: None")]
fn test_of_a_deadline_after_the_events_fails_if_there_is_none() {
    let set = Event::TimerSet { at: [("a".to_owned(), time(ONE))].into() };
    given::<Timer>([set]).when(Command::Stop {}).then([Event::TimerStopped {}]).then_deadline("a", ONE);
}

#[test]
#[should_panic(expected = "the state has no deadline \"b\"")]
fn test_of_a_deadline_that_the_state_does_not_have_fails() {
    let at = [("a".to_owned(), time(ONE))].into();
    given::<Timer>([Event::TimerSet { at }]).when_due("b").then([]);
}
