//! Keys. Numbers are padded to 12 digits, so that text order is number order for up to a trillion events of one
//! aggregate.

pub use daybook_decider::aggregate_key::{ID_RULE, MAX_ID, is_id};
use daybook_decider::record::timestamp;
use daybook_decider::{AggregateKey, Claim};
use jiff::Timestamp;
use ulid::Ulid;

pub const METADATA: &str = "#METADATA";
pub const SNAPSHOT: &str = "#SNAPSHOT";
pub const EVENT_PREFIX: &str = "EVENT#";
pub const OUTBOX_PREFIX: &str = "OUTBOX#";
pub const IDEMPOTENCY_PREFIX: &str = "IDEMPOTENCY#";
/// The prefix of the sort keys of kept snapshots: those of another state version, for the release that took them.
pub const KEPT_SNAPSHOT_PREFIX: &str = "SNAPSHOT#";
pub const DEADLINE_PREFIX: &str = "DEADLINE#";
/// The prefix of the sort keys of positions: how far a process has handled the events of the aggregate.
pub const POSITION_PREFIX: &str = "POSITION#";
/// The index partition of positions that are suspended.
pub const SUSPENDED_POSITIONS: &str = "POSITION_SUSPENDED";
/// The index partition of deadlines whose command has failed.
pub const FAILED_DEADLINES: &str = "DEADLINE_FAILED";
/// The sort key of a claim, the only row of its partition.
pub const CLAIM: &str = "#CLAIM";
pub const CLAIM_PREFIX: &str = "CLAIM#";

/// The last number that fits the padding.
pub const MAX_SEQ_NUM: u64 = 999_999_999_999;

const AGGREGATE_PREFIX: &str = "AGGREGATE#";
const EVENT_TYPE_PREFIX: &str = "EVENT_TYPE#";
const DEADLINES: &str = "DEADLINE";

pub fn pk(key: &AggregateKey) -> String {
    format!("{AGGREGATE_PREFIX}{}#{}", key.aggregate_type, key.id)
}

/// The aggregate of a partition key; `None` when the key is not that of an aggregate.
pub fn aggregate_of_pk(pk: &str) -> Option<AggregateKey> {
    type_and_id(pk).map(|(aggregate_type, id)| AggregateKey::new(aggregate_type, id))
}

/// The type and the id in a partition key; `None` when the key is not that of an aggregate.
pub fn type_and_id(pk: &str) -> Option<(&str, &str)> {
    let (aggregate_type, id) = pk.strip_prefix(AGGREGATE_PREFIX)?.split_once('#')?;
    (!aggregate_type.is_empty() && is_id(id)).then_some((aggregate_type, id))
}

/// The aggregate of a partition as `<type>/<id>`, or else the partition key.
pub fn partition_name(pk: &str) -> String {
    aggregate_of_pk(pk).map_or_else(|| pk.to_owned(), |key| key.to_string())
}

pub fn claim_pk(claim: &Claim) -> String {
    format!("{CLAIM_PREFIX}{}#{}", claim.name(), claim.value())
}

/// The claim of a partition key; `None` when the key is not that of a claim.
pub fn claim_of_pk(pk: &str) -> Option<Claim> {
    let (name, value) = pk.strip_prefix(CLAIM_PREFIX)?.split_once('#')?;
    Some(Claim::new(name.to_owned(), value))
}

pub fn event_sk(seq_num: u64) -> String {
    format!("{EVENT_PREFIX}{seq_num:012}")
}

/// The number of the event with a sort key; `None` when the sort key is not that of an event.
pub fn event_seq_num(sk: &str) -> Option<u64> {
    let seq_num = sk.strip_prefix(EVENT_PREFIX)?.parse().ok()?;
    ((1..=MAX_SEQ_NUM).contains(&seq_num) && event_sk(seq_num) == sk).then_some(seq_num)
}

/// The sort key of the message `index` of event `seq_num`.
pub fn outbox_sk(seq_num: u64, index: usize) -> String {
    format!("{OUTBOX_PREFIX}{seq_num:012}#{index}")
}

/// A sort key after those of all messages of event `seq_num`, and before those of the next event.
pub fn outbox_end(seq_num: u64) -> String {
    // A colon follows the digit 9 in ASCII.
    format!("{OUTBOX_PREFIX}{seq_num:012}#:")
}

/// The sort key of the kept snapshot of version `seq_num`.
pub fn kept_snapshot_sk(seq_num: u64) -> String {
    format!("{KEPT_SNAPSHOT_PREFIX}{seq_num:012}")
}

pub fn idempotency_sk(idempotency_key: &str) -> String {
    format!("{IDEMPOTENCY_PREFIX}{idempotency_key}")
}

