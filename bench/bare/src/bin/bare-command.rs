//! The bare command: the runtime, and one call with a prepared request. It reads nothing of the HTTP request, and its response
//! is prepared too.
//!
//! Its input is the transaction and the response of a command of the suite's function, in the files that `BARE_TRANSACTION` and
//! `BARE_RESPONSE` name.

use std::collections::HashMap;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{AttributeValue, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use lambda_http::{Body, Error, Request, Response, service_fn};
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::new(&bare::aws_config().await);
    let transaction: Value = serde_json::from_slice(&std::fs::read(std::env::var("BARE_TRANSACTION")?)?)?;
    let items = transaction["TransactItems"].as_array().ok_or("TransactItems is missing")?;
    let items = Arc::new(items.iter().map(item).collect::<Result<Vec<_>, Error>>()?);
    let response: Arc<str> = std::fs::read_to_string(std::env::var("BARE_RESPONSE")?)?.into();
    let handle = async |_: Request| {
        client.transact_write_items().set_transact_items(Some(items.to_vec())).send().await?;
        let response = Response::builder()
            .header("content-type", "application/json")
            .header("etag", "\"2-1\"")
            .body(Body::from(&*response))?;
        Ok::<_, Error>(response)
    };
    lambda_http::run(service_fn(handle)).await
}

fn item(action: &Value) -> Result<TransactWriteItem, Error> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let returned = |value: &Value| value.as_str().map(ReturnValuesOnConditionCheckFailure::from);
    let item = TransactWriteItem::builder();
    if let Some(put) = action.get("Put") {
        let put = Put::builder()
            .set_table_name(text(&put["TableName"]))
            .set_item(Some(attributes(&put["Item"])?))
            .set_condition_expression(text(&put["ConditionExpression"]))
            .set_return_values_on_condition_check_failure(returned(&put["ReturnValuesOnConditionCheckFailure"]));
        return Ok(item.put(put.build()?).build());
    }
    let update = &action["Update"];
    let update = Update::builder()
        .set_table_name(text(&update["TableName"]))
        .set_key(Some(attributes(&update["Key"])?))
        .set_update_expression(text(&update["UpdateExpression"]))
        .set_condition_expression(text(&update["ConditionExpression"]))
        .set_expression_attribute_values(Some(attributes(&update["ExpressionAttributeValues"])?))
        .set_return_values_on_condition_check_failure(returned(&update["ReturnValuesOnConditionCheckFailure"]));
    Ok(item.update(update.build()?).build())
}

fn attributes(map: &Value) -> Result<HashMap<String, AttributeValue>, Error> {
    let map = map.as_object().ok_or("a map of attributes is missing")?;
    map.iter().map(|(name, value)| Ok((name.clone(), attribute(value)?))).collect()
}

fn attribute(value: &Value) -> Result<AttributeValue, Error> {
    let (kind, value) = value.as_object().and_then(|value| value.iter().next()).ok_or("a value has no type")?;
    let text = || value.as_str().unwrap_or_default().to_owned();
    Ok(match kind.as_str() {
        "S" => AttributeValue::S(text()),
        "N" => AttributeValue::N(text()),
        // As many bytes as the text has in base64.
        "B" => AttributeValue::B(Blob::new(vec![7; text().trim_end_matches('=').len() * 3 / 4])),
        "BOOL" => AttributeValue::Bool(value == true),
        "M" => AttributeValue::M(attributes(value)?),
        _ => return Err(format!("no attribute of the suite has the type {kind}").into()),
    })
}
