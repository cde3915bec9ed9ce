//! The texts of the files, from the folder `template`, and those that the workspace of Daybook uses too, from `build.rs`.

use crate::names::{ItemName, ProjectName};
use crate::source::{DaybookSource, Parameters};

pub(crate) type File = (String, String);

/// The files of a release that a user may edit. `daybook upgrade` merges the changes of later releases into them.
const RELEASE: [(&str, &str); 19] = [
    ("AGENTS.md", include_str!("../template/AGENTS.md.txt")),
    ("Cargo.toml", include_str!("../template/project.toml")),
    (".gitignore", include_str!(concat!(env!("OUT_DIR"), "/gitignore"))),
    ("rustfmt.toml", include_str!(concat!(env!("OUT_DIR"), "/rustfmt.toml"))),
    (".github/workflows/ci.yml", include_str!("../template/ci.yml")),
    ("app/aggregates/Cargo.toml", include_str!("../template/aggregates.toml")),
    ("app/aggregates/tests/golden.rs", include_str!("../template/golden.rs.txt")),
    ("app/operator/Cargo.toml", include_str!("../template/operator.toml")),
    ("app/operator/src/main.rs", include_str!(concat!(env!("OUT_DIR"), "/operator.rs.txt"))),
    ("app/functions/Cargo.toml", include_str!("../template/functions.toml")),
    ("app/functions/src/bin/command-handler.rs", include_str!(concat!(env!("OUT_DIR"), "/command-handler.rs.txt"))),
    ("app/functions/src/bin/projector.rs", include_str!(concat!(env!("OUT_DIR"), "/projector.rs.txt"))),
    ("app/functions/src/bin/reactor.rs", include_str!(concat!(env!("OUT_DIR"), "/reactor.rs.txt"))),
    ("app/functions/src/bin/snapshotter.rs", include_str!(concat!(env!("OUT_DIR"), "/snapshotter.rs.txt"))),
    ("app/functions/src/bin/stream-relay.rs", include_str!(concat!(env!("OUT_DIR"), "/stream-relay.rs.txt"))),
    ("app/projections/Cargo.toml", include_str!("../template/projections.toml")),
    ("events/env.json", include_str!(concat!(env!("OUT_DIR"), "/env.json"))),
    ("samconfig.toml", include_str!("../template/samconfig.toml")),
    ("tests/events.rs", include_str!("../template/events.rs.txt")),
];

/// The files that `upgrade` merges, as this release writes them into a project.
pub(crate) fn release_files(parameters: &Parameters) -> Vec<File> {
    RELEASE.map(|(path, text)| (path.to_owned(), parameters.fill(text))).into()
}

/// The files of a new project, besides those of the release: an aggregate, and what the user writes.
pub(crate) fn own_files(project: &ProjectName, aggregate: &ItemName, source: &DaybookSource) -> Vec<File> {
    let readme = include_str!("../template/README.md.txt")
        .replace("{{project}}", project.as_str())
        .replace("{{rust_version}}", env!("CARGO_PKG_RUST_VERSION"))
        .replace("{{documents}}", &source.documents());
    let mut files = vec![
        ("README.md".to_owned(), named(&readme, aggregate)),
        ("Cargo.lock".to_owned(), lock_file()),
        ("app/aggregates/src/lib.rs".to_owned(), named(include_str!("../template/aggregates.rs.txt"), aggregate)),
        ("app/projections/src/lib.rs".to_owned(), include_str!("../template/projections.rs.txt").to_owned()),
        (
            "app/projections/tests/simulation.rs".to_owned(),
            named(include_str!("../template/simulation.rs.txt"), aggregate),
        ),
    ];
    files.extend(aggregate_files(aggregate));
    files
}

/// The versions that the release was tested with. The first build adds Daybook's own crates and those of the project, and removes
/// what the project does not use.
fn lock_file() -> String {
    let lock = include_str!(concat!(env!("OUT_DIR"), "/project.lock"));
    let is_external = |entry: &&str| !entry.starts_with("[[package]]") || entry.contains("\nsource = ");
    lock.split("\n\n").filter(is_external).collect::<Vec<_>>().join("\n\n")
}

pub fn aggregate_files(aggregate: &ItemName) -> Vec<File> {
    let (name, module) = (aggregate.as_str(), aggregate.module());
    let event = format!("events/command-handler/{name}-create");
    let files = [
        (format!("app/aggregates/src/{module}.rs"), include_str!("../template/aggregate.rs.txt")),
        (format!("app/aggregates/golden/{name}.json"), include_str!("../template/golden.json")),
        (format!("app/aggregates/golden/{name}/state-1.json"), include_str!("../template/state-1.json")),
        (format!("{event}.json"), include_str!("../template/event.json")),
        (format!("{event}.answer.json"), include_str!("../template/event.answer.json")),
    ];
    files.into_iter().map(|(path, text)| (path, named(text, aggregate))).collect()
}

