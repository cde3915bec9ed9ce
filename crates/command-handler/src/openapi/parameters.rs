//! Parameters: the id in the path, the query and the headers of a request.

use serde_json::{Map, Value, json};

use super::sample::{ID, ulid};
use super::schemas::{id_schema, in_document, reference, without_null};
use super::view::ViewSubject;
use crate::endpoints;
use crate::endpoints::endpoint::Endpoint;
use crate::endpoints::request_headers::RequestHeader;

pub(super) fn of_endpoint(endpoint: &Endpoint, view: Option<&ViewSubject<'_>>, query: Vec<Value>) -> Vec<Value> {
    let id = endpoint.path.contains("{id}").then(|| reference("parameters", "Id"));
    let id = id.or_else(|| Some(view.filter(|_| endpoint.path.contains("{*key}"))?.key_parameter()));
    let headers = endpoint.request_headers.concat().into_iter().map(|header| reference("parameters", header.component));
    id.into_iter().chain(query).chain(headers).collect()
}

/// The parameters that endpoints refer to by name.
pub(super) fn shared(has_views: bool) -> Value {
    let id = json!({
        "name": "id",
        "in": "path",
        "required": true,
        "description": "The id of the aggregate.",
        "example": ID,
        "schema": id_schema(),
    });
    let headers = endpoints::served(has_views).flat_map(|endpoint| endpoint.request_headers.concat());
    let headers = headers.map(|&RequestHeader { component, name, description, example, schema }| {
        let header = json!({
            "name": name,
            "in": "header",
            "required": false,
            "description": description,
            "example": example,
            "schema": schema(),
        });
        (component.to_owned(), header)
    });
    headers.chain([("Id".to_owned(), id)]).collect::<Map<_, _>>().into()
}

/// The query parameters of an endpoint. The parameter for an event type lists the existing event types.
pub(super) fn of_query(endpoint: &Endpoint, event_types: &[&str], view: Option<&ViewSubject<'_>>) -> Vec<Value> {
    let Some(schema) = endpoint.query else { return Vec::new() };
    let mut schema = in_document(schema().into(), &str::to_owned);
    // A missing parameter is not null.
    without_null(&mut schema);
    let required = |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name));
    let parameter = |(name, member): (&String, &Value)| {
        let mut schema = member.as_object().cloned().unwrap_or_default();
        let description = schema.remove("description");
        schema.retain(|member, value| member != "default" || !value.is_null());
        let own = view.and_then(|view| view.query_example(name, &mut schema));
        let example = own.unwrap_or_else(|| match name.as_str() {
            "after" if schema["type"] == "string" => ulid(1).to_string().into(),
            "after" | "limit" => 100.into(),
            "version" => 2.into(),
            "rebuild" | "descending" => true.into(),
            "claim" => "personal-email:ann@example.com".into(),
            "type" => {
                schema.insert("enum".to_owned(), json!(event_types));
                json!(event_types.first())
            }
            _ => Value::Null,
        });
        json!({
            "name": name,
            "in": "query",
            "required": required(name),
            "description": description,
            "schema": schema,
            "example": example,
        })
    };
    schema["properties"].as_object().into_iter().flatten().map(parameter).collect()
}
