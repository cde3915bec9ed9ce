//! `POST /{type}/{id}`: the update command.

use axum::extract::State;
use axum::response::Response;
use axum::routing::on;
use daybook_decider::CommandRequest;

use super::endpoint::{AGGREGATE_PATH, Body, Endpoint, RequestBody};
use super::write::{CHANGE_PROBLEMS, RequestedCommands, WRITE, WRITE_PROBLEMS, changed, execute, written};
use crate::api::Api;
use crate::openapi::aggregate_type::AggregateType;
use crate::openapi::schemas::{Content, Schemas, named};
use crate::problem::{self, Problem};
use crate::request::{PathParameters, WriteRequest};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    path: AGGREGATE_PATH,
    handler: |method| on(method, update),
    name: "Update",
    operation_id: "update",
    command: Some(|commands| commands.update),
    summary: "Update it",
    description: "The body is the data of the update command. If nothing changes, no event is appended and the \
                  `ETag` stays the same.",
    request_body: Some(RequestBody::Type(body)),
    successes: &[changed(Body::Type(|of, schemas| {
        let example = of.model.commands().update.and_then(|command| of.write(command));
        written(of, schemas, [("one", example.as_ref().map(|write| &write.outcome))])
    }))],
    problems: &[CHANGE_PROBLEMS, &[&problem::INVALID_COMMAND], WRITE_PROBLEMS],
    ..WRITE
};

fn body(of: &AggregateType<'_>, schemas: &mut Schemas) -> (Content, bool) {
    let command = of.model.commands().update.unwrap_or_default();
    let schema = schemas.add(&format!("{}Update", of.name), of.data_of(command));
    let example = of.write(command).map(|mut write| write.request["data"].take());
    (Content { schema, examples: named([("one", example)]) }, true)
}

async fn update(
    State(api): State<Api>,
    PathParameters((type_name, id)): PathParameters<(String, String)>,
    request: Result<WriteRequest, Problem>,
) -> Result<Response, Problem> {
    let (model, key) = api.aggregate(&type_name, &id)?;
    let command = model.commands().update.ok_or_else(|| problem::no_command_to("update", model))?.to_owned();
    let request = request?;
    let command = CommandRequest { command, data: request.body.clone() };
    execute(&api, model, key, RequestedCommands::One(command), request).await
}
