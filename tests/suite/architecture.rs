//! The rules of the workspace's structure.

mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use suite_tests::workspace;

use self::imports::Imported;

/// Which crates of the workspace each crate may use. Crates that only serve development and tests are listed only for
/// other such crates, because no deployed crate may use them.
const ARROWS: [(&str, &[&str]); 40] = [
    ("daybook-decider", &[]),
    ("daybook-settings", &[]),
    // A team downstream uses it without the rest of the suite.
    ("daybook-consumer", &[]),
    ("daybook-order-mails", &["daybook-suite", "daybook-consumer"]),
    ("daybook-stream-batch", &[]),
    // Everything but the kernels is a feature, which `facade_without_features_contains_only_the_kernels` checks.
    (
        "daybook-suite",
        &[
            "daybook-command-handler",
            "daybook-consumer",
            "daybook-decider",
            "daybook-function-runtime",
            "daybook-golden",
            "daybook-macros",
            "daybook-projection",
            "daybook-projector",
            "daybook-reactor",
            "daybook-settings",
            "daybook-simulation",
            "daybook-snapshotter",
            "daybook-stream-relay",
        ],
    ),
    ("daybook-simulation", &["daybook-decider", "daybook-projection"]),
    ("daybook-golden", &["daybook-decider"]),
    ("daybook-macros", &[]),
    ("aggregates", &["daybook-suite"]),
    ("operator", &["aggregates", "daybook-cli", "projections"]),
    ("functions", &["aggregates", "daybook-suite", "projections"]),
    ("postgres-balances", &["aggregates", "daybook-suite", "projections"]),
    ("daybook-function-runtime", &["daybook-settings"]),
    ("daybook-table", &["daybook-decider"]),
    ("daybook-queue", &["daybook-function-runtime"]),
    ("daybook-event-store", &["daybook-decider", "daybook-settings", "daybook-table"]),
    // No Lambda function may use it.
    (
        "daybook-admin",
        &["daybook-decider", "daybook-event-store", "daybook-function-runtime", "daybook-history", "daybook-table"],
    ),
    ("daybook-projection", &["daybook-decider"]),
    ("projections", &["aggregates", "daybook-suite"]),
    ("daybook-view-store", &["daybook-decider", "daybook-event-store", "daybook-table"]),
    (
        "daybook-projector",
        &[
            "daybook-decider",
            "daybook-event-store",
            "daybook-function-runtime",
            "daybook-projection",
            "daybook-settings",
            "daybook-table",
            "daybook-view-store",
        ],
    ),
    (
        "daybook-command-handler",
        &[
            "daybook-decider",
            "daybook-event-store",
            "daybook-function-runtime",
            "daybook-projection",
            "daybook-settings",
            "daybook-table",
            "daybook-view-store",
        ],
    ),
    (
        "daybook-stream-relay",
        &[
            "daybook-decider",
            "daybook-function-runtime",
            "daybook-queue",
            "daybook-settings",
            "daybook-stream-batch",
            "daybook-table",
        ],
    ),
    (
        "daybook-snapshotter",
        &[
            "daybook-decider",
            "daybook-event-store",
            "daybook-function-runtime",
            "daybook-settings",
            "daybook-stream-batch",
            "daybook-table",
        ],
    ),
    (
        "daybook-reactor",
        &[
            "daybook-decider",
            "daybook-event-store",
            "daybook-function-runtime",
            "daybook-queue",
            "daybook-settings",
            "daybook-table",
        ],
    ),
    ("daybook-event-pattern", &[]),
    ("daybook-event-source-mapping", &["daybook-event-pattern", "daybook-stream-batch"]),
    ("daybook-local-aws", &["daybook-event-pattern"]),
    ("daybook-aws-clients", &["daybook-function-runtime", "daybook-settings"]),
    // It reaches what is around the tables over the HTTP interface of the stack alone, in the forms of the local bus.
    (
        "daybook-console",
        &[
            "daybook-admin",
            "daybook-api-documents",
            "daybook-decider",
            "daybook-event-store",
            "daybook-function-runtime",
            "daybook-local-aws",
            "daybook-projection",
            "daybook-stream-relay",
            "daybook-table",
            "daybook-view-store",
        ],
    ),
    ("daybook-scaffold", &[]),
    (
        "daybook-local-stack",
        &[
            "daybook-admin",
            "daybook-aws-clients",
            "daybook-command-handler",
            "daybook-console",
            "daybook-consumer",
            "daybook-decider",
            "daybook-event-source-mapping",
            "daybook-event-store",
            "daybook-function-runtime",
            "daybook-local-aws",
            "daybook-projection",
            "daybook-projector",
            "daybook-queue",
            "daybook-reactor",
            "daybook-settings",
            "daybook-snapshotter",
            "daybook-stream-relay",
            "daybook-table",
            "daybook-view-store",
        ],
    ),
    ("daybook-api-documents", &["daybook-command-handler", "daybook-decider"]),
    ("daybook-history", &["daybook-decider", "daybook-table"]),
    (
        "daybook-operations",
        &[
            "daybook-admin",
            "daybook-aws-clients",
            "daybook-command-handler",
            "daybook-console",
            "daybook-decider",
            "daybook-event-store",
            "daybook-function-runtime",
            "daybook-history",
            "daybook-projection",
            "daybook-settings",
            "daybook-stream-relay",
            "daybook-table",
            "daybook-view-store",
        ],
    ),
    (
        "daybook-deployment-check",
        &[
            "daybook-decider",
            "daybook-function-runtime",
            "daybook-operations",
            "daybook-settings",
            "daybook-stream-relay",
            "daybook-table",
        ],
    ),
    (
        "daybook-cli",
        &[
            "daybook-api-documents",
            "daybook-aws-clients",
            "daybook-command-handler",
            "daybook-console",
            "daybook-decider",
            "daybook-deployment-check",
            "daybook-event-store",
            "daybook-function-runtime",
            "daybook-local-aws",
            "daybook-local-stack",
            "daybook-operations",
            "daybook-projection",
            "daybook-scaffold",
            "daybook-settings",
            "daybook-table",
            "daybook-view-store",
        ],
    ),
    // Test targets may use this crate. It is listed for no other crate, so no product crate may use it.
    (
        TEST_SUPPORT,
        &[
            "aggregates",
            "daybook-admin",
            "daybook-decider",
            "daybook-event-store",
            "daybook-function-runtime",
            "daybook-local-aws",
            "daybook-projection",
            "daybook-table",
            "daybook-view-store",
        ],
    ),
    // Tests may use everything.
    ("suite-tests", &[]),
];

