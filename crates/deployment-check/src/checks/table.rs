//! The table: the units of calls, and the lag of the index.

use daybook_table::{attributes, keys};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use ulid::Ulid;

use crate::aws_calls::CallError;
use crate::check::Check;
use crate::deployment::Deployment;
use crate::result::CheckResult;

/// The event type of the rows in the index. The names of registered event types have only letters and digits.
const EVENT_TYPE: &str = "__check";

/// The pause between two reads of the index.
const POLL: std::time::Duration = std::time::Duration::from_millis(20);

pub(super) fn checks() -> Vec<Check> {
    vec![
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

/// The units of the table and of its indexes.
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
    let limit = if deployment.is_local { deployment.timeout } else { deployment.feed_delay };
    while written.elapsed() < limit {
        if deployment.dynamodb("Query", query.clone()).await?["Count"] == 1 {
            return Ok(CheckResult::AsExpected { seen: format!("visible after {} ms", written.elapsed().as_millis()) });
        }
        sleep(POLL).await;
    }
    let limit = format!("within {} ms", limit.as_millis());
    Ok(CheckResult::differs(format!("visible {limit}"), format!("not visible {limit}")))
}
