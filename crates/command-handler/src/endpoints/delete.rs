//! `DELETE /{type}/{id}`: the delete command.

use axum::extract::State;
use axum::response::Response;
use axum::routing::on;
use daybook_decider::{CommandRequest, Json};

use super::endpoint::{AGGREGATE_PATH, Body, Endpoint};
use super::write::{CHANGE_PROBLEMS, RequestedCommands, WRITE, WRITE_PROBLEMS, changed, execute, written};
use crate::api::Api;
use crate::problem::{self, Problem};
use crate::request::{PathParameters, WriteRequest};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: "DELETE",
    path: AGGREGATE_PATH,
    handler: |method| on(method, delete),
    name: "Delete",
    operation_id: "delete",
    command: Some(|commands| commands.delete),
    summary: "Delete it",
    description: "The request has no body. A deleted aggregate returns 410; its events and its earlier versions can \
                  still be read, and its id cannot be used again.",
    successes: &[changed(Body::Type(|of, schemas| {
        let example = of.model.commands().delete.and_then(|command| of.write(command));
        written(of, schemas, [("one", example.as_ref().map(|write| &write.outcome))])
    }))],
    problems: &[CHANGE_PROBLEMS, &[&problem::BAD_BODY], WRITE_PROBLEMS],
    ..WRITE
};

async fn delete(
    State(api): State<Api>,
    PathParameters((type_name, id)): PathParameters<(String, String)>,
    request: Result<WriteRequest, Problem>,
) -> Result<Response, Problem> {
    let (model, key) = api.aggregate(&type_name, &id)?;
    let command = model.commands().delete.ok_or_else(|| problem::no_command_to("delete", model))?.to_owned();
    let request = request?;
    if request.body != Json::empty_object() {
        return Err(problem::bad_body("DELETE takes no body"));
    }
    let command = CommandRequest { command, data: Json::empty_object() };
    execute(&api, model, key, RequestedCommands::One(command), request).await
}