/// The crate with the shared code of the tests.
const TEST_SUPPORT: &str = "daybook-test-support";

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn name(value: &Value) -> String {
    value["name"].as_str().unwrap().to_owned()
}

/// The packages of the workspace with their dependencies, without those of tests and build scripts.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let of = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|dependency| dependency["kind"].is_null()).map(name).collect()
    };
    packages().iter().map(|package| (name(package), of(package))).collect()
}

/// The root files of the workspace's targets, each with the kind of the target: `lib`, `bin` or `test`.
fn target_roots() -> Vec<(String, PathBuf)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let targets = packages().into_iter().flat_map(|package| package["targets"].as_array().unwrap().clone());
    // A package may have a target in the folder of another one.
    let root = |target: &Value| PathBuf::from(text(&target["src_path"])).canonicalize().unwrap();
    targets.map(|target| (text(&target["kind"][0]), root(&target))).collect()
}

#[test]
fn crates_depend_only_on_the_allowed_crates() {
    let dependencies = dependencies();
    let named: BTreeSet<_> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(dependencies.keys().cloned().collect::<BTreeSet<_>>(), named);
    for (name, allowed) in ARROWS {
        if name == "suite-tests" {
            continue;
        }
        for used in dependencies[name].intersection(&named) {
            assert!(allowed.contains(&used.as_str()), "{name} uses {used}");
        }
    }
}

