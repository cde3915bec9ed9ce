//! The frame of a page.
//!
//! A handler returns the content of a page, and [`add_frame`] adds the frame, which depends on the kind of the stack.
//! So also the page of an error has the right navigation.

use std::sync::Arc;

use axum::extract::Request;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};

use crate::assets;
use crate::console::{Console, FAULTS, StackKind};
use crate::markup::time;
use crate::paths::page;
use crate::stack::Notices;

/// A page without its content.
pub(crate) struct Frame<'a> {
    title: &'a str,
    current: &'a str,
    search: &'a str,
}

/// A page whose frame is not added yet.
#[derive(Clone)]
pub(crate) struct Page {
    title: String,
    current: String,
    search: String,
    content: Markup,
    /// Those after what the page did; those of the request otherwise.
    notices: Option<Notices>,
}

impl<'a> Frame<'a> {
    /// A page with this title.
    pub(crate) fn new(title: &'a str) -> Self {
        Self { title, current: "", search: "" }
    }

    /// Marks a page of the navigation, by its name.
    pub(crate) fn below(self, current: &'a str) -> Self {
        Self { current, ..self }
    }

    /// Shows what was searched for.
    pub(crate) fn searching(self, search: &'a str) -> Self {
        Self { search, ..self }
    }

    pub(crate) fn with(self, content: Markup) -> Page {
        let Self { title, current, search } = self;
        Page { title: title.to_owned(), current: current.to_owned(), search: search.to_owned(), content, notices: None }
    }
}

impl Page {
    pub(crate) fn with_notices(self, notices: Notices) -> Self {
        Self { notices: Some(notices), ..self }
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response.extensions_mut().insert(self);
        response
    }
}

/// Adds the frame to the response of a handler, if that is a page.
pub(crate) async fn add_frame(State(console): State<Arc<Console>>, request: Request, next: Next) -> Response {
    let notices = Notices::of_request(request.headers());
    let mut response = next.run(request).await;
    if let Some(page) = response.extensions_mut().remove::<Page>() {
        let notices = page.notices.clone().unwrap_or(notices);
        *response.body_mut() = page.framed(&console.kind, &notices, console.store.now()).into_string().into();
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, html);
    }
    response
}

impl Page {
    fn framed(&self, kind: &StackKind, notices: &Notices, now: Timestamp) -> Markup {
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
                    link rel="icon" href=(assets::ICON) type="image/svg+xml";
                    link rel="stylesheet" href=(assets::STYLESHEET);
                    script src=(assets::SCRIPT) defer {}
                }
                body {
                    a.skip href="#main" { "Skip to the content" }
                    header.top {
                        a.brand href=(page("")) { img src=(assets::ICON) alt="" width="20" height="20"; "Daybook" }
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
