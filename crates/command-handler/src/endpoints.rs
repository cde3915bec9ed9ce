//! The endpoints, one in each file: its route, its documentation and its handler.
//!
//! A new endpoint needs its file and its place in [`ENDPOINTS`]; the router and the OpenAPI document take it from
//! there.

mod authorization;
mod commands;
mod create;
mod delete;
pub(crate) mod document;
pub(crate) mod endpoint;
pub(crate) mod events_of_aggregate;
pub(crate) mod events_of_type;
pub(crate) mod get;
mod joint;
pub(crate) mod list;
mod page;
pub(crate) mod request_headers;
mod seen;
mod update;
pub(crate) mod view_row;
pub(crate) mod view_rows;
mod write;

use self::endpoint::Endpoint;

pub(crate) fn served(has_views: bool) -> impl Iterator<Item = &'static Endpoint> {
    ENDPOINTS.iter().filter(move |endpoint| has_views || !endpoint.is_about_a_view())
}

pub(crate) static ENDPOINTS: &[Endpoint] = &[
    create::ENDPOINT,
    list::ENDPOINT,
    update::ENDPOINT,
    delete::ENDPOINT,
    get::ENDPOINT,
    commands::ENDPOINT,
    joint::ENDPOINT,
    events_of_aggregate::ENDPOINT,
    events_of_type::ENDPOINT,
    view_row::ENDPOINT,
    view_rows::ENDPOINT,
    document::ENDPOINT,
];
