//! The rows of each release: `tests/golden-rows/RELEASE/NAME.json`, in the notation of DynamoDB's own documents.
//!
//! The current release must read all of them, and write rows in the format of the newest ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::civil::Date;
use serde_json::Value;
use ulid::Ulid;

/// If this variable is set to `write`, the rows of this release are written.
const VARIABLE: &str = "GOLDEN_ROWS";

/// The rows of a file in each release that has it, the oldest release first.
pub fn releases(name: &str) -> Vec<(String, Vec<Value>)> {
    let mut releases: Vec<_> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    releases.retain(|release| release.join(name).exists());
    releases.sort_by_key(|release| numbers(release));
    let rows = |release: PathBuf| {
        let rows = serde_json::from_str(&fs::read_to_string(release.join(name)).unwrap()).unwrap();
        (release.file_name().unwrap().to_str().unwrap().to_owned(), rows)
    };
    releases.into_iter().map(rows).collect()
}

/// Asserts that rows have the format of the newest rows of the file. With `GOLDEN_ROWS=write`, they become those of this release.
///
/// # Panics
///
/// When a row has another format.
pub fn assert_format(name: &str, mut rows: Vec<Value>) {
    rows.sort_by_key(key);
    if std::env::var(VARIABLE).is_ok_and(|value| value == "write") {
        let version = env!("CARGO_PKG_VERSION");
        let changes = fs::read_to_string(folder().join("../../CHANGELOG.md")).unwrap();
        let is_open = changes.contains(&format!("## {version}, not released yet"));
        assert!(is_open, "the rows of release {version} never change, because CHANGELOG.md says that it is published");
        let folder = folder().join(version);
        fs::create_dir_all(&folder).unwrap();
        return fs::write(folder.join(name), serde_json::to_string_pretty(&rows).unwrap() + "\n").unwrap();
    }
    let (release, golden) = releases(name).pop().expect("a release has rows");
    let formats = |rows: &[Value]| rows.iter().map(|row| (key(row), format(row))).collect::<BTreeMap<_, _>>();
    let (golden, written) = (formats(&golden), formats(&rows));
    let keys: BTreeSet<_> =
        golden.keys().chain(written.keys()).filter(|key| golden.get(*key) != written.get(*key)).collect();
    for key in &keys {
        eprintln!("{key}\n  in release {release}: {:?}\n  now: {:?}", golden.get(*key), written.get(*key));
    }
    assert!(
        keys.is_empty(),
        "this code writes other rows than release {release} ({name}): {keys:?}. If the previous release can read them, run the test \
         with {VARIABLE}=write, which writes the rows of the version in Cargo.toml"
    );
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden-rows")
}

fn numbers(release: &Path) -> Vec<u64> {
    let name = release.file_name().unwrap().to_str().unwrap();
    name.split('.').map(|number| number.parse().unwrap()).collect()
}

/// The key of a row, without what differs in each run.
fn key(row: &Value) -> String {
    ["pk", "sk"].map(|name| general(row[name]["S"].as_str().unwrap_or_default())).join(" ")
}

/// What stays the same in each run: names, types, and all values but ids, times, checksums and compressed bytes.
fn format(value: &Value) -> Value {
    match value {
        Value::String(text) => general(text).into(),
        Value::Array(items) => items.iter().map(format).collect(),
        Value::Object(members) => {
            let format_member = |(name, value): (&String, &Value)| {
                let varies = matches!(name.as_str(), "ttl" | "sum" | "writeId" | "B" | "sealed");
                (general(name), if varies { types(value) } else { format(value) })
            };
            Value::Object(members.iter().map(format_member).collect())
        }
        value => value.clone(),
    }
}

/// The type of an attribute.
fn types(value: &Value) -> Value {
    value.as_object().map(|types| types.keys().cloned().collect()).unwrap_or_default()
}

fn general(text: &str) -> String {
    if let Ok(value @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(text) {
        return format(&value).to_string();
    }
    let part = |part: &str| {
        let is_digest = part.len() >= 32 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        if Ulid::from_string(part).is_ok() {
            "<id>".to_owned()
        } else if part.parse::<Timestamp>().is_ok() {
            "<time>".to_owned()
        } else if part.parse::<Date>().is_ok() {
            "<day>".to_owned()
        } else if is_digest {
            "<digest>".to_owned()
        } else {
            part.to_owned()
        }
    };
    text.split('#').map(part).collect::<Vec<_>>().join("#")
}
