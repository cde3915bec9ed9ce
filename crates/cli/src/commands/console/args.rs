//! The options of `daybook console`.

use std::net::{IpAddr, Ipv4Addr};

use clap::Args;

use crate::operator::target::{STACK_HELP, StackArgs};

/// Serve the console of a deployed stack on this machine, until Ctrl-C.
///
/// The pages show the aggregates, their events, states and messages, the number of dead-letter messages, and what the
/// relay and the projector wait for. They read with your credentials, and change nothing. Each page costs a few reads
/// of the table; docs/console.md lists them. `--allow-writes` adds the dead-letter messages themselves, which can be
/// sent again and deleted.
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
    /// List the dead-letter messages, and allow to send them again and to delete them.
    #[arg(long)]
    pub allow_writes: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}
