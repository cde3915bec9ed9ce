//! The position up to which a mapping has settled a shard. With a data file, it survives a restart.

use daybook_event_source_mapping::{Position, SequenceNumber};
use daybook_function_runtime::with_causes;
use daybook_local_aws::state::{Checkpoint, StateFile};

/// The name under which a mapping stores its checkpoints of a stream.
pub(crate) fn reader_of_stream(function: &str, event: &str, stream_arn: &str) -> String {
    format!("{function} {event} {stream_arn}")
}

/// The position of a mapping in a shard.
pub(crate) struct ShardCheckpoint {
    file: Option<StateFile>,
    reader: String,
    saved: Position,
}

impl ShardCheckpoint {
    /// The stored position, or the start of the shard. `reader` is the mapping's name.
    pub(crate) fn load(file: Option<StateFile>, reader: &str, shard: &str) -> Self {
        let reader = format!("{reader} {shard}");
        let stored = file.as_ref().and_then(|file| {
            file.checkpoint(&reader).unwrap_or_else(|error| {
                tracing::error!(
                    error = with_causes(&error),
                    "cannot read the checkpoint, will read the shard from its start"
                );
                None
            })
        });
        let position = stored.and_then(|Checkpoint { sequence_number, is_settled }| {
            let number = SequenceNumber::parse(&sequence_number)?;
            Some(if is_settled { Position::After(number) } else { Position::At(number) })
        });
        Self { file, reader, saved: position.unwrap_or(Position::Start) }
    }

    /// The position that was stored last.
    pub(crate) fn position(&self) -> Position {
        self.saved.clone()
    }

    /// Stores a position. If that fails, records are delivered again after a restart.
    pub(crate) fn save(&mut self, position: Position) {
        let (number, is_settled) = match &position {
            Position::Start => return,
            Position::At(number) => (number, false),
            Position::After(number) => (number, true),
        };
        let Some(file) = self.file.as_ref().filter(|_| position != self.saved) else { return };
        let checkpoint = Checkpoint { sequence_number: number.as_str().to_owned(), is_settled };
        match file.save_checkpoint(&self.reader, &checkpoint) {
            Ok(()) => self.saved = position,
            Err(error) => tracing::error!(error = with_causes(&error), "cannot store the checkpoint"),
        }
    }
}
