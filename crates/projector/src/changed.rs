//! The aggregates whose keys the messages of a batch contain.

use std::collections::{BTreeMap, BTreeSet};

use daybook_table::{AggregateKey, Changed, ChangedAggregates, keys};

/// Reads messages, each with its id and its body. Adds the ids of those that cannot be read to `failed`.
pub(crate) fn read_changed(
    messages: impl IntoIterator<Item = (String, String)>,
    failed: &mut BTreeSet<String>,
) -> BTreeMap<AggregateKey, Changed<String>> {
    let mut changed = BTreeMap::<AggregateKey, Changed<String>>::new();
    for (message_id, body) in messages {
        match serde_json::from_str::<ChangedAggregates>(&body) {
            Ok(of_message) => {
                for (key, last) in of_message.with_last_events() {
                    // DynamoDB would reject the reads of the other aggregates together with those of this one.
                    if !keys::is_id(&key.id) {
                        tracing::error!(message_id, aggregate = %key, "the message names no aggregate");
                        failed.insert(message_id.clone());
                        continue;
                    }
                    changed.entry(key).or_default().add(last, message_id.clone());
                }
            }
            Err(error) => {
                tracing::error!(message_id, %error, "the message cannot be read");
                failed.insert(message_id);
            }
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_with_an_id_that_no_aggregate_has_does_not_stop_the_others() {
        let long = "x".repeat(3_000);
        let body = format!(r#"{{"changed":[["account","{long}",1],["account","7",2]]}}"#);
        let mut failed = BTreeSet::new();
        let changed = read_changed([("m1".to_owned(), body)], &mut failed);
        assert_eq!((failed, changed.len()), (["m1".to_owned()].into(), 1));
        assert_eq!(changed[&AggregateKey::new("account", "7")].last, 2);
    }
}
