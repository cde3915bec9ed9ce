//! DynamoDB's limits, computed by its own rules, so that a request that it would reject is rejected before the call.

use aws_sdk_dynamodb::types::AttributeValue;

use crate::item::Item;
use crate::subject_keys::MAX_SUBJECTS;

/// Maximum bytes of an item: 400 KB.
pub const MAX_ITEM: usize = 400 * 1024;

pub const MAX_TRANSACTION_ITEMS: usize = 100;

/// Maximum bytes of a transaction: 4 MB.
pub const MAX_TRANSACTION: usize = 4 * 1024 * 1024;

/// A request that exceeds a limit of DynamoDB, or that of subjects. The text has the limit alone: a caller who may not read the
/// aggregate gets it too, and the size could reveal that of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    #[error("an event or a message would take more than {MAX_ITEM} bytes, the maximum of an item")]
    Item { bytes: usize },
    #[error(
        "the response to store under the Idempotency-Key would take more than {MAX_ITEM} bytes, the maximum of an item; send \
         the request without a key"
    )]
    Response { bytes: usize },
    #[error("the commands would write more than {MAX_TRANSACTION_ITEMS} items, the maximum of a transaction")]
    Items { items: usize },
    #[error("the commands would write more than {MAX_TRANSACTION} bytes, the maximum of a transaction")]
    Transaction { bytes: usize },
    /// All of them have personal values of too many subjects, with the response to store.
    #[error("the commands would write personal values of more than {MAX_SUBJECTS} subjects, the maximum of a request")]
    Subjects { subjects: usize },
}

/// Checks the items of one transaction as they will be stored: the metadata and the rows, and the response that is
/// stored with them. Returns the bytes of all.
pub fn check_transaction<'a>(
    items: impl IntoIterator<Item = &'a Item>,
    response: Option<&'a Item>,
) -> Result<usize, TooLarge> {
    let sizes: Vec<_> = items.into_iter().map(item_size).collect();
    let response = response.map(item_size);
    let count = sizes.len() + usize::from(response.is_some());
    if count > MAX_TRANSACTION_ITEMS {
        return Err(TooLarge::Items { items: count });
    }
    if let Some(&bytes) = sizes.iter().find(|&&bytes| bytes > MAX_ITEM) {
        return Err(TooLarge::Item { bytes });
    }
    if let Some(bytes) = response.filter(|&bytes| bytes > MAX_ITEM) {
        return Err(TooLarge::Response { bytes });
    }
    match sizes.into_iter().chain(response).sum() {
        bytes @ ..=MAX_TRANSACTION => Ok(bytes),
        bytes => Err(TooLarge::Transaction { bytes }),
    }
}

/// The size of an item in bytes: its names and values.
pub fn item_size(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + value_size(value)).sum()
}

fn value_size(value: &AttributeValue) -> usize {
    /// The bytes of a list or map in addition to its contents, and of each of its elements.
    const CONTAINER: usize = 3;
    const ELEMENT: usize = 1;
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(number) => number_size(number),
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        AttributeValue::Bool(_) | AttributeValue::Null(_) => 1,
        AttributeValue::M(map) => {
            CONTAINER + map.iter().map(|(name, value)| ELEMENT + name.len() + value_size(value)).sum::<usize>()
        }
        AttributeValue::L(list) => CONTAINER + list.iter().map(|value| ELEMENT + value_size(value)).sum::<usize>(),
        AttributeValue::Ss(texts) => texts.iter().map(String::len).sum(),
        AttributeValue::Ns(numbers) => numbers.iter().map(|number| number_size(number)).sum(),
        AttributeValue::Bs(blobs) => blobs.iter().map(|blob| blob.as_ref().len()).sum(),
        // This code writes no value of a type that the SDK does not know.
        _ => 0,
    }
}

