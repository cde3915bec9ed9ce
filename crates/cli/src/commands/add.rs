//! `daybook add`: adds an aggregate, a process, a projection or a consumer to a project.

use std::io::{self, Write};

use clap::Subcommand;
use daybook_local_stack::Project;
use daybook_scaffold::{
    ItemName, Registration, ScaffoldError, add_files, aggregate_files, check_generated, consumer_files, find_project,
    generate, own_pipeline, own_resources, process_files, projection_files,
};

use crate::operator::Exit;

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
