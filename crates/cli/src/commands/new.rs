//! `daybook new`: creates a project.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use daybook_scaffold::{DaybookSource, ItemName, ProjectName, ScaffoldError, create_project};

use crate::operator::Exit;

/// Create the folder of a project of your own, with one aggregate.
#[derive(Clone, Debug, Args)]
pub(super) struct NewArgs {
    /// Folder of the project, such as ../shop. Its last part is the name of the project, and the prefix of its stacks.
    folder: PathBuf,
    /// Name of its first aggregate, such as invoice or purchase-order.
    #[arg(long, value_name = "NAME", default_value = "item")]
    aggregate: String,
    /// Folder with the sources of Daybook. Default: the release of this binary. Required, unless --git is given, if this
    /// binary was built from sources.
    #[arg(long, value_name = "DIR", conflicts_with = "git")]
    path: Option<PathBuf>,
    /// Git repository with the sources of Daybook, instead of the release of this binary.
    #[arg(long, value_name = "URL")]
    git: Option<String>,
    /// Create a template for `cargo lambda new --template` instead of a project.
    #[arg(long)]
    lambda_template: bool,
}

pub(super) fn run(args: &NewArgs) -> Result<Exit, ScaffoldError> {
    // Without a slash at the end.
    let folder: PathBuf = args.folder.components().collect();
    let printed = folder.display();
    let name = ProjectName::new(&folder.file_name().unwrap_or_default().to_string_lossy())?;
    let aggregate = ItemName::new(&args.aggregate)?;
    let source = match (&args.path, &args.git) {
        (Some(path), _) => DaybookSource::of_path(path)?,
        (None, Some(url)) => DaybookSource::Git(url.clone()),
        (None, None) => DaybookSource::release()?,
    };
    let text = if args.lambda_template {
        create_project(&folder, &ProjectName::of_lambda_template(), &aggregate, &source)?;
        format!("Created {printed}. `cargo lambda new NAME --template {printed}` creates a project from it.")
    } else {
        create_project(&folder, &name, &aggregate, &source)?;
        let is_repository = make_repository(&folder);
        let lacks = if is_repository { "" } else { " `git init` failed, and `upgrade` needs a git repository." };
        format!(
            "Created {printed}. Start it with `cd {printed}` and `cargo run`; {printed}/README.md describes the rest.{lacks}"
        )
    };
    Exit::of_output(writeln!(io::stdout(), "{text}")).map_err(ScaffoldError::of_output)
}

/// Makes a git repository, which `upgrade` needs, as `cargo new` does: not within another one. Returns whether there is one.
fn make_repository(folder: &Path) -> bool {
    let git = |arguments: &[&str]| {
        let ended = Command::new("git").args(arguments).current_dir(folder).output();
        ended.is_ok_and(|ended| ended.status.success())
    };
    git(&["rev-parse", "--is-inside-work-tree"]) || git(&["init"])
}
