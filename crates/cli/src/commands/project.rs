//! The commands that write the files of a project. `daybook new` creates one, `daybook add` adds a part to it, such as an aggregate,
//! and `daybook upgrade` merges the changes of a release into it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Subcommand};
use daybook_local_stack::Project;
use daybook_scaffold::{
    DaybookSource, ItemName, ProjectName, Registration, ScaffoldError, Upgrade, add_files, aggregate_files,
    check_generated, consumer_files, create_project, find_project, generate, own_pipeline, own_resources,
    process_files, projection_files,
};

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

pub(super) fn create(args: &NewArgs) -> Result<Exit, ScaffoldError> {
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

/// Add an example to your project, to be replaced by your own code.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum AddCommand {
    /// Add aggregates, each with its registration, its golden files and a fixture.
    Aggregate {
        /// Their names in the paths of the API, such as purchase-order.
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Add a process, which reacts to the events of aggregates, with its registration and its golden files.
    Process {
        /// Its name in the paths of the API, such as billing.
        name: String,
        /// The aggregates, such as `order,payment`. The first event of one of the first type begins a process.
        #[arg(long, value_name = "AGGREGATES", value_delimiter = ',', required = true)]
        of: Vec<String>,
    },
    /// Add a projection, with its registration.
    Projection {
        /// Its name in the paths of the API, such as open-orders.
        name: String,
        /// The aggregate that it follows.
        #[arg(long, value_name = "AGGREGATE")]
        of: String,
    },
    /// Add a consumer of the messages: a function with a template of its own.
    Consumer {
        /// Its name, such as order-mails.
        name: String,
        /// The aggregate whose messages it gets.
        #[arg(long, value_name = "AGGREGATE")]
        of: String,
    },
    /// Add deployments from GitHub: workflows, roles in AWS, a stack policy, pinned tools, cargo-deny, a bill of materials.
    Pipeline,
    /// Add a template for resources, policies, alarms and parameters of your own, which is deployed with the stack.
    Resources,
}

impl AddCommand {
    /// Adds it to the project that contains the current folder.
    pub(super) fn run(&self, project: Project) -> Result<Exit, ScaffoldError> {
        let folder = &find_project()?;
        let of_aggregate =
            |name: &ItemName| registration("app/aggregates/src/lib.rs", "registry", "Ok(registry)", name);
        let added = match self {
            Self::Aggregate { names } => {
                let names = names.iter().map(|name| ItemName::new(name)).collect::<Result<Vec<_>, _>>()?;
                let add = |name| add_files(folder, &aggregate_files(name), Some(&of_aggregate(name)));
                names.iter().map(add).collect::<Result<Vec<_>, _>>()?.concat()
            }
            Self::Process { name, of } => {
                let name = ItemName::new(name)?;
                let sources = of.iter().map(|source| followed(source, project)).collect::<Result<Vec<_>, _>>()?;
                add_files(folder, &process_files(&name, &sources), Some(&of_aggregate(&name)))?
            }
            Self::Projection { name, of } => {
                let (name, of) = (ItemName::new(name)?, followed(of, project)?);
                let registration = registration("app/projections/src/lib.rs", "projections", "Ok(projections)", &name);
                add_files(folder, &projection_files(&name, &of), Some(&registration))?
            }
            Self::Consumer { name, of } => {
                let (name, of) = (ItemName::new(name)?, followed(of, project)?);
                add_files(folder, &consumer_files(&name, &of), None)?
            }
            // Generated files belong to both.
            Self::Resources => {
                check_generated(folder, false)?;
                [add_files(folder, &own_resources(folder)?, None)?, generate(folder, false)?].concat()
            }
            Self::Pipeline => {
                check_generated(folder, true)?;
                [add_files(folder, &own_pipeline(), None)?, generate(folder, true)?].concat()
            }
        };
        let written: String = added.iter().map(|file| format!("wrote {}\n", file.display())).collect();
        let text = match added.is_empty() {
            true => "Nothing to do: it is in the project already.\n".to_owned(),
            false => written + &self.use_of_it(),
        };
        Exit::of_output(io::stdout().write_all(text.as_bytes())).map_err(ScaffoldError::of_output)
    }

    fn use_of_it(&self) -> String {
        match self {
            Self::Aggregate { names } => format!(
                "While `cargo run` runs, `curl --json '{{\"title\": \"First\"}}' http://localhost:3000/{}` creates one.\n",
                names[0]
            ),
            Self::Process { name, of } => format!(
                "While `cargo run` runs, each new event of {} with an id is input of {name}/ID. A deployed stack needs \
                 Reactor=processes.\n",
                of.join(" and ")
            ),
            Self::Projection { name, .. } => {
                format!(
                    "GET /views/{name} lists its rows, and GET /views/{name}/KEY returns one.\nThe events of an aggregate that \
                     exists already come in with its next event. While `cargo run` runs, this call brings in all of them:\n  \
                     cargo run -- projection rebuild {name}\nA deployed stack needs ReadModels=true.\n"
                )
            }
            Self::Consumer { name, of } => format!(
                "Build it, and start the local stack with it (`--data FILE` keeps the aggregates for the next start):\n  cargo build && \
                 cargo run -- --rule '{of}/* -> queue:{name} -> function:target/debug/{name}'\n"
            ),
            Self::Pipeline => {
                "Deployments begin when AWS has its roles and GitHub has their names: see \"Deployments from GitHub\" in \
                 docs/deploy.md of Daybook.\n"
                    .to_owned()
            }
            Self::Resources => {
                "Replace the example in deploy/own.yaml. The next deployment creates its resources.\n".to_owned()
            }
        }
    }
}

/// The registration in a file, before the anchor, which returns the variable.
fn registration(file: &'static str, variable: &str, anchor: &'static str, name: &ItemName) -> Registration {
    let line = format!("let {variable} = {variable}.with::<{}::{}>()?;", name.module(), name.type_name());
    Registration { file, line, module: name.module(), anchor }
}

fn followed(name: &str, project: Project) -> Result<ItemName, ScaffoldError> {
    if name.contains(',') {
        return Err(ScaffoldError::SeveralAggregates);
    }
    let aggregate = ItemName::new(name)?;
    let registry = (project.aggregates)().map_err(|error| ScaffoldError::Registration(error.into()))?;
    match registry.get(name) {
        Some(_) => Ok(aggregate),
        None => Err(ScaffoldError::NoAggregate { name: name.to_owned() }),
    }
}

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

pub(super) fn upgrade(args: &UpgradeArgs) -> Result<Exit, ScaffoldError> {
    let upgrade = Upgrade::plan(&find_project()?)?;
    if !args.check {
        upgrade.apply()?;
    }
    let exit = match Exit::of_output(print_upgrade(&upgrade, args.check)).map_err(ScaffoldError::of_output)? {
        Exit::Clean if upgrade.needs_user() || (args.check && upgrade.is_due()) => Exit::Findings,
        printed => printed,
    };
    Ok(exit)
}

fn print_upgrade(upgrade: &Upgrade, check: bool) -> io::Result<()> {
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
