//! Tests of a process: what it does with an event of another aggregate, and with an answer.

use serde::Serialize;

use crate::aggregate::Aggregate;
use crate::folded::CommandRequest;
use crate::given::{Given, TestedDecision};
use crate::process::{Answer, CommandRejection};
use crate::reacts::Reacts;
use crate::record::{FollowedEvent, Meta};

impl<P: Aggregate> Given<P> {
    /// Decides what the process gets for an event of another aggregate, which occurs at the time of the test.
    ///
    /// # Panics
    ///
    /// When the event is no input of this process, or would be skipped.
    #[track_caller]
    pub fn when_event<A: Aggregate>(self, id: &str, event: A::Event) -> TestedDecision<P>
    where
        P: Reacts<A, Command: Clone>,
    {
        let input = self.input::<A>(id, &event);
        let (process, command) = input.unwrap_or_else(|| panic!("the event of {}/{id} is no input", A::TYPE));
        assert_eq!(
            process, self.id,
            "the event is input of the left one, the test is about the right one: use with_id"
        );
        self.when_reacting(&command)
    }

    /// Expects that an event of another aggregate is no input of any process.
    ///
    /// # Panics
    ///
    /// When it is.
    #[track_caller]
    pub fn ignores_event<A: Aggregate>(self, id: &str, event: A::Event) -> Self
    where
        P: Reacts<A>,
    {
        if let Some((process, _)) = self.input::<A>(id, &event) {
            panic!("the event of {}/{id} is input of {process}", A::TYPE);
        }
        self
    }

    /// Decides what the process gets for the answer to a command that it has dispatched: `Ok(())`, or the name of a rejection.
    ///
    /// # Panics
    ///
    /// When it gets nothing, or its command would be skipped.
    #[track_caller]
    pub fn when_answered<A: Aggregate>(
        self,
        aggregate_id: &str,
        command: &A::Command,
        answer: Result<(), &str>,
    ) -> TestedDecision<P>
    where
        P: Reacts<A, Command: Clone>,
    {
        let rejected = answer.err().map(|name| CommandRejection { name: name.to_owned(), detail: name.to_owned() });
        let command = P::answered(&Answer { aggregate_id, command, rejection: rejected.as_ref() });
        self.when_reacting(&command.unwrap_or_else(|| panic!("the process gets nothing for the answer {answer:?}")))
    }

    fn input<A: Aggregate>(&self, aggregate_id: &str, event: &A::Event) -> Option<(String, P::Command)>
    where
        P: Reacts<A>,
    {
        let (seq_num, occurred_at, meta) = (1, self.now, &Meta::default());
        P::input(&FollowedEvent { aggregate_id, seq_num, occurred_at, meta, event })
    }

    #[track_caller]
    fn when_reacting(self, command: &P::Command) -> TestedDecision<P>
    where
        P::Command: Clone + Serialize,
    {
        let command = CommandRequest::of(command).expect("a command has a JSON form");
        let is_creating = command.command == P::COMMANDS.create;
        let is_skipped = P::is_deleted(&self.state) || self.history.is_empty() != is_creating;
        assert!(
            !is_skipped,
            "{} is skipped: the process does not exist, exists already or was deleted",
            command.command
        );
        self.when_sent_by_the_system(&command)
    }
}
