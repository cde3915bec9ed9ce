//! `daybook console`: the console of a deployed stack.
//!
//! `args`: the options. `interface`: what the pages get besides the tables. `writes`: what they can change.

mod args;
mod interface;
mod writes;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Redirect;
use axum::routing::get;
use daybook_console::{Access, Console, StackKind};
use daybook_local_aws::server::Server;
use tokio::net::TcpListener;

pub(super) use self::args::ConsoleArgs;
use self::interface::DeployedStack;
use self::writes::{RunningCommands, Writes};
use crate::operator::call_usage::CallMeter;
use crate::operator::target::SETTINGS_TO_FIND;
use crate::operator::{Exit, OperatorContext, OperatorError, check_shards};

/// How long open requests may continue after Ctrl-C.
const GRACE: Duration = Duration::from_secs(1);

/// Serves the console.
pub(super) async fn run(args: ConsoleArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let ConsoleArgs { port, host, allow_writes, .. } = args;
    let environment = &context.environment;
    let store = args.stack.store(environment, SETTINGS_TO_FIND).await?;
    let first_events: Vec<_> = context.registry.iter().flat_map(|model| model.opening_events()).collect();
    check_shards(&store, &first_events).await?;
    let running = RunningCommands::default();
    let writes = allow_writes.then(|| Writes::new(&args, context, running.clone()));
    if allow_writes {
        // A wrong setting is an error now, and not when somebody presses a button.
        args.stack.bus_settings(environment)?;
    }
    let stack = Arc::new(DeployedStack::connect(&args, environment, writes).await?);

    let access = if host.is_loopback() { Access::Loopback } else { Access::with_new_token() };
    let table = args.stack.table_name(environment);
    let text = format!("Table {table}{}.", if allow_writes { "" } else { ", read-only" });
    let kind = StackKind::Deployed { table, allow_writes };
    let mut console = Console::new(context.registry.clone(), store, stack, kind, access.clone());
    if args.stack.has_views(environment) {
        let views = args.stack.views(environment, &CallMeter::default()).await?;
        console = console.with_views((context.projections)()?, views);
    }
    let router = Router::new().route("/", get(async || Redirect::to("/_console")));
    let router = router.merge(daybook_console::router(console));
    let address = SocketAddr::new(host, port);
    let failed = |source| OperatorError::Listen { address, source };
    let server = match TcpListener::bind(address).await {
        Ok(listener) => Server::serve(listener, router).map_err(failed)?,
        Err(source) => return Err(failed(source)),
    };
    writeln!(context.out, "Console  {}\n{text} Ctrl-C stops it.", access.address(server.url()))?;
    context.out.flush()?;
    context.interrupt.wait().await;
    server.stop(GRACE).await;
    running.wait_for_end().await;
    Ok(Exit::Clean)
}
