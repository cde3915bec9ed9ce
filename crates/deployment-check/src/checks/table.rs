//! The table: the reasons of a cancelled transaction, conflicts, and tokens; the units of calls, and the lag of the index.

use daybook_table::{attributes, keys};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use ulid::Ulid;

use crate::aws_calls::CallError;
use crate::check::{Check, CheckResult};
use crate::deployment::Deployment;

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check {
            name: "cancellation-codes",
            relies_on: "a cancelled transaction has one code per item, in order: an append reads which condition failed from the \
                        position of ConditionalCheckFailed, and nothing is written",
            documented: API,
            permissions: &["dynamodb:PutItem", "dynamodb:GetItem"],
            run: |deployment| Box::pin(cancellation_codes(deployment)),
        },
        Check {
            name: "cancelled-item",
            relies_on: "a failed condition returns the existing item, so that a conflict contains the current version, and a \
                        repeated key its stored response",
            documented: "DynamoDB API Reference, Put: ReturnValuesOnConditionCheckFailure",
            permissions: &["dynamodb:PutItem"],
            run: |deployment| Box::pin(cancelled_item(deployment)),
        },
        Check {
            name: "transaction-conflict",
            relies_on: "a transaction on an item that another transaction holds is cancelled with TransactionConflict for that \
                        item; an append is then repeated",
            documented: API,
            permissions: &["dynamodb:PutItem", "dynamodb:UpdateItem"],
            run: |deployment| Box::pin(transaction_conflict(deployment)),
        },
        Check {
            name: "idempotency-token",
            relies_on: "a transaction with a repeated ClientRequestToken is not executed again, and with other content it is \
                        rejected with IdempotentParameterMismatchException",
            documented: "DynamoDB API Reference, TransactWriteItems: ClientRequestToken",
            permissions: &["dynamodb:UpdateItem", "dynamodb:GetItem"],
            run: |deployment| Box::pin(idempotency_token(deployment)),
        },
        Check {
            name: "consumed-units",
            relies_on: "an append of one event and one message of up to 1 KB uses 6 write units of the table and 1 of the index, \
                        and a consistent read of up to 4 KB uses 1 read unit: docs/deploy.md and `daybook load` count with it",
            documented: "DynamoDB Developer Guide, read and write operations; docs/deploy.md, Costs",
            permissions: &["dynamodb:PutItem", "dynamodb:GetItem"],
            run: |deployment| Box::pin(consumed_units(deployment)),
        },
        Check {
            name: "index-lag",
            relies_on: "an event is visible in the index within FEED_DELAY_MS, less the time limit of an append: feeds would \
                        otherwise skip it",
            documented: "DynamoDB Developer Guide, global secondary indexes: eventual consistency, without a bound; docs/deploy.md, \
                         Limits",
            permissions: &["dynamodb:PutItem", "dynamodb:Query on the index"],
            run: |deployment| Box::pin(index_lag(deployment)),
        },
    ]
}

const API: &str = "DynamoDB API Reference, TransactWriteItems and CancellationReason";

/// The concurrent transactions of one attempt to see a conflict, and the number of attempts.
const CONCURRENT: usize = 16;
const ATTEMPTS: usize = 8;

/// A transaction of three rows, of which the second exists: the rows and the reasons of its cancellation.
async fn cancelled(deployment: &mut Deployment, check: &str) -> Result<([Value; 3], Vec<Value>), CallError> {
    let aggregate = deployment.aggregate(check);
    let rows = ["CHECK#1", "CHECK#2", "CHECK#3"].map(|sk| deployment.row(&aggregate, sk));
    deployment.put(rows[1].clone()).await?;
    let items: Vec<_> = rows.iter().map(|row| deployment.put_new(row)).collect();
    match deployment.dynamodb("TransactWriteItems", json!({"TransactItems": items})).await {
        Ok(_) => Ok((rows, Vec::new())),
        Err(CallError::Service { code, body, .. }) if code == "TransactionCanceledException" => {
            Ok((rows, body["CancellationReasons"].as_array().cloned().unwrap_or_default()))
        }
        Err(error) => Err(error),
    }
}

fn code(reason: &Value) -> &str {
    reason["Code"].as_str().unwrap_or("no code")
}

async fn cancellation_codes(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    let (rows, reasons) = cancelled(deployment, "cancellation-codes").await?;
    let written = deployment.get(&rows[0]).await?.is_some() || deployment.get(&rows[2]).await?.is_some();
    let codes = reasons.iter().map(code).collect::<Vec<_>>().join(", ");
    let codes = if codes.is_empty() { "no cancellation" } else { &codes };
    let seen = format!("{codes}; {}", if written { "rows were written" } else { "nothing was written" });
    Ok(CheckResult::compare("None, ConditionalCheckFailed, None; nothing was written", seen))
}

async fn cancelled_item(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    let (rows, reasons) = cancelled(deployment, "cancelled-item").await?;
    let item = reasons.get(1).map(|reason| reason["Item"].clone()).unwrap_or_default();
    Ok(match item == rows[1] {
        true => CheckResult::AsExpected { seen: "the existing item".to_owned() },
        false => CheckResult::compare(format!("the existing item {}", rows[1]), item.to_string()),
    })
}

