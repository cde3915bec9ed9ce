//! `POST /{type}/{id}`: the update command.

use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use axum::routing::on;
use daybook_decider::CommandRequest;

use super::endpoint::{AGGREGATE_PATH, Endpoint, RequestBody, Success};
use super::request_headers::{IF_MATCH, WRITE_HEADERS};
use super::write::{CHANGE_PROBLEMS, RequestedCommands, WRITE_PROBLEMS, WRITE_QUERY, execute};
use crate::api::Api;
use crate::problem::{self, Problem};
use crate::request::{PathParameters, WriteRequest};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Method::POST,
    path: AGGREGATE_PATH,
    handler: |method| on(method, update),
    name: "Update",
    operation_id: "update",
    command: Some(|commands| commands.update),
    summary: "Update it",
    description: "The body is the data of the update command. If nothing changes, no event is appended and the \
                  `ETag` stays the same.",
    query: WRITE_QUERY,
    request_headers: &[&[&IF_MATCH], WRITE_HEADERS],
    request_body: Some(RequestBody::UpdateData),
    successes: &[Success::Changed],
    problems: &[CHANGE_PROBLEMS, &[&problem::INVALID_COMMAND], WRITE_PROBLEMS],
};

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