/// The beginning of the idempotency keys of deadlines; the name and the time of each follow. Such keys, and the next ones, contain a
/// space, which no key of a client has.
pub const DEADLINE_KEYS: &str = "deadline ";

/// The idempotency key of an event as input of a process.
pub fn input_key(source: &AggregateKey, seq_num: u64) -> String {
    format!("{INPUT_KEYS}{source} {seq_num}")
}

pub const INPUT_KEYS: &str = "input ";

/// The beginning of the idempotency keys of the dispatches of a process; the name of each follows, and the number of the event that has
/// set it.
pub fn dispatch_keys(process: &AggregateKey) -> String {
    format!("dispatch {process} ")
}

/// The idempotency key of the answer to a dispatch that an event has set.
pub fn answer_key(name: &str, seq_num: u64) -> String {
    format!("answer {name} {seq_num}")
}

pub fn deadline_sk(name: &str) -> String {
    format!("{DEADLINE_PREFIX}{name}")
}

pub fn deadline_name(sk: &str) -> &str {
    sk.strip_prefix(DEADLINE_PREFIX).unwrap_or(sk)
}

pub fn position_sk(process_type: &str) -> String {
    format!("{POSITION_PREFIX}{process_type}")
}

pub fn gsi1sk(event_id: Ulid) -> String {
    format!("{EVENT_PREFIX}{event_id}")
}

/// The index's sort key of a deadline: its time, in an order that is that of the texts.
pub fn deadline_gsi1sk(due: Timestamp) -> String {
    timestamp(due)
}

/// The event id in a sort key of the index; `None` when the sort key is not that of an event.
pub fn gsi1sk_event_id(gsi1sk: &str) -> Option<Ulid> {
    let event_id = Ulid::from_string(gsi1sk.strip_prefix(EVENT_PREFIX)?).ok()?;
    (self::gsi1sk(event_id) == gsi1sk).then_some(event_id)
}

/// Reads an event id; `None` if the text is none. Above 7ZZZ…, `Ulid::from_string` drops the highest bits.
pub fn parse_id(text: &str) -> Option<Ulid> {
    Ulid::from_string(text).ok().filter(|_| text < "8")
}

/// The lowest id after an event's; `None` after the last id that there can be.
pub fn id_after(event_id: Ulid) -> Option<Ulid> {
    // `Ulid::increment` stays within the millisecond.
    u128::from(event_id).checked_add(1).map(Ulid::from)
}

/// The index partition of an event. With one shard its name is the event type alone.
pub fn gsi1pk(event_type: &str, aggregate_id: &str, shards: u32) -> String {
    shard(format!("{EVENT_TYPE_PREFIX}{event_type}"), aggregate_id, shards)
}

/// The index partition of a deadline that is pending.
pub fn deadline_gsi1pk(aggregate_id: &str, shards: u32) -> String {
    shard(DEADLINES.to_owned(), aggregate_id, shards)
}

fn shard(plain: String, aggregate_id: &str, shards: u32) -> String {
    if shards <= 1 { plain } else { format!("{plain}#{}", stable_hash(aggregate_id) % u64::from(shards)) }
}

/// Every index partition that may hold events of a type. The one without a shard number is always among them, because
/// it holds what was written before sharding was turned on.
pub fn gsi1pks(event_type: &str, shards: u32) -> Vec<String> {
    all_shards(format!("{EVENT_TYPE_PREFIX}{event_type}"), shards)
}

/// Every index partition that may hold deadlines that are pending, like [`gsi1pks`].
pub fn deadline_gsi1pks(shards: u32) -> Vec<String> {
    all_shards(DEADLINES.to_owned(), shards)
}

fn all_shards(plain: String, shards: u32) -> Vec<String> {
    let numbered = (0..shards).map(|shard| format!("{plain}#{shard}"));
    let numbered: Vec<_> = if shards <= 1 { Vec::new() } else { numbered.collect() };
    std::iter::once(plain).chain(numbered).collect()
}

/// The numbered index partitions of a type that [`gsi1pks`] leaves out, up to `most` shards, each with its number.
pub fn gsi1pks_beyond(event_type: &str, shards: u32, most: u32) -> impl Iterator<Item = (u32, String)> {
    let first = if shards <= 1 { 0 } else { shards };
    (first..most).map(move |shard| (shard, format!("{EVENT_TYPE_PREFIX}{event_type}#{shard}")))
}

/// The event type of an index partition, with its shard if it has one: `OrderPlaced#3`.
pub fn gsi1pk_name(gsi1pk: &str) -> &str {
    gsi1pk.strip_prefix(EVENT_TYPE_PREFIX).unwrap_or(gsi1pk)
}

