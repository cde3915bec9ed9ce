//! Which requests are admitted.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use daybook_console::ConsoleAccess;

use crate::Bench;

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &'static str) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body)).unwrap()
}

#[tokio::test]
async fn host_of_another_machine_is_rejected() {
    let bench = Bench::start().await;
    for host in ["example.com", "localhost.example.com", "10.0.0.1:3000", ""] {
        let response = bench.send(request("GET", "/_console", &[("host", host)], "")).await;
        assert_eq!(response.status, StatusCode::FORBIDDEN, "{host}");
        assert!(!response.body.contains("<html"), "{}", response.body);
    }
    for host in ["localhost:3000", "127.0.0.1:3000", "[::1]:3000"] {
        assert_eq!(
            bench.send(request("GET", "/_console", &[("host", host)], "")).await.status,
            StatusCode::OK,
            "{host}"
        );
    }
}

#[tokio::test]
async fn part_of_another_site_is_rejected_and_a_link_of_it_is_followed() {
    let bench = Bench::start().await;
    let host = ("host", "localhost:3000");
    for site in ["cross-site", "same-site"] {
        for (method, part) in
            [("GET", "image"), ("GET", "empty"), ("HEAD", "empty"), ("GET", "script"), ("GET", "iframe")]
        {
            let headers = [host, ("sec-fetch-site", site), ("sec-fetch-dest", part)];
            let response = bench.send(request(method, "/_console/dead-letters", &headers, "")).await;
            assert_eq!(response.status, StatusCode::FORBIDDEN, "{method} {site} {part}");
        }
        let without_part = [host, ("sec-fetch-site", site)];
        let response = bench.send(request("GET", "/_console/dead-letters", &without_part, "")).await;
        assert_eq!(
            (response.status, response.body.as_str()),
            (StatusCode::FORBIDDEN, "The request comes from another site.")
        );
        let link = [host, ("sec-fetch-site", site), ("sec-fetch-dest", "document")];
        assert_eq!(bench.send(request("GET", "/_console/dead-letters", &link, "")).await.status, StatusCode::OK);
    }
    for own in [("same-origin", "empty"), ("same-origin", "style"), ("none", "document")] {
        let headers = [host, ("sec-fetch-site", own.0), ("sec-fetch-dest", own.1)];
        assert_eq!(bench.send(request("GET", "/_console/bus", &headers, "")).await.status, StatusCode::OK, "{own:?}");
    }
}

#[tokio::test]
async fn form_of_another_site_is_rejected() {
    let bench = Bench::start().await;
    let form = ("content-type", "application/x-www-form-urlencoded");
    let host = ("host", "localhost:3000");
    for other in [
        ("origin", "http://example.com"),
        ("origin", "http://localhost:3001"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let response = bench.send(request("POST", "/_console/faults", &[host, form, other], "action=reset")).await;
        assert_eq!(
            (response.status, response.body.as_str()),
            (StatusCode::FORBIDDEN, "The request comes from another site.")
        );
    }
}

#[tokio::test]
async fn form_without_the_token_of_this_console_is_rejected() {
    let bench = Bench::start().await;
    let headers = [
        ("host", "localhost:3000"),
        ("content-type", "application/x-www-form-urlencoded"),
        ("origin", "http://localhost:3000"),
    ];
    for path in ["/_console/faults", "/_console/samples", "/_console/dead-letters", "/_console/command/todo"] {
        for body in ["action=reset", "action=reset&token=", "action=reset&token=00000000000000000000000000000000"] {
            let response = bench.send(request("POST", path, &headers, body)).await;
            assert_eq!(response.status, StatusCode::FORBIDDEN, "{path} {body}");
            assert!(response.body.starts_with("The form is of an earlier start"), "{}", response.body);
        }
    }
}

#[tokio::test]
async fn console_on_a_network_needs_its_token_once() {
    let bench = Bench::with(ConsoleAccess::Token("secret".to_owned())).await;
    let host = ("host", "10.0.0.1:3000");
    for path in ["/_console", "/_console?token=", "/_console?token=secret2", "/_console?atoken=secret"] {
        assert_eq!(bench.send(request("GET", path, &[host], "")).await.status, StatusCode::UNAUTHORIZED, "{path}");
    }
    let admitted = bench.send(request("GET", "/_console/bus?token=secret", &[host], "")).await;
    assert_eq!(admitted.status, StatusCode::SEE_OTHER);
    assert_eq!(admitted.headers[header::LOCATION], "/_console/bus");
    let cookie = admitted.headers[header::SET_COOKIE].to_str().unwrap();
    assert_eq!(cookie, "daybook_console=secret; Path=/_console; HttpOnly; SameSite=Strict");
    let with_cookie = [host, ("cookie", "other=1; daybook_console=secret")];
    assert_eq!(bench.send(request("GET", "/_console/bus", &with_cookie, "")).await.status, StatusCode::OK);
    let wrong_cookie = [host, ("cookie", "daybook_console=secret2")];
    assert_eq!(bench.send(request("GET", "/_console/bus", &wrong_cookie, "")).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn pages_admit_files_of_the_console_alone() {
    let bench = Bench::start().await;
    for path in
        ["/_console", "/_console/bus", "/_console/search?q=x", "/_console/nothing", "/_console/aggregates/none/1"]
    {
        let response = bench.get(path).await;
        let policy = response.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(&response.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        for other_host in ["http:", "https:", "src=\"//", "href=\"//", "style=", "onclick"] {
            assert!(!response.body.contains(other_host), "{path} contains {other_host}");
        }
        for attribute in ["src=\"", "<link rel=\"stylesheet\" href=\""] {
            for file in response.body.split(attribute).skip(1) {
                let file = file.split('"').next().unwrap();
                assert_eq!(bench.get(file).await.status, StatusCode::OK, "{file}");
            }
        }
    }
}
