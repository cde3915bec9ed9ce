//! The settings of the table, which a restored table does not have until an operator sets them.

use daybook_table::attributes;
use serde_json::{Value, json};

use crate::aws_calls::CallError;
use crate::check::Check;
use crate::deployment::Deployment;
use crate::result::CheckResult;

pub(super) fn checks() -> Vec<Check> {
    vec![Check {
        name: "table-settings",
        relies_on: "the table has a stream with new images, an index of all attributes, TTL and point-in-time recovery. A restored \
                    table has no stream, no TTL and no point-in-time recovery until they are set",
        documented: "DynamoDB Developer Guide, point-in-time recovery: how it works; docs/restore.md",
        permissions: &["dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive", "dynamodb:DescribeContinuousBackups"],
        run: |deployment| Box::pin(table_settings(deployment)),
    }]
}

async fn table_settings(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    let name = json!({"TableName": deployment.table});
    let table = deployment.dynamodb("DescribeTable", name.clone()).await?;
    let ttl = deployment.dynamodb("DescribeTimeToLive", name.clone()).await?;
    let backups = deployment.dynamodb("DescribeContinuousBackups", name).await?;
    let (ttl, backups) = (&ttl["TimeToLiveDescription"], &backups["ContinuousBackupsDescription"]);
    let seen = described(
        has_new_images(&table["Table"]["StreamSpecification"]),
        has_index(&table["Table"]["GlobalSecondaryIndexes"]),
        ttl["AttributeName"] == attributes::TTL && is_on(&ttl["TimeToLiveStatus"]),
        is_on(&backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"]),
    );
    Ok(CheckResult::compare(described(true, true, true, true), seen))
}

/// A replica of a global table has the old images too.
fn has_new_images(stream: &Value) -> bool {
    let view = &stream["StreamViewType"];
    stream["StreamEnabled"] == true && (view == "NEW_IMAGE" || view == "NEW_AND_OLD_IMAGES")
}

fn has_index(indexes: &Value) -> bool {
    let mut indexes = indexes.as_array().into_iter().flatten();
    indexes.any(|index| index["IndexName"] == attributes::GSI1 && index["Projection"]["ProjectionType"] == "ALL")
}

fn is_on(status: &Value) -> bool {
    *status == "ENABLED" || *status == "ENABLING"
}

fn described(stream: bool, index: bool, ttl: bool, recovery: bool) -> String {
    let state = |is_on| if is_on { "yes" } else { "no" };
    let (stream, index, ttl, recovery) = (state(stream), state(index), state(ttl), state(recovery));
    format!(
        "stream with new images {stream}, index of all attributes {index}, TTL {ttl}, point-in-time recovery {recovery}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_indexes_without_what_the_code_reads_are_found() {
        for (view, expected) in
            [("NEW_IMAGE", true), ("NEW_AND_OLD_IMAGES", true), ("OLD_IMAGE", false), ("KEYS_ONLY", false)]
        {
            assert_eq!(has_new_images(&json!({"StreamEnabled": true, "StreamViewType": view})), expected, "{view}");
        }
        assert!(!has_new_images(&Value::Null) && !has_new_images(&json!({"StreamEnabled": false})));
        let index = |name, projection| json!([{"IndexName": name, "Projection": {"ProjectionType": projection}}]);
        assert!(has_index(&index(attributes::GSI1, "ALL")) && !has_index(&index(attributes::GSI1, "KEYS_ONLY")));
        assert!(!has_index(&index("other", "ALL")) && !has_index(&Value::Null));
    }
}
