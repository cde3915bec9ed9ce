//! `daybook console`: the console of a deployed stack.
//!
//! `args`: the options. `interface`: what the pages get besides the tables. `writes`: what they can change.

mod args;
mod interface;
mod writes;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Redirect;
use axum::routing::get;
use daybook_console::{Access, Console, StackKind};
use daybook_local_aws::server::Server;
use daybook_operations::call_usage::CallMeter;
use daybook_operations::check_shards;
use daybook_operations::stack::SETTINGS_TO_FIND;
use tokio::net::TcpListener;

pub(super) use self::args::ConsoleArgs;
use self::interface::DeployedStack;
use self::writes::{RunningCommands, Writes};
use crate::operator::{Exit, OperatorError, Session};

/// How long open requests may continue after Ctrl-C.
const GRACE: Duration = Duration::from_secs(1);

/// Serves the console.
pub(super) async fn run(args: ConsoleArgs, Session { stack, mut out }: Session<'_>) -> Result<Exit, OperatorError> {
    let ConsoleArgs { port, host, allow_writes, .. } = args;
    let store = stack.store(SETTINGS_TO_FIND).await?;
    check_shards(&store, &stack.first_events()).await?;
    let running = RunningCommands::default();
    let writes = allow_writes.then(|| Writes::new(&stack, running.clone()));
    if allow_writes {
        // A wrong setting is an error now, and not when somebody presses a button.
        stack.bus_settings()?;
    }
    let deployed = Arc::new(DeployedStack::connect(&stack, writes).await?);

    let access = if host.is_loopback() { Access::Loopback } else { Access::with_new_token() };
    let table = stack.table_name();
    let text = format!("Table {table}{}.", if allow_writes { "" } else { ", read-only" });
    let kind = StackKind::Deployed { table, allow_writes };
    let mut console = Console::new(stack.registry.clone(), store, deployed, kind, access.clone());
    if stack.has_views() {
        let views = stack.views(&CallMeter::default()).await?;
        console = console.with_views((stack.projections)()?, views);
    }
    let router = Router::new().route("/", get(async || Redirect::to("/_console")));
    let router = router.merge(daybook_console::router(console));
    let address = SocketAddr::new(host, port);
    let failed = |source| OperatorError::Listen { address, source };
    let server = match TcpListener::bind(address).await {
        Ok(listener) => Server::serve(listener, router).map_err(failed)?,
        Err(source) => return Err(failed(source)),
    };
    out.print_text(&format!("Console  {}\n{text} Ctrl-C stops it.", access.address(server.url())))?;
    stack.interrupt.wait().await;
    server.stop(GRACE).await;
    running.wait_for_end().await;
    Ok(Exit::Clean)
}
