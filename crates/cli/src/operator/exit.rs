//! The exit status of a command.

use std::io;
use std::process::ExitCode;

use daybook_operations::OperatorError;

/// How a command ended. Scripts depend on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command is done, and nothing is wrong.
    Clean = 0,
    /// The command is done, and has printed findings or items that it could not process.
    Findings = 1,
    /// The command is done, and nothing is wrong with what it could check, but it could not check everything.
    Incomplete = 3,
    /// Ctrl-C ended the command.
    Interrupted = 130,
    /// The reader of the output has closed it; shells report the same number for a closed pipe.
    Unread = 141,
}

pub(crate) type Ended = Result<Exit, OperatorError>;

impl Exit {
    pub(crate) fn of(interrupted: bool, is_clean: bool) -> Self {
        match (interrupted, is_clean) {
            (true, _) => Self::Interrupted,
            (false, true) => Self::Clean,
            (false, false) => Self::Findings,
        }
    }

    /// Clean, or unread if the output is a closed pipe.
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