/// FNV-1a, 64 bits: the same on every machine and in every release, as a stored format must be.
pub fn stable_hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_the_suite_are_reserved() {
        assert!(AggregateKey::new("__canary", "1").is_reserved());
        assert!(!AggregateKey::new("canary", "__1").is_reserved());
    }

    #[test]
    fn text_order_is_number_order() {
        for (smaller, larger) in [(9, 10), (99, 100), (999, 1_000), (999_999_999, 1_000_000_000)] {
            assert!(event_sk(smaller) < event_sk(larger));
        }
        assert_eq!(event_sk(1), "EVENT#000000000001");
        assert_eq!(event_seq_num("EVENT#000000000001"), Some(1));
        for wrong in ["EVENT#1", "EVENT#+00000000001", "EVENT#000000000000", "EVENT#1000000000000", "000000000001"] {
            assert_eq!(event_seq_num(wrong), None, "{wrong}");
        }
        assert_eq!(gsi1sk_event_id(&gsi1sk(Ulid::from(7_u128))), Some(Ulid::from(7_u128)));
        for wrong in ["EVENT#01", "EVENT#01kxzt6q0g6dhyb4p1612vgxf0", "01M7XZT6Q0G6DHYB4P1612VGXF"] {
            assert_eq!(gsi1sk_event_id(wrong), None, "{wrong}");
        }
        assert_eq!(outbox_sk(42, 0), "OUTBOX#000000000042#0");
        assert_eq!(kept_snapshot_sk(MAX_SEQ_NUM), "SNAPSHOT#999999999999");
        assert!(outbox_sk(42, 0) < outbox_end(42) && outbox_sk(42, 98) < outbox_end(42));
        assert!(outbox_end(42) < outbox_sk(43, 0));
    }

    #[test]
    fn partition_key_and_aggregate_convert_into_each_other() {
        let key = AggregateKey::new("account", "A-1.b~c_d");
        assert_eq!(pk(&key), "AGGREGATE#account#A-1.b~c_d");
        assert_eq!(aggregate_of_pk(&pk(&key)), Some(key));
        for pk in ["", "AGGREGATE#", "AGGREGATE#account", "AGGREGATE#account#", "AGGREGATE##1", "OTHER#account#1"] {
            assert_eq!(aggregate_of_pk(pk), None, "{pk}");
        }
    }

    #[test]
    fn partition_key_and_claim_convert_into_each_other() {
        let claim = Claim::new("customer-email", "a#b:c@example.com");
        assert_eq!(claim_pk(&claim), "CLAIM#customer-email#a#b:c@example.com");
        assert_eq!(claim_of_pk(&claim_pk(&claim)), Some(claim));
        assert_eq!(claim_of_pk(&pk(&AggregateKey::new("account", "1"))), None);
    }

    #[test]
    fn ids_have_only_characters_that_a_path_carries_unescaped() {
        for id in ["1", "a.b", "...", "D8E8B51E-0337-4300-B414-0CC65918AAF8", &"x".repeat(128)] {
            assert!(is_id(id), "{id}");
        }
        for id in ["", ".", "..", "a/b", "a#b", "a b", "é", "a%20b", &"x".repeat(129)] {
            assert!(!is_id(id), "{id}");
        }
    }

    #[test]
    fn shard_of_an_aggregate_never_changes() {
        assert_eq!(gsi1pk("OrderPlaced", "1234", 1), "EVENT_TYPE#OrderPlaced");
        assert_eq!(gsi1pk("OrderPlaced", "1234", 8), "EVENT_TYPE#OrderPlaced#5");
        assert_eq!(gsi1pks("OrderPlaced", 1), ["EVENT_TYPE#OrderPlaced"]);
        assert_eq!(gsi1pk_name("EVENT_TYPE#OrderPlaced#5"), "OrderPlaced#5");
        let shards = gsi1pks("OrderPlaced", 8);
        assert_eq!(shards.len(), 9);
        let beyond =
            |shards| gsi1pks_beyond("OrderPlaced", shards, 64).map(|(_, partition)| partition).collect::<Vec<_>>();
        assert_eq!([shards, beyond(8)].concat(), gsi1pks("OrderPlaced", 64));
        assert_eq!([gsi1pks("OrderPlaced", 1), beyond(1)].concat(), gsi1pks("OrderPlaced", 64));
        let shards = gsi1pks("OrderPlaced", 8);
        assert!((0..100).all(|id| shards.contains(&gsi1pk("OrderPlaced", &id.to_string(), 8))));
    }
}
