//! The checkpoint file of a long command: how far it has come, so that a later run continues there.
//!
//! Invariants:
//! - The file is replaced as a whole: after a crash it has the old content or the new one.
//! - It belongs to one command with one table and one set of options. A run with others rejects it.
//! - It is written only after the results before its position are done and printed. So a run that continues may repeat
//!   the last results before a crash, and leaves out none.
//! - It is deleted when the command is done.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::error::OperatorError;

const INTERVAL: Duration = Duration::from_secs(1);

pub const CHECKPOINT_HELP: &str = "Store the progress in this file. If the file exists, continue where the run that wrote it \
                                   ended, with the same options. The file is deleted when the command is done";

/// The command, its table and its options: what a checkpoint belongs to.
pub type CheckpointOwner = Map<String, Value>;

#[derive(Serialize, Deserialize)]
struct Content<O, P> {
    owner: O,
    progress: P,
}

/// The checkpoint of a run. Without a file, it does nothing.
#[derive(Debug)]
pub struct Checkpoint {
    file: Option<PathBuf>,
    owner: CheckpointOwner,
    written_at: Option<Instant>,
}

impl Checkpoint {
    /// Opens the checkpoint of a run. Returns it with the progress of the run that wrote the file, if there is a file.
    pub fn open<P: DeserializeOwned>(
        file: Option<&Path>,
        owner: CheckpointOwner,
    ) -> Result<(Self, Option<P>), OperatorError> {
        let this = Self { file: file.map(Path::to_owned), owner, written_at: None };
        let Some(file) = &this.file else { return Ok((this, None)) };
        let text = match fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((this, None)),
            text => text.map_err(|source| failed(file, source))?,
        };
        let unusable = |reason: String| {
            let file = file.display();
            OperatorError::Usage(format!("cannot continue from the checkpoint {file}: {reason}; use another file"))
        };
        let content: Content<CheckpointOwner, Value> =
            serde_json::from_str(&text).map_err(|error| unusable(format!("it is not a checkpoint: {error}")))?;
        if let Some(reason) = difference(&content.owner, &this.owner) {
            return Err(unusable(format!("{reason}. Use the same options")));
        }
        let progress = serde_json::from_value(content.progress)
            .map_err(|error| unusable(format!("another release of daybook wrote it: {error}")))?;
        Ok((this, Some(progress)))
    }

    /// Writes the progress if the last write is a second ago.
    pub fn write(&mut self, progress: &impl Serialize) -> Result<(), OperatorError> {
        if self.written_at.is_some_and(|at| at.elapsed() < INTERVAL) {
            return Ok(());
        }
        self.write_now(progress)
    }

    pub fn write_now(&mut self, progress: &impl Serialize) -> Result<(), OperatorError> {
        let Some(file) = &self.file else { return Ok(()) };
        let content = serde_json::to_vec(&Content { owner: &self.owner, progress }).map_err(io::Error::from);
        content.and_then(|content| replace(file, &content)).map_err(|source| failed(file, source))?;
        self.written_at = Some(Instant::now());
        Ok(())
    }

    /// Deletes the file: the command is done.
    pub fn finish(self) -> Result<(), OperatorError> {
        let Some(file) = &self.file else { return Ok(()) };
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(file, error)),
            _ => Ok(()),
        }
    }

    /// How to continue after a command stopped early; `otherwise` without a file.
    pub fn how_to_go_on(&self, otherwise: String) -> String {
        match &self.file {
            Some(file) => format!("run it again with the same options: {} has the progress", file.display()),
            None => otherwise,
        }
    }
}

fn failed(file: &Path, source: io::Error) -> OperatorError {
    OperatorError::File { doing: format!("cannot use the checkpoint {}", file.display()), source }
}

fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(".tmp");
    let new = PathBuf::from(name);
    let mut writing = File::create(&new)?;
    writing.write_all(content)?;
    writing.sync_all()?;
    fs::rename(new, file)
}

fn difference(of_file: &CheckpointOwner, of_run: &CheckpointOwner) -> Option<String> {
    let names = of_run.keys().chain(of_file.keys().filter(|name| !of_run.contains_key(*name)));
    let value = |owner: &CheckpointOwner, name: &str| owner.get(name).map_or("not set".to_owned(), Value::to_string);
    names.map(|name| (name, value(of_file, name), value(of_run, name))).find(|(_, stored, given)| stored != given).map(
        |(name, stored, given)| {
            format!("it belongs to another run, in which {name} was {stored}; in this one it is {given}")
        },
    )
}
