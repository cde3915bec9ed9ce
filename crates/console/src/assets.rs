//! The files that the pages load: all of them are in the binary.

use axum::Router;
use axum::http::header;
use axum::routing::get;

pub(crate) const STYLESHEET: &str = concat!("/_console/", env!("CARGO_PKG_VERSION"), "/console.css");
pub(crate) const SCRIPT: &str = concat!("/_console/", env!("CARGO_PKG_VERSION"), "/console.js");
pub(crate) const ICON: &str = concat!("/_console/", env!("CARGO_PKG_VERSION"), "/icon.svg");

/// The routes of the files.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let file = |content_type: &'static str, text: &'static str| {
        get(async move || ([(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "max-age=60")], text))
    };
    Router::new()
        .route(STYLESHEET, file("text/css; charset=utf-8", include_str!("../assets/console.css")))
        .route(SCRIPT, file("text/javascript; charset=utf-8", include_str!("../assets/console.js")))
        .route(ICON, file("image/svg+xml", include_str!("../assets/icon.svg")))
}
