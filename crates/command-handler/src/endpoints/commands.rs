//! `POST /{type}/{id}/commands`: one command, or several of which all or none are executed.

use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use axum::routing::on;

use super::endpoint::{Endpoint, RequestBody, Success};
use super::request_headers::{IF_MATCH, WRITE_HEADERS};
use super::write::{CHANGE_PROBLEMS, RequestedCommands, WRITE_PROBLEMS, WRITE_QUERY, execute};
use crate::api::Api;
use crate::problem::{self, Problem};
use crate::request::{PathParameters, WriteRequest};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Method::POST,
    path: "/{type}/{id}/commands",
    handler: |method| on(method, commands),
    name: "Command",
    operation_id: "command",
    command: None,
    summary: "Send commands",
    description: "One command, or an array of commands that are all executed or none. If one command is rejected, the \
                  events of the others are dropped; the events that record the rejection are appended, and the `ETag` \
                  is that of the version after them. `index` names the command. An array that creates the aggregate \
                  twice returns 409, one that continues after its deletion returns 410. Commands that begin with the \
                  create command take no `If-Match`. Empty `data` may be omitted.",
    query: WRITE_QUERY,
    request_headers: &[&[&IF_MATCH], WRITE_HEADERS],
    request_body: Some(RequestBody::Commands),
    successes: &[Success::Changed, Success::Created],
    problems: &[
        CHANGE_PROBLEMS,
        &[&problem::ALREADY_EXISTS, &problem::PRECONDITION_FAILED],
        &[&problem::BAD_BODY, &problem::UNKNOWN_COMMAND, &problem::INVALID_COMMAND],
        WRITE_PROBLEMS,
    ],
};

async fn commands(
    State(api): State<Api>,
    PathParameters((type_name, id)): PathParameters<(String, String)>,
    request: Result<WriteRequest, Problem>,
) -> Result<Response, Problem> {
    let (model, key) = api.aggregate(&type_name, &id)?;
    let request = request?;
    let body = &request.body;
    let commands = if body.text().starts_with('[') {
        body.read_strictly().map(RequestedCommands::Batch)
    } else {
        body.read_strictly().map(RequestedCommands::One)
    };
    let shape = "the body must be {\"command\", \"data\"} or an array of them";
    let commands = commands.map_err(|error| Problem::new(&problem::BAD_BODY, format!("{shape}: {error}")))?;
    if matches!(&commands, RequestedCommands::Batch(commands) if commands.is_empty()) {
        return Err(Problem::new(&problem::BAD_BODY, "the array has no command"));
    }
    execute(&api, model, key, commands, request).await
}
