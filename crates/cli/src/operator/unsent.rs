//! Messages that the bus did not take, with or without a word of why.

use daybook_stream_relay::EntryError;

use super::OperateError;

/// How many, and the first failure that is known of them.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    count: usize,
    cause: Option<String>,
}

impl Unsent {
    /// Counts one.
    pub(crate) fn add(&mut self, failure: Option<EntryError>) {
        self.count += 1;
        self.cause = self.cause.take().or(failure.map(|failure| failure.to_string()));
    }

    /// Whether there is any: what comes after it would overtake it.
    pub(crate) fn any(&self) -> bool {
        self.count > 0
    }

    /// What a run that nobody interrupted ends with.
    pub(crate) fn into_error(self, next: String) -> Option<OperateError> {
        let cause = self.cause.unwrap_or_else(|| "it did not say why".to_owned());
        (self.count > 0).then_some(OperateError::Bus { cause, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unsent_without_a_word_of_why_is_no_success() {
        assert!(!Unsent::default().any());
        assert!(Unsent::default().into_error(String::new()).is_none());
        let mut unsent = Unsent::default();
        unsent.add(None);
        assert!(unsent.any());
        let text = unsent.into_error("run it again".to_owned()).map(|error| (error.to_string(), error.exit_code()));
        assert_eq!(text, Some(("the bus takes nothing more: it did not say why; run it again".to_owned(), 3)));
    }
}