/// The size of a number: one byte, one more for every two significant digits, and one for a minus sign.
fn number_size(number: &str) -> usize {
    let digits = number.trim_start_matches(['-', '0', '.']).bytes().filter(u8::is_ascii_digit).count();
    let trailing_zeros = number.bytes().rev().take_while(|&byte| byte == b'0').count();
    let significant = digits.saturating_sub(trailing_zeros).max(1);
    1 + significant.div_ceil(2) + usize::from(number.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: usize) -> Item {
        // Together with its name, "x", exactly this many bytes.
        Item::from([("x".to_owned(), AttributeValue::S("a".repeat(bytes - 1)))])
    }

    #[test]
    fn sizes_are_those_that_dynamodb_documents() {
        let size = |value| item_size(&Item::from([("name".to_owned(), value)])) - 4;
        assert_eq!(size(AttributeValue::S("é".into())), 2);
        assert_eq!(size(AttributeValue::N("0".into())), 2);
        assert_eq!(size(AttributeValue::N("100".into())), 2);
        assert_eq!(size(AttributeValue::N("-27".into())), 3);
        assert_eq!(size(AttributeValue::N("12345".into())), 4);
        assert_eq!(size(AttributeValue::Bool(true)), 1);
        let map = [("ab".to_owned(), AttributeValue::S("c".into()))].into_iter().collect();
        assert_eq!(size(AttributeValue::M(map)), 3 + 1 + 2 + 1);
    }

    #[test]
    fn text_of_an_error_is_the_same_for_all_sizes() {
        let texts = |size| {
            let (bytes, items) = (size, size);
            [
                TooLarge::Item { bytes },
                TooLarge::Items { items },
                TooLarge::Response { bytes },
                TooLarge::Transaction { bytes },
                TooLarge::Subjects { subjects: items },
            ]
            .map(|error| error.to_string())
        };
        assert_eq!(texts(500_000), texts(600_000));
    }

    #[test]
    fn decision_ends_at_the_limits_of_a_transaction() {
        use daybook_decider::record::{MAX_BYTES, MAX_RECORDS};
        // Besides its records, a transaction has the metadata.
        assert_eq!((MAX_RECORDS + 1, MAX_BYTES), (MAX_TRANSACTION_ITEMS, MAX_TRANSACTION));
    }

    #[test]
    fn transaction_at_the_limit_is_allowed() {
        let check = |items: &[Item]| check_transaction(items, None);
        assert_eq!(check(&[text(MAX_ITEM)]), Ok(MAX_ITEM));
        assert_eq!(check(&[text(MAX_ITEM + 1)]), Err(TooLarge::Item { bytes: MAX_ITEM + 1 }));

        assert_eq!(check(&vec![text(10); 100]), Ok(1_000));
        assert_eq!(check(&vec![text(10); 101]), Err(TooLarge::Items { items: 101 }));

        let part = MAX_TRANSACTION / 16;
        let mut items = vec![text(part); 15];
        items.push(text(part));
        assert_eq!(check(&items), Ok(MAX_TRANSACTION));
        items.push(text(2));
        assert_eq!(check(&items), Err(TooLarge::Transaction { bytes: MAX_TRANSACTION + 2 }));
    }

    #[test]
    fn response_counts_towards_the_limits_and_has_its_own_error() {
        assert_eq!(check_transaction(&[text(10)], Some(&text(MAX_ITEM))), Ok(10 + MAX_ITEM));
        let too_large = check_transaction(&[text(10)], Some(&text(MAX_ITEM + 1)));
        assert_eq!(too_large, Err(TooLarge::Response { bytes: MAX_ITEM + 1 }));
        assert_eq!(check_transaction(&vec![text(10); 99], Some(&text(10))), Ok(1_000));
        assert_eq!(check_transaction(&vec![text(10); 100], Some(&text(10))), Err(TooLarge::Items { items: 101 }));
        let part = text(MAX_TRANSACTION / 16);
        assert_eq!(check_transaction(&vec![part.clone(); 15], Some(&part)), Ok(MAX_TRANSACTION));
        let over = check_transaction(&vec![part.clone(); 16], Some(&text(2)));
        assert_eq!(over, Err(TooLarge::Transaction { bytes: MAX_TRANSACTION + 2 }));
    }
}
