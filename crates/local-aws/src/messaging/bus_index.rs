//! The positions of the bus's entries by what they are about, so that a part of the entries is found without reading
//! the others.

use std::collections::HashMap;
use std::ops::Range;

use serde::Deserialize;

/// The index. Positions are counted from 1.
#[derive(Default)]
pub(crate) struct BusIndex {
    /// The number of each entry in the data file; without a file, its place in the list of entries.
    places: Vec<i64>,
    by_resource: HashMap<String, Vec<usize>>,
    by_message_id: HashMap<String, Vec<usize>>,
    by_correlation: HashMap<String, Vec<usize>>,
}

#[derive(Clone, Debug)]
pub enum EntryKey<'a> {
    /// The ids of messages, in the metadata of the details.
    MessageIds(Vec<&'a str>),
    /// A correlation id, in the metadata of the details.
    Correlation(&'a str),
    Resource(&'a str),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Detail {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    message_id: Option<String>,
    correlation_id: Option<String>,
}

impl BusIndex {
    pub(crate) fn add(&mut self, place: i64, resources: &[String], detail: &str) {
        self.places.push(place);
        let position = self.places.len();
        // A detail of another sender may have other metadata, or none.
        let Metadata { message_id, correlation_id } =
            serde_json::from_str::<Detail>(detail).unwrap_or_default().metadata;
        for resource in resources {
            self.by_resource.entry(resource.clone()).or_default().push(position);
        }
        if let Some(id) = message_id {
            self.by_message_id.entry(id).or_default().push(position);
        }
        if let Some(id) = correlation_id {
            self.by_correlation.entry(id).or_default().push(position);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The place of the entry at a position.
    pub(crate) fn place(&self, position: usize) -> Option<i64> {
        self.places.get(position.checked_sub(1)?).copied()
    }

    /// The positions within the range of the entries with this key, in order.
    pub(crate) fn positions(&self, key: &EntryKey<'_>, within: &Range<usize>) -> Vec<usize> {
        let found = |map: &HashMap<String, Vec<usize>>, key: &str| map.get(key).cloned().unwrap_or_default();
        let mut positions = match key {
            EntryKey::MessageIds(ids) => ids.iter().flat_map(|id| found(&self.by_message_id, id)).collect(),
            EntryKey::Correlation(id) => found(&self.by_correlation, id),
            EntryKey::Resource(resource) => found(&self.by_resource, resource),
        };
        positions.retain(|position| within.contains(position));
        positions.sort_unstable();
        positions.dedup();
        positions
    }
}
