//! The checksum of a row: whether the row is still as it was written.
//!
//! Each row has one but the metadata, which appends change without reading them. It is computed from the row as it is stored,
//! so it covers every attribute, those of other releases too. It is no protection against somebody who writes a matching
//! checksum.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_table::{attributes, keys};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::error::Cause;
use crate::item::{Item, text};

/// The bytes of a checksum: the beginning of a SHA-256.
const BYTES: usize = 8;

pub fn seal(mut row: Item) -> Item {
    let checksum = AttributeValue::B(Blob::new(digest(&row)));
    row.insert(attributes::CHECKSUM.to_owned(), checksum);
    row
}

/// The row with another item in it, and with its attributes of another release. `optional` are those that an item may lack.
pub(crate) fn rewritten(mut row: Item, optional: &[&str], item: &impl Serialize) -> Result<Item, Cause> {
    row.retain(|name, _| !optional.contains(&name.as_str()));
    row.extend::<Item>(serde_dynamo::to_item(item)?);
    Ok(seal(row))
}

/// The condition that a row, of which `#sum` is the checksum, is the one with this checksum, or that there is none; and its values.
pub(crate) fn unchanged(checksum: Option<&AttributeValue>) -> (&'static str, Option<Item>) {
    match checksum {
        Some(checksum) => ("#sum = :sum", Some(Item::from([(":sum".to_owned(), checksum.clone())]))),
        None => ("attribute_not_exists(#sum)", None),
    }
}

/// Whether a row is as it was written. A row without a checksum is not.
pub fn is_valid(row: &Item) -> bool {
    let stored = row.get(attributes::CHECKSUM).and_then(|stored| stored.as_b().ok());
    stored.is_some_and(|stored| stored.as_ref() == digest(row))
}

fn digest(row: &Item) -> Vec<u8> {
    // Like its deletion, a wrong TTL of a kept snapshot changes no result.
    let is_kept_snapshot = text(row, attributes::SK).starts_with(keys::KEPT_SNAPSHOT_PREFIX);
    let is_covered = |name: &str| name != attributes::CHECKSUM && !(name == attributes::TTL && is_kept_snapshot);
    // A row consists of many short parts. To hash each of them takes longer than to hash all at once.
    let mut covered = Vec::with_capacity(1024);
    add_map(&mut covered, row.iter().filter(|(name, _)| is_covered(name)));
    Sha256::digest(covered).iter().copied().take(BYTES).collect()
}

/// Adds names and values in the order of the names.
fn add_map<'a>(covered: &mut Vec<u8>, map: impl Iterator<Item = (&'a String, &'a AttributeValue)>) {
    let sorted: BTreeMap<_, _> = map.collect();
    add_length(covered, sorted.len());
    for (name, value) in sorted {
        add_bytes(covered, b'n', name.as_bytes());
        add_value(covered, value);
    }
}

fn add_value(covered: &mut Vec<u8>, value: &AttributeValue) {
    let number = |number: &String| canonical_number(number);
    match value {
        AttributeValue::S(text) => add_bytes(covered, b'S', text.as_bytes()),
        AttributeValue::N(text) => add_bytes(covered, b'N', canonical_number(text).as_bytes()),
        AttributeValue::B(bytes) => add_bytes(covered, b'B', bytes.as_ref()),
        AttributeValue::Bool(value) => add_bytes(covered, b'T', &[u8::from(*value)]),
        AttributeValue::M(map) => {
            covered.push(b'M');
            add_map(covered, map.iter());
        }
        AttributeValue::L(list) => {
            covered.push(b'L');
            add_length(covered, list.len());
            list.iter().for_each(|value| add_value(covered, value));
        }
        AttributeValue::Ss(texts) => add_set(covered, b's', texts.iter().map(|text| text.as_bytes().to_vec())),
        AttributeValue::Ns(numbers) => add_set(covered, b'i', numbers.iter().map(number).map(String::into_bytes)),
        AttributeValue::Bs(blobs) => add_set(covered, b'b', blobs.iter().map(|bytes| bytes.as_ref().to_vec())),
        // Null, and types that the SDK does not know.
        _ => add_bytes(covered, b'0', &[]),
    }
}

