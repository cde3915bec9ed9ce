//! `daybook console`: the console of a deployed stack, and what its pages get from AWS besides the tables. `writes`: what they can
//! change.

mod writes;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Redirect;
use axum::routing::get;
use clap::Args;
use daybook_console::stack::{
    DeadLetterAction, DeadLetters, Health, QueueDepth, QueuePurpose, Relay, Reply, StackError, StackSource,
};
use daybook_console::{Console, ConsoleAccess, StackKind, Views, new_token};
use daybook_function_runtime::with_causes;
use daybook_local_aws::server::Server;
use daybook_operations::health::{health, relay};
use daybook_operations::queues::QueueCounts;
use daybook_operations::signed_calls::{CLOUDWATCH, SignedCalls};
use daybook_operations::stack::{CHANGES_QUEUE, DEAD_LETTERS, REACTIONS_QUEUE, SETTINGS_TO_FIND};
use daybook_operations::{Stack, StackQueue, check_shards};
use daybook_table::AggregateKey;
use futures_util::future::try_join_all;
use tokio::net::TcpListener;

use self::writes::{RunningCommands, Writes};
use crate::operator::{Ended, Exit, OperatorError, STACK_HELP, Session, StackArgs};

/// How long open requests may continue after Ctrl-C.
const GRACE: Duration = Duration::from_secs(1);

pub(super) async fn run(args: ConsoleArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let ConsoleArgs { port, host, allow_writes, .. } = args;
    let store = stack.store(SETTINGS_TO_FIND).await?;
    check_shards(&store, &stack.first_events()).await?;
    let running = RunningCommands::default();
    if allow_writes {
        // A wrong setting is an error now, and not when somebody presses a button.
        stack.bus_settings()?;
    }
    let deployed = Arc::new(DeployedStack {
        // Only this queue is required.
        dead_letters: stack.queue(DEAD_LETTERS).await?,
        changes: stack.queue_if_set(CHANGES_QUEUE).await?,
        reactions: stack.queue_if_set(REACTIONS_QUEUE).await?,
        stack: stack.clone(),
        writes: allow_writes.then(|| Writes { stack: stack.clone(), running: running.clone() }),
    });

    let access = if host.is_loopback() { ConsoleAccess::Loopback } else { ConsoleAccess::with_new_token() };
    let table = stack.table_name();
    let text = format!("Table {table}{}.", if allow_writes { "" } else { ", read-only" });
    let kind = StackKind::Deployed { table, allow_writes };
    let views = match stack.has_views() {
        true => {
            let store = stack.views().await?.with_sealing(store.sealing());
            Some(Views { projections: (stack.projections)()?, store })
        }
        false => None,
    };
    let (registry, form_token) = (stack.registry.clone(), new_token());
    let console = Console { registry, store, stack: deployed, kind, views, access: access.clone(), form_token };
    let router = Router::new().route("/", get(async || Redirect::to("/_console")));
    let router = router.merge(daybook_console::router(console));
    let address = SocketAddr::new(host, port);
    let doing = format!("cannot listen on {address}; choose another port with --port, or check --host");
    let failed = |source| OperatorError::File { doing, source };
    let server =
        TcpListener::bind(address).await.and_then(|listener| Server::serve(listener, router)).map_err(failed)?;
    out.print_text(&format!("Console  {}\n{text} Ctrl-C stops it.", access.address(server.url())))?;
    stack.interrupt.cancelled().await;
    server.stop(GRACE).await;
    running.wait_for_end().await;
    Ok(Exit::Clean)
}

/// Serve the console of a deployed stack on this machine, until Ctrl-C.
///
/// The pages show the aggregates, their events, states and messages, the number of dead-letter messages, and what the
/// relay and the projector wait for. They read with your credentials, and change nothing. Each page costs a few reads
/// of the table; docs/console.md lists them. `--allow-writes` adds the dead-letter messages themselves, which can be
/// sent again and deleted, and resumes suspended aggregates of projections.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct ConsoleArgs {
    /// Port of the console; 0 for any free port.
    #[arg(long, default_value_t = 3100)]
    pub port: u16,
    /// Address to listen on. With an address that other machines can reach, the console requires a token, which is in
    /// the printed address.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub host: IpAddr,
    /// List the dead-letter messages, and allow to send them again, to delete them, and to resume suspended aggregates.
    #[arg(long)]
    pub allow_writes: bool,
    #[command(flatten)]
    pub stack: StackArgs,
}

/// The stack, and the clients of its queues. The clients that only some pages need are made for these pages: the
/// credentials may lack the permission.
struct DeployedStack {
    dead_letters: StackQueue,
    changes: Option<StackQueue>,
    reactions: Option<StackQueue>,
    stack: Stack,
    /// `None` if the console only reads.
    writes: Option<Writes>,
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
