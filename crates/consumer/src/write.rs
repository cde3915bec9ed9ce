//! The transaction that writes a position and the changes that belong to it.

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, Delete, Put, TransactWriteItem};
use tokio::time::timeout;

use crate::error::TableError;
use crate::items::{Item, PK, item_size};
use crate::table::{ATTEMPT_TIMEOUT, ConsumerTable};

/// Maximum bytes of an item: 400 KB.
pub(crate) const MAX_ITEM: usize = 400 * 1024;
pub(crate) const MAX_ITEMS: usize = 100;
/// Maximum bytes of a transaction: 4 MB.
pub(crate) const MAX_TRANSACTION: usize = 4 * 1024 * 1024;

/// One write of a transaction: of an item, or to the item with a key.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Put(Item, Condition),
    Delete(Item, Condition),
    Check(Item, Condition),
}

#[derive(Clone, Debug)]
pub(crate) enum Condition {
    Always,
    /// The item does not exist.
    Missing,
    /// An attribute has this value.
    Unchanged(&'static str, AttributeValue),
}

impl Write {
    /// The bytes that count towards the limits.
    pub(crate) fn size(&self) -> usize {
        let (Self::Put(item, _) | Self::Delete(item, _) | Self::Check(item, _)) = self;
        item_size(item)
    }
}

impl ConsumerTable {
    /// Makes the writes, all or nothing. Returns whether everything was written. If not, nothing was written, because
    /// another writer was faster, or it is unknown whether everything was written. The position shows which of them.
    pub(crate) async fn write(&self, writes: Vec<Write>) -> Result<bool, TableError> {
        let items = writes.into_iter().map(|write| self.transact_item(write)).collect();
        let call = self.once.transact_write_items().set_transact_items(Some(items));
        let error = match timeout(ATTEMPT_TIMEOUT, call.send()).await {
            Ok(Ok(_)) => return Ok(true),
            Ok(Err(error)) => error,
            Err(_elapsed) => return Ok(false),
        };
        match error.as_service_error() {
            Some(TransactWriteItemsError::TransactionInProgressException(_)) => return Ok(false),
            Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                let mut codes = cancelled.cancellation_reasons().iter().filter_map(|reason| reason.code());
                let transient = [
                    "ConditionalCheckFailed",
                    "TransactionConflict",
                    "ThrottlingError",
                    "ProvisionedThroughputExceeded",
                ];
                if codes.any(|code| transient.contains(&code)) {
                    return Ok(false);
                }
            }
            _ => {}
        }
        match TableError::of_call("write a position", error) {
            TableError::Unavailable { .. } => Ok(false),
            error => Err(error),
        }
    }

    fn transact_item(&self, write: Write) -> TransactWriteItem {
        let (builder, table) = (TransactWriteItem::builder(), &self.table_name);
        let complete = "table, key and condition are set";
        match write {
            Write::Put(item, condition) => {
                let (condition, values) = condition.expression();
                let put = Put::builder().table_name(table).set_item(Some(item)).set_condition_expression(condition);
                builder.put(put.set_expression_attribute_values(values).build().expect(complete))
            }
            Write::Delete(key, condition) => {
                let (condition, values) = condition.expression();
                let delete = Delete::builder().table_name(table).set_key(Some(key)).set_condition_expression(condition);
                builder.delete(delete.set_expression_attribute_values(values).build().expect(complete))
            }
            Write::Check(key, condition) => {
                let (condition, values) = condition.expression();
                let check = ConditionCheck::builder().table_name(table).set_key(Some(key));
                let check = check.set_condition_expression(condition).set_expression_attribute_values(values);
                builder.condition_check(check.build().expect(complete))
            }
        }
        .build()
    }
}

impl Condition {
    fn expression(self) -> (Option<String>, Option<Item>) {
        match self {
            Self::Always => (None, None),
            Self::Missing => (Some(format!("attribute_not_exists({PK})")), None),
            Self::Unchanged(name, value) => {
                (Some(format!("{name} = :before")), Some(Item::from([(":before".to_owned(), value)])))
            }
        }
    }
}