fn add_set(covered: &mut Vec<u8>, kind: u8, values: impl Iterator<Item = Vec<u8>>) {
    let mut values: Vec<_> = values.collect();
    values.sort();
    add_bytes(covered, kind, &[]);
    add_length(covered, values.len());
    values.iter().for_each(|value| add_bytes(covered, kind, value));
}

/// Adds a value with its kind and its length, so that different values never add the same bytes.
fn add_bytes(covered: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    covered.push(kind);
    add_length(covered, bytes.len());
    covered.extend_from_slice(bytes);
}

fn add_length(covered: &mut Vec<u8>, length: usize) {
    covered.extend_from_slice(&(length as u64).to_be_bytes());
}

/// A number as its sign, its digits without zeros at the beginning and the end, and its exponent: the same for `100`, `1E2` and
/// `100.0`.
fn canonical_number(text: &str) -> String {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let sign = if whole.starts_with('-') { "-" } else { "" };
    let all = format!("{}{fraction}", whole.trim_start_matches(['-', '+']));
    let digits = all.trim_start_matches('0').trim_end_matches('0');
    if digits.is_empty() {
        return "0".to_owned();
    }
    let zeros = all.len() - all.trim_end_matches('0').len();
    let exponent = exponent.parse::<i64>().unwrap_or_default() + zeros as i64 - fraction.len() as i64;
    format!("{sign}{digits}E{exponent}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(changes: &[(&str, AttributeValue)]) -> Item {
        let meta =
            [("actor", "ann"), ("sourceIp", "::1")].map(|(k, v)| (k.to_owned(), AttributeValue::S(v.to_owned())));
        let mut row = Item::from([
            ("pk".to_owned(), AttributeValue::S("AGGREGATE#todo#1".to_owned())),
            ("seqNum".to_owned(), AttributeValue::N("100".to_owned())),
            ("gsi1pk".to_owned(), AttributeValue::S("EVENT_TYPE#TodoCreated".to_owned())),
            ("snapshotDue".to_owned(), AttributeValue::Bool(true)),
            ("meta".to_owned(), AttributeValue::M(meta.into())),
        ]);
        row.extend(changes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        row
    }

    #[test]
    fn checksum_is_a_stored_format() {
        let stored = seal(row(&[]))[attributes::CHECKSUM].as_b().unwrap().as_ref().to_vec();
        assert_eq!(stored.len(), BYTES);
        let hex: String = stored.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "f06bd0b35559af02");
    }

    #[test]
    fn checksum_notices_every_change_but_those_of_number_formats_and_of_the_ttl_of_a_kept_snapshot() {
        let sealed = seal(row(&[]));
        let with = |name: &str, value: AttributeValue| {
            let mut changed = sealed.clone();
            changed.insert(name.to_owned(), value);
            is_valid(&changed)
        };
        let n = |number: &str| AttributeValue::N(number.to_owned());
        assert!(!is_valid(&row(&[])));
        assert!(is_valid(&sealed));
        assert!(is_valid(&seal(sealed.clone())));
        for same in ["100", "1E2", "100.0", "0100", "+1e+2", "10.0E1"] {
            assert!(with("seqNum", n(same)), "{same}");
        }
        assert!(!with("gsi1pk", AttributeValue::S("EVENT_TYPE#TodoCreated#7".to_owned())));
        assert!(!with("ttl", n("1")));
        let mut kept = seal(row(&[("sk", AttributeValue::S(keys::kept_snapshot_sk(1)))]));
        kept.insert("ttl".to_owned(), n("1"));
        assert!(is_valid(&kept));
        for other in ["10", "1000", "-100", "100.1", "0"] {
            assert!(!with("seqNum", n(other)), "{other}");
        }
        assert!(!with("seqNum", AttributeValue::S("100".to_owned())));
        assert!(!with("snapshotDue", AttributeValue::Bool(false)));
        assert!(!with("added", AttributeValue::Null(true)));
        assert!(!with("meta", AttributeValue::M(Item::new())));
        assert!(!with(attributes::CHECKSUM, AttributeValue::Bool(true)));
        for name in ["pk", "seqNum", "snapshotDue", "meta"] {
            let mut changed = sealed.clone();
            changed.remove(name);
            assert!(!is_valid(&changed), "{name}");
        }
    }
}
