//! The sources of a binary, as cargo lists them beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The files beside the manifests of packages that decide what cargo builds.
const BUILD_FILES: [&str; 4] = ["Cargo.toml", "Cargo.lock", ".cargo/config.toml", "rust-toolchain.toml"];

#[derive(Clone, Debug)]
pub(super) struct SourceList {
    /// The file in which cargo lists the sources of the packages in folders, not those of packages from a registry.
    pub(super) list: PathBuf,
    /// The file with the `main` of the binary; `None` if it has another name than `main.rs`.
    main: Option<PathBuf>,
}

/// When a file was changed, and its length.
pub(super) type FileState = (SystemTime, u64);

pub(super) type SourceFiles = BTreeMap<PathBuf, FileState>;

impl SourceList {
    pub(super) fn of_binary(binary: &Path) -> Self {
        let list = binary.with_extension("d");
        Self { main: main_of(&listed_files(&list)).cloned(), list }
    }

    /// Whether cargo has listed the sources.
    pub(super) fn are_known(&self) -> bool {
        self.list.is_file()
    }

    /// The state of the files now. Besides the listed files, these are the files of their packages that cargo reads, and the
    /// Rust files in the folders of the packages' roots: a module that a build did not find is created later. The error is the
    /// file with the `main` of another project, whose build has replaced the binary: projects can share a target folder.
    pub(super) fn files(&self) -> Result<SourceFiles, PathBuf> {
        let listed = listed_files(&self.list);
        // The list may be incomplete while cargo writes it.
        if let (Some(own), Some(other)) = (&self.main, main_of(&listed))
            && own != other
        {
            return Err(other.clone());
        }
        let is_root = |file: &&PathBuf| file.ends_with("lib.rs") || file.ends_with("main.rs");
        let roots: BTreeSet<_> = listed.iter().filter(is_root).filter_map(|file| file.parent()).collect();
        let mut files: BTreeSet<_> = listed.iter().cloned().collect();
        for root in roots {
            add_rust_files(root, &mut files);
            files.extend(root.ancestors().flat_map(|folder| BUILD_FILES.map(|name| folder.join(name))));
        }
        Ok(files.into_iter().filter_map(|file| file_state(&file).map(|state| (file, state))).collect())
    }
}

pub(super) fn file_state(file: &Path) -> Option<FileState> {
    let metadata = fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// The files in a list `TARGET: FILE FILE …`, in which a space within a name is escaped.
fn listed_files(list: &Path) -> Vec<PathBuf> {
    let list = fs::read_to_string(list).unwrap_or_default();
    let line = list.lines().next().unwrap_or_default();
    let files = line.split_once(": ").map_or("", |(_, files)| files);
    let files = files.replace("\\ ", "\0");
    files.split_whitespace().map(|file| file.replace('\0', " ").into()).collect()
}

fn main_of(listed: &[PathBuf]) -> Option<&PathBuf> {
    listed.iter().find(|file| file.ends_with("main.rs"))
}

fn add_rust_files(folder: &Path, files: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add_rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.insert(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_the_listed_files_with_manifests_and_new_rust_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            fs::write(path(name), text).unwrap();
        };
        for name in ["shop/Cargo.toml", "shop/src/lib.rs", "shop/src/a b.rs", "shop/prices.json", "shop/README.md"] {
            write(name, "");
        }
        let listed = [path("shop/src/lib.rs"), path("shop/src/a b.rs"), path("shop/prices.json"), path("gone.rs")];
        let listed = listed.map(|path| path.to_str().unwrap().replace(' ', "\\ ")).join(" ");
        write("target/daybook.d", &format!("{}: {listed}\n", path("target/daybook").display()));

        let sources = SourceList::of_binary(&path("target/daybook"));
        assert!(sources.are_known() && !SourceList::of_binary(&path("target/other")).are_known());
        let names = |files: &SourceFiles| {
            let names = files.keys().filter_map(|file| file.strip_prefix(folder.path()).ok()?.to_str());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        let files = || sources.files().unwrap();
        let before = files();
        let expected = ["shop/Cargo.toml", "shop/prices.json", "shop/src/a b.rs", "shop/src/lib.rs"];
        assert_eq!(names(&before), expected);

        for (name, text) in [("shop/README.md", "changed"), ("shop/src/.lib.rs.swp", ""), ("shop/src/lib.rs~", "")] {
            write(name, text);
            assert_eq!(files(), before, "{name}");
        }
        let mut last = before;
        for (name, text) in [("shop/prices.json", "{}"), ("shop/src/new/part.rs", ""), ("shop/Cargo.lock", "")] {
            write(name, text);
            let now = files();
            assert_ne!(now, last, "{name}");
            last = now;
        }
        // Editors save by renaming another file.
        write("saved", "");
        fs::rename(path("saved"), path("shop/src/a b.rs")).unwrap();
        assert_ne!(files(), last);
    }
}
