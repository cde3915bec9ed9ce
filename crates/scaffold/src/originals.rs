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
use crate::files::File;

/// The file of a project that contains them: one small file, because copies of the templates would double the project.
pub(crate) const ORIGINALS: &str = ".daybook/originals.json.gz";

/// The originals. The stored format: later releases read it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Originals {
    pub(crate) files: BTreeMap<String, String>,
}

impl Originals {
    pub(crate) fn new(files: &[File]) -> Self {
        Self { files: files.iter().cloned().collect() }
    }

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

    /// The content of the file that contains them. The same originals result in the same bytes.
    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        serde_json::to_writer(&mut encoder, self)?;
        encoder.flush()?;
        encoder.finish()
    }
}
