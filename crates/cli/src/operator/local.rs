//! The local stacks of a project, as operator commands find them: each has a file below the folder `target` that contains its URL.
//!
//! Invariant: a file counts only while a process locks it, and the lock ends with the process, however that ends. So neither a stack
//! that was killed nor one of another project that now has its port is taken for a running stack of the project.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use daybook_aws_clients::http::HttpClient;
use daybook_function_runtime::with_causes;
use daybook_operations::OperatorError;
use daybook_scaffold::find_project;

const FOLDER: &str = "target/daybook-stacks";

const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Lets the commands of the project find a stack, until it is dropped.
pub(crate) struct Findable {
    path: PathBuf,
    _locked: File,
}

impl Findable {
    /// A stack with this URL; `None` outside of a project.
    pub(crate) fn start(url: &str) -> io::Result<Option<Self>> {
        let Ok(project) = find_project() else { return Ok(None) };
        let folder = project.join(FOLDER);
        fs::create_dir_all(&folder)?;
        let path = folder.join(url.rsplit(':').next().unwrap_or_default());
        let mut file = File::create(&path)?;
        // Shared, because a file that is locked exclusively cannot be read on Windows.
        file.lock_shared()?;
        file.write_all(url.as_bytes())?;
        Ok(Some(Self { path, _locked: file }))
    }
}

impl Drop for Findable {
    fn drop(&mut self) {
        // A file that is left over is not locked.
        let _ = fs::remove_file(&self.path);
    }
}

/// The URL of the local stack of the project that contains the current folder, and the variables that select it; `None` outside of
/// a project.
pub(crate) async fn find() -> Result<Option<(String, BTreeMap<String, String>)>, OperatorError> {
    let Ok(project) = find_project() else { return Ok(None) };
    let urls = running(&project);
    let [url] = urls.as_slice() else {
        let project = fs::canonicalize(project.join(".")).unwrap_or(project);
        let of_project = format!("of the project {}", project.display());
        let found = match urls.as_slice() {
            [] => format!("no local stack {of_project} is running: start it with `cargo run`"),
            several => format!(
                "{} local stacks {of_project} are running, at {}: select one with eval \"$(curl -s URL/_dev/environment)\"",
                several.len(),
                several.join(" and ")
            ),
        };
        return Err(OperatorError::Usage(format!(
            "no stack is named, and {found}, or name a deployed stack as --help describes"
        )));
    };
    let accepted = [("Accept", "application/json")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let response = HttpClient::new(url, None).send("GET", &format!("{url}/_dev/environment"), &accepted, None).await;
    let response = response.map_err(|error| {
        OperatorError::Failed(format!("the local stack at {url} does not respond: {}", with_causes(&*error)))
    })?;
    let variables = serde_json::from_str(&response.body)
        .map_err(|error| OperatorError::Failed(format!("the local stack at {url} is of another release: {error}")))?;
    Ok(Some((url.clone(), variables)))
}

fn running(project: &Path) -> Vec<String> {
    let url = |path: PathBuf| {
        // Another command may be looking at the same time, which also takes the lock.
        let is_locked = (0..3).all(|look| {
            std::thread::sleep(LOOK_AGAIN * look);
            File::open(&path).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
        });
        fs::read_to_string(path).ok().filter(|url| is_locked && !url.is_empty())
    };
    let files = fs::read_dir(project.join(FOLDER)).into_iter().flatten().flatten();
    let mut urls: Vec<_> = files.filter_map(|file| url(file.path())).collect();
    urls.sort();
    urls
}
