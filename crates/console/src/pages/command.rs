//! *Command*: a form from the command's JSON Schema, and the response of the API; samples of commands.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Request, Response, header};
use axum::response::Redirect;
use daybook_admin::AdminCalls;
use daybook_decider::{Model, Registry, samples};
use daybook_table::AggregateKey;
use daybook_table::keys::is_id;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};
use tower::ServiceExt;
use ulid::Ulid;

use super::copied_test::{self, Decided};
use crate::console::{Console, StackKind};
use crate::frame::{Failure, Page, tabs};
use crate::request::{PagePath, PageQuery, PostedForm, model};
use crate::schema_fields::{CommandForm, commands};
use crate::{json, paths};

const HEADERS: [(&str, &str); 4] = [
    ("If-Match", "The version that you have read, such as 3. If it is not the latest, the API rejects the command."),
    ("Idempotency-Key", "A request with the same key is executed once."),
    ("X-Correlation-Id", "The id that all commands and messages of one business transaction share."),
    ("X-Daybook-Caller", "The name of a caller, or JSON with principal, groups, scopes and claims."),
];

#[derive(Deserialize)]
pub(crate) struct CommandQuery {
    #[serde(default)]
    command: String,
    #[serde(default)]
    id: String,
}

/// The id of the aggregate to which samples are sent.
const SAMPLE: &str = "sample";

const MAX_RESPONSE: usize = 64 * 1024 * 1024;

struct ApiRequest {
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Value,
}

pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    PagePath(of_type): PagePath<String>,
    PageQuery(CommandQuery { command, id }): PageQuery<CommandQuery>,
) -> Result<Page, Failure> {
    let model = model(&console, &of_type)?;
    let schema = model.schemas().command.as_value();
    let commands = commands(schema);
    let chosen = chosen(model, &commands, &command, id.is_empty())?;
    let content = html! { (form(&console, model, &commands, chosen, &id, None)) };
    Ok(Page::new(format!("{} · {of_type}", chosen.name), "Aggregates", content))
}

pub(crate) async fn send(
    State(console): State<Arc<Console>>,
    PagePath(of_type): PagePath<String>,
    headers: HeaderMap,
    sent: PostedForm,
) -> Result<Page, Failure> {
    let model = model(&console, &of_type)?;
    let schema = model.schemas().command.as_value();
    let commands = commands(schema);
    let id = sent.value("id").unwrap_or_default().trim().to_owned();
    let chosen = chosen(model, &commands, sent.value("command").unwrap_or_default(), id.is_empty())?;
    let result = match request(model, chosen, &id, &sent) {
        Err(reason) => html! { p.notice.bad role="alert" { (reason) } },
        Ok(request) => execute(&console, model, chosen, (&id, &request), &headers).await?,
    };
    let content = html! {
        (form(&console, model, &commands, chosen, &id, Some(&sent)))
        (result)
    };
    Ok(Page::new(format!("{} · {of_type}", chosen.name), "Aggregates", content))
}

/// The type whose commands a first visit tries: the first one that clients create. Events of others create a process.
pub(crate) fn first_type(registry: &Registry) -> Option<&dyn Model> {
    registry.iter().find(|model| model.sources().is_empty())
}

/// Sends a sample of each command of the first type, without those that delete or forget, to one aggregate, and shows it.
pub(crate) async fn send_samples(State(console): State<Arc<Console>>, _form: PostedForm) -> Result<Redirect, Failure> {
    let model = first_type(&console.registry).ok_or_else(|| Failure::missing("No type has commands."))?;
    let (of_type, names) = (model.type_name(), model.commands());
    let ends =
        |sample: &Value| [names.delete, model.forget()].into_iter().flatten().any(|name| sample["command"] == name);
    let mut samples: Vec<_> = samples(model).into_iter().filter(|sample| !ends(sample)).collect();
    samples.sort_by_key(|sample| sample["command"] != names.create);
    for body in samples {
        let path = format!("/{of_type}/{SAMPLE}/commands");
        send_to_api(&console, &ApiRequest { path, headers: Vec::new(), body }).await?;
    }
    Ok(Redirect::to(&paths::aggregate_of(of_type, SAMPLE)))
}

