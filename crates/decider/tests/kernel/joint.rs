//! Decisions over several aggregates, as pure functions.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use daybook_decider::joint::decide;
use daybook_decider::{
    Addressed, AggregateKey, ClaimChanges, CommandError, CommandRequest, Decisions, Folded, Involved, JointError, Need,
    Registry,
};
use serde_json::{Value, json};

use self::node::{Node, State, tag_claim};
use crate::counter::Counter;
use crate::support::{NOW, at, names, request};

#[expect(unreachable_pub, reason = "it is a module of the support of all tests")]
#[path = "../../../../tests/support/src/node.rs"]
mod node;

/// Nodes, and what a store does for a decision over them.
struct World {
    registry: Registry,
    nodes: BTreeMap<AggregateKey, Folded>,
    holders: BTreeMap<String, &'static str>,
    /// What was asked for, in rounds.
    asked: Vec<Vec<Need>>,
    /// The number of decisions, so that each has ids of its own.
    decided: u128,
}

fn key(id: &str) -> AggregateKey {
    AggregateKey::new("node", id)
}

fn addressed(to: AggregateKey, commands: Vec<CommandRequest>) -> Addressed<'static> {
    Addressed { to: Cow::Owned(to), commands: commands.into() }
}

fn to(id: &str, command: &str, data: Value) -> Addressed<'static> {
    addressed(key(id), vec![request(command, &data)])
}

impl World {
    /// Nodes that exist, each with a total of 1.
    fn of(ids: &[&str]) -> Self {
        let registry = Registry::new().with::<Node>().unwrap().with::<Counter>().unwrap();
        let mut world =
            Self { registry, nodes: BTreeMap::new(), holders: BTreeMap::new(), asked: Vec::new(), decided: 0 };
        for id in ids {
            let made = world.decide(&[to(id, "Make", json!({"add": [1]}))]).unwrap();
            world.nodes.insert(key(id), made.own.after);
        }
        world.asked.clear();
        world
    }

    fn tagged(mut self, id: &'static str, tags: &[&str]) -> Self {
        let tagged = self.decide(&[to(id, "Do", json!({ "tags": tags }))]).unwrap();
        self.nodes.insert(key(id), tagged.own.after);
        self.holders.extend(tags.iter().map(|tag| ((*tag).to_owned(), id)));
        self.asked.clear();
        self
    }

    fn before(&self, key: &AggregateKey) -> Folded {
        let unborn = || self.registry.get("node").unwrap().before_first_event();
        self.nodes.get(key).cloned().unwrap_or_else(unborn)
    }

    /// Decides, and reads what the decision needs.
    fn decide(&mut self, requests: &[Addressed]) -> Result<Decisions, JointError> {
        self.decided += 1;
        let mut input = at(NOW, self.decided * 0x9e37_79b9_7f4a_7c15 % (1 << 79));
        loop {
            match decide(&self.registry, &self.before(&requests[0].to), requests, &input) {
                Err(JointError { error: CommandError::Needs(needs), .. }) => {
                    for need in &needs {
                        match need {
                            Need::Aggregate(key) => {
                                drop(input.involved.aggregates.insert(key.clone(), self.before(key)))
                            }
                            Need::Holder(claim) => {
                                let holder = self.holders.get(claim.value()).map(|id| key(id));
                                input.involved.holders.insert(claim.clone(), holder);
                            }
                        }
                    }
                    self.asked.push(needs);
                }
                decided => return decided,
            }
        }
    }

    /// The result, as each aggregate with its state.
    fn states(&mut self, requests: &[Addressed]) -> Vec<(String, State)> {
        let decisions = self.decide(requests).unwrap();
        assert_eq!(decisions.own.rejection, None);
        let own = (requests[0].to.id.clone(), decisions.own.state.read().unwrap());
        let others = decisions.others.iter().map(|(key, decided)| (key.id.clone(), decided.state.read().unwrap()));
        std::iter::once(own).chain(others).collect()
    }

