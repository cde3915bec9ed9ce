//! The binary of this process, and the command that builds it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::{env, io};

use clap::Args;
use tokio::process::{Child, Command};

use crate::error::DevError;
use crate::restart::sources::SourceList;
#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process_group};

/// The beginnings of the variables that `cargo run` sets for the binary. A build must not have them: build scripts of some
/// packages read them, and would run again.
const OF_CARGO_RUN: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_NAME"];

/// The variable in which `cargo run` names itself.
const CARGO: &str = "CARGO";

#[derive(Clone, Debug)]
pub(super) struct BuildCommand {
    program: OsString,
    arguments: Vec<OsString>,
}

impl BuildCommand {
    pub(super) fn shell(command: &str) -> Self {
        let (program, option) = if cfg!(windows) { ("cmd", "/C") } else { ("sh", "-c") };
        Self { program: program.into(), arguments: vec![option.into(), command.into()] }
    }

    /// The command that builds this binary as `cargo run` did; `None` if it was not started by `cargo run`. Windows does not
    /// allow to replace the binary while it runs.
    pub(super) fn of_cargo_run(binary: &Path) -> Option<Self> {
        let program = env::var_os(CARGO).filter(|_| cfg!(unix))?;
        let manifest = manifest_of_cargo_run(&env::current_dir().ok()?, Path::new(&env::var_os("CARGO_MANIFEST_DIR")?));
        // The folder has the name of the profile, except that of `dev`.
        let profile: OsString = match binary.parent()?.file_name()? {
            folder if folder == "debug" => "dev".into(),
            folder => folder.to_owned(),
        };
        let arguments: [OsString; 7] = [
            "build".into(),
            "--manifest-path".into(),
            manifest.into(),
            "--bin".into(),
            binary.file_name()?.into(),
            "--profile".into(),
            profile,
        ];
        Some(Self { program, arguments: arguments.into() })
    }

    /// Runs the command. What it prints is printed on standard error. If it is quiet, cargo prints warnings and errors only.
    pub(super) async fn run(&self, is_quiet: bool) -> io::Result<ExitStatus> {
        let is_of_cargo_run = |name: &str| name == CARGO || OF_CARGO_RUN.iter().any(|begin| name.starts_with(begin));
        let mut command = Command::new(&self.program);
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_of_cargo_run)) {
            command.env_remove(name);
        }
        if is_quiet {
            command.env("CARGO_TERM_QUIET", "true");
        }
        command.args(&self.arguments).stdin(Stdio::null()).stdout(io::stderr()).kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        Build(command.spawn()?).0.wait().await
    }
}

/// The manifest that `cargo run` found from a folder: that of the package with the binary, or of its workspace. It selects the
/// packages for which cargo chooses the features of dependencies. Those of another selection would be another binary.
fn manifest_of_cargo_run(folder: &Path, package: &Path) -> PathBuf {
    let manifest = |folder: &Path| folder.join("Cargo.toml");
    let found = folder.ancestors().find(|folder| package.starts_with(folder) && manifest(folder).is_file());
    manifest(found.unwrap_or(package))
}

/// A running build, the first process of a group. Dropping it ends all processes of the group: the command may be a script,
/// which runs cargo, which runs the compiler.
struct Build(Child);

#[cfg(unix)]
impl Drop for Build {
    fn drop(&mut self) {
        // After the command has ended, it has no id any more, and its number may be that of another group.
        if let Some(group) = self.0.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            // Fails if the processes have ended just now.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Whether and how the functions are replaced after a change of their sources.
#[derive(Clone, Debug, Default, Args)]
pub struct RestartArgs {
    /// Keep the functions as they are. Default: after a change of a source file, `cargo run` builds them again and replaces
    /// them, and everything else goes on. A binary that was not started by `cargo run` never replaces them.
    #[arg(long)]
    pub no_restart: bool,
    /// Shell command that builds this binary after a change of a source file. Default: the `cargo build` for `cargo run`
    /// without --features, --target and --package.
    #[arg(long, value_name = "COMMAND", conflicts_with = "no_restart")]
    pub build_command: Option<String>,
}

/// A binary whose functions are replaced after a change of its sources.
#[derive(Clone, Debug)]
pub struct Restarts {
    /// This binary, which the build replaces.
    pub(super) binary: PathBuf,
    pub(super) sources: SourceList,
    pub(super) build: BuildCommand,
    /// The collector that gets the traces.
    pub(super) collector: Option<String>,
}

impl RestartArgs {
    /// The binary of this process, if its functions are to be replaced. `collector` gets their traces.
    pub fn restarts(self, collector: Option<String>) -> Result<Option<Restarts>, DevError> {
        if self.no_restart {
            return Ok(None);
        }
        let binary = env::current_exe().map_err(DevError::Functions)?;
        let sources = SourceList::of_binary(&binary);
        let build = match self.build_command {
            Some(_) if !sources.are_known() => return Err(DevError::UnknownSources { list: sources.list }),
            Some(command) => Some(BuildCommand::shell(&command)),
            None => BuildCommand::of_cargo_run(&binary).filter(|_| sources.are_known()),
        };
        Ok(build.map(|build| Restarts { binary, sources, build, collector }))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn manifest_is_that_of_the_workspace_or_of_the_package_in_which_cargo_run_was_called() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().join("shop");
        let package = workspace.join("app/operator");
        fs::create_dir_all(package.join("src")).unwrap();
        for manifest in [workspace.join("Cargo.toml"), package.join("Cargo.toml")] {
            fs::write(manifest, "").unwrap();
        }
        for (called_in, expected) in [
            (workspace.clone(), &workspace),
            (workspace.join("app"), &workspace),
            (package.clone(), &package),
            (package.join("src"), &package),
            // With `--manifest-path`.
            (folder.path().to_owned(), &package),
        ] {
            let manifest = manifest_of_cargo_run(&called_in, &package);
            assert_eq!(manifest, expected.join("Cargo.toml"), "{}", called_in.display());
        }
    }
}
