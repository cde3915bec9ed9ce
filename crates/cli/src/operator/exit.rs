//! The exit status of a command that did not fail.

use std::io;
use std::process::ExitCode;

/// How a command ended. Scripts depend on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, and nothing is wrong.
    Clean = 0,
    /// Done, and something is wrong or left over, which was printed.
    Findings = 1,
    /// Ended by Ctrl-C.
    Interrupted = 130,
    /// Ended because nobody reads the output any more; the number is the one that shells report for a closed pipe.
    Unread = 141,
}

impl Exit {
    /// Clean, or unread where the output is a closed pipe.
    pub(crate) fn of_output(written: io::Result<()>) -> io::Result<Self> {
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Self::Unread),
            written => written.map(|()| Self::Clean),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
