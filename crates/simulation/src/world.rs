//! What an invariant sees: the states of the aggregates, the rows of the views and of the consumers.

use std::any::{Any, type_name};
use std::cell::RefCell;
use std::collections::BTreeMap;

use daybook_decider::{Aggregate, AggregateKey, Json};
use daybook_projection::{Projection, Projections};
use jiff::Timestamp;

use crate::consumer::{Consumer, ConsumerCode};
use crate::fault::Fault;
use crate::table::Table;
use crate::view::View;

/// The simulated project at one moment.
pub struct World<'p> {
    pub(crate) now: Timestamp,
    pub(crate) table: Table,
    pub(crate) projections: &'p Projections,
    /// In the order of the projections.
    pub(crate) views: Vec<View>,
    pub(crate) codes: &'p [ConsumerCode],
    /// In the order of the codes.
    pub(crate) consumers: Vec<Consumer>,
    /// What the last invariant has read.
    pub(crate) seen: RefCell<BTreeMap<String, String>>,
}

impl<'p> World<'p> {
    pub(crate) fn new(table: Table, projections: &'p Projections, codes: &'p [ConsumerCode]) -> Self {
        let now = Timestamp::from_second(1_893_456_000).expect("2030 is in the range of a timestamp");
        let views = projections.iter().map(|_| View::default()).collect();
        let consumers = codes.iter().map(Consumer::new).collect();
        Self { now, table, projections, views, codes, consumers, seen: RefCell::default() }
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The states of all aggregates of type `A`, also of deleted ones. Panics if `A` is not simulated.
    pub fn states<A: Aggregate>(&self) -> impl Iterator<Item = &A::State> {
        self.aggregates::<A>().map(|(_, state)| state)
    }

    /// The ids and states of all aggregates of type `A`, also of deleted ones. Panics if `A` is not simulated.
    pub fn aggregates<A: Aggregate>(&self) -> impl Iterator<Item = (&str, &A::State)> {
        self.require::<A>();
        let keys = self.table.streams.keys().filter(|key| key.aggregate_type == A::TYPE);
        keys.filter_map(|key| Some((key.id.as_str(), self.read::<A>(key)?)))
    }

    /// The state of an aggregate, also of a deleted one; `None` if it never existed. Panics if `A` is not simulated.
    pub fn state<A: Aggregate>(&self, id: &str) -> Option<&A::State> {
        self.require::<A>();
        self.read::<A>(&AggregateKey::new(A::TYPE, id))
    }

    fn read<A: Aggregate>(&self, key: &AggregateKey) -> Option<&A::State> {
        let stream = self.table.streams.get(key)?;
        self.saw(format!("{key} at version {}", stream.folded.version()), stream.state.text());
        stream.folded.state::<A>()
    }

    /// The rows of the view of `P`, by key. Panics if `P` is not simulated.
    pub fn rows<P: Projection>(&self) -> BTreeMap<String, P::Row> {
        let mut views = self.projections.iter().zip(&self.views);
        let found = views.find(|(model, _)| (model.name(), model.version()) == (P::NAME, P::VERSION));
        let (model, view) = found.unwrap_or_else(|| panic!("`.projections(…)` has no {} {}", P::NAME, P::VERSION));
        let read = |(key, row): (String, Json)| {
            self.saw(format!("view {}, row {key:?}", P::NAME), row.text());
            row.read().map_or_else(|error| Fault::new(P::NAME, error).raise(), |row| (key, row))
        };
        view.rows(model).unwrap_or_else(Fault::raise).into_iter().map(read).collect()
    }

    /// The rows of a consumer. Panics if there is no consumer of that name with rows of that type.
    pub fn consumer<R: 'static>(&self, name: &str) -> &R {
        let found = self.codes.iter().zip(&self.consumers).find(|(code, _)| code.name == name);
        let rows =
            found.map(|(_, consumer)| &*consumer.rows).unwrap_or_else(|| panic!("no consumer is named {name:?}"));
        self.saw(format!("consumer {name}"), &format!("{rows:?}"));
        (rows as &dyn Any).downcast_ref().unwrap_or_else(|| panic!("the rows of {name} have another type"))
    }

    /// Whether each view has the rows that the projection makes of the same events if it folds the aggregates one after the
    /// other: the order of events of different aggregates must not matter.
    pub fn views_equal_their_folds(&self) -> bool {
        self.projections.iter().zip(&self.views).all(|(model, view)| {
            let mut other = View::default();
            for (key, stream) in &self.table.streams {
                for event in &stream.events[..view.position(key)] {
                    other.fold(model, key, event).unwrap_or_else(Fault::raise);
                }
            }
            let [rows, others] = [view, &other].map(|view| view.rows(model).unwrap_or_else(Fault::raise));
            for key in rows.keys().chain(others.keys()).filter(|key| rows.get(*key) != others.get(*key)) {
                let [row, other] = [&rows, &others].map(|rows| rows.get(key).map_or("no row", Json::text));
                self.saw(format!("view {}, row {key:?}", model.name()), &format!("{row}, but its fold is {other}"));
            }
            rows == others
        })
    }

    #[track_caller]
    fn require<A: Aggregate>(&self) {
        let model = self.table.registry.get(A::TYPE);
        let is_it = model.is_some_and(|model| model.rust_type() == type_name::<A>());
        assert!(is_it, "`simulate(…)` has no {}", type_name::<A>());
    }

    fn saw(&self, name: String, value: &str) {
        self.seen.borrow_mut().insert(name, value.to_owned());
    }
}
