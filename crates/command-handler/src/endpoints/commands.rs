//! `POST /{type}/{id}/commands`: one command, or several of which all or none are executed.

use axum::extract::State;
use axum::response::Response;
use axum::routing::on;
use serde_json::json;

use super::endpoint::{Body, Endpoint, RequestBody};
use super::write::{CHANGE_PROBLEMS, RequestedCommands, WRITE, WRITE_PROBLEMS, changed, created, execute, written};
use crate::api::Api;
use crate::openapi::aggregate_type::AggregateType;
use crate::openapi::schemas::{Content, Schemas, named};
use crate::problem::{self, Problem};
use crate::request::{PathParameters, WriteRequest};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    path: "/{type}/{id}/commands",
    handler: |method| on(method, commands),
    name: "Command",
    operation_id: "command",
    summary: "Send commands",
    description: "One command, or an array of commands that are all executed or none. If one command is rejected, the \
                  events of the others are dropped; the events that record the rejection are appended, and the `ETag` \
                  is that of the version after them. `index` names the command. An array that creates the aggregate \
                  twice returns 409, one that continues after its deletion returns 410. Commands that begin with the \
                  create command take no `If-Match`. Empty `data` may be omitted.",
    request_body: Some(RequestBody::Type(|of, schemas| (body(of, schemas), true))),
    successes: &[
        changed(Body::Type(|of, schemas| {
            let [one, several] = [of.one(), of.several()].map(|write| write.map(|write| write.outcome));
            written(of, schemas, [("one", one.as_ref()), ("several", several.as_ref())])
        })),
        created(Body::Type(|of, schemas| written(of, schemas, [("creation", of.created.as_ref())]))),
    ],
    problems: &[
        CHANGE_PROBLEMS,
        &[&problem::ALREADY_EXISTS, &problem::PRECONDITION_FAILED],
        &[&problem::BAD_BODY, &problem::UNKNOWN_COMMAND, &problem::INVALID_COMMAND],
        WRITE_PROBLEMS,
    ],
    ..WRITE
};

fn body(of: &AggregateType<'_>, _: &mut Schemas) -> Content {
    let several = json!({"type": "array", "minItems": 1, "items": of.command});
    let [one, several_requests] = [of.one(), of.several()].map(|write| write.map(|write| write.request));
    let creation = json!([of.sample_of(of.model.commands().create)]);
    let examples = named([("one", one), ("several", several_requests), ("creation", Some(creation))]);
    Content { schema: json!({"oneOf": [of.command, several]}), examples }
}

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
    let commands = commands.map_err(|error| problem::bad_body(format!("{shape}: {error}")))?;
    if matches!(&commands, RequestedCommands::Batch(commands) if commands.is_empty()) {
        return Err(problem::bad_body("the array has no command"));
    }
    execute(&api, model, key, commands, request).await
}
