//! The frame of a page.

use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use crate::assets;
use crate::paths::page;

/// The pages that the navigation lists.
const PAGES: [(&str, &str); 6] = [
    ("Aggregates", ""),
    ("Bus", "/bus"),
    ("Dead letters", "/dead-letters"),
    ("Correlation", "/correlation"),
    ("Stream", "/stream"),
    ("Faults", "/faults"),
];

/// A page without its content.
pub(crate) struct Frame<'a> {
    title: &'a str,
    current: &'a str,
    search: &'a str,
}

/// A whole page.
pub(crate) struct Page(Markup);

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

    /// The whole page.
    pub(crate) fn with(self, content: Markup) -> Page {
        let Self { title, current, search } = self;
        Page(html! {
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
                            @for (name, path) in PAGES {
                                a href=(page(path)) aria-current=[(name == current).then_some("page")] { (name) }
                            }
                        }
                        form.search role="search" action=(page("/search")) {
                            label.hidden for="search" { "Search by id" }
                            input #search type="search" name="q" value=(search) placeholder="Search by id" autocomplete="off" spellcheck="false";
                            kbd aria-hidden="true" { "/" }
                        }
                    }
                    main #main tabindex="-1" { (content) }
                    footer {
                        span.keys {
                            kbd { "/" } " search  " kbd { "j" } kbd { "k" } " next and previous  "
                            kbd { "←" } kbd { "→" } " versions"
                        }
                        span.zone {}
                    }
                }
            }
        })
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        Html(self.0.into_string()).into_response()
    }
}
