//! `daybook upgrade`: merges the changes of a release into a project.

use std::io::{self, Write};

use clap::Args;
use daybook_scaffold::{ScaffoldError, Upgrade, find_project};

use crate::operator::Exit;

/// Merge the changes of this release into the files that `daybook new` has written.
///
/// Your own code is not among them: aggregates, projections, events and the README. Exit status: 0 if nothing is left to do, 1 if
/// a file has conflicts, or if --check finds something to do, 2 for errors.
#[derive(Clone, Debug, Args)]
pub(super) struct UpgradeArgs {
    /// Print what would change, and change nothing.
    #[arg(long)]
    check: bool,
}

pub(super) fn run(args: &UpgradeArgs) -> Result<Exit, ScaffoldError> {
    let upgrade = Upgrade::plan(&find_project()?)?;
    if !args.check {
        upgrade.apply()?;
    }
    let exit = match Exit::of_output(print(&upgrade, args.check)).map_err(ScaffoldError::of_output)? {
        Exit::Clean if upgrade.needs_user() || (args.check && upgrade.is_due()) => Exit::Findings,
        printed => printed,
    };
    Ok(exit)
}

fn print(upgrade: &Upgrade, check: bool) -> io::Result<()> {
    let mut output = io::stdout().lock();
    for file in upgrade.files() {
        writeln!(output, "{file}")?;
        if check {
            write!(output, "{}", file.difference())?;
        }
    }
    let release = env!("CARGO_PKG_VERSION");
    if upgrade.is_blocked() {
        writeln!(output, "Nothing was changed. Resolve the conflicts of the earlier upgrade first.")
    } else if !upgrade.is_due() {
        writeln!(output, "Nothing to do: the project has the files of Daybook {release}.")
    } else if check {
        writeln!(output, "Nothing was changed. `daybook upgrade` applies the changes.")
    } else {
        writeln!(
            output,
            "The project has the files of Daybook {release} now. The version in Cargo.toml stays as you set it. Check the project \
             with `cargo test --workspace` and `sam validate --lint`."
        )
    }
}
