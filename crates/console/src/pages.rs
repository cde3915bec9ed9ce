//! The pages by path, in one file each. Parts of *An aggregate* are in `timeline` and `version`, and parts of *Stream* in `projections`
//! and `deadlines`. Several pages use `copied_test` and `latest_events`; `live` is what *Events* and *Bus* share.

mod aggregate;
mod aggregates;
mod bus;
mod command;
mod copied_test;
mod correlation;
mod dead_letters;
mod deadlines;
mod events;
mod faults;
mod health;
mod latest_events;
mod live;
mod model;
mod process;
mod projections;
mod raw;
mod stream;
mod timeline;
mod version;
mod view;

use std::sync::Arc;

use axum::Router;
use axum::http::Uri;
use axum::middleware::from_fn_with_state;
use axum::response::Redirect;
use axum::routing::{get, post};

use crate::console::{Console, StackKind};
use crate::frame::{Failure, add_frame, assets};
use crate::guard::guard;

/// The pages, all below `/_console`. No aggregate type can have this name.
pub fn router(console: Console) -> Router {
    let console = Arc::new(console);
    let of_kind = match &console.kind {
        StackKind::Local { .. } => local_pages().merge(writing_pages()),
        StackKind::Deployed { allow_writes: true, .. } => deployed_pages().merge(writing_pages()),
        StackKind::Deployed { .. } => deployed_pages().route("/_console/dead-letters", get(dead_letters::depth)),
    };
    Router::new()
        .route("/_console", get(aggregates::page))
        .route("/_console/", get(async || Redirect::to("/_console")))
        .route("/_console/model", get(model::page))
        .route("/_console/search", get(aggregates::search))
        .route("/_console/events", get(events::page))
        .route("/_console/aggregates/{type}/{id}", get(aggregate::page))
        .route("/_console/aggregates/{type}/{id}/process", get(process::page))
        .route("/_console/aggregates/{type}/{id}/test", get(copied_test::page))
        .route("/_console/aggregates/{type}/{id}/events/{number}", get(raw::rows))
        .route("/_console/views/{name}/{version}", get(view::page))
        .route("/_console/views/{name}/{version}/row", get(view::row))
        .merge(of_kind)
        .route("/_console/{*path}", get(async |uri: Uri| Failure::missing(format!("There is no page {}.", uri.path()))))
        .merge(assets())
        .layer(from_fn_with_state(console.clone(), add_frame))
        .layer(from_fn_with_state(console.clone(), guard))
        .with_state(console)
}

fn local_pages() -> Router<Arc<Console>> {
    Router::new()
        .route("/_console/samples", post(command::send_samples))
        .route("/_console/command/{type}", get(command::page).post(command::send))
        .route("/_console/events/live", get(events::live))
        .route("/_console/bus", get(bus::page))
        .route("/_console/bus/live", get(bus::live))
        .route("/_console/bus/{position}", get(raw::bus_message))
        .route("/_console/correlation", get(correlation::page))
        .route("/_console/stream", get(stream::page))
        .route("/_console/faults", get(faults::page).post(faults::act))
}

fn deployed_pages() -> Router<Arc<Console>> {
    Router::new().route("/_console/stream", get(stream::deployed_page)).route("/_console/health", get(health::page))
}

fn writing_pages() -> Router<Arc<Console>> {
    Router::new()
        .route("/_console/dead-letters", get(dead_letters::page).post(dead_letters::act))
        .route("/_console/dead-letters/{id}", get(raw::dead_letter))
        .route("/_console/projections", post(projections::resume))
}
