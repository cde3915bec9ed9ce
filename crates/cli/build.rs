//! Sets the environment variable `DAYBOOK_VERSION` of the compiler: the version, and the commit if it is known.
//!
//! The commit comes from the variable `DAYBOOK_COMMIT`, from the file that cargo puts into a package, or from the files of git in
//! this repository. No program is run.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The variable that names the commit where the files of git are not there, as in a container.
const COMMIT: &str = "DAYBOOK_COMMIT";

/// The number of digits of a commit that are shown.
const DIGITS: usize = 12;

fn main() {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    println!("cargo:rerun-if-env-changed={COMMIT}");
    println!("cargo:rerun-if-changed=build.rs");
    let given = env::var(COMMIT).ok();
    let commit = given.or_else(|| of_package(&package)).or_else(|| of_repository(&package.join("../..")));
    let digits = commit.as_deref().map(str::trim).filter(|commit| is_commit(commit)).map(|commit| &commit[..DIGITS]);
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    match digits {
        Some(digits) => println!("cargo:rustc-env=DAYBOOK_VERSION={version} ({digits})"),
        None => println!("cargo:rustc-env=DAYBOOK_VERSION={version}"),
    }
}

fn is_commit(text: &str) -> bool {
    text.len() >= DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The commit in `.cargo_vcs_info.json`: `{"git": {"sha1": "…"}, …}`.
pub(crate) fn of_package(package: &Path) -> Option<String> {
    let text = read(&package.join(".cargo_vcs_info.json"))?;
    let (_, after) = text.split_once("\"sha1\"")?;
    after.split('"').nth(1).map(str::to_owned)
}

/// The commit that is checked out. `.git` is a folder, or in another work tree a file that names it.
pub(crate) fn of_repository(root: &Path) -> Option<String> {
    let dot_git = root.join(".git");
    let folder = match fs::read_to_string(&dot_git) {
        Ok(text) => root.join(text.strip_prefix("gitdir:")?.trim()),
        Err(_) => dot_git,
    };
    // Branches are in the folder of the main work tree.
    let common = fs::read_to_string(folder.join("commondir")).map_or(folder.clone(), |path| folder.join(path.trim()));
    // Changes with each commit, also when it creates the file of the branch, which may be missing now.
    let _ = read(&folder.join("logs/HEAD"));
    let head = read(&folder.join("HEAD"))?;
    let Some(branch) = head.trim().strip_prefix("ref: ") else { return Some(head) };
    read(&common.join(branch)).or_else(|| {
        let packed = read(&common.join("packed-refs"))?;
        let line = packed.lines().find(|line| line.ends_with(&format!(" {branch}")))?;
        line.split(' ').next().map(str::to_owned)
    })
}

/// The text of a file, whose change builds the version again.
fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    println!("cargo:rerun-if-changed={}", path.display());
    Some(text)
}
