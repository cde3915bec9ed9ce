//! The process of one version of the functions, as the stack sees it.
//!
//! The process gets the settings of the functions as a line on its standard input, prints the addresses of its services as a line
//! on its standard output, and ends when its standard input is closed. So it also ends when this process is killed.

use std::convert::Infallible;
use std::io::{self, Write};
use std::process::Stdio;
use std::time::Duration;
use std::{process, thread};

use axum::middleware;
use daybook_local_aws::dynamodb::StartError;
use daybook_local_aws::server::Server;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy, stdout};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::args::Project;
use crate::error::DevError;
use crate::functions::{self, FunctionSettings, FunctionsVersion};
use crate::restart::build_command::Restarts;
use crate::servers::{forwarding_to, read_whole};
use crate::termination::TerminationSignals;

const START_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) const END_TIMEOUT: Duration = Duration::from_secs(3);

/// The name of the command that runs the functions.
const COMMAND: &str = "dev-functions";

/// The addresses of the services of a process: host and port.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Addresses {
    pub(super) api: String,
    pub(super) control: String,
}

pub(super) struct FunctionProcess {
    process: Child,
    /// Ends the process when it is closed.
    input: ChildStdin,
    leased: mpsc::Receiver<Infallible>,
}

pub(super) enum End {
    /// It was ended, because a newer build has replaced it.
    Replaced,
    /// It has ended by itself, or was killed.
    Unexpected,
}

/// Starts the functions of the binary, as it is now, in a process of their own.
pub(super) async fn start(
    restarts: &Restarts,
    settings: &FunctionSettings,
) -> Result<(FunctionsVersion, FunctionProcess), DevError> {
    let mut command = Command::new(&restarts.binary);
    command.arg(COMMAND);
    if let Some(collector) = &restarts.collector {
        command.args(["--otlp", collector]);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut process = command.spawn().map_err(DevError::Functions)?;
    let pipes = process.stdin.take().zip(process.stdout.take());
    let (mut input, output) = pipes.expect("both are piped");
    let settings = serde_json::to_string(settings).expect("strings are JSON") + "\n";
    // Fails if the process has ended, which its output shows.
    drop(input.write_all(settings.as_bytes()).await);
    let mut output = BufReader::new(output);
    let addresses = match timeout(START_TIMEOUT, read_addresses(&mut output)).await {
        Ok(Some(addresses)) => addresses,
        _ => return Err(DevError::FunctionsNotStarted),
    };
    tokio::spawn(async move { copy(&mut output, &mut stdout()).await });
    let (lease, leased) = mpsc::channel(1);
    let forwarding = |address: &str| address.parse().map(forwarding_to).map_err(|_| DevError::FunctionsNotStarted);
    let version = FunctionsVersion::new(forwarding(&addresses.api)?, forwarding(&addresses.control)?, Some(lease));
    Ok((version, FunctionProcess { process, input, leased }))
}

/// Reads the addresses. Lines before them come from the project's code, and are printed.
async fn read_addresses(output: &mut BufReader<ChildStdout>) -> Option<Addresses> {
    loop {
        let mut line = String::new();
        if output.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match serde_json::from_str(&line) {
            Ok(addresses) => return Some(addresses),
            Err(_) => stdout().write_all(line.as_bytes()).await.ok()?,
        }
    }
}

impl FunctionProcess {
    /// Waits until the process has ended. Ends it when its version is used no more.
    pub(super) async fn run(self) -> End {
        let Self { mut process, input, mut leased } = self;
        tokio::select! {
            ended = process.wait() => {
                let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                eprintln!("daybook: the process of the functions ended: {status}");
                return End::Unexpected;
            }
            _ = leased.recv() => {}
        }
        drop(input);
        // Otherwise it is killed when it is dropped.
        drop(timeout(END_TIMEOUT, process.wait()).await);
        End::Replaced
    }
}

/// How long requests and invocations may continue after the end.
const GRACE: Duration = Duration::from_secs(1);

/// Runs the functions of a project until standard input is closed.
pub async fn serve(project: Project) -> Result<(), DevError> {
    // Ctrl-C in a terminal reaches this process too, but the stack decides when it ends.
    let _ignored = TerminationSignals::listen().map_err(DevError::Signals)?;
    let (settings, closed) = input()?;
    let version = functions::start(&settings, project)?;
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
