//! `daybook upgrade`. An older release is simulated: a change of this release is undone in the project and in its originals.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::{GzDecoder, GzEncoder};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::project::{daybook, fail, files, interrupt, run, shop, workspace};

const ORIGINALS: &str = ".daybook/originals.json.gz";
const NOTHING: &str = concat!("Nothing to do: the project has the files of Daybook ", env!("CARGO_PKG_VERSION"), ".\n");

/// A line of Cargo.toml that an older release does not have.
const NEW_LINE: &str = "panic = \"unwind\"\n";

fn originals(shop: &Path) -> Value {
    serde_json::from_reader(GzDecoder::new(fs::File::open(shop.join(ORIGINALS)).unwrap())).unwrap()
}

fn set_originals(shop: &Path, originals: &Value) {
    let (text, mut encoded) = (originals.to_string(), Vec::new());
    GzEncoder::new(text.as_bytes(), Compression::fast()).read_to_end(&mut encoded).unwrap();
    fs::write(shop.join(ORIGINALS), encoded).unwrap();
}

/// Changes a text in a file of the project.
fn edit(shop: &Path, path: &str, from: &str, to: &str) {
    let file = shop.join(path);
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{from} in {path}");
    fs::write(file, text.replace(from, to)).unwrap();
}

/// Changes a text in a file of the project, as if it had been created so.
fn created_with(shop: &Path, path: &str, from: &str, to: &str) {
    edit(shop, path, from, to);
    let mut originals = originals(shop);
    originals["files"][path] = json!(fs::read_to_string(shop.join(path)).unwrap());
    set_originals(shop, &originals);
}

/// Adds a file to the project, as if it had been created with it. Without a text, removes it.
fn created_as(shop: &Path, path: &str, text: Option<&str>) {
    let mut originals = originals(shop);
    let files = originals["files"].as_object_mut().unwrap();
    match text {
        Some(text) => {
            fs::write(shop.join(path), text).unwrap();
            files.insert(path.to_owned(), json!(text));
        }
        None => {
            fs::remove_file(shop.join(path)).unwrap();
            files.remove(path).unwrap();
        }
    }
    set_originals(shop, &originals);
}

