//! The requests that the console admits, and the headers of every response.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

use crate::console::{Console, ConsoleAccess};
use crate::paths;

/// The cookie that holds the token of [`ConsoleAccess::Token`].
const COOKIE: &str = "daybook_console";

/// Headers of every response. The policy admits files of the console alone, so not even a mistake in the markup runs a
/// script or sends anything to another host. The referrer stays within the console: without it, browsers would leave
/// out the origin of forms, too.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
             form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
];

pub(crate) async fn guard(State(console): State<Arc<Console>>, request: Request, next: Next) -> Response {
    let mut response = match check(&console.access, &request) {
        Ok(()) => next.run(request).await,
        Err(rejected) => rejected,
    };
    response.headers_mut().extend(HEADERS);
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[expect(clippy::result_large_err, reason = "the error is the response")]
fn check(access: &ConsoleAccess, request: &Request) -> Result<(), Response> {
    let host = text(request.headers(), header::HOST).or(request.uri().host());
    match access {
        ConsoleAccess::Loopback if !host.is_some_and(is_of_this_machine) => {
            let reason = "The console is only at localhost, 127.0.0.1 and [::1]. To use it from elsewhere, start it \
                          with --host, and open the address that it prints.";
            return Err((StatusCode::FORBIDDEN, reason).into_response());
        }
        ConsoleAccess::Token(token) if cookie(request.headers()) != Some(token.as_str()) => {
            return Err(admit_by_query(token, request.uri()));
        }
        ConsoleAccess::Loopback | ConsoleAccess::Token(_) => {}
    }
    let is_admitted = match *request.method() {
        Method::GET | Method::HEAD => is_same_site_or_navigation(request.headers()),
        _ => is_same_origin(host, request.headers()),
    };
    if is_admitted {
        return Ok(());
    }
    Err((StatusCode::FORBIDDEN, "The request comes from another site.").into_response())
}

/// Whether a request that reads comes from a page of the console, or opens a page, as a link on another site does. A
/// request for a part of another site's page, such as an image, must be rejected: reading a page can call AWS.
fn is_same_site_or_navigation(headers: &HeaderMap) -> bool {
    is_of_own_site(headers) || text(headers, HeaderName::from_static("sec-fetch-dest")) == Some("document")
}

/// Whether no other site has caused the request. Programs send no such header, and a browser sends `none` for an
/// address that somebody has typed.
fn is_of_own_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    matches!(site, None | Some(b"same-origin" | b"none"))
}

/// Whether a host is a name of this machine that no other machine can have.
pub fn is_of_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let lower = name.trim_end_matches('.').to_ascii_lowercase();
    lower == "localhost"
        || lower.ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether a request that changes something comes from a page of the console. Programs send no origin.
fn is_same_origin(host: Option<&str>, headers: &HeaderMap) -> bool {
    let is_own = |origin: &str| origin.split_once("://").map(|(_, authority)| authority) == host;
    text(headers, header::ORIGIN).is_none_or(is_own) && is_of_own_site(headers)
}

/// The response to a request without the cookie: sets it, if the token is in the query.
fn admit_by_query(token: &str, uri: &Uri) -> Response {
    let is_token = |pair: &str| pair.strip_prefix("token=") == Some(token);
    let given = uri.query().is_some_and(|query| query.split('&').any(is_token));
    if !given {
        let reason = "Open the address that `daybook` printed when it started: it contains the token.";
        return (StatusCode::UNAUTHORIZED, reason).into_response();
    }
    let cookie = format!("{COOKIE}={token}; Path={}; HttpOnly; SameSite=Strict", paths::CONSOLE);
    ([(header::SET_COOKIE, cookie)], Redirect::to(uri.path())).into_response()
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    cookies
        .flat_map(|cookies| cookies.split(';'))
        .find_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_loopback_names() {
        for host in [
            "localhost",
            "localhost:3000",
            "a.localhost:1",
            "127.0.0.1:80",
            "127.9.9.9",
            "[::1]:3000",
            "[::1]",
            "LOCALHOST.:1",
        ] {
            assert!(is_of_this_machine(host), "{host}");
        }
        for host in ["", "example.com", "localhost.example.com", "10.0.0.1", "[::2]:1", "127.0.0.1.nip.io", "0.0.0.0"] {
            assert!(!is_of_this_machine(host), "{host}");
        }
    }

    #[test]
    fn cookie_is_found_among_others() {
        let headers = |value: &'static str| HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static(value))]);
        assert_eq!(cookie(&headers("a=b; daybook_console=t; c=d")), Some("t"));
        assert_eq!(cookie(&headers("daybook_consoles=t; xdaybook_console=t")), None);
    }
}
