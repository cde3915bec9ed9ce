//! An endpoint as an operation of the document.

use axum::http::{Method, StatusCode};
use daybook_decider::{Model, Registry};
use serde_json::{Map, Value, json};

use super::subject::{Content, Subject};
use super::{component, gateway, headers, parameters, problems, sample};
use crate::endpoints::ENDPOINTS;
use crate::endpoints::endpoint::{Endpoint, ResponseHeader, Success};

/// The operations by path and method, and the responses that they share, by name.
pub(super) struct Operations {
    pub(super) paths: Map<String, Value>,
    pub(super) responses: Map<String, Value>,
    /// The names under which streams contain events, including those of earlier releases.
    event_types: Vec<&'static str>,
}

impl Operations {
    /// No operation yet, and the responses of a gateway, whose bodies have this schema.
    pub(super) fn new(registry: &Registry, gateway_schema: &Value) -> Self {
        let of_gateway =
            gateway::STATUSES.map(|status| (component::reason(status), gateway::response(status, gateway_schema)));
        let event_types = registry.iter().flat_map(Model::stored_events).map(|(name, _)| name).collect();
        Self { paths: Map::new(), responses: Map::from_iter(of_gateway), event_types }
    }

    /// Adds the operations of a subject.
    pub(super) fn add_all(&mut self, subject: &impl Subject) {
        for endpoint in ENDPOINTS.iter().filter(|endpoint| subject.has(endpoint)) {
            self.add(endpoint, subject);
        }
    }

    fn add(&mut self, endpoint: &Endpoint, subject: &impl Subject) {
        let query =
            parameters::of_query(endpoint, &self.event_types, |name, schema| subject.query_example(name, schema));
        let responses = self.responses(endpoint, subject, &query);
        let mut operation = json!({
            "operationId": format!("{}{}", endpoint.operation_id, subject.name()),
            "tags": [subject.tag()],
            "summary": subject.summary(endpoint),
            "description": endpoint.description,
            "parameters": parameters::of_endpoint(endpoint, subject.path_parameter(endpoint), query),
            "responses": responses,
        });
        if let Some((content, required)) = endpoint.request_body.and_then(|body| subject.request(body)) {
            operation["requestBody"] = json!({"required": required, "content": json_content(content)});
        }
        let head = (endpoint.method == Method::GET).then(|| self.head(&operation));
        let path = self.paths.entry(subject.path(endpoint)).or_insert_with(|| json!({}));
        if let Some(head) = head {
            path["head"] = head;
        }
        path[endpoint.method.as_str().to_lowercase()] = operation;
    }

    /// The `HEAD` operation of a `GET`: the same responses without bodies.
    fn head(&self, get: &Value) -> Value {
        let text = |member: &str| get[member].as_str().unwrap_or_default();
        let id = text("operationId");
        let responses = get["responses"].as_object().into_iter().flatten();
        let responses: Map<_, _> =
            responses.map(|(status, response)| (status.clone(), self.without_body(response))).collect();
        let mut head = get.clone();
        head["operationId"] = format!("head{}{}", id[..1].to_uppercase(), &id[1..]).into();
        head["summary"] = format!("{}: the headers alone", text("summary")).into();
        head["responses"] = responses.into();
        head
    }

    /// The responses by status. The subjects of the endpoint share the responses that are problems.
    fn responses(&mut self, endpoint: &Endpoint, subject: &impl Subject, query: &[Value]) -> Map<String, Value> {
        let success = |&success: &Success| success_response(endpoint, subject, query, success);
        let mut responses: Vec<_> = endpoint.successes.iter().map(success).collect();
        for status in gateway::STATUSES {
            responses.push((status, component::reference("responses", &component::reason(status))));
        }
        for (status, types) in problems::by_status(endpoint.problems) {
            let name = format!("{}{}", endpoint.name, component::reason(status));
            responses.push((status, component::reference("responses", &name)));
            let mut response = problems::response(status, &types);
            if let Some(of_gateway) = self.responses.get(&component::reason(status)) {
                gateway::add_to(&mut response, of_gateway);
            }
            self.responses.insert(name, response);
        }
        responses.into_iter().map(|(status, response)| (status.as_str().to_owned(), response)).collect()
    }

    fn without_body(&self, response: &Value) -> Value {
        let shared = component::referred_name(response).and_then(|name| self.responses.get(name));
        let mut response = shared.unwrap_or(response).clone();
        response.as_object_mut().and_then(|members| members.remove("content"));
        response
    }
}

fn success_response(
    endpoint: &Endpoint,
    subject: &impl Subject,
    query: &[Value],
    success: Success,
) -> (StatusCode, Value) {
    let content = subject.response(endpoint, success);
    let shown = content.as_ref().and_then(|content| content.examples.as_object()?.values().next());
    let version = shown.and_then(|shown| shown["value"]["version"].as_u64());
    let path = subject.path(endpoint).replace("{id}", sample::ID);
    let example = |header| match header {
        ResponseHeader::ETag => version.map(|version| headers::etag(version, subject.state_version())),
        ResponseHeader::Location => Some(format!("/{}/{}", subject.tag(), sample::ID)),
        ResponseHeader::Link => Some(next_page(&path, query)),
        _ => None,
    };
    let (status, description, headers) = success.described();
    let mut response = json!({"description": description, "headers": headers::headers(headers, example)});
    if let Some(content) = content {
        response["content"] = json_content(content);
    }
    if let Some(links) = subject.links(endpoint) {
        response["links"] = links;
    }
    (status, response)
}

/// A link with the examples of the parameters that make a page.
fn next_page(path: &str, query: &[Value]) -> String {
    let value = |name: &str| {
        let example = &query.iter().find(|parameter| parameter["name"] == name)?["example"];
        Some(format!("{name}={}", example.as_str().map_or_else(|| example.to_string(), str::to_owned)))
    };
    let query: Vec<_> = ["type", "after", "limit"].into_iter().filter_map(value).collect();
    format!("<{path}?{}>; rel=\"next\"", query.join("&"))
}

/// JSON of a schema, with its examples if there are any.
fn json_content(Content { schema, examples }: Content) -> Value {
    let mut json = json!({ "schema": schema });
    if examples.as_object().is_some_and(|examples| !examples.is_empty()) {
        json["examples"] = examples;
    }
    json!({ "application/json": json })
}