async fn send_to_api(console: &Console, request: &ApiRequest) -> Result<Response<String>, Failure> {
    let api = match &console.kind {
        StackKind::Local { api } => api.clone(),
        StackKind::Deployed { .. } => Router::new(),
    };
    let post = Request::post(request.path.as_str()).header(header::CONTENT_TYPE, "application/json");
    let post = request.headers.iter().fold(post, |post, (name, value)| post.header(*name, value.as_str()));
    let failed = |error: axum::Error| Failure::invalid(format!("The API cannot be called: {error}."));
    let request = post.body(Body::from(request.body.to_string())).map_err(|error| failed(axum::Error::new(error)))?;
    let (parts, body) = api.oneshot(request).await.unwrap_or_else(|never| match never {}).into_parts();
    let body = to_bytes(body, MAX_RESPONSE).await.map_err(failed)?;
    Ok(Response::from_parts(parts, String::from_utf8_lossy(&body).into_owned()))
}

/// The command of that name. Without a name, the create command for a new aggregate, or else the first of the others.
fn chosen<'a>(
    model: &dyn Model,
    commands: &'a [CommandForm<'a>],
    name: &str,
    is_new: bool,
) -> Result<&'a CommandForm<'a>, Failure> {
    let create = model.commands().create;
    let chosen = match name {
        "" => commands.iter().find(|command| (command.name == create) == is_new).or(commands.first()),
        name => commands.iter().find(|command| command.name == name),
    };
    chosen.ok_or_else(|| Failure::missing(format!("{} has no command {name}.", model.type_name())))
}

fn form(
    console: &Console,
    model: &dyn Model,
    commands: &[CommandForm<'_>],
    chosen: &CommandForm<'_>,
    id: &str,
    sent: Option<&PostedForm>,
) -> Markup {
    let of_type = model.type_name();
    let creates = chosen.name == model.commands().create;
    let address = |command: &str| {
        let query = [("command", command), ("id", id)];
        paths::command(of_type, &query[..if id.is_empty() { 1 } else { 2 }])
    };
    html! {
        h1 {
            a href=(paths::with_query(paths::CONSOLE, &[("type", of_type)])) { (of_type) }
            @if !id.is_empty() && is_id(id) { "/" a href=(paths::aggregate_of(of_type, id)) { (id) } }
        }
        (tabs("Commands", commands.iter().map(|command| (command.name, address(command.name))), chosen.name))
        p.facts { (chosen.description) }
        form.command method="post" action=(paths::command(of_type, &[])) {
            (crate::request::token(&console.form_token))
            input type="hidden" name="command" value=(chosen.name);
            div.field {
                label for="id" { "id" @if creates { span.hint { " optional" } } }
                input #id name="id" value=(id) required[!creates] autocomplete="off" spellcheck="false" aria-describedby="hint-id";
                p.hint #hint-id {
                    "The id of the aggregate." @if creates { " Without one, the API makes a new id." }
                }
            }
            fieldset { legend { "Data" } (chosen.markup(sent)) }
            details open[sent.is_some()] {
                summary { "Headers" }
                @for (name, hint) in HEADERS { (header_field(name, hint, sent)) }
            }
            p.actions { button.primary { "Send " (chosen.name) } }
        }
    }
}

fn header_field(name: &str, hint: &str, sent: Option<&PostedForm>) -> Markup {
    let before = sent.and_then(|sent| sent.value(name)).unwrap_or_default();
    // With the key of the request that was just sent, the next one would not be executed.
    let is_fresh = name == "Idempotency-Key" && (sent.is_none() || !before.is_empty());
    let value = if is_fresh { Ulid::generate().to_string() } else { before.to_owned() };
    html! {
        div.field {
            label for=(name) { (name.strip_prefix("X-Daybook-").unwrap_or(name)) }
            input id=(name) name=(name) value=(value) autocomplete="off" spellcheck="false" aria-describedby={ "hint-" (name) };
            p.hint id={ "hint-" (name) } { (hint) }
        }
    }
}

