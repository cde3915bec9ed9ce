//! The numbers in the sort keys of outbox rows.

use daybook_table::keys;

/// The event number in the sort key of an outbox row, and the index of the message among those of the event.
pub(super) fn message(sk: &str) -> Option<(u64, usize)> {
    let rest = sk.strip_prefix(keys::OUTBOX_PREFIX)?;
    let (seq_num, index) = (number(rest)?, rest.get(13..)?.parse().ok()?);
    (keys::outbox_sk(seq_num, index) == sk).then_some((seq_num, index))
}

/// The number after the prefix of a sort key.
fn number(text: &str) -> Option<u64> {
    text.get(..12).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}
