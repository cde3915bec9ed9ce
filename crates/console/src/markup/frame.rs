//! The frame of a page.
//!
//! A handler returns the content of a page, and [`add_frame`] adds the frame, which depends on the kind of the stack.
//! So also the page of an error has the right navigation.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};
use serde_json::Value;

use crate::assets;
use crate::console::Console;
use crate::markup::time;
use crate::paths::page;
use crate::stack::{StackClock, contains_faults};
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
        let state = if console.kind.is_local() { StackState::read(&console).await } else { StackState::default() };
        *response.body_mut() = page.framed(&console.kind, &state).into_string().into();
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, html);
    }
    response
}

/// What somebody has changed in the local stack, and may have forgotten.
#[derive(Default)]
struct StackState {
    /// Whether there are injected faults. The stack returns the faults as they were set, so those that are used up count, too.
    has_faults: bool,
    /// The clock, if it is ahead of the machine's.
    clock: Option<StackClock>,
    now: Timestamp,
}

impl StackState {
    async fn read(console: &Console) -> Self {
        let stack = &console.stack;
        let (faults, clock) = tokio::join!(stack.get::<Value>("/_dev/faults"), stack.get::<StackClock>("/_dev/clock"));
        Self {
            has_faults: faults.is_ok_and(|faults| contains_faults(&faults)),
            clock: clock.ok().filter(|clock| clock.ahead_by_seconds > 0),
            now: console.store.now(),
        }
    }
}

impl Page {
    fn framed(&self, kind: &StackKind, StackState { has_faults, clock, now }: &StackState) -> Markup {
        let Self { title, current, search, content } = self;
        html! {
            (DOCTYPE)
            // The script shows times relative to the clock of the stack.
            html lang="en" data-ahead-seconds=[clock.as_ref().map(|clock| clock.ahead_by_seconds)] {
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
                        @if let StackKind::Deployed(stack) = kind {
                            p.stack { "Table " code { (stack.table) } " on AWS" @if !stack.allow_writes { " · read-only" } }
                        }
                        @if let Some(StackClock { ahead_by, .. }) = clock {
                            p.stack { "The clock of the stack is " strong { (ahead_by) } " ahead of the machine's: " (time::exact(*now)) }
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
