//! `daybook new`, `daybook add` and `daybook upgrade`: the files that they write, and what they leave alone. `.ci/new-project` builds, runs and
//! tests a new project.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod project;
mod upgrade;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use self::project::{SOURCE, fail, files, interrupt, run, shop, workspace};

const LIB: &str = "app/aggregates/src/lib.rs";

#[test]
fn new_project_is_small_and_complete() {
    let (_parent, shop) = shop();
    let mut files = files(&shop);
    for template in ["template.yaml", "deploy/hook/hook.py", "deploy/monitoring.yaml", "deploy/read-models.yaml"] {
        assert_eq!(files.remove(template).unwrap(), fs::read_to_string(workspace().join(template)).unwrap());
    }
    let texts = files.iter().filter(|(name, _)| !name.ends_with(".gz"));
    let lines: usize = texts.map(|(_, text)| text.lines().count()).sum();
    assert!(files.len() <= 25 && lines <= 600, "{} files with {lines} lines: {:?}", files.len(), files.keys());
    assert!(files.remove(".daybook/originals.json.gz").unwrap().len() < 60_000);
    for (name, text) in &files {
        assert!(!text.contains("{{") || name.ends_with("ci.yml"), "{name} has a placeholder");
        assert!(!text.contains("Account") && !text.contains("Todo"), "{name} names a sample");
        assert!(text.ends_with('\n'), "{name}");
    }
    assert!(files["samconfig.toml"].contains("stack_name = \"shop-prod\""));
    assert!(files["app/aggregates/src/invoice.rs"].contains("const TYPE: &'static str = \"invoice\";"));
    assert!(files["README.md"].contains("localhost:3000/invoice"));
}

#[test]
fn new_project_is_a_valid_workspace() {
    let parent = tempfile::tempdir().unwrap();
    run(parent.path(), &["new", "shop", "--aggregate", "purchase-order", "--path", workspace().to_str().unwrap()]);
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(parent.path().join("shop"))
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let mut targets: Vec<_> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|package| package["targets"].as_array().unwrap())
        .filter(|target| target["kind"][0] == "bin")
        .map(|target| target["name"].as_str().unwrap())
        .collect();
    targets.sort_unstable();
    assert_eq!(targets, ["command-handler", "daybook", "projector", "snapshotter", "stream-relay"]);
}

#[test]
fn new_project_gets_daybook_from_where_it_is_told() {
    let parent = tempfile::tempdir().unwrap();
    let sources = workspace().canonicalize().unwrap();
    let read = |name: &str, file: &str| fs::read_to_string(parent.path().join(name).join(file)).unwrap();
    let dependency = |name: &str, options: &[&str]| {
        run(parent.path(), &[&["new", name], options].concat());
        let manifest = read(name, "Cargo.toml");
        manifest.lines().find_map(|line| line.strip_prefix("daybook = ")).unwrap().to_owned()
    };
    assert_eq!(
        dependency("b", &["--git", "https://example.com/d"]),
        "{ package = \"daybook-suite\", git = \"https://example.com/d\" }"
    );
    let path = dependency("c", &["--path", sources.to_str().unwrap()]);
    assert_eq!(path, format!("{{ package = \"daybook-suite\", path = {:?} }}", sources.join("crates/daybook")));
    // Its README names the documents there.
    let documents = sources.join("docs").display().to_string();
    for (name, place) in [("b", "https://example.com/d"), ("c", &documents)] {
        assert!(read(name, "README.md").contains(place), "{place}");
    }
}

/// `.ci/new-project` creates a project from the template with `cargo lambda`.
#[test]
fn template_for_cargo_lambda_differs_from_a_project_only_in_the_name() {
    let (parent, shop) = shop();
    run(parent.path(), &[&["new", "template", "--aggregate", "invoice", "--lambda-template"], &SOURCE[..]].concat());
    let mut template = files(&parent.path().join("template"));
    assert!(template.remove("CargoLambda.toml").unwrap().contains("ignore_files = [\"CargoLambda.toml\"]"));
    let mut shop = files(&shop);
    for files in [&mut template, &mut shop] {
        files.remove(".daybook/originals.json.gz").unwrap();
    }
    let named: BTreeMap<_, _> =
        template.iter().map(|(path, text)| (path.clone(), text.replace("{{ project_name }}", "shop"))).collect();
    assert_eq!(named, shop);
    template.retain(|_, text| text.contains("{{ "));
    // Those that `cargo lambda` renders, and the workflow, which it copies.
    assert_eq!(template.keys().collect::<Vec<_>>(), [".github/workflows/ci.yml", "README.md", "samconfig.toml"]);
}

