//! The addresses of the pages, for links.

use daybook_table::AggregateKey;
use daybook_view_store::View;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

pub(crate) const CONSOLE: &str = "/_console";

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A text as one segment of a path, or as a value of a query.
pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

pub(crate) fn with_query(path: &str, query: &[(&str, &str)]) -> String {
    let pairs: Vec<_> = query.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

pub(crate) fn page(path: &str) -> String {
    format!("{CONSOLE}{path}")
}

pub(crate) fn aggregate(key: &AggregateKey) -> String {
    aggregate_of(&key.aggregate_type, &key.id)
}

pub(crate) fn aggregate_of(aggregate_type: &str, id: &str) -> String {
    format!("{CONSOLE}/aggregates/{}/{}", escaped(aggregate_type), escaped(id))
}

pub(crate) fn version(key: &AggregateKey, version: u64) -> String {
    format!("{}?version={version}", aggregate(key))
}

pub(crate) fn view(name: &str, version: u32) -> String {
    format!("{CONSOLE}/views/{}/{version}", escaped(name))
}

pub(crate) fn view_row(view: &View, key: &str) -> String {
    with_query(&format!("{}/row", self::view(&view.name, view.version)), &[("key", key)])
}

pub(crate) fn correlation(id: &str) -> String {
    format!("{CONSOLE}/correlation?id={}", escaped(id))
}

pub(crate) fn command(aggregate_type: &str, query: &[(&str, &str)]) -> String {
    with_query(&format!("{CONSOLE}/command/{}", escaped(aggregate_type)), query)
}
