//! What runs in the process of the functions: see `child`.

use std::io::{self, Write};
use std::time::Duration;
use std::{process, thread};

use axum::middleware;
use daybook_local_aws::dynamodb::StartError;
use daybook_local_aws::server::Server;
use tokio::sync::oneshot;

use super::child::{Addresses, END_TIMEOUT};
use crate::error::DevError;
use crate::functions::{self, FunctionSettings};
use crate::project::Project;
use crate::servers::read_whole;
use crate::termination::TerminationSignals;

/// How long requests and invocations may continue after the end.
const GRACE: Duration = Duration::from_secs(1);

/// Runs the functions of a project until standard input is closed.
pub async fn serve(project: Project) -> Result<(), DevError> {
    // Ctrl-C in a terminal reaches this process too, but the stack decides when it ends.
    let _ignored = TerminationSignals::listen().map_err(DevError::Signals)?;
    let (settings, closed) = input()?;
    let version = functions::start(&settings, project).await?;
    let api = version.api.layer(middleware::from_fn(read_whole));
    let api = Server::start(api).await.map_err(StartError::from)?;
    let control = Server::start(version.control).await.map_err(StartError::from)?;
    let address = |server: &Server| server.url().trim_start_matches("http://").to_owned();
    let addresses = Addresses { api: address(&api), control: address(&control) };
    let line = serde_json::to_string(&addresses).expect("strings are JSON");
    writeln!(io::stdout(), "{line}").map_err(DevError::Functions)?;
    // Fails when it is closed.
    drop(closed.await);
    tokio::join!(api.stop(GRACE), control.stop(GRACE));
    Ok(())
}

/// Reads the settings. The receiver notices when standard input is closed.
fn input() -> Result<(FunctionSettings, oneshot::Receiver<()>), DevError> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).map_err(DevError::Functions)?;
    let settings = serde_json::from_str(&line).map_err(|error| DevError::Functions(error.into()))?;
    let (open, closed) = oneshot::channel::<()>();
    thread::spawn(move || {
        // An error ends it too.
        drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
        drop(open);
        // A function in an endless loop can keep the process from ending.
        thread::sleep(END_TIMEOUT);
        process::exit(1);
    });
    Ok((settings, closed))
}
