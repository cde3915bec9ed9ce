//! The services that read patterns.

/// The service that reads a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// An event bus, with all operators.
    EventBridge,
    /// An event source mapping. It has neither `wildcard` nor `cidr`, `prefix` and `suffix` do not ignore case, and
    /// `anything-but` takes only values or one prefix.
    Lambda,
}
