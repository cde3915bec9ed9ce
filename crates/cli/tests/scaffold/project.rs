//! Projects, and the command.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn daybook(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_daybook")).args(words).current_dir(folder).output().unwrap()
}

/// Runs a command that must succeed. Returns its output.
pub(crate) fn run(folder: &Path, words: &[&str]) -> String {
    let output = daybook(folder, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail with status 2. Returns its error.
pub(crate) fn fail(folder: &Path, words: &[&str]) -> String {
    let output = daybook(folder, words);
    assert_eq!(output.status.code(), Some(2), "{words:?}");
    assert_eq!(output.stdout, b"", "{words:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Runs a command that is killed when it writes more than this number of blocks of 512 bytes to a file.
pub(crate) fn interrupt(folder: &Path, words: &[&str], blocks: u32) {
    let script = format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    let output = command.args(["-c", &script, env!("CARGO_BIN_EXE_daybook")]).args(words).current_dir(folder).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), None, "{output:?}");
}

/// The files in a folder, by their paths, except those that an interrupted command has not finished.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for path in fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                if !path.ends_with(".git") {
                    folders.push(path);
                }
            } else if !path.file_name().unwrap().to_str().unwrap().starts_with(".daybook-") {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.insert(name, String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned());
            }
        }
    }
    found
}

/// Where a project gets Daybook from: this binary has no release.
pub(crate) const SOURCE: [&str; 2] = ["--git", "https://example.com/daybook"];

/// A new project `shop` with the aggregate `invoice`, and its folder.
pub(crate) fn shop() -> (TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    run(parent.path(), &[&["new", "shop", "--aggregate", "invoice"], &SOURCE[..]].concat());
    let shop = parent.path().join("shop");
    (parent, shop)
}
