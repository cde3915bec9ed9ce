//! What the pages get from a stack on AWS besides its tables: with the clients of AWS.

use std::collections::BTreeMap;

use daybook_console::stack::{
    DeadLetterAction, DeadLetters, Health, QueueDepth, QueuePurpose, Relay, Reply, StackError, StackSource,
};
use daybook_function_runtime::with_causes;
use daybook_operations::health::{health, relay};
use daybook_operations::queues::QueueCounts;
use daybook_operations::signed_calls::{CLOUDWATCH, SignedCalls};
use daybook_operations::stack::{CHANGES_QUEUE, DEAD_LETTERS, REACTIONS_QUEUE};
use daybook_operations::{OperatorError, Stack, StackQueue};
use daybook_table::AggregateKey;
use futures_util::future::try_join_all;

use super::writes::Writes;

/// The stack, and the clients of its queues. The clients that only some pages need are made for these pages: the
/// credentials may lack the permission.
pub(super) struct DeployedStack {
    dead_letters: StackQueue,
    changes: Option<StackQueue>,
    reactions: Option<StackQueue>,
    stack: Stack,
    /// `None` if the console only reads.
    writes: Option<Writes>,
}

impl DeployedStack {
    /// Connects to the queues. Only the dead-letter queue is required.
    pub(super) async fn connect(stack: &Stack, writes: Option<Writes>) -> Result<Self, OperatorError> {
        let dead_letters = stack.queue(DEAD_LETTERS).await?;
        let (changes, reactions) =
            (stack.queue_if_set(CHANGES_QUEUE).await?, stack.queue_if_set(REACTIONS_QUEUE).await?);
        Ok(Self { dead_letters, changes, reactions, stack: stack.clone(), writes })
    }
}

impl StackSource for DeployedStack {
    fn dead_letters(&self, action: DeadLetterAction) -> Reply<'_, DeadLetters> {
        reply(async move {
            let writes = self.writes.as_ref().ok_or_else(|| OperatorError::Usage("use --allow-writes".to_owned()))?;
            writes.handle(action).await
        })
    }

    fn project(&self, aggregate: AggregateKey, event: u64) -> Reply<'_, ()> {
        reply(async move {
            let changes = self.changes.as_ref().ok_or_else(|| OperatorError::Usage(format!("set {CHANGES_QUEUE}")))?;
            changes.send_changed(&BTreeMap::from([(aggregate, event)])).await.map(drop)
        })
    }

    fn queues(&self) -> Reply<'_, Vec<QueueDepth>> {
        reply(async {
            let changes = self.changes.iter().map(|changes| queue(changes, QueuePurpose::Changes));
            let reactions = self.reactions.iter().map(|reactions| queue(reactions, QueuePurpose::Reactions));
            let dead_letters = queue(&self.dead_letters, QueuePurpose::DeadLetters);
            try_join_all(std::iter::once(dead_letters).chain(changes).chain(reactions)).await
        })
    }

    fn dead_letter_queue(&self) -> Reply<'_, QueueDepth> {
        reply(queue(&self.dead_letters, QueuePurpose::DeadLetters))
    }

    fn health(&self) -> Reply<'_, Health> {
        reply(async {
            let unknown =
                || OperatorError::Usage("the name of the stack is not known; use --stack or set STACK".to_owned());
            let stack_name = self.stack.optional("STACK").ok_or_else(unknown)?;
            let cloudwatch = SignedCalls::connect(&self.stack.environment, CLOUDWATCH).await?;
            health(&cloudwatch, &stack_name).await
        })
    }

    fn relay(&self) -> Reply<'_, Relay> {
        reply(relay(&self.stack))
    }
}

/// What a page gets. It shows an error to the person who started the command.
fn reply<'a, T>(result: impl Future<Output = Result<T, OperatorError>> + Send + 'a) -> Reply<'a, T> {
    Box::pin(async { result.await.map_err(|error| StackError(with_causes(&error))) })
}

async fn queue(queue: &StackQueue, purpose: QueuePurpose) -> Result<QueueDepth, OperatorError> {
    let QueueCounts { visible, hidden } = queue.counts().await?;
    Ok(QueueDepth { queue: queue.name(), visible, hidden, purpose })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[tokio::test]
    async fn error_of_a_page_has_all_causes() {
        let source = io::Error::other("the disk is full");
        let failed = async { Err::<(), _>(OperatorError::File { doing: "cannot write it".to_owned(), source }) };
        assert_eq!(reply(failed).await.unwrap_err().to_string(), "cannot write it: the disk is full");
    }
}
