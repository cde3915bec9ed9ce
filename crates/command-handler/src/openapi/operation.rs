//! An endpoint as an operation of the document, with its parameters: the id in the path, the query and the headers of a request.

use axum::http::StatusCode;
use daybook_decider::{Model, Registry};
use serde_json::{Map, Value, json};

use super::aggregate_type::AggregateType;
use super::responses::{self, fixed, headers};
use super::schemas::{Content, ID, Schemas, id_schema, in_document, reference, referred_name, ulid, without_null};
use super::view::ViewSubject;
use crate::endpoints::endpoint::{Body, Endpoint, RequestBody, Success};
use crate::endpoints::request_headers::RequestHeader;
use crate::endpoints::{self, ENDPOINTS};

#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    Type(&'a AggregateType<'a>),
    View(&'a ViewSubject<'a>),
    /// The service: operations that are not about one aggregate type.
    Service(&'a [AggregateType<'a>]),
}

impl Subject<'_> {
    pub(super) fn tag(self) -> String {
        match self {
            Self::Type(of) => of.model.type_name().to_owned(),
            Self::View(of) => of.tag.clone(),
            Self::Service(_) => "suite".to_owned(),
        }
    }

    /// The name that ends the ids of its operations.
    fn name(&self) -> &str {
        match self {
            Self::Type(of) => &of.name,
            Self::View(of) => &of.name,
            Self::Service(_) => "",
        }
    }

    fn has(self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Type(of) => {
                let command = endpoint.command.map(|command| command(of.model.commands()));
                endpoint.is_about_a_type() && command.is_none_or(|command| command.is_some())
            }
            Self::View(_) => endpoint.is_about_a_view(),
            Self::Service(_) => !endpoint.is_about_a_type() && !endpoint.is_about_a_view(),
        }
    }

    fn path(self, endpoint: &Endpoint) -> String {
        endpoint.path.replace("views/{view}", &self.tag()).replace("{type}", &self.tag()).replace("{*key}", "{key}")
    }

    fn summary(self, endpoint: &Endpoint) -> String {
        match self {
            Self::Type(of) => {
                let command = endpoint.command.and_then(|command| command(of.model.commands()));
                match command.and_then(|command| Some((command, of.description_of(command)?))) {
                    Some((command, description)) => format!("{command}: {}", description.trim_end_matches('.')),
                    None => format!("{} ({})", endpoint.summary, of.model.type_name()),
                }
            }
            Self::View(of) => format!("{} ({})", endpoint.summary, of.model.name()),
            Self::Service(_) => endpoint.summary.to_owned(),
        }
    }

    fn content(self, body: Body, schemas: &mut Schemas) -> Option<Content> {
        match (self, body) {
            (Self::Type(of), Body::Type(content)) => Some(content(of, schemas)),
            (Self::View(of), Body::View(content)) => Some(content(of, schemas)),
            (Self::Service(types), Body::Service(content)) => Some(content(types, schemas)),
            _ => None,
        }
    }

    /// The operations that can follow on an aggregate that the endpoint has created.
    fn links(self, endpoint: &Endpoint) -> Option<Value> {
        if !endpoint.creates {
            return None;
        }
        let link = |endpoint: &Endpoint| {
            let operation_id = format!("{}{}", endpoint.operation_id, self.name());
            let mut parameters = json!({"id": "$response.body#/id"});
            if endpoint.method != "GET" {
                parameters["header.If-Match"] = "$response.header.ETag".into();
            }
            (operation_id.clone(), json!({"operationId": operation_id, "parameters": parameters}))
        };
        let others = ENDPOINTS.iter().filter(|endpoint| endpoint.path.contains("{id}") && self.has(endpoint));
        Some(others.map(link).collect::<Map<_, _>>().into())
    }
}

/// The operations by path and method, and the responses that they share, by name.
pub(super) struct Operations {
    pub(super) paths: Map<String, Value>,
    pub(super) responses: Map<String, Value>,
    /// The names under which streams contain events, including those of earlier releases.
    event_types: Vec<&'static str>,
}

impl Operations {
    /// No operation yet, and the responses of a gateway.
    pub(super) fn new(registry: &Registry) -> Self {
        let mut of_gateway = fixed("gatewayResponses");
        let of_gateway = responses::GATEWAY_STATUSES.map(|status| (reason(status), of_gateway[reason(status)].take()));
        let event_types = registry.iter().flat_map(Model::stored_events).map(|(name, _)| name).collect();
        Self { paths: Map::new(), responses: Map::from_iter(of_gateway), event_types }
    }

    pub(super) fn add_all(&mut self, subject: Subject<'_>, schemas: &mut Schemas) {
        for endpoint in ENDPOINTS.iter().filter(|endpoint| subject.has(endpoint)) {
            self.add(endpoint, subject, schemas);
        }
    }