#[test]
fn imports_between_the_files_of_a_crate_have_no_cycle() {
    let libraries = target_roots().into_iter().filter(|(kind, _)| kind == "lib");
    let crates: Vec<_> = libraries.map(|(_, root)| Imported::read(&root)).collect();
    let cycles: Vec<_> = crates.iter().flat_map(Imported::cycles).collect();
    assert!(cycles.is_empty(), "files that import from each other: {cycles:#?}");
    let imports: usize = crates.iter().map(Imported::count).sum();
    assert!(imports > 100, "only {imports} imports were found: the reader misses some");
}

/// Cargo and rustc silently ignore other files, and the tests in them.
#[test]
fn each_file_is_a_target_or_a_module() {
    let roots: BTreeSet<_> = target_roots().into_iter().map(|(_, root)| root).collect();
    let folders = ["app", "crates", "tests"].map(|folder| walk(&workspace().join(folder).canonicalize().unwrap()));
    for file in folders.into_iter().flatten() {
        if roots.contains(&file) {
            continue;
        }
        let folder = file.parent().unwrap();
        let mut parents = roots.iter().filter(|root| root.parent() == Some(folder)).cloned().collect::<Vec<_>>();
        parents.push(folder.with_extension("rs"));
        let declaration = format!("mod {};", file.file_stem().unwrap().to_string_lossy());
        let declares = |parent: &PathBuf| {
            let text = std::fs::read_to_string(parent).unwrap_or_default();
            text.lines().any(|line| line.trim_start_matches("pub ").trim_start_matches("pub(crate) ") == declaration)
        };
        assert!(parents.iter().any(declares), "no file declares {}", file.display());
    }
}

/// `test = false` and `doctest = false` save the time for a binary without tests, and for reading a crate without examples. Cargo
/// then silently skips those that are added.
#[test]
fn libraries_whose_tests_or_examples_are_skipped_have_none() {
    let targets = packages().into_iter().flat_map(|package| package["targets"].as_array().unwrap().clone());
    for library in targets.filter(|target| target["kind"][0] == "lib") {
        let root = PathBuf::from(library["src_path"].as_str().unwrap());
        for file in walk(root.parent().unwrap()) {
            let text = std::fs::read_to_string(&file).unwrap();
            let comments = text.lines().map(str::trim_start);
            let fences = comments.filter_map(|line| line.strip_prefix("/// ```").or(line.strip_prefix("//! ```")));
            let has_example = fences.step_by(2).any(|language| ["", "no_run", "rust"].contains(&language));
            assert!(library["doctest"] == true || !has_example, "an example in {}", file.display());
            assert!(library["test"] == true || !text.contains("#[cfg(test)]"), "tests in {}", file.display());
        }
    }
}

#[test]
fn kernel_depends_on_neither_aws_nor_async_crates() {
    for name in ["daybook-decider", "aggregates", "daybook-projection", "projections", "daybook-simulation"] {
        for used in &dependencies()[name] {
            let foreign = ["aws", "lambda", "tokio", "serde_dynamo", "futures"];
            assert!(!foreign.iter().any(|prefix| used.starts_with(prefix)), "{name} uses {used}");
        }
    }
}

#[test]
fn facade_without_features_contains_only_the_kernels() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--prefix", "none", "--format", "{p}", "--package", "aggregates"])
        .args(["--package", "projections", "--edges", "normal"])
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let own: BTreeSet<_> =
        tree.lines().filter(|line| line.contains(" (/")).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(
        own.into_iter().collect::<Vec<_>>(),
        ["aggregates", "daybook-decider", "daybook-macros", "daybook-projection", "daybook-suite", "projections"]
    );
    for foreign in ["aws-", "lambda_", "tokio ", "axum ", "serde_dynamo "] {
        assert!(!tree.lines().any(|line| line.starts_with(foreign)), "{foreign}: {tree}");
    }
}

