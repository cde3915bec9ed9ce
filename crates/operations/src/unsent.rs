//! Messages that the bus did not accept, with or without a reason.

use daybook_stream_relay::EntryError;

use crate::error::OperatorError;

/// The number of messages that were not sent, and the first known reason.
#[derive(Debug, Default)]
pub struct UnsentMessages {
    count: usize,
    cause: Option<String>,
}

impl UnsentMessages {
    pub fn add(&mut self, error: Option<EntryError>) {
        self.count += 1;
        self.cause = self.cause.take().or(error.map(|error| error.to_string()));
    }

    /// Whether there is any unsent message. Then no later message must be sent: it would overtake the unsent one.
    pub fn any(&self) -> bool {
        self.count > 0
    }

    /// The result of a command that was not interrupted.
    pub fn into_result(self, next: String) -> Result<(), OperatorError> {
        let cause = self.cause.unwrap_or_else(|| "it returned no reason".to_owned());
        if self.count > 0 { Err(OperatorError::Bus { cause, next }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsent_messages_without_a_known_reason_end_in_an_error() {
        assert!(!UnsentMessages::default().any());
        assert!(UnsentMessages::default().into_result(String::new()).is_ok());
        let mut unsent = UnsentMessages::default();
        unsent.add(None);
        assert!(unsent.any());
        let error = unsent.into_result("run it again".to_owned()).unwrap_err();
        assert_eq!(error.to_string(), "the bus accepts no more messages: it returned no reason; run it again");
    }
}
