//! The bodies of dead-letter messages while they wait to be sent, in a temporary file: a queue may hold more bytes than the
//! memory, and SQS cannot return a chosen message again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use daybook_stream_relay::DeadLetter;
use daybook_table::OutboxItem;

use crate::error::OperatorError;

/// A file that only this process can open, and that ends with it.
pub(crate) struct BodyFile {
    file: File,
    /// The position and the length of each body, by SQS's id of the message.
    bodies: BTreeMap<String, (u64, usize)>,
    end: u64,
}

impl BodyFile {
    pub(crate) fn new() -> Result<Self, OperatorError> {
        let file = tempfile::tempfile().map_err(failed)?;
        Ok(Self { file, bodies: BTreeMap::new(), end: 0 })
    }

    pub(crate) fn add(&mut self, sqs_id: &str, body: &str) -> Result<(), OperatorError> {
        self.file.write_all(body.as_bytes()).map_err(failed)?;
        self.bodies.insert(sqs_id.to_owned(), (self.end, body.len()));
        self.end += body.len() as u64;
        Ok(())
    }

    pub(crate) fn length(&self, sqs_id: &str) -> usize {
        self.bodies.get(sqs_id).map_or(0, |(_, length)| *length)
    }

    /// The outbox row in the body of a message that was added.
    pub(crate) fn outbox_row(&mut self, sqs_id: &str) -> Result<OutboxItem, OperatorError> {
        let &(start, length) = self.bodies.get(sqs_id).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        self.file.seek(SeekFrom::Start(start)).map_err(failed)?;
        let mut body = vec![0; length];
        self.file.read_exact(&mut body).map_err(failed)?;
        let dead_letter: DeadLetter = serde_json::from_slice(&body).map_err(|error| failed(error.into()))?;
        dead_letter.message.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))
    }
}

fn failed(source: io::Error) -> OperatorError {
    OperatorError::File { doing: "cannot use a temporary file for the messages".to_owned(), source }
}