#[test]
fn new_with_an_unusable_argument_creates_nothing() {
    let parent = tempfile::tempdir().unwrap();
    for (words, expected) in [
        (&["new", "My Shop"][..], "the name \"My Shop\" cannot be used"),
        (&["new", "../shop"], "the name \"../shop\" cannot be used"),
        (&["new", "shop", "--aggregate", "Invoice"], "the name \"Invoice\" cannot be used"),
        (&["new", "shop", "--aggregate", "type"], "the name \"type\" cannot be used"),
        (&["new", "shop", "--aggregate", "bigInvoice"], "try big-invoice"),
        (&["new", "shop", "--path", "nowhere"], "nowhere does not contain the sources of Daybook"),
        (&["new", "shop"], "was built from sources, not from a release of crates.io; add --path DIR"),
    ] {
        let error = fail(parent.path(), words);
        assert!(error.contains(expected), "{error}");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0, "{words:?}");
    }
}

#[test]
fn new_leaves_a_folder_with_content_alone() {
    let parent = tempfile::tempdir().unwrap();
    fs::create_dir(parent.path().join("shop")).unwrap();
    let new = |name| [&["new", name], &SOURCE[..]].concat();
    run(parent.path(), &new("shop"));
    fs::write(parent.path().join("shop/README.md"), "mine").unwrap();
    let before = files(parent.path());
    let error = fail(parent.path(), &new("shop"));
    assert!(error.contains("shop exists and is not an empty folder"), "{error}");
    fs::write(parent.path().join("file"), "").unwrap();
    assert!(fail(parent.path(), &new("file")).contains("file exists"));
    fs::remove_file(parent.path().join("file")).unwrap();
    assert_eq!(files(parent.path()), before);
}

#[test]
fn added_aggregate_is_registered_once() {
    let (_parent, shop) = shop();
    let before = files(&shop);
    let printed = run(&shop, &["add", "aggregate", "purchase-order"]);
    assert!(printed.contains("wrote app/aggregates/src/purchase_order.rs\n"), "{printed}");
    let call = r#"`curl --json '{"title": "First"}' http://localhost:3000/purchase-order`"#;
    assert!(printed.ends_with(&format!("While `cargo run` runs, {call} creates one.\n")), "{printed}");
    let mut after = files(&shop);
    let lib = after.remove(LIB).unwrap();
    let line = |text: &str| lib.lines().position(|line| line.trim() == text).unwrap();
    assert!(line("pub mod invoice;") < line("pub mod purchase_order;"));
    assert!(line("let registry = registry.with::<purchase_order::PurchaseOrder>()?;") < line("Ok(registry)"));
    assert!(after["app/aggregates/golden/purchase-order.json"].contains("\"PurchaseOrderCreated\""));
    assert!(after["events/command-handler/purchase-order-create.json"].contains("\"rawPath\": \"/purchase-order\""));
    assert_eq!(after.len() + 1, before.len() + 5);

    assert_eq!(run(&shop, &["add", "aggregate", "purchase-order"]), "Nothing to do: it is in the project already.\n");
    after.insert(LIB.to_owned(), lib);
    assert_eq!(files(&shop), after);
}

#[test]
fn add_completes_what_is_missing() {
    let (_parent, shop) = shop();
    run(&shop, &["add", "aggregate", "payment"]);
    let complete = files(&shop);
    fs::remove_file(shop.join("app/aggregates/golden/payment.json")).unwrap();
    let printed = run(&shop, &["add", "aggregate", "payment"]);
    let written: Vec<_> = printed.lines().filter(|line| line.starts_with("wrote ")).collect();
    assert_eq!(written, ["wrote app/aggregates/golden/payment.json"]);
    assert_eq!(files(&shop), complete);
}

#[test]
fn add_changes_nothing_if_a_file_has_other_content() {
    let (_parent, shop) = shop();
    fs::write(shop.join("events/command-handler/payment-create.json"), "{}\n").unwrap();
    let before = files(&shop);
    let error = fail(&shop, &["add", "aggregate", "payment"]);
    assert!(error.contains("events/command-handler/payment-create.json exists with other content"), "{error}");
    assert_eq!(files(&shop), before);

    fs::write(shop.join(LIB), "pub fn registry() {}\n").unwrap();
    let before = files(&shop);
    let error = fail(&shop, &["add", "aggregate", "refund"]);
    assert!(error.contains("add \"let registry = registry.with::<refund::Refund>()?;\" yourself"), "{error}");
    assert_eq!(files(&shop), before);
}

#[test]
fn add_in_a_folder_of_a_project_adds_to_the_project() {
    let (_parent, shop) = shop();
    let printed = run(&shop.join("app/aggregates"), &["add", "aggregate", "payment"]);
    assert!(printed.contains("wrote ../../app/aggregates/src/payment.rs\n"), "{printed}");
    assert_eq!(run(&shop, &["add", "aggregate", "payment"]), "Nothing to do: it is in the project already.\n");
}

