//! Fields of forms.

use maud::{Markup, html};

use crate::form::TOKEN;

/// The hidden field with the token that every form carries.
pub(crate) fn token(form_token: &str) -> Markup {
    html! { input type="hidden" name=(TOKEN) value=(form_token); }
}