    fn totals(&mut self, requests: &[Addressed]) -> Vec<(String, i64)> {
        self.states(requests).into_iter().map(|(id, state)| (id, state.total)).collect()
    }

    fn error(&mut self, requests: &[Addressed]) -> JointError {
        self.decide(requests).unwrap_err()
    }
}

fn owned<const N: usize>(totals: [(&str, i64); N]) -> Vec<(String, i64)> {
    totals.map(|(id, total)| (id.to_owned(), total)).to_vec()
}

/// A command that sends another one.
fn sends(id: &str, data: Value) -> Value {
    json!({"add": [1], "send": [[id, {"command": "Do", "data": data}]]})
}

#[test]
fn each_command_is_decided_on_the_state_after_those_before_it() {
    let mut world = World::of(&["a", "b", "c"]);
    let looks = |id: &str| json!({"look": [id], "add": [10]});
    let states = world.states(&[to("a", "Do", looks("b")), to("b", "Do", looks("a")), to("a", "Do", looks("b"))]);
    let seen: Vec<_> = states.into_iter().map(|(id, state)| (id, state.total, state.seen)).collect();
    assert_eq!(seen, [("a".to_owned(), 21, vec![Some(11)]), ("b".to_owned(), 11, vec![Some(11)])]);
    // After each command follow those that it sends, each with its own.
    let chain = sends("b", sends("c", json!({"look": ["a", "b", "new"], "add": [100]})));
    let states = world.states(&[to("a", "Do", chain), to("b", "Do", json!({"add": [1000]}))]);
    assert_eq!(states[2].1.seen, [Some(2), Some(2), None]);
    assert_eq!(
        states.into_iter().map(|(id, state)| (id, state.total)).collect::<Vec<_>>(),
        owned([("a", 2), ("b", 1002), ("c", 101)])
    );
    // A batch to one aggregate too.
    let batch =
        vec![request("Do", &sends("b", json!({"add": [5]}))), request("Do", &json!({"look": ["b"], "add": [1]}))];
    let states = world.states(&[addressed(key("a"), batch)]);
    assert_eq!(states[0].1.seen, [Some(6)]);
}

#[test]
fn aggregates_that_are_not_known_are_asked_for_together() {
    let mut world = World::of(&["a", "b", "c", "d"]);
    let request = [to("a", "Do", json!({"look": ["b", "c"]})), to("d", "Do", json!({"add": [1]}))];
    world.decide(&request).unwrap();
    assert_eq!(world.asked, [["b", "c", "d"].map(|id| Need::Aggregate(key(id)))]);
    // An aggregate that is created is not read, unless the decision depends on that.
    world.asked.clear();
    assert_eq!(
        world.totals(&[to("a", "Do", json!({"add": [1]})), to("e", "Make", json!({}))]),
        owned([("a", 2), ("e", 0)])
    );
    assert_eq!(world.asked, [[]; 0]);
    assert_eq!(
        world
            .decide(&[to("a", "Do", json!({})), to("e", "Make", json!({"most": -1}))])
            .unwrap()
            .own
            .rejection
            .unwrap()
            .name,
        "TooMuch"
    );
    assert_eq!(world.asked, [[Need::Aggregate(key("e"))]]);
    let error = world.error(&[to("a", "Do", json!({})), to("b", "Make", json!({"most": -1}))]);
    assert_eq!(
        (error.aggregate.map(|key| *key), error.index, error.error),
        (Some(key("b")), Some(1), CommandError::Exists { index: 0 })
    );
}

