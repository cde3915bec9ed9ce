//! Reads and writes the files of a project, and the originals: the files of the release as they were written into it, with which the
//! next upgrade compares them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Component, Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::error::ScaffoldError;
use crate::files::File;

const MANIFEST: &str = "app/aggregates/Cargo.toml";

/// The folder of the project that contains the current folder, as a relative path.
pub fn find_project() -> Result<PathBuf, ScaffoldError> {
    let here = std::env::current_dir().map_err(ScaffoldError::of_file("find", Path::new(".")))?;
    let mut project = PathBuf::new();
    for _ in here.ancestors() {
        if project.join(MANIFEST).is_file() {
            return Ok(project);
        }
        project.push("..");
    }
    Err(ScaffoldError::NoProject { manifest: MANIFEST })
}

/// Checks that the project depends on the release of this binary.
pub(crate) fn check_release(project: &Path) -> Result<(), ScaffoldError> {
    // Without the entry, nothing was built yet, and the next build takes the version in `Cargo.toml`.
    let lock = fs::read_to_string(project.join("Cargo.lock")).unwrap_or_default();
    let mut lines = lock.lines().skip_while(|line| *line != "name = \"daybook-cli\"");
    let locked = lines.nth(1).and_then(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    match locked {
        Some(locked) if locked != env!("CARGO_PKG_VERSION") => {
            Err(ScaffoldError::OtherRelease { locked: locked.to_owned() })
        }
        _ => Ok(()),
    }
}

/// The content of a file; none if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, ScaffoldError> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(ScaffoldError::of_file("read", path)),
    }
}

/// The text of a file with this content, with line ends as in the files of the release.
pub(crate) fn text(path: &Path, content: &[u8]) -> Result<String, ScaffoldError> {
    let text = str::from_utf8(content).map_err(|_| ScaffoldError::NotText { path: path.to_owned() })?;
    Ok(if has_crlf(content) { text.replace("\r\n", "\n") } else { text.to_owned() })
}

/// Writes the text of a file whose content was `found`, with the line ends that it had.
pub(crate) fn write_text(path: &Path, text: &str, found: Option<&[u8]>) -> Result<(), ScaffoldError> {
    if found.is_some_and(has_crlf) { write(path, text.replace('\n', "\r\n")) } else { write(path, text) }
}

/// Writes a file, and creates its folder. A killed process or a power failure leaves the old or the new file
/// as a whole.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), ScaffoldError> {
    let written = || -> io::Result<()> {
        // The file that a link leads to, not the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut unfinished =
            tempfile::Builder::new().prefix(".daybook-").make_in(folder, |path| fs::File::create_new(path))?;
        unfinished.write_all(content.as_ref())?;
        if let Ok(replaced) = fs::metadata(&path) {
            fs::set_permissions(unfinished.path(), replaced.permissions())?;
        }
        unfinished.as_file().sync_all()?;
        unfinished.persist(&path)?;
        Ok(())
    };
    written().map_err(ScaffoldError::of_file("write", path))
}

/// Whether lines end as on Windows. Only the first is looked at, because editors and Git write all lines in one way.
fn has_crlf(content: &[u8]) -> bool {
    let end = content.iter().position(|byte| *byte == b'\n');
    end.and_then(|end| content.get(end.checked_sub(1)?)) == Some(&b'\r')
}

/// The file of a project that contains the originals: one small file, because copies of the templates would double the project.
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

    /// The content of that file. The same originals result in the same bytes.
    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        serde_json::to_writer(&mut encoder, self)?;
        encoder.flush()?;
        encoder.finish()
    }
}
