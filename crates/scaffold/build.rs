//! Copies the files that a new project has in common with this workspace to the output folder. Sets the configuration
//! `daybook_release` if this is a package from crates.io.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The files of a new project that this workspace uses too: the name in `template`, and the path in this workspace. In a
/// package from crates.io, which has only its own folder, `template` contains them: cargo follows the links there. A checkout
/// is built without the links, because Windows may have none.
const SHARED: [(&str, &str); 23] = [
    ("aws.yaml", ".github/aws.yaml"),
    ("check-api", "deploy/check-api"),
    ("check-order", "deploy/check-order"),
    ("check-stack-policy", "deploy/check-stack-policy"),
    ("command-handler.rs.txt", "app/functions/src/bin/command-handler.rs"),
    ("consumer.yaml", "app/order-mails/template.yaml"),
    ("deny.toml", "deny.toml"),
    ("dependencies.yml", ".github/workflows/dependencies.yml"),
    ("deploy-to.yml", ".github/workflows/deploy-to.yml"),
    ("deploy.yml", ".github/workflows/deploy.yml"),
    ("env.json", "events/env.json"),
    ("gitignore", ".gitignore"),
    ("hook.py", "deploy/hook/hook.py"),
    ("monitoring.yaml", "deploy/monitoring.yaml"),
    ("operator.rs.txt", "app/operator/src/main.rs"),
    ("projector.rs.txt", "app/functions/src/bin/projector.rs"),
    ("read-models.yaml", "deploy/read-models.yaml"),
    ("requirements.txt", "deploy/requirements.txt"),
    ("sbom", "deploy/sbom"),
    ("snapshotter.rs.txt", "app/functions/src/bin/snapshotter.rs"),
    ("stack-policy.json", ".github/stack-policy.json"),
    ("stream-relay.rs.txt", "app/functions/src/bin/stream-relay.rs"),
    ("template.yaml", "template.yaml"),
];

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
    for (name, path) in SHARED {
        let file = if is_checkout { package.join("../..").join(path) } else { package.join("template").join(name) };
        println!("cargo:rerun-if-changed={}", file.display());
        let copied = fs::copy(&file, output.join(name));
        copied.unwrap_or_else(|error| panic!("cannot copy {}: {error}", file.display()));
    }
}