async fn transaction_conflict(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    let aggregate = deployment.aggregate("transaction-conflict");
    let counter = deployment.row(&aggregate, "CHECK#1");
    let others: Vec<_> = (0..CONCURRENT).map(|n| deployment.row(&aggregate, &format!("OTHER#{n}"))).collect();
    for _ in 0..ATTEMPTS {
        let transactions = others.iter().map(|other| {
            let put = json!({"Put": {"TableName": deployment.table, "Item": other}});
            deployment.dynamodb("TransactWriteItems", json!({"TransactItems": [put, add_one(deployment, &counter)]}))
        });
        for result in join_all(transactions).await {
            match result {
                Err(CallError::Service { code: error, body, .. }) if error == "TransactionCanceledException" => {
                    let reasons = body["CancellationReasons"].as_array().into_iter().flatten();
                    let codes = reasons.map(code).collect::<Vec<_>>().join(", ");
                    return Ok(CheckResult::compare("None, TransactionConflict", codes));
                }
                Ok(_) => {}
                // A transaction that began at the same time may also be reported as a conflict of the call.
                Err(error) if error.code() == "TransactionConflictException" => {}
                Err(error) => return Err(error),
            }
        }
    }
    let reason = format!("{} concurrent transactions on one item had no conflict", CONCURRENT * ATTEMPTS);
    Ok(CheckResult::not_seen(reason, deployment.stack.is_local()))
}

async fn idempotency_token(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    let aggregate = deployment.aggregate("idempotency-token");
    let (counter, other) = (deployment.row(&aggregate, "CHECK#1"), deployment.row(&aggregate, "CHECK#2"));
    let token = Ulid::generate().to_string();
    let with_token = |row: &Value| json!({"TransactItems": [add_one(deployment, row)], "ClientRequestToken": token});
    for _ in 0..2 {
        deployment.dynamodb("TransactWriteItems", with_token(&counter)).await?;
    }
    let count = deployment.get(&counter).await?.map(|item| item["count"]["N"].clone()).unwrap_or_default();
    let mismatch = match deployment.dynamodb("TransactWriteItems", with_token(&other)).await {
        Ok(_) => "executed".to_owned(),
        Err(CallError::Service { code, .. }) => code,
        Err(error) => return Err(error),
    };
    let seen = format!("executed {} times; with other content: {mismatch}", count.as_str().unwrap_or("0"));
    Ok(CheckResult::compare("executed 1 times; with other content: IdempotentParameterMismatchException", seen))
}

/// The part of a transaction that adds 1 to the attribute `count` of a row.
fn add_one(deployment: &Deployment, row: &Value) -> Value {
    json!({"Update": {
        "TableName": deployment.table,
        "Key": {attributes::PK: row[attributes::PK], attributes::SK: row[attributes::SK]},
        "UpdateExpression": "ADD #count :one",
        "ExpressionAttributeNames": {"#count": "count"},
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }})
}

/// The event type of the rows in the index. The names of registered event types have only letters and digits.
const EVENT_TYPE: &str = "__check";

const POLL: std::time::Duration = std::time::Duration::from_millis(20);

fn indexed_row(deployment: &mut Deployment, check: &str) -> Value {
    let aggregate = deployment.aggregate(check);
    let mut row = deployment.row(&aggregate, &keys::event_sk(1));
    row[attributes::GSI1PK] = json!({"S": keys::gsi1pk(EVENT_TYPE, &aggregate.id, 1)});
    row[attributes::GSI1SK] = json!({"S": keys::gsi1sk(Ulid::generate())});
    row
}

async fn consumed_units(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    let aggregate = deployment.aggregate("consumed-units");
    let metadata = deployment.row(&aggregate, keys::METADATA);
    let event = indexed_row(deployment, "consumed-units");
    // Not an outbox row, because it is not to be sent; its size is the same.
    let message = deployment.row(&aggregate, "CHECK#1");
    let items: Vec<_> = [&metadata, &event, &message].map(|row| deployment.put_new(row)).into();
    let append = json!({"TransactItems": items, "ReturnConsumedCapacity": "INDEXES"});
    let appended = deployment.dynamodb("TransactWriteItems", append).await?;
    let (table, index) = units(&appended["ConsumedCapacity"][0]);
    let key = json!({attributes::PK: event[attributes::PK], attributes::SK: event[attributes::SK]});
    let read =
        json!({"TableName": deployment.table, "Key": key, "ConsistentRead": true, "ReturnConsumedCapacity": "INDEXES"});
    let (read, _) = units(&deployment.dynamodb("GetItem", read).await?["ConsumedCapacity"]);
    let seen = format!("append: {table} units of the table and {index} of the index; read: {read}");
    Ok(CheckResult::compare("append: 6 units of the table and 1 of the index; read: 1", seen))
}

fn units(consumed: &Value) -> (f64, f64) {
    let indexes = consumed["GlobalSecondaryIndexes"].as_object().into_iter().flat_map(|indexes| indexes.values());
    let of_indexes = indexes.filter_map(|index| index["CapacityUnits"].as_f64()).sum();
    (consumed["Table"]["CapacityUnits"].as_f64().unwrap_or_default(), of_indexes)
}

async fn index_lag(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    let row = indexed_row(deployment, "index-lag");
    let query = json!({
        "TableName": deployment.table, "IndexName": attributes::GSI1,
        "KeyConditionExpression": format!("{} = :pk AND {} = :sk", attributes::GSI1PK, attributes::GSI1SK),
        "ExpressionAttributeValues": {":pk": row[attributes::GSI1PK], ":sk": row[attributes::GSI1SK]},
    });
    deployment.put(row).await?;
    let written = Instant::now();
    // The local stack has one clock, and its feeds hold back nothing.
    let limit = if deployment.stack.is_local() { deployment.timeout } else { deployment.feed_delay };
    while written.elapsed() < limit {
        if deployment.dynamodb("Query", query.clone()).await?["Count"] == 1 {
            return Ok(CheckResult::AsExpected { seen: format!("visible after {} ms", written.elapsed().as_millis()) });
        }
        sleep(POLL).await;
    }
    let limit = format!("within {} ms", limit.as_millis());
    Ok(CheckResult::compare(format!("visible {limit}"), format!("not visible {limit}")))
}
