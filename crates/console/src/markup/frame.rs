//! The frame of a page.
//!
//! A handler returns the content of a page, and [`add_frame`] adds the frame, which depends on the kind of the stack.
//! So also the page of an error has the right navigation.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};
use serde_json::Value;

use crate::assets;
use crate::console::Console;
use crate::paths::page;
use crate::stack::contains_faults;
use crate::stack_kind::{FAULTS, StackKind};

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

    /// The page with its content.
    pub(crate) fn with(self, content: Markup) -> Page {
        let Self { title, current, search } = self;
        Page { title: title.to_owned(), current: current.to_owned(), search: search.to_owned(), content }
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
pub(crate) async fn add_frame(State(console): State<Arc<Console>>, mut response: Response) -> Response {
    if let Some(page) = response.extensions_mut().remove::<Page>() {
        let has_faults = console.kind.is_local() && has_faults(&console).await;
        *response.body_mut() = page.framed(&console.kind, has_faults).into_string().into();
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, html);
    }
    response
}

/// Whether somebody has injected faults, and may have forgotten them. The stack returns the faults as they were set, so
/// those that are used up count, too.
async fn has_faults(console: &Console) -> bool {
    console.stack.get::<Value>("/_dev/faults").await.is_ok_and(|faults| contains_faults(&faults))
}

impl Page {
    fn framed(&self, kind: &StackKind, has_faults: bool) -> Markup {
        let Self { title, current, search, content } = self;
        html! {
            (DOCTYPE)
            html lang="en" {
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
                                    (name) @if has_faults && *path == FAULTS { " " span.tag.warn { "on" } }
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
                        @if let StackKind::Deployed(stack) = kind {
                            p.stack { "Table " code { (stack.table) } " on AWS" @if !stack.allow_writes { " · read-only" } }
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
