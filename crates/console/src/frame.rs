//! The frame of a page.
//!
//! A handler returns the content of a page, and [`add_frame`] adds the frame, which depends on the kind of the stack.
//! So also the page of an error has the right navigation.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use daybook_event_store::StoreError;
use daybook_function_runtime::with_causes;
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};

use crate::console::{Console, FAULTS, StackKind};
use crate::paths::page;
use crate::stack::{Notices, PREVIOUS_FUNCTIONS, StackError};
use crate::time;

#[derive(Clone)]
pub(crate) struct Page {
    pub(crate) title: String,
    /// The page of the navigation that is marked, by its name; none if it is empty.
    pub(crate) current: &'static str,
    pub(crate) content: Markup,
    pub(crate) search: String,
    /// Those after what the page did; those of the request otherwise.
    pub(crate) notices: Option<Notices>,
}

impl Page {
    pub(crate) fn new(title: impl Into<String>, current: &'static str, content: Markup) -> Self {
        Self { title: title.into(), current, content, search: String::new(), notices: None }
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response.extensions_mut().insert(self);
        response
    }
}

pub(crate) async fn add_frame(State(console): State<Arc<Console>>, request: Request, next: Next) -> Response {
    let notices = Notices::of_request(request.headers());
    let previous = request.headers().get(PREVIOUS_FUNCTIONS).and_then(|reason| reason.to_str().ok()).map(str::to_owned);
    let mut response = next.run(request).await;
    if let Some(page) = response.extensions_mut().remove::<Page>() {
        let notices = page.notices.clone().unwrap_or(notices);
        let framed = page.framed(&console.kind, &notices, previous.as_deref(), console.store.now());
        *response.body_mut() = framed.into_string().into();
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, html);
    }
    response
}

impl Page {
    fn framed(&self, kind: &StackKind, notices: &Notices, previous: Option<&str>, now: Timestamp) -> Markup {
        let Self { title, current, search, content, .. } = self;
        let Notices { has_faults, ahead_by, ahead_by_seconds } = notices;
        let is_ahead = *ahead_by_seconds > 0;
        html! {
            (DOCTYPE)
            // The script shows times relative to the clock of the stack.
            html lang="en" data-ahead-seconds=[is_ahead.then_some(ahead_by_seconds)] {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (title) " · Daybook" }
                    link rel="icon" href=(ICON) type="image/svg+xml";
                    link rel="stylesheet" href=(STYLESHEET);
                    script src=(SCRIPT) defer {}
                }
                body {
                    a.skip href="#main" { "Skip to the content" }
                    header.top {
                        a.brand href=(page("")) { img src=(ICON) alt="" width="20" height="20"; "Daybook" }
                        nav aria-label="Pages" {
                            @for (name, path) in kind.pages() {
                                a href=(page(path)) aria-current=[(name == current).then_some("page")] {
                                    (name) @if *has_faults && *path == FAULTS { " " span.tag.warn { "on" } }
                                }
                            }
                        }
                        form.search role="search" action=(page("/search")) {
                            label.hidden for="search" { "Search by id" }
                            input #search type="search" name="q" value=(search) placeholder="Search by id" autocomplete="off" spellcheck="false";
                            kbd aria-hidden="true" { "/" }
                        }
                    }
                    main #main tabindex="-1" {
                        @if let Some(reason) = previous {
                            p.notice.bad role="alert" {
                                "Your code has changed since, but " (reason) ": see the output of the stack. The pages and the API run the previous version."
                            }
                        }
                        @if let StackKind::Deployed { table, allow_writes } = kind {
                            p.stack { "Table " code { (table) } " on AWS" @if !*allow_writes { " · read-only" } }
                        }
                        @if is_ahead {
                            p.stack { "The clock of the stack is " strong { (ahead_by) } " ahead of the machine's: " (time::exact(now)) }
                        }
                        (content)
                    }
                    footer {
                        span.keys {
                            kbd { "/" } " search  " kbd { "j" } kbd { "k" } " next and previous  "
                            kbd { "←" } kbd { "→" } " versions"
                        }
                        span.zone {}
                    }
                }
            }
        }
    }
}

/// Links to variants of a page, each with its name and its address. `current` is the name of the variant that is shown.
pub(crate) fn tabs<'a>(label: &str, tabs: impl Iterator<Item = (&'a str, String)>, current: &str) -> Markup {
    html! {
        nav.tabs aria-label=(label) {
            @for (name, address) in tabs {
                a href=(address) aria-current=[(name == current).then_some("page")] { (name) }
            }
        }
    }
}

/// A table. A column whose name begins with `#` has numbers.
pub(crate) fn table(columns: &[&str], rows: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" { table {
            thead { tr { @for column in columns {
                @match column.strip_prefix('#') { Some(name) => th.number { (name) }, None => th { (column) } }
            } } }
            tbody { (rows) }
        } }
    }
}

/// The place of a button that copies a text.
pub(crate) fn copy_button(text: impl std::fmt::Display) -> Markup {
    html! { span data-copy=(text) {} }
}

const STYLESHEET: &str = concat!("/_console/", env!("CARGO_PKG_VERSION"), "/console.css");
const SCRIPT: &str = concat!("/_console/", env!("CARGO_PKG_VERSION"), "/console.js");
const ICON: &str = concat!("/_console/", env!("CARGO_PKG_VERSION"), "/icon.svg");

pub(crate) fn assets<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let file = |content_type: &'static str, text: &'static str| {
        get(async move || ([(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "max-age=60")], text))
    };
    Router::new()
        .route(STYLESHEET, file("text/css; charset=utf-8", include_str!("../assets/console.css")))
        .route(SCRIPT, file("text/javascript; charset=utf-8", include_str!("../assets/console.js")))
        .route(ICON, file("image/svg+xml", include_str!("../assets/icon.svg")))
}

#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    title: &'static str,
    pub(crate) detail: String,
}

impl Failure {
    pub(crate) fn missing(detail: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, title: "Not found", detail: detail.into() }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, title: "This cannot be shown", detail: detail.into() }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self { status, title: "The table cannot be read", detail: with_causes(&error) }
    }
}

impl From<StackError> for Failure {
    fn from(error: StackError) -> Self {
        let status = StatusCode::BAD_GATEWAY;
        Self { status, title: "The stack did not return the data of this page", detail: error.to_string() }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self { status, title, detail } = self;
        let body = html! {
            div.notice.bad role="alert" { h1 { (title) } p { (detail) } }
        };
        (status, Page::new(title, "", body)).into_response()
    }
}