/// `daybook-admin` uses the client of the event store.
#[test]
fn only_the_stores_and_the_consumer_have_a_dynamodb_client() {
    let owners: Vec<_> = dependencies()
        .into_iter()
        .filter(|(name, _)| !["suite-tests", TEST_SUPPORT].contains(&name.as_str()))
        .filter(|(_, uses)| uses.contains("aws-sdk-dynamodb"))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(owners, ["daybook-admin", "daybook-consumer", "daybook-event-store", "daybook-view-store"]);
}

#[test]
fn only_admin_and_the_view_store_use_the_internal_parts_of_the_event_store() {
    for file in ["app", "crates", "tests"].iter().flat_map(|folder| walk(&workspace().join(folder))) {
        let path = file.to_string_lossy().replace('\\', "/");
        let may_use = ["/crates/admin/", "/crates/view-store/", "/tests/support/", "/architecture.rs"];
        if !may_use.iter().any(|part| path.contains(part)) {
            assert!(!std::fs::read_to_string(&file).unwrap().contains("event_store::internal"), "{path}");
        }
    }
}

#[test]
fn only_the_local_services_use_sqlite() {
    for (name, uses) in dependencies().into_iter().filter(|(name, _)| name != TEST_SUPPORT) {
        let uses_sqlite = uses.contains("rusqlite") || uses.contains("dynoxide-rs");
        assert_eq!(uses_sqlite, name == "daybook-local-aws", "{name}");
    }
}

#[test]
fn attribute_names_are_written_only_in_the_table_crate() {
    let files = ["app", "crates"].map(|folder| walk(&workspace().join(folder)));
    for entry in files.into_iter().flatten() {
        let path = entry.to_string_lossy().replace('\\', "/");
        // The table crate itself, the consumer, which has another table, and the tests of filter patterns, which write
        // records on purpose.
        let allowed = ["/crates/table/", "/crates/consumer/", "/crates/event-source-mapping/", "/tests/", "/tests.rs"];
        if allowed.iter().any(|part| path.contains(part)) {
            continue;
        }
        let text = std::fs::read_to_string(&entry).unwrap();
        let product = text.split("#[cfg(test)]").next().unwrap();
        let code = product.lines().filter(|line| !line.trim_start().starts_with("//"));
        for (number, line) in code.enumerate() {
            for spelled in ["\"pk\"", "\"sk\"", "\"gsi1", "\"ttl\"", "AGGREGATE#", "OUTBOX#", "EVENT#", "SNAPSHOT#"] {
                assert!(!line.contains(spelled), "{path}, line of code {number}: {line}");
            }
        }
    }
}

#[test]
fn main_functions_are_short() {
    let files = ["app", "crates"].map(|folder| walk(&workspace().join(folder)));
    for main in files
        .into_iter()
        .flatten()
        .filter(|path| path.ends_with("main.rs") || path.parent().is_some_and(|folder| folder.ends_with("src/bin")))
    {
        let lines = std::fs::read_to_string(&main).unwrap().lines().count();
        assert!(lines <= 40 || main.to_string_lossy().contains("/tests/"), "{} has {lines} lines", main.display());
    }
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// A dependency of the tests could enable other features of `serde_json`. The tests would then run other code than is deployed.
#[test]
fn functions_have_the_same_json_features_as_the_tests() {
    let of = |packages: &[&str]| {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--locked", "--prefix", "none", "--format", "{p} {f}"])
            .args(packages)
            .current_dir(workspace())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let all = String::from_utf8(output.stdout).unwrap();
        all.lines().find(|line| line.starts_with("serde_json v")).unwrap().replace(" (*)", "")
    };
    let in_tests = of(&["--workspace"]);
    for function in [
        "daybook-command-handler",
        "daybook-projector",
        "daybook-reactor",
        "daybook-snapshotter",
        "daybook-stream-relay",
    ] {
        assert_eq!(of(&["--package", function, "--edges", "normal"]), in_tests, "{function}");
    }
}
