//! The files of the release as they were written into the project: what the next upgrade compares with.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Component, Path};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::error::ScaffoldError;
use crate::files::{File, release_paths};

/// The file of a project that contains them: one small file, because copies of the templates would double the project.
pub(crate) const ORIGINALS: &str = ".daybook/originals.json.gz";

/// Files that a project may have from a release that did not write the file above.
const EARLIER: [&str; 1] = ["tests/Cargo.toml"];

/// The originals. The stored format: later releases read it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Originals {
    /// The texts of the files, by their paths.
    pub(crate) files: BTreeMap<String, String>,
}

impl Originals {
    /// The originals of a project with these files.
    pub(crate) fn new(files: &[File]) -> Self {
        Self { files: files.iter().cloned().collect() }
    }

    /// The originals of a project.
    pub(crate) fn read(project: &Path) -> Result<Self, ScaffoldError> {
        let path = project.join(ORIGINALS);
        let file = match fs::File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(ScaffoldError::NoOriginals { path }),
            opened => opened.map_err(ScaffoldError::of_file("read", &path))?,
        };
        let read = serde_json::from_reader(io::BufReader::new(GzDecoder::new(file))).map_err(io::Error::from);
        let originals: Self = read.map_err(ScaffoldError::of_file("read", &path))?;
        // The project may come from somebody else.
        let is_inside = |path: &String| Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        match originals.files.keys().find(|file| !is_inside(file)) {
            Some(file) => {
                let error = io::Error::other(format!(
                    "it contains {file:?}, which is not in the project; restore the originals from your repository"
                ));
                Err(ScaffoldError::of_file("read", &path)(error))
            }
            None => Ok(originals),
        }
    }

    /// The files of the release in a project that nobody has changed.
    pub(crate) fn of_unchanged(project: &Path) -> Result<Self, ScaffoldError> {
        if project.join(ORIGINALS).exists() {
            return Self::read(project);
        }
        let mut files = BTreeMap::new();
        for path in release_paths().chain(EARLIER) {
            let file = project.join(path);
            match fs::read_to_string(&file) {
                Ok(text) => files.insert(path.to_owned(), text.replace("\r\n", "\n")),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(ScaffoldError::of_file("read", &file)(error)),
            };
        }
        Ok(Self { files })
    }

    /// The content of the file that contains them. The same originals result in the same bytes.
    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        serde_json::to_writer(&mut encoder, self)?;
        encoder.flush()?;
        encoder.finish()
    }
}