    fn add(&mut self, endpoint: &Endpoint, subject: Subject<'_>, schemas: &mut Schemas) {
        let view = if let Subject::View(view) = subject { Some(view) } else { None };
        let query = query_parameters(endpoint, &self.event_types, view);
        let responses = self.responses(endpoint, subject, &query, schemas);
        let mut operation = json!({
            "operationId": format!("{}{}", endpoint.operation_id, subject.name()),
            "tags": [subject.tag()],
            "summary": subject.summary(endpoint),
            "description": endpoint.description,
            "parameters": parameters(endpoint, view, query),
            "responses": responses,
        });
        let body = match (endpoint.request_body, subject) {
            (Some(RequestBody::Type(body)), Subject::Type(of)) => Some(body(of, schemas)),
            (Some(RequestBody::Service(body)), Subject::Service(types)) => Some((body(types, schemas), true)),
            _ => None,
        };
        if let Some((content, required)) = body {
            operation["requestBody"] = json!({"required": required, "content": json_content(content)});
        }
        let head = (endpoint.method == "GET").then(|| self.head(&operation));
        let path = self.paths.entry(subject.path(endpoint)).or_insert_with(|| json!({}));
        if let Some(head) = head {
            path["head"] = head;
        }
        path[endpoint.method.to_lowercase()] = operation;
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
    fn responses(
        &mut self,
        endpoint: &Endpoint,
        subject: Subject<'_>,
        query: &[Value],
        schemas: &mut Schemas,
    ) -> Map<String, Value> {
        let success = |success: &Success| success_response(endpoint, subject, query, success, schemas);
        let mut responses: Vec<_> = endpoint.successes.iter().map(success).collect();
        for status in responses::GATEWAY_STATUSES {
            responses.push((status, reference("responses", &reason(status))));
        }
        for (status, types) in responses::by_status(endpoint.problems) {
            let name = format!("{}{}", endpoint.name, reason(status));
            responses.push((status, reference("responses", &name)));
            let mut response = responses::response(status, &types);
            if let Some(of_gateway) = self.responses.get(&reason(status)) {
                responses::add_to(&mut response, of_gateway);
            }
            self.responses.insert(name, response);
        }
        responses.into_iter().map(|(status, response)| (status.as_str().to_owned(), response)).collect()
    }

    fn without_body(&self, response: &Value) -> Value {
        let shared = referred_name(response).and_then(|name| self.responses.get(name));
        let mut response = shared.unwrap_or(response).clone();
        response.as_object_mut().and_then(|members| members.remove("content"));
        response
    }
}

fn success_response(
    endpoint: &Endpoint,
    subject: Subject<'_>,
    query: &[Value],
    success: &Success,
    schemas: &mut Schemas,
) -> (StatusCode, Value) {
    let content = success.body.and_then(|body| subject.content(body, schemas));
    let shown = content.as_ref().and_then(|content| content.examples.as_object()?.values().next());
    let version = shown.and_then(|shown| shown["value"]["version"].as_u64());
    let path = subject.path(endpoint).replace("{id}", ID);
    let state_version = if let Subject::Type(of) = subject { of.model.state_version() } else { 1 };
    let example = |header: &str| match header {
        "ETag" => version.map(|version| format!("\"{version}-{state_version}\"")),
        "Location" => Some(format!("/{}/{}", subject.tag(), ID)),
        "Link" => Some(next_page(&path, query)),
        _ => None,
    };
    let headers = headers(success.headers, example);
    let mut response = json!({"description": success.description, "headers": headers});
    if let Some(content) = content {
        response["content"] = json_content(content);
    }
    if let Some(links) = subject.links(endpoint) {
        response["links"] = links;
    }
    (success.status, response)
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

/// The reason phrase of a status in one word.
fn reason(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or_default().replace(' ', "")
}

fn parameters(endpoint: &Endpoint, view: Option<&ViewSubject<'_>>, query: Vec<Value>) -> Vec<Value> {
    let id = endpoint.path.contains("{id}").then(|| reference("parameters", "Id"));
    let id = id.or_else(|| Some(view.filter(|_| endpoint.path.contains("{*key}"))?.key_parameter()));
    let headers = endpoint.request_headers.concat().into_iter().map(|header| reference("parameters", header.component));
    id.into_iter().chain(query).chain(headers).collect()
}

/// The parameters that endpoints refer to by name.
pub(super) fn shared_parameters(has_views: bool) -> Value {
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
fn query_parameters(endpoint: &Endpoint, event_types: &[&str], view: Option<&ViewSubject<'_>>) -> Vec<Value> {
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
