//! The end of `daybook dev`, whatever its clients do.

use std::io::Write;
use std::net::TcpStream;

use crate::daybook::{Daybook, files, template};

const LONG_POLL: &str = r#"{"QueueUrl": "http://localhost/000000000000/daybook-dlq", "WaitTimeSeconds": 20}"#;

/// A request of which the client never sends the rest.
fn send_half_a_request(url: &str) -> TcpStream {
    let mut connection = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    connection.write_all(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{").unwrap();
    connection
}

/// A whole request whose response is not read.
fn send_unread_request(url: &str, method_and_path: &str, target: &str, body: &str) -> TcpStream {
    let mut connection = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    let length = body.len();
    write!(
        connection,
        "{method_and_path} HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: {target}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    connection
}

#[tokio::test(flavor = "multi_thread")]
async fn stack_with_stuck_clients_ends_after_a_signal_and_leaves_one_file() {
    for signal in ["TERM", "INT"] {
        let folder = tempfile::tempdir().unwrap();
        let daybook = Daybook::start_unread(Some(&folder.path().join("daybook.db")), &template());
        // More than the pipe of the output and the buffers of a connection hold.
        let message = "x".repeat(200_000);
        for id in 0..40 {
            daybook.create_todo(&id.to_string(), &message).await;
        }
        daybook.list("/_dev/bus", 40).await;
        let connections = [
            TcpStream::connect(daybook.api.strip_prefix("http://").unwrap()).unwrap(),
            send_half_a_request(&daybook.api),
            send_half_a_request(&daybook.dynamodb),
            send_half_a_request(&daybook.bus),
            send_unread_request(&daybook.api, "GET /_dev/bus", "", ""),
            // Its response takes 20 seconds.
            send_unread_request(&daybook.bus, "POST /", "AmazonSQS.ReceiveMessage", LONG_POLL),
        ];
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        let (status, duration) = daybook.end(signal);
        println!("SIG{signal}: {duration:?}");
        assert_eq!(status.code(), Some(0), "{signal}");
        assert_eq!(files(folder.path()), ["daybook.db"], "{signal}");
        drop(connections);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stack_whose_bus_never_answers_ends_after_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("daybook.db");
    let daybook = Daybook::with_data(&data);
    daybook.set_faults(&serde_json::json!({"putEvents": [{"delayMs": 600_000, "forever": true}]})).await;
    daybook.create_todo("1", "").await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let (status, duration) = daybook.end("TERM");
    println!("{duration:?}");
    assert_eq!(status.code(), Some(0));
    assert_eq!(files(folder.path()), ["daybook.db"]);
    let daybook = Daybook::with_data(&data);
    daybook.list("/_dev/bus", 1).await;
}