#[test]
fn rejection_keeps_only_the_events_that_record_it() {
    let mut world = World::of(&["a", "b", "c"]);
    let rejected = |records: bool| json!({"most": 0, "records": records});
    // By the own aggregate, another one, and one at the end of a chain. Each has changed before.
    let own = [to("a", "Do", json!({"add": [1]})), to("b", "Do", json!({"add": [1]})), to("a", "Do", rejected(true))];
    let decisions = world.decide(&own).unwrap();
    let rejection = decisions.own.rejection.clone().unwrap();
    assert_eq!((rejection.index, rejection.by), (2, None));
    assert_eq!((names(&decisions.own), decisions.own.events[0].seq_num), (vec!["NodeRefused"], 3));
    assert!(decisions.others.is_empty());

    let other = [to("a", "Do", json!({"add": [1]})), to("b", "Do", json!({"add": [1]})), to("b", "Do", rejected(true))];
    let chained = [
        to("a", "Do", json!({})),
        to("a", "Do", sends("b", json!({"add": [1], "send": [["b", {"command": "Do", "data": rejected(true)}]]}))),
    ];
    for (request, index) in [(&other[..], 2), (&chained, 1)] {
        let decisions = world.decide(request).unwrap();
        let rejection = decisions.own.rejection.clone().unwrap();
        assert_eq!((rejection.name, rejection.index, rejection.by), ("TooMuch", index, Some(key("b"))));
        assert_eq!((decisions.own.events.len(), decisions.own.after.version()), (0, 2));
        let [(by, recorded)] = &decisions.others[..] else { panic!("{decisions:?}") };
        assert_eq!((by, names(recorded), recorded.events[0].seq_num), (&key("b"), vec!["NodeRefused"], 3));
        assert_eq!(recorded.state.read::<State>().unwrap().total, 1);
    }
    let unrecorded = world.decide(&[to("a", "Do", sends("b", rejected(false)))]).unwrap();
    assert_eq!(unrecorded.others[0].1.events, []);
    // What does not exist records nothing.
    let of_new = to("new", "Make", json!({"most": -1, "records": true}));
    let unborn = world.decide(&[to("a", "Do", json!({})), of_new]).unwrap();
    assert_eq!((unborn.own.rejection.is_some(), unborn.others[0].1.events.len()), (true, 0));
}

#[test]
fn errors_name_the_command_and_its_aggregate() {
    let mut world = World::of(&["a", "b"]);
    let error = world.error(&[to("a", "Do", json!({})), to("a", "Do", json!({"none": 1}))]);
    assert_eq!((error.aggregate.map(|key| *key), error.index), (None, Some(1)));
    let error = world.error(&[to("a", "Do", json!({})), to("b", "None", json!({}))]);
    assert_eq!((error.aggregate.map(|key| *key), error.index), (Some(key("b")), Some(1)));
    let missing = json!({"send": [["x", {"command": "Close", "data": {}}]]});
    let error = world.error(&[to("a", "Do", json!({})), to("b", "Do", missing)]);
    assert_eq!((error.aggregate.map(|key| *key), error.error), (Some(key("x")), CommandError::Missing));
    let error = world.error(&[to("a", "Do", sends("b", json!({"panics": true})))]);
    assert_eq!(error.aggregate.clone().map(|key| *key), Some(key("b")));
    assert!(matches!(error.error, CommandError::Panicked(_)), "{error:?}");
    let closed = [to("a", "Do", json!({})), to("b", "Close", json!({})), to("b", "Do", json!({}))];
    assert_eq!(world.error(&closed).error, CommandError::Deleted);
    let unknown = addressed(AggregateKey::new("ghost", "1"), vec![request("Do", &json!({}))]);
    let error = world.error(&[to("a", "Do", json!({})), unknown]);
    assert!(
        error.to_string().contains("a command to ghost/1 cannot be written: its type is not registered"),
        "{error}"
    );
}

#[test]
fn ids_that_no_aggregate_can_have_are_those_of_missing_ones() {
    let mut world = World::of(&["a"]);
    let long = "x".repeat(129);
    for id in ["", ".", "a/b", "a#b", "ä", &long] {
        let creation = json!({"send": [[id, {"command": "Make", "data": {}}]]});
        for sends in [sends(id, json!({})), creation] {
            let error = world.error(&[to("a", "Do", sends)]);
            assert_eq!((error.aggregate.map(|key| *key), error.error), (Some(key(id)), CommandError::Missing));
        }
        let states = world.states(&[to("a", "Do", json!({"look": [id], "find": [""], "add": [1]}))]);
        assert_eq!(states[0].1.seen, [None, None]);
    }
    assert_eq!(world.asked, [[]; 0]);
}