/// Runs a command that prints something to do, with status 1. Returns its output.
fn find(shop: &Path, words: &[&str]) -> String {
    let output = daybook(shop, words);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A project of an older release, which its user has changed: one file of each kind.
fn older_shop() -> (TempDir, PathBuf) {
    let (parent, shop) = shop();
    created_with(&shop, "Cargo.toml", NEW_LINE, "");
    edit(&shop, "Cargo.toml", "[workspace]\n", "[workspace] # mine\n");
    created_with(&shop, ".github/workflows/ci.yml", "      - run: cargo fmt --all --check\n", "");
    edit(&shop, "samconfig.toml", "RetentionDays=7", "RetentionDays=14");
    created_as(&shop, "tests/events.rs", None);
    created_as(&shop, "tests/Cargo.toml", Some("[package]\n"));
    edit(&shop, "app/aggregates/src/invoice.rs", "the title is empty", "no title");
    (parent, shop)
}

#[test]
fn upgrade_of_a_new_project_changes_nothing() {
    let (_parent, shop) = shop();
    let before = files(&shop);
    assert_eq!(run(&shop, &["upgrade", "--check"]), NOTHING);
    assert_eq!(run(&shop, &["upgrade"]), NOTHING);
    assert_eq!(files(&shop), before);
}

#[test]
fn upgrade_merges_the_changes_of_the_release_and_of_the_user() {
    let (_parent, shop) = older_shop();
    let mut expected = files(&shop);
    let (_other, new) = crate::project::shop();
    let mut new = files(&new);
    let manifest = new["Cargo.toml"].replace("[workspace]\n", "[workspace] # mine\n");
    expected.insert("Cargo.toml".to_owned(), manifest);
    expected.insert("tests/events.rs".to_owned(), new.remove("tests/events.rs").unwrap());
    expected.remove("tests/Cargo.toml").unwrap();
    let workflow = expected.get_mut(".github/workflows/ci.yml").unwrap();
    let line = "      - run: cargo clippy";
    *workflow = workflow.replace(line, &format!("      - run: cargo fmt --all --check\n{line}"));

    let lines = [
        ".github/workflows/ci.yml: changed by Daybook (Daybook +1 -0, you +0 -0)",
        "Cargo.toml: changed by Daybook and by you, in different places (Daybook +1 -0, you +1 -1)",
        "samconfig.toml: changed by you only (Daybook +0 -0, you +1 -1)",
        "tests/Cargo.toml: no longer part of Daybook, and not changed by you: removed (Daybook +0 -1, you +0 -0)",
        "tests/events.rs: a new file of Daybook (",
    ];
    let is_complete = |printed: &str| {
        let positions: Vec<_> = lines.iter().map(|line| printed.find(line)).collect();
        positions.is_sorted() && positions[0].is_some()
    };
    let before = files(&shop);
    let printed = find(&shop, &["upgrade", "--check"]);
    assert!(is_complete(&printed), "{printed}");
    assert!(printed.contains("\n+++ b/Cargo.toml\n"), "{printed}");
    assert!(printed.contains(&format!("\n+{NEW_LINE}")), "{printed}");
    assert!(
        !printed.contains("# mine\n+")
            && printed.ends_with("Nothing was changed. `daybook upgrade` applies the changes.\n")
    );
    assert_eq!(files(&shop), before);

    let printed = run(&shop, &["upgrade"]);
    assert!(is_complete(&printed) && !printed.contains("+++"), "{printed}");
    assert!(printed.contains("The version in Cargo.toml stays as you set it."), "{printed}");
    let mut after = files(&shop);
    let (stored, _) = (after.remove(ORIGINALS).unwrap(), expected.remove(ORIGINALS));
    assert_eq!(after, expected);

    for words in [&["upgrade"][..], &["upgrade", "--check"]] {
        let printed = run(&shop, words);
        assert!(printed.ends_with(NOTHING) && printed.lines().count() == 3, "{printed}");
        assert!(printed.contains("Cargo.toml: changed by you only (Daybook +0 -0, you +1 -1)\n"), "{printed}");
    }
    expected.insert(ORIGINALS.to_owned(), stored);
    assert_eq!(files(&shop), expected);
}

#[test]
fn conflicting_changes_stay_in_the_file_until_the_user_chooses() {
    let (_parent, shop) = shop();
    created_with(&shop, "samconfig.toml", "TrafficShift=AllAtOnce", "Traffic=AllAtOnce");
    edit(&shop, "samconfig.toml", "RetentionDays=7", "RetentionDays=14");
    let printed = find(&shop, &["upgrade"]);
    assert!(printed.contains("samconfig.toml: changed by Daybook and by you in the same place: edit it"), "{printed}");
    let merged = fs::read_to_string(shop.join("samconfig.toml")).unwrap();
    let line = |traffic: &str, days: u8| {
        format!(
            "parameter_overrides = [\"{traffic}=AllAtOnce\", \"DeletionProtection=false\", \"RetentionDays={days}\"]\n"
        )
    };
    let conflict = format!(
        "<<<<<<< ours\n{}||||||| original\n{}=======\n{}>>>>>>> theirs\n",
        line("Traffic", 14),
        line("Traffic", 7),
        line("TrafficShift", 7)
    );
    assert!(merged.contains(&conflict), "{merged}");

    // A later release changes another file.
    created_with(&shop, ".gitignore", "/target\n", "/build\n");
    let before = files(&shop);
    for words in [&["upgrade"][..], &["upgrade", "--check"]] {
        let printed = find(&shop, words);
        assert!(printed.contains("samconfig.toml: has conflicts of an earlier upgrade: edit it"), "{printed}");
        assert!(
            printed.ends_with("Nothing was changed. Resolve the conflicts of the earlier upgrade first.\n"),
            "{printed}"
        );
    }
    assert_eq!(files(&shop), before);
    edit(&shop, "samconfig.toml", &conflict, &line("TrafficShift", 14));
    assert!(run(&shop, &["upgrade"]).contains(".gitignore: changed by Daybook ("));
    assert!(run(&shop, &["upgrade"]).ends_with(NOTHING));
}

#[test]
fn upgrade_continues_where_an_interrupted_one_ended() {
    let (_parent, shop) = older_shop();
    let before = originals(&shop);
    run(&shop, &["upgrade"]);
    let after = files(&shop);
    // An interruption after the last file, and one within the originals.
    set_originals(&shop, &before);
    interrupt(&shop, &["upgrade"], 1);
    run(&shop, &["upgrade"]);
    assert_eq!(files(&shop), after);

    // Interruptions within a changed and within a new file.
    let (_parent, shop) = older_shop();
    fs::remove_file(shop.join("template.yaml")).unwrap();
    for blocks in [1, 16] {
        interrupt(&shop, &["upgrade"], blocks);
    }
    run(&shop, &["upgrade"]);
    assert_eq!(files(&shop), after);
}

#[test]
fn file_that_the_user_has_deleted_stays_deleted() {
    let (_parent, shop) = shop();
    created_with(&shop, ".github/workflows/ci.yml", "timeout-minutes: 60", "timeout-minutes: 50");
    for path in [".github/workflows/ci.yml", "tests/events.rs"] {
        fs::remove_file(shop.join(path)).unwrap();
    }
    let printed = run(&shop, &["upgrade"]);
    assert!(printed.contains("ci.yml: changed by Daybook, but deleted by you: it stays deleted"), "{printed}");
    assert!(!printed.contains("tests/events.rs"), "{printed}");
    assert!(!shop.join(".github/workflows/ci.yml").exists() && !shop.join("tests/events.rs").exists());
    assert_eq!(run(&shop, &["upgrade"]), NOTHING);
}

#[test]
fn file_that_the_release_has_no_longer_stays_if_the_user_has_changed_it() {
    let (_parent, shop) = shop();
    created_as(&shop, "tests/Cargo.toml", Some("[package]\n"));
    edit(&shop, "tests/Cargo.toml", "[package]\n", "[package]\n# mine\n");
    let printed = run(&shop, &["upgrade"]);
    assert!(
        printed.contains("tests/Cargo.toml: no longer part of Daybook, but changed by you: delete it"),
        "{printed}"
    );
    assert_eq!(fs::read_to_string(shop.join("tests/Cargo.toml")).unwrap(), "[package]\n# mine\n");
    assert_eq!(run(&shop, &["upgrade"]), NOTHING);
}

#[test]
fn new_file_of_the_release_does_not_replace_one_of_the_user() {
    let (_parent, shop) = shop();
    let of_release = fs::read_to_string(shop.join("tests/events.rs")).unwrap();
    created_as(&shop, "tests/events.rs", None);
    fs::write(shop.join("tests/events.rs"), "// mine\n").unwrap();
    assert!(find(&shop, &["upgrade"]).contains("tests/events.rs: changed by Daybook and by you in the same place"));
    let text = fs::read_to_string(shop.join("tests/events.rs")).unwrap();
    assert!(text.starts_with("<<<<<<< ours\n// mine\n"), "{text}");
    assert!(text.contains(&of_release));
}

#[test]
fn upgrade_preserves_the_line_ends_of_windows_and_permissions() {
    use std::os::unix::fs::PermissionsExt;

    let (_parent, shop) = older_shop();
    for path in ["Cargo.toml", "tests/Cargo.toml", "samconfig.toml", "template.yaml"] {
        let text = fs::read_to_string(shop.join(path)).unwrap();
        fs::write(shop.join(path), text.replace('\n', "\r\n")).unwrap();
    }
    fs::set_permissions(shop.join("Cargo.toml"), fs::Permissions::from_mode(0o640)).unwrap();
    let printed = run(&shop, &["upgrade"]);
    assert!(
        printed.contains("Cargo.toml: changed by Daybook and by you, in different places (Daybook +1 -0, you +1 -1)")
    );
    assert!(!printed.contains("template.yaml"), "{printed}");
    let text = fs::read_to_string(shop.join("Cargo.toml")).unwrap();
    assert!(text.contains(&NEW_LINE.replace('\n', "\r\n")) && text.contains("[workspace] # mine\r\n"));
    assert_eq!(text.matches('\n').count(), text.matches("\r\n").count());
    assert_eq!(fs::metadata(shop.join("Cargo.toml")).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(!shop.join("tests/Cargo.toml").exists());
}

#[test]
fn project_without_originals_is_upgraded_with_those_of_an_unchanged_one() {
    let sources = workspace().canonicalize().unwrap();
    for options in [["--git", "https://example.com/d"], ["--path", sources.to_str().unwrap()]] {
        let (parent, first) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in [&parent, &first] {
            run(folder.path(), &[&["new", "shop", "--aggregate", "invoice"], &options[..]].concat());
        }
        let (shop, unchanged) = (parent.path().join("shop"), first.path().join("shop"));
        let originals = ".daybook/originals.json.gz";
        fs::remove_file(shop.join(originals)).unwrap();
        edit(&shop, "samconfig.toml", "RetentionDays=7", "RetentionDays=14");
        let before = files(&shop);
        let error = fail(&shop, &["upgrade"]);
        assert!(error.contains(".daybook/originals.json.gz does not exist"), "{error}");
        assert_eq!(files(&shop), before);

        created_with(&unchanged, "Cargo.toml", NEW_LINE, "");
        fs::copy(unchanged.join("Cargo.toml"), shop.join("Cargo.toml")).unwrap();
        fs::copy(unchanged.join(originals), shop.join(originals)).unwrap();
        run(&shop, &["upgrade"]);
        assert!(fs::read_to_string(shop.join("Cargo.toml")).unwrap().contains(NEW_LINE));
        assert!(fs::read_to_string(shop.join("samconfig.toml")).unwrap().contains("RetentionDays=14"));
        let printed = run(&shop, &["upgrade"]);
        assert_eq!(printed, format!("samconfig.toml: changed by you only (Daybook +0 -0, you +1 -1)\n{NOTHING}"));
    }
}

#[test]
fn upgrade_to_another_release_than_that_of_the_dependency_is_an_error() {
    let (_parent, shop) = older_shop();
    let lock = |version: &str| format!("[[package]]\nname = \"daybook-cli\"\nversion = \"{version}\"\n");
    fs::write(shop.join("Cargo.lock"), lock("0.0.7")).unwrap();
    let before = files(&shop);
    let error = fail(&shop, &["upgrade"]);
    assert!(error.contains("Cargo.lock has Daybook 0.0.7, but this `daybook` is of release"), "{error}");
    assert_eq!(files(&shop), before);
    fs::write(shop.join("Cargo.lock"), lock(env!("CARGO_PKG_VERSION"))).unwrap();
    run(&shop, &["upgrade"]);
}

#[test]
fn upgrade_that_cannot_read_a_file_changes_nothing() {
    let (_parent, shop) = older_shop();
    fs::create_dir(shop.join("tests/events.rs")).unwrap();
    let before = files(&shop);
    assert!(fail(&shop, &["upgrade"]).contains("cannot read tests/events.rs"));
    fs::remove_dir(shop.join("tests/events.rs")).unwrap();
    fs::write(shop.join("tests/events.rs"), [0xff]).unwrap();
    assert!(fail(&shop, &["upgrade"]).contains("tests/events.rs is not UTF-8"));
    fs::remove_file(shop.join("tests/events.rs")).unwrap();
    assert_eq!(files(&shop), before);
    let mut outside = originals(&shop);
    outside["files"]["../mine.txt"] = json!("mine");
    fs::write(shop.join("../mine.txt"), "mine").unwrap();
    set_originals(&shop, &outside);
    let error = fail(&shop, &["upgrade"]);
    assert!(error.contains("it contains \"../mine.txt\", which is not in the project"), "{error}");
    assert_eq!(fs::read_to_string(shop.join("../mine.txt")).unwrap(), "mine");
    fs::write(shop.join(ORIGINALS), "no gzip").unwrap();
    assert!(fail(&shop, &["upgrade"]).contains("cannot read .daybook/originals.json.gz"));
    let outside = tempfile::tempdir().unwrap();
    assert!(fail(outside.path(), &["upgrade"]).contains("in the folder of a project"));
}

#[test]
fn generated_file_is_replaced_and_the_text_of_an_edited_one_is_kept() {
    let (_parent, shop) = shop();
    let new = files(&shop);
    // Another text that was generated: that of a project with resources of its own.
    run(&shop, &["add", "resources"]);
    fs::remove_file(shop.join("deploy/own.yaml")).unwrap();
    fs::remove_file(shop.join("deploy/monitoring.yaml")).unwrap();
    let printed = find(&shop, &["upgrade", "--check"]);
    assert!(
        printed.contains("\n-  Own:\n") && printed.ends_with("`daybook upgrade` applies the changes.\n"),
        "{printed}"
    );
    let printed = run(&shop, &["upgrade"]);
    assert!(printed.contains("deploy/monitoring.yaml: a new file of Daybook (Daybook +"), "{printed}");
    assert!(printed.contains("template.yaml: changed by Daybook (Daybook +"), "{printed}");
    assert_eq!(files(&shop), new);

    for (mine, kept) in
        [("# a\n", "template.yaml.edited"), ("# b\n", "template.yaml.edited-2"), ("# a\n", "template.yaml.edited")]
    {
        let edited = format!("{}{mine}", new["template.yaml"]);
        fs::write(shop.join("template.yaml"), &edited).unwrap();
        let printed = find(&shop, &["upgrade"]);
        let expected =
            format!("template.yaml: generated by Daybook, but edited by you: replaced. Your text is in {kept}; ");
        assert!(printed.contains(&expected), "{printed}");
        assert_eq!(fs::read_to_string(shop.join(kept)).unwrap(), edited);
        assert_eq!(fs::read_to_string(shop.join("template.yaml")).unwrap(), new["template.yaml"]);
        assert_eq!(run(&shop, &["upgrade"]), NOTHING);
    }
    assert_eq!(files(&shop).len(), new.len() + 2);
}
