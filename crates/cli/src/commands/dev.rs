//! `daybook dev`: runs the local stack until Ctrl-C.

use std::io::{self, Write};

use crate::dev::{DevArgs, DevError, Stack};
use crate::operator::Exit;

/// Runs the stack until Ctrl-C, or until the reader of the output closes it.
///
/// # Errors
///
/// When the stack cannot be started, or standard output cannot be written.
pub(super) async fn run(args: DevArgs) -> Result<Exit, DevError> {
    let mut stack = Stack::start(args).await?;
    let written = print_messages(&mut stack, &mut io::stdout()).await;
    stack.stop().await;
    Ok(Exit::of_output(written)?)
}

/// Prints where the stack's servers are, and each message that reaches the bus, until Ctrl-C.
async fn print_messages(stack: &mut Stack, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "Daybook is running. Ctrl-C stops it.")?;
    writeln!(out, "  API       {}", stack.api_url())?;
    writeln!(out, "  DynamoDB  {}  (table {})", stack.dynamodb_url(), stack.table_name())?;
    for (variable, url) in stack.elsewhere() {
        writeln!(out, "  External  {variable}={url}  (unset it to use the stack's own)")?;
    }
    if let Some(url) = stack.bus_url() {
        writeln!(out, "  Bus, DLQ  {url}  (received messages: {}/_dev/bus and /_dev/dlq)", stack.api_url())?;
    }
    let ctrl_c = tokio::signal::ctrl_c();
    tokio::pin!(ctrl_c);
    loop {
        tokio::select! {
            // An error of the signal handler also ends the loop: without a handler, Ctrl-C could not end it.
            _ = &mut ctrl_c => return Ok(()),
            Some(message) = stack.next_message() => {
                writeln!(out, "{} {} {}", message.detail_type, message.resources.join(" "), message.detail)?;
            }
        }
    }
}