#[test]
fn aggregate_that_involves_itself_sees_the_state_that_it_decides_on() {
    let mut world = World::of(&["a"]).tagged("a", &["x"]);
    let looks = json!({"look": ["a"], "find": ["x"], "add": [10]});
    assert_eq!(world.states(&[to("a", "Do", looks.clone())])[0].1.seen, [Some(1), Some(1)]);
    let to_itself = json!({"add": [1], "send": [["a", {"command": "Do", "data": looks}]]});
    let [(id, state)] = &world.states(&[to("a", "Do", to_itself)])[..] else { panic!("one part") };
    assert_eq!((id.as_str(), state.total, &state.seen), ("a", 12, &vec![Some(2), Some(2)]));
    assert!(world.asked.iter().flatten().all(|need| *need != Need::Aggregate(key("a"))));
}

#[test]
fn claims_follow_the_decisions_of_the_request() {
    let mut world = World::of(&["a", "b", "c"]).tagged("a", &["x"]).tagged("b", &["y"]);
    let find = |tag: &str| to("c", "Do", json!({"find": [tag], "add": [1]}));
    let tags = |id: &str, tags: &[&str]| to(id, "Do", json!({ "tags": tags }));
    // The exchange, and who is found by a tag between its two parts and after them.
    let seen = |world: &mut World, requests: &[Addressed]| {
        world.states(requests).into_iter().find(|(id, _)| id == "c").unwrap().1.seen
    };
    let grow = to("b", "Do", json!({"add": [4]}));
    assert_eq!(seen(&mut world, &[grow.clone(), find("x")]), [Some(1)]);
    assert_eq!(seen(&mut world, &[grow.clone(), tags("a", &[]), find("x")]), [None]);
    assert_eq!(seen(&mut world, &[grow.clone(), tags("a", &["y"]), tags("b", &["x"]), find("x")]), [Some(5)]);
    assert_eq!(seen(&mut world, &[grow, tags("b", &["x", "y"]), tags("a", &[]), find("x")]), [Some(5)]);
    let decisions = world.decide(&[tags("a", &["y"]), tags("b", &["x"]), tags("a", &["y", "z"])]).unwrap();
    let changes = |taken: &[&str], released: &[&str]| ClaimChanges {
        taken: taken.iter().map(|tag| tag_claim(tag)).collect(),
        released: released.iter().map(|tag| tag_claim(tag)).collect(),
    };
    assert_eq!(decisions.own.claims, changes(&["y", "z"], &["x"]));
    assert_eq!(decisions.others[0].1.claims, changes(&["x"], &["y"]));
    // What is taken and released again does not change.
    let decisions = world.decide(&[tags("a", &["x", "z"]), tags("b", &["y"]), tags("a", &["x"])]).unwrap();
    assert_eq!(decisions.own.claims, ClaimChanges::default());
}

#[test]
fn events_and_messages_of_all_parts_have_numbers_of_their_own_and_ids_of_the_whole() {
    let mut world = World::of(&["a", "b", "c"]);
    let chain = json!({"add": [1, 2], "send": [
        ["b", {"command": "Do", "data": {"add": [1, 2]}}], ["a", {"command": "Do", "data": {"add": [3]}}],
        ["c", {"command": "Do", "data": {"add": [1]}}], ["d", {"command": "Make", "data": {"add": [1]}}],
    ]});
    let decisions = world.decide(&[to("a", "Do", chain), to("b", "Do", json!({"add": [5]}))]).unwrap();
    let own = (key("a"), decisions.own);
    let mut ids = BTreeSet::new();
    let mut count = 0;
    for (of, decided) in std::iter::once(own).chain(decisions.others) {
        let before = world.before(&of);
        let numbers: Vec<_> = decided.events.iter().map(|event| event.seq_num).collect();
        assert_eq!(numbers, (before.version() + 1..=decided.after.version()).collect::<Vec<_>>(), "{of}");
        let messages: Vec<_> = decided.messages.iter().map(|message| message.message_seq).collect();
        assert_eq!(messages, (before.message_seq() + 1..=decided.after.message_seq()).collect::<Vec<_>>(), "{of}");
        let of_events: Vec<_> = decided.events.iter().map(|event| event.event_id).collect();
        assert!(of_events.is_sorted() && before.last_event().is_none_or(|last| last.event_id < of_events[0]), "{of}");
        count += of_events.len() + decided.messages.len();
        ids.extend(of_events);
        ids.extend(decided.messages.iter().map(|message| message.message_id));
    }
    assert_eq!(ids.len(), count);
}

