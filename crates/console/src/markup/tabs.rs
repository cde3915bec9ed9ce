//! Links to variants of a page, one of which is shown.

use maud::{Markup, html};

/// The links, each with its name and its address. `current` is the name of the variant that is shown.
pub(crate) fn tabs<'a>(label: &str, tabs: impl Iterator<Item = (&'a str, String)>, current: &str) -> Markup {
    html! {
        nav.tabs aria-label=(label) {
            @for (name, address) in tabs {
                a href=(address) aria-current=[(name == current).then_some("page")] { (name) }
            }
        }
    }
}
