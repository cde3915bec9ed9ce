//! A connection serves further requests after a rejected one.

use std::io::{Read, Write};
use std::net::TcpStream;

use suite_tests::Suite;

#[tokio::test(flavor = "multi_thread")]
async fn connection_stays_open_after_a_request_rejected_before_its_body_is_read() {
    let suite = Suite::start().await;
    let address = suite.stack.api_url().strip_prefix("http://").unwrap().to_owned();
    let responses = tokio::task::spawn_blocking(move || {
        let mut connection = TcpStream::connect(address).unwrap();
        let body = "x".repeat(1024 * 1024);
        for path in ["/no/such/route/at/all", "/todo?no=such"] {
            let length = body.len();
            write!(connection, "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}")
                .unwrap();
        }
        write!(connection, "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut responses = String::new();
        connection.read_to_string(&mut responses).unwrap();
        responses
    });
    let responses = responses.await.unwrap();
    let statuses: Vec<_> = responses.split("HTTP/1.1 ").skip(1).map(|response| &response[..3]).collect();
    assert_eq!(statuses, ["404", "400", "200"]);
}
