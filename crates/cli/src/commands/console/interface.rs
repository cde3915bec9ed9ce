//! What the pages get from a stack on AWS besides its tables: with the clients of AWS.

use daybook_console::stack::{
    Alarm, DeadLetterAction, DeadLetters, Queue, QueuePurpose, Relay, Reply, StackError, StackSource,
};
use daybook_function_runtime::with_causes;
use daybook_operations::alarms::{AlarmFigures, alarm_figures};
use daybook_operations::queues::{ChangesQueue, QueueCounts};
use daybook_operations::relay::{iterator_age, relay_mappings};
use daybook_operations::signed_calls::{CLOUDWATCH, LAMBDA, SignedCalls};
use daybook_operations::{DeadLetterQueue, OperatorError, Stack};

use super::writes::Writes;

/// The stack, and the clients of its queues. The clients that only some pages need are made for these pages: the
/// credentials may lack the permission.
pub(super) struct DeployedStack {
    dead_letters: DeadLetterQueue,
    dead_letters_name: String,
    changes: Option<(ChangesQueue, String)>,
    stack: Stack,
    /// `None` if the console only reads.
    writes: Option<Writes>,
}

impl DeployedStack {
    /// Connects to the queues. Only the dead-letter queue is required.
    pub(super) async fn connect(stack: &Stack, writes: Option<Writes>) -> Result<Self, OperatorError> {
        let changes = match stack.changes_queue_if_set().await? {
            Some(queue) => Some((queue, name(&stack.required("CHANGES_QUEUE_URL")?))),
            None => None,
        };
        Ok(Self {
            dead_letters: stack.dead_letters().await?,
            dead_letters_name: name(&stack.required("DLQ_URL")?),
            changes,
            stack: stack.clone(),
            writes,
        })
    }

    async fn dead_letter_counts(&self) -> Result<Queue, OperatorError> {
        Ok(queue(&self.dead_letters_name, QueuePurpose::DeadLetters, self.dead_letters.counts().await?))
    }
}

impl StackSource for DeployedStack {
    fn dead_letters(&self, action: DeadLetterAction) -> Reply<'_, DeadLetters> {
        reply(async move {
            let writes = self.writes.as_ref().ok_or_else(|| OperatorError::Usage("use --allow-writes".to_owned()))?;
            writes.handle(action).await
        })
    }

    fn queues(&self) -> Reply<'_, Vec<Queue>> {
        reply(async {
            let changes = async {
                let Some((changes, name)) = &self.changes else { return Ok(None) };
                Ok(Some(queue(name, QueuePurpose::Changes, changes.counts().await?)))
            };
            let (dead_letters, changes) = tokio::try_join!(self.dead_letter_counts(), changes)?;
            Ok(std::iter::once(dead_letters).chain(changes).collect())
        })
    }

    fn dead_letter_queue(&self) -> Reply<'_, Queue> {
        reply(self.dead_letter_counts())
    }

    fn alarms(&self) -> Reply<'_, Vec<Alarm>> {
        reply(async {
            let unknown =
                || OperatorError::Usage("the name of the stack is not known; use --stack or set STACK".to_owned());
            let stack_name = self.stack.optional("STACK").ok_or_else(unknown)?;
            let alarm = |AlarmFigures { name, alarm, points }: AlarmFigures| {
                let text = |name: &str| alarm[name].as_str().unwrap_or_default().to_owned();
                Alarm {
                    name,
                    description: text("AlarmDescription"),
                    state: text("StateValue"),
                    reason: text("StateReason"),
                    threshold: alarm["Threshold"].as_f64(),
                    comparison: text("ComparisonOperator"),
                    latest: points.last().map(|(_, value)| *value),
                }
            };
            let cloudwatch = SignedCalls::connect(&self.stack.environment, CLOUDWATCH).await?;
            Ok(alarm_figures(&cloudwatch, &stack_name).await?.into_iter().map(alarm).collect())
        })
    }

    fn relay(&self) -> Reply<'_, Relay> {
        reply(async {
            let function = self.stack.required("STREAM_RELAY_NAME")?;
            let lambda = SignedCalls::connect(&self.stack.environment, LAMBDA).await?;
            let cloudwatch = SignedCalls::connect(&self.stack.environment, CLOUDWATCH).await?;
            let (mappings, age) =
                tokio::try_join!(relay_mappings(&lambda, &function), iterator_age(&cloudwatch, &function))?;
            Ok(Relay { mappings, iterator_age_ms: age.as_ref().map(|age| age.milliseconds), at: age.map(|age| age.at) })
        })
    }
}

/// What a page gets. It shows an error to the person who started the command.
fn reply<'a, T>(result: impl Future<Output = Result<T, OperatorError>> + Send + 'a) -> Reply<'a, T> {
    Box::pin(async { result.await.map_err(|error| StackError(with_causes(&error))) })
}

fn queue(name: &str, purpose: QueuePurpose, QueueCounts { visible, hidden }: QueueCounts) -> Queue {
    Queue { queue: name.to_owned(), visible, hidden, purpose }
}

/// The name of the queue in its URL.
fn name(url: &str) -> String {
    url.rsplit('/').next().unwrap_or_default().to_owned()
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
