//! `daybook console`: the console of a deployed stack.
//!
//! `interface`: what the pages get besides the tables. `writes`: what they can change.

mod interface;
mod writes;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Redirect;
use axum::routing::get;
use clap::Args;
use daybook_console::{Access, Console, StackKind, Views, new_token};
use daybook_local_aws::server::Server;
use daybook_operations::check_shards;
use daybook_operations::stack::SETTINGS_TO_FIND;
use tokio::net::TcpListener;

use crate::commands::console::interface::DeployedStack;
use crate::commands::console::writes::{RunningCommands, Writes};
use crate::operator::target::{STACK_HELP, StackArgs};
use crate::operator::{Ended, Exit, OperatorError, Session};

/// How long open requests may continue after Ctrl-C.
const GRACE: Duration = Duration::from_secs(1);

pub(super) async fn run(args: ConsoleArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let ConsoleArgs { port, host, allow_writes, .. } = args;
    let store = stack.store(SETTINGS_TO_FIND).await?;
    check_shards(&store, &stack.first_events()).await?;
    let running = RunningCommands::default();
    let writes = allow_writes.then(|| Writes { stack: stack.clone(), running: running.clone() });
    if allow_writes {
        // A wrong setting is an error now, and not when somebody presses a button.
        stack.bus_settings()?;
    }
    let deployed = Arc::new(DeployedStack::connect(&stack, writes).await?);

    let access = if host.is_loopback() { Access::Loopback } else { Access::with_new_token() };
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
