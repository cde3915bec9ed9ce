//! Creates the folder of a project, and adds files to a project.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::ScaffoldError;
use crate::files::{File, own_files, release_files};
use crate::generated::generated_files;
use crate::names::{ItemName, ProjectName};
use crate::project_file::{ORIGINALS, Originals, read, text, write, write_text};
use crate::source::{DaybookSource, Parameters};

/// A line in the file with the registrations of a crate.
pub struct Registration {
    pub file: &'static str,
    pub module: String,
    pub line: String,
    /// The line before which it is added.
    pub anchor: &'static str,
}

/// Creates the folder of a project with one aggregate, or a folder from which `cargo lambda new --template` creates projects. It
/// appears as a whole.
pub fn create_project(
    folder: &Path,
    project: &ProjectName,
    aggregate: &ItemName,
    source: &DaybookSource,
) -> Result<(), ScaffoldError> {
    let mut files = release_files(&Parameters::new(project, source));
    let originals = Originals::new(&files).encode().map_err(ScaffoldError::of_file("write", Path::new(ORIGINALS)))?;
    let manifest =
        files.iter().find(|(path, _)| path == "Cargo.toml").map(|(_, text)| text.clone()).unwrap_or_default();
    files.extend(generated_files(&manifest, false, false));
    files.extend(own_files(project, aggregate, source));
    if project.is_of_lambda_template() {
        files.push(("CargoLambda.toml".to_owned(), include_str!("../template/CargoLambda.toml").to_owned()));
    }
    let mut files: Vec<_> = files.into_iter().map(|(path, text)| (path, text.into_bytes())).collect();
    files.push((ORIGINALS.to_owned(), originals));
    create_folder(folder, &files)
}

/// Creates a folder with these files: with all of them or, after an error, none.
pub(crate) fn create_folder<T: AsRef<[u8]>>(folder: &Path, files: &[(String, T)]) -> Result<(), ScaffoldError> {
    let is_free = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => fs::symlink_metadata(folder).is_err(),
    };
    if !is_free {
        return Err(ScaffoldError::Exists { path: folder.to_owned() });
    }
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let unfinished = tempfile::Builder::new().prefix(".daybook-new-").tempdir_in(parent);
    let unfinished = unfinished.map_err(ScaffoldError::of_file("write in", parent))?;
    let content = unfinished.path().join("project");
    for (path, text) in files {
        write(&content.join(path), text)?;
    }
    fs::rename(&content, folder).map_err(ScaffoldError::of_file("create", folder))
}

/// Adds files to a project, and a registration if they need one. Returns those that are new, or have new lines.
pub fn add_files(
    project: &Path,
    files: &[File],
    registration: Option<&Registration>,
) -> Result<Vec<PathBuf>, ScaffoldError> {
    let mut missing = Vec::new();
    for (path, new) in files {
        let path = project.join(path);
        match read(&path)? {
            Some(found) if text(&path, &found)? == *new => {}
            Some(_) => return Err(ScaffoldError::Different { path }),
            None => missing.push((path, new.clone(), None)),
        }
    }
    if let Some(registration) = registration {
        let path = project.join(registration.file);
        let found = fs::read(&path).map_err(ScaffoldError::of_file("read", &path))?;
        if let Some(new) = register(&path, &text(&path, &found)?, registration)? {
            // It is written last, because a registration without its file does not compile.
            missing.push((path, new, Some(found)));
        }
    }
    let mut written = Vec::new();
    for (path, new, found) in missing {
        if let Err(error) = write_text(&path, &new, found.as_deref()) {
            for path in &written {
                // An error here is ignored: the first error is the one to report.
                let _ = fs::remove_file(path);
            }
            return Err(error);
        }
        written.push(path);
    }
    Ok(written)
}

/// The text of a file with a registration; `None` if the text contains the registration already.
fn register(path: &Path, text: &str, registration: &Registration) -> Result<Option<String>, ScaffoldError> {
    let Registration { module, line, .. } = registration;
    let anchor = registration.anchor;
    let declaration = format!("pub mod {module};");
    let mut lines: Vec<&str> = text.lines().collect();
    let has = |lines: &[&str], wanted: &str| lines.iter().position(|line| line.trim() == wanted);
    let (is_declared, is_registered) = (has(&lines, &declaration).is_some(), has(&lines, line).is_some());
    if is_declared && is_registered {
        return Ok(None);
    }
    let no_registration = || ScaffoldError::NoRegistration { path: path.to_owned(), anchor, line: line.clone() };
    let registration_line = format!("    {line}");
    if !is_registered {
        lines.insert(has(&lines, anchor).ok_or_else(no_registration)?, &registration_line);
    }
    if !is_declared {
        // Declarations are in the order of their names. The first one follows the imports.
        let is_module = |line: &&str| line.starts_with("pub mod ");
        let next = lines.iter().position(|line| is_module(line) && *line > declaration.as_str());
        let last = lines.iter().rposition(is_module);
        match (next, last, lines.iter().rposition(|line| line.starts_with("use "))) {
            (Some(at), ..) => lines.insert(at, &declaration),
            (None, Some(last), _) => lines.insert(last + 1, &declaration),
            (None, None, Some(imports)) => {
                lines.splice(imports + 1..imports + 1, ["", &declaration]);
            }
            (None, None, None) => return Err(no_registration()),
        }
    }
    Ok(Some(lines.join("\n") + "\n"))
}