pub fn projection_files(projection: &ItemName, aggregate: &ItemName) -> Vec<File> {
    let text = include_str!("../template/projection.rs.txt")
        .replace("{{projection}}", projection.as_str())
        .replace("{{Projection}}", &projection.type_name());
    vec![(format!("app/projections/src/{}.rs", projection.module()), named(&text, aggregate))]
}

/// The files of a process, which the events of these aggregates are input of. The first event of one of the first type begins it.
pub fn process_files(process: &ItemName, sources: &[ItemName]) -> Vec<File> {
    let of_process =
        |text: &str| text.replace("{{process}}", process.as_str()).replace("{{Process}}", &process.type_name());
    let of_each = |line: &str| sources.iter().map(|source| named(line, source)).collect::<Vec<_>>();
    let mut imports = of_each("use crate::{{aggregate_module}};\n");
    imports.sort_unstable();
    let mut chain = format!("Sources::of::<{}", of_each("{{aggregate_module}}::{{Aggregate}}>()").join(".and::<"));
    // As `cargo fmt` breaks it.
    if chain.len() > 112 {
        chain = chain.replace(".and::<", "\n            .and::<");
    }
    let reactions = of_each(REACTION).concat().replacen("{{command}}", BEGINS, 1);
    let reactions = reactions.replace("{{command}}", "let command = Command::Record {};");
    let code = include_str!("../template/process.rs.txt")
        .replace("{{imports}}\n", &imports.concat())
        .replace("{{sources}}", &chain)
        .replace("{{reactions}}\n", &reactions);
    let golden = format!("app/aggregates/golden/{}", process.as_str());
    vec![
        (format!("app/aggregates/src/{}.rs", process.module()), of_process(&code)),
        (format!("{golden}.json"), of_process(include_str!("../template/process-golden.json"))),
        (format!("{golden}/state-1.json"), of_process(include_str!("../template/process-state-1.json"))),
    ]
}

/// How a process reacts to the aggregates of one type.
const REACTION: &str = "\
impl Reacts<{{aggregate_module}}::{{Aggregate}}> for {{Process}} {
    /// The id of the process, and the command that it gets for an event.
    fn input(event: &FollowedEvent<'_, {{aggregate_module}}::Event>) -> Option<(String, Command)> {
        {{command}}
        Some((event.aggregate_id.to_owned(), command))
    }
}

";

const BEGINS: &str = "\
let command = match event.seq_num {
            1 => Command::Begin {},
            _ => Command::Record {},
        };";

pub fn consumer_files(consumer: &ItemName, aggregate: &ItemName) -> Vec<File> {
    let (name, type_name) = (consumer.as_str(), consumer.type_name());
    let template = include_str!(concat!(env!("OUT_DIR"), "/consumer.yaml"))
        .replace(
            "An example of a consumer of Daybook's bus: mails to customers about their orders.",
            &format!("The consumer {name} of Daybook's bus."),
        )
        .replace("Applies each message about an order once, and in order.", "Applies each message once, and in order.")
        .replace("aggregateType: [order]", &format!("aggregateType: [{}]", aggregate.as_str()))
        .replace("Orders", "Rule")
        .replace("order-mails", name)
        .replace("OrderMails", &type_name);
    let folder = format!("app/{name}");
    let files = [
        ("Cargo.toml", include_str!("../template/consumer.toml")),
        ("events/1-message.answer.json", include_str!("../template/consumer-event.answer.json")),
        ("events/1-message.json", include_str!("../template/consumer-event.json")),
        ("src/main.rs", include_str!("../template/consumer.rs.txt")),
        ("template.yaml", template.as_str()),
    ];
    let of_consumer = |text: &str| text.replace("{{consumer}}", name).replace("{{Consumer}}", &type_name);
    files.into_iter().map(|(path, text)| (format!("{folder}/{path}"), named(&of_consumer(text), aggregate))).collect()
}

/// A text in which the name of an aggregate replaces the placeholders.
fn named(text: &str, aggregate: &ItemName) -> String {
    let article = if aggregate.as_str().starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    text.replace("{{aggregate}}", aggregate.as_str())
        .replace("{{aggregate_module}}", &aggregate.module())
        .replace("{{Aggregate}}", &aggregate.type_name())
        .replace("{{a_aggregate}}", &format!("{article} {}", aggregate.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_from_the_files_that_were_written_with_them() {
        let project = ProjectName::new("shop").unwrap();
        let git = DaybookSource::Git("https://example.com/d".to_owned());
        for source in [DaybookSource::Release, git, DaybookSource::Path("/a \"b\"/c".into())] {
            let parameters = Parameters::new(&project, &source);
            let files = release_files(&parameters).into_iter().collect();
            assert_eq!(Parameters::of_files(&files), Some(parameters));
        }
    }
}
