//! Where the build finds the commit.

use std::fs;
use std::path::Path;

#[path = "../../build.rs"]
#[expect(
    dead_code,
    clippy::print_stdout,
    reason = "the tests call the parts of a build script, which prints for cargo"
)]
mod build;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn commit_is_read_from_the_files_of_git_and_of_a_package() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let found = || build::of_repository(root).map(|commit| commit.trim().to_owned());
    assert_eq!((found(), build::of_package(root)), (None, None));

    write(&root.join(".git/HEAD"), &format!("{COMMIT}\n"));
    assert_eq!(found().as_deref(), Some(COMMIT));
    write(&root.join(".git/HEAD"), "ref: refs/heads/main\n");
    assert_eq!(found(), None);
    write(&root.join(".git/packed-refs"), &format!("# pack-refs\n{COMMIT} refs/heads/main\n"));
    assert_eq!(found().as_deref(), Some(COMMIT));
    let newer = COMMIT.replace('0', "f");
    write(&root.join(".git/refs/heads/main"), &format!("{newer}\n"));
    assert_eq!(found(), Some(newer.clone()));

    let work_tree = root.join("other");
    write(&work_tree.join(".git"), "gitdir: ../.git/worktrees/other\n");
    write(&root.join(".git/worktrees/other/HEAD"), "ref: refs/heads/main\n");
    write(&root.join(".git/worktrees/other/commondir"), "../..\n");
    assert_eq!(build::of_repository(&work_tree).unwrap().trim(), newer);

    write(&root.join(".cargo_vcs_info.json"), &format!("{{\n  \"git\": {{\n    \"sha1\": \"{COMMIT}\"\n  }}\n}}"));
    assert_eq!(build::of_package(root).as_deref(), Some(COMMIT));
}