#[test]
fn limits_of_what_one_decision_involves() {
    let ids = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10", "n11"];
    // Each has its id as a tag.
    let mut world = ids.into_iter().fold(World::of(&ids), |world, id| world.tagged(id, &[id]));
    let look = |others: usize| to("n0", "Do", json!({"look": ids[1..=others], "add": [1]}));
    assert_eq!(world.totals(&[look(Involved::MAX)]).len(), 1);
    assert_eq!(world.error(&[look(Involved::MAX + 1)]).error, CommandError::TooManyInvolved);
    let each = |count: usize| ids[..count].iter().map(|id| to(id, "Do", json!({"add": [1]}))).collect::<Vec<_>>();
    assert_eq!(world.totals(&each(Involved::MAX + 1)).len(), 11);
    assert_eq!(world.error(&each(Involved::MAX + 2)).error, CommandError::TooManyInvolved);
    let made: Vec<_> = (0..12).map(|number| to(&format!("new{number}"), "Make", json!({}))).collect();
    assert_eq!(world.error(&made).error, CommandError::TooManyInvolved);
    // One that is created counts once, also when a later one is rejected.
    let rejected = to("new9", "Make", json!({"add": [1], "most": 0}));
    assert!(world.decide(&[&made[..7], &[rejected]].concat()).unwrap().own.rejection.is_some());
    // A claim counts once with its holder, also if that releases it, and alone if it is free.
    let find = |tags: &[&str], sent: Value| {
        to("n0", "Do", json!({"find": tags, "add": [1], "send": [["n1", {"command": "Do", "data": sent}]]}))
    };
    for sent in [json!({}), json!({"tags": []})] {
        assert_eq!(world.totals(&[find(&ids[1..=10], sent.clone())]).len(), 2);
        assert_eq!(world.error(&[find(&ids[1..=11], sent.clone())]).error, CommandError::TooManyInvolved);
        let one_free = [&ids[1..=10], &["free"]].concat();
        assert_eq!(world.error(&[find(&one_free, sent)]).error, CommandError::TooManyInvolved);
    }
    let both = |others: usize, tag: &str| to("n0", "Do", json!({"look": ids[1..=others], "find": [tag], "add": [1]}));
    assert_eq!([world.totals(&[both(10, "n1")]), world.totals(&[both(9, "free")])].map(|totals| totals.len()), [1, 1]);
    assert_eq!(world.error(&[both(10, "free")]).error, CommandError::TooManyInvolved);
    // A circle of commands ends, and so does what is too much for one transaction; the last aggregate is named.
    let error = world.error(&[to("n0", "Do", json!({"ping": "n1"}))]);
    assert!(error.error == CommandError::TooMany && error.aggregate.is_some(), "{error:?}");
    let half = |add: usize, length: usize| json!({"add": vec![1; add], "length": length});
    let halves = |add: usize, length: usize| [to("n0", "Do", half(add, length)), to("n1", "Do", half(add, length))];
    assert_eq!(world.totals(&halves(24, 0)).len(), 2);
    let error = world.error(&halves(25, 0));
    assert_eq!((error.error, error.aggregate.map(|key| *key)), (CommandError::TooMany, Some(key("n1"))));
    let error = world.error(&halves(2, 700_000));
    assert_eq!((error.error, error.aggregate.map(|key| *key)), (CommandError::TooLarge, Some(key("n1"))));
}
