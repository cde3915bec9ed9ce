//! `POST /{type}`: the create command. The body is its data, optionally with an id.

use std::fmt;

use axum::extract::State;
use axum::response::Response;
use axum::routing::on;
use daybook_decider::{CommandRequest, Json};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use ulid::Ulid;

use super::endpoint::{Body, Endpoint, RequestBody};
use super::request_headers::WRITE_HEADERS;
use super::write::{RequestedCommands, WRITE, WRITE_PROBLEMS, created, execute, written};
use crate::api::Api;
use crate::openapi::aggregate_type::AggregateType;
use crate::openapi::schemas::{Content, ID, Schemas, id_schema, named};
use crate::problem::{self, Problem};
use crate::request::{PathParameters, WriteRequest};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    path: "/{type}",
    handler: |method| on(method, create),
    name: "Create",
    operation_id: "create",
    command: Some(|commands| Some(commands.create)),
    summary: "Create one",
    description: "The body is the data of the create command, and optionally the `id` of the aggregate. Without it, \
                  the id is derived from the `Idempotency-Key`, or is a new ULID. An id can be used only once, even \
                  after a deletion. A new aggregate has no version yet, so `If-Match` is not accepted.",
    request_headers: &[WRITE_HEADERS],
    request_body: Some(RequestBody::Type(body)),
    creates: true,
    successes: &[created(Body::Type(|of, schemas| written(of, schemas, [("one", of.created.as_ref())])))],
    problems: &[
        &[&problem::ALREADY_EXISTS, &problem::PRECONDITION_FAILED, &problem::BAD_BODY, &problem::INVALID_COMMAND],
        WRITE_PROBLEMS,
    ],
    ..WRITE
};

/// The data of the create command, and an id. It is required if the command has required fields.
fn body(of: &AggregateType<'_>, schemas: &mut Schemas) -> (Content, bool) {
    let command = of.model.commands().create;
    let mut schema = of.data_of(command);
    let is_required = schema["required"].as_array().is_some_and(|fields| !fields.is_empty());
    schema["properties"]["id"] = id_schema();
    let mut example = of.sample_of(command)["data"].take();
    example["id"] = ID.into();
    let schema = schemas.add(&format!("{}Create", of.name), schema);
    (Content { schema, examples: named([("one", Some(example))]) }, is_required)
}

async fn create(
    State(api): State<Api>,
    PathParameters(type_name): PathParameters<String>,
    request: Result<WriteRequest, Problem>,
) -> Result<Response, Problem> {
    let model = api.model(&type_name)?;
    let request = request?;
    let (id, data) = split_id(&request.body)?;
    let id = id.unwrap_or_else(|| match &request.identity {
        Some(identity) => identity.derived_id(model.type_name()),
        None => Ulid::from_datetime(api.store.now().into()).to_string(),
    });
    let (model, key) = api.aggregate(model.type_name(), &id)?;
    let command = CommandRequest { command: model.commands().create.to_owned(), data };
    execute(&api, model, key, RequestedCommands::One(command), request).await
}

/// Takes `id` out of the body, whose other fields are the command's data.
fn split_id(body: &Json) -> Result<(Option<String>, Json), Problem> {
    let Fields(fields) = body.read().map_err(|_| problem::bad_body("the body must be an object"))?;
    let mut id = None;
    let mut data = Vec::new();
    for (name, value) in fields {
        if name != "id" {
            let name = serde_json::to_string(&name).map_err(problem::internal)?;
            data.push(format!("{name}:{}", value.get()));
        } else if id.is_some() {
            return Err(problem::bad_body("duplicate field `id`"));
        } else {
            id = Some(serde_json::from_str(value.get()).map_err(|_| problem::bad_body("id must be a string"))?);
        }
    }
    let data = Json::parse(format!("{{{}}}", data.join(",")));
    Ok((id, data.map_err(|error| Problem::new(&problem::MALFORMED_JSON, error.to_string()))?))
}

/// An object's fields as they are sent, including repeated fields, so that the command can reject those.
struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}