fn request(model: &dyn Model, chosen: &CommandForm<'_>, id: &str, sent: &PostedForm) -> Result<ApiRequest, String> {
    let data = chosen.data(sent)?;
    let of_header = |(name, _): (&'static str, &str)| {
        let value = sent.value(name)?.trim();
        let is_version = name == "If-Match" && value.bytes().all(|byte| byte.is_ascii_digit());
        Some((name, if is_version { format!("\"{value}\"") } else { value.to_owned() }))
    };
    let headers: Vec<_> = HEADERS.into_iter().filter_map(of_header).collect();
    if let Some((name, _)) = headers.iter().find(|(_, value)| !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)))
    {
        return Err(format!("{name} may only have ASCII characters"));
    }
    let of_type = model.type_name();
    let (path, body) = if id.is_empty() && chosen.name == model.commands().create {
        (format!("/{of_type}"), data)
    } else {
        (format!("/{of_type}/{}/commands", paths::escaped(id)), json!({"command": chosen.name, "data": data}))
    };
    Ok(ApiRequest { path, headers, body })
}

async fn execute(
    console: &Console,
    model: &dyn Model,
    chosen: &CommandForm<'_>,
    (id, request): (&str, &ApiRequest),
    of_page: &HeaderMap,
) -> Result<Markup, Failure> {
    let key = is_id(id).then(|| AggregateKey::new(model.type_name(), id));
    let before = match &key {
        Some(key) => console.store.admin().progress(key).await?.version,
        None => 0,
    };
    let response = send_to_api(console, request).await?;
    let body: Value = serde_json::from_str(response.body()).unwrap_or_default();
    let id = key.as_ref().map(|key| key.id.as_str()).or_else(|| created_id(&response));
    let key = id.map(|id| AggregateKey::new(model.type_name(), id));
    let rejection = body["rejection"].as_str();
    let test = match &key {
        Some(key) if response.status().is_success() || rejection.is_some() => {
            let json = if request.body.get("command").is_some() {
                request.body.to_string()
            } else {
                json!({"command": chosen.name, "data": request.body}).to_string()
            };
            let decided = Decided { command: chosen.name, json: &json, before, rejection };
            let source = copied_test::of_decision(console, model, key, &decided).await?;
            Some(copied_test::block(source.as_deref()))
        }
        _ => None,
    };
    let host = of_page.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost:3000");
    Ok(result(&response, key.as_ref(), &curl(host, request), test.as_ref()))
}

/// The id in the `Location` of a created aggregate.
fn created_id(response: &Response<String>) -> Option<&str> {
    let location = response.headers().get(header::LOCATION)?.to_str().ok()?;
    location.rsplit('/').next().filter(|id| is_id(id))
}

fn result(response: &Response<String>, key: Option<&AggregateKey>, curl: &str, test: Option<&Markup>) -> Markup {
    let is_good = response.status().is_success();
    let etag = response.headers().get(header::ETAG).and_then(|etag| etag.to_str().ok());
    html! {
        section.result aria-labelledby="response" tabindex="-1" data-focus {
            h2 #response { "Response" }
            p.facts role="status" {
                strong.good[is_good].bad[!is_good] { (response.status()) }
                @if response.headers().contains_key("idempotency-replayed") { " · the response to an earlier request with this key" }
                @if let Some(etag) = etag { " · ETag " code { (etag) } }
                @if let Some(key) = key { " · " a href=(paths::aggregate(key)) { "Show " (key) } }
            }
            (json::block(response.body()))
            h2 { "The same with curl" }
            div.copy { pre.source.shell tabindex="0" role="group" aria-label="curl" { (curl) } }
            @if let Some(test) = test {
                h2 { "Copy as a test" }
                (test)
            }
        }
    }
}

fn curl(host: &str, ApiRequest { path, headers, body }: &ApiRequest) -> String {
    let headers = headers.iter().map(|(name, value)| format!(" -H {}", quoted(&format!("{name}: {value}"))));
    format!(
        "curl -i{} --json {} {}",
        headers.collect::<String>(),
        quoted(&body.to_string()),
        quoted(&format!("http://{host}{path}"))
    )
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
