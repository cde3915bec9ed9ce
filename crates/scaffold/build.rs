//! Copies the files that a new project has in common with this workspace to the output folder. Sets the configuration
//! `daybook_release` if this is a package from crates.io.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The files of a new project that this workspace uses too: the name in `template`, and the path in this workspace. A package
/// from crates.io has only its own folder, so `.ci/with-shared-files` copies them to `template` for it.
const SHARED: &str = include_str!("shared.txt");

/// The file that cargo puts into a package.
const PACKAGED: &str = ".cargo_vcs_info.json";

fn main() {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(daybook_release)");
    if package.join(PACKAGED).is_file() {
        println!("cargo:rustc-cfg=daybook_release");
    }
    copy_shared(&package, &PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()));
}

fn copy_shared(package: &Path, output: &Path) {
    let is_checkout = package.ends_with("crates/scaffold");
    for line in SHARED.lines() {
        let (name, path) = line.split_once(' ').unwrap_or_else(|| panic!("shared.txt: no path in {line:?}"));
        let file = if is_checkout {
            package.join("../..").join(path.trim_start())
        } else {
            package.join("template").join(name)
        };
        println!("cargo:rerun-if-changed={}", file.display());
        let copied = fs::copy(&file, output.join(name));
        copied.unwrap_or_else(|error| panic!("cannot copy {}: {error}", file.display()));
    }
}