#[test]
fn registration_preserves_the_line_ends_of_windows_and_a_link() {
    let (_parent, shop) = shop();
    let to_crlf = |path: &str| {
        let text = fs::read_to_string(shop.join(path)).unwrap();
        fs::write(shop.join(path), text.replace('\n', "\r\n")).unwrap();
    };
    to_crlf(LIB);
    fs::rename(shop.join(LIB), shop.join("registrations.rs")).unwrap();
    std::os::unix::fs::symlink("../../../registrations.rs", shop.join(LIB)).unwrap();
    run(&shop, &["add", "aggregate", "payment"]);
    let text = fs::read_to_string(shop.join("registrations.rs")).unwrap();
    assert!(text.contains("pub mod payment;\r\n"), "{text}");
    assert_eq!(text.matches('\n').count(), text.matches("\r\n").count());
    assert!(fs::symlink_metadata(shop.join(LIB)).unwrap().is_symlink());
    // Git may have converted the files that were added.
    to_crlf("app/aggregates/src/payment.rs");
    assert_eq!(run(&shop, &["add", "aggregate", "payment"]), "Nothing to do: it is in the project already.\n");
}

#[test]
fn interrupted_add_leaves_the_registrations_whole_and_continues_when_it_is_run_again() {
    let (_parent, shop) = shop();
    let mut lib = fs::read_to_string(shop.join(LIB)).unwrap();
    lib += &format!("// {}\n", "x".repeat(20_000));
    fs::write(shop.join(LIB), &lib).unwrap();
    // The other files are shorter than the limit.
    interrupt(&shop, &["add", "aggregate", "payment"], 16);
    assert_eq!(fs::read_to_string(shop.join(LIB)).unwrap(), lib);
    run(&shop, &["add", "aggregate", "payment"]);
    assert!(fs::read_to_string(shop.join(LIB)).unwrap().contains("pub mod payment;\n"));
}

#[test]
fn added_projection_follows_a_registered_aggregate() {
    // The binary of these tests has the aggregates of the workspace.
    let (_parent, shop) = shop();
    assert!(fail(&shop, &["add", "projection", "paid", "--of", "invoice"]).contains("no aggregate \"invoice\""));
    let printed = run(&shop, &["add", "projection", "big-orders", "--of", "order"]);
    assert!(printed.contains("GET /views/big-orders lists its rows, and GET /views/big-orders/KEY returns one.\n"));
    assert!(printed.ends_with("    cargo run -- projection rebuild big-orders\n"), "{printed}");
    // The variables are those of the page, so they fit the local stack.
    let page = fs::read_to_string(workspace().join("docs/operating.md")).unwrap();
    let variables: Vec<_> = printed.split_whitespace().filter(|word| word.contains('=')).collect();
    assert_eq!(variables.len(), 5, "{printed}");
    assert!(variables.iter().all(|variable| page.contains(variable)), "{printed}");
    run(&shop, &["add", "projection", "all-orders", "--of", "order"]);
    let lib = fs::read_to_string(shop.join("app/projections/src/lib.rs")).unwrap();
    let at = |text: &str| lib.find(text).unwrap_or_else(|| panic!("no {text} in {lib}"));
    assert!(at("pub mod all_orders;") < at("pub mod big_orders;"));
    assert!(at("projections.with::<big_orders::BigOrders>()?;") < at("projections.with::<all_orders::AllOrders>()?;"));
    assert!(at("projections.with::<all_orders::AllOrders>()?;") < at("    Ok(projections)\n"));
}

#[test]
fn added_consumer_has_a_template_of_its_own() {
    let (_parent, shop) = shop();
    let before = files(&shop);
    let printed = run(&shop, &["add", "consumer", "stock-list", "--of", "order"]);
    let call =
        "  cargo build && cargo run -- --rule 'order/* -> queue:stock-list -> function:target/debug/stock-list'\n";
    assert!(printed.ends_with(call), "{printed}");
    let mut after = files(&shop);
    after.retain(|name, _| !before.contains_key(name));
    assert_eq!(after.len(), 5, "{:?}", after.keys());
    assert!(after.values().all(|text| !text.contains("{{") && !text.contains("mails")));
    assert!(after["app/stock-list/template.yaml"].contains("BuildProperties: { Binary: stock-list }"));
    assert!(after["app/stock-list/template.yaml"].contains("aggregateType: [order]"));
    assert!(after["app/stock-list/src/main.rs"].contains("daybook::consumer::run(StockList)"));
    assert_eq!(
        run(&shop, &["add", "consumer", "stock-list", "--of", "order"]),
        "Nothing to do: it is in the project already.\n"
    );
}

#[test]
fn add_outside_of_a_project_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = fail(folder.path(), &["add", "aggregate", "payment"]);
    assert!(error.contains("in the folder of a project"), "{error}");
    assert_eq!(files(folder.path()), BTreeMap::new());
}
