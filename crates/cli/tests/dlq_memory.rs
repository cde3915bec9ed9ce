//! Memory of `daybook dlq`: that of `list` and `stats` does not depend on the bytes of the messages, and `redrive` holds each once.
//! The allocations of the whole process are counted, so this is the only test of its binary.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::num::NonZeroU32;

use clap::Parser;
use daybook_cli::commands::OperatorCommand;
use daybook_cli::operator::{Exit, Interrupt, OperatorContext, Stack};
use daybook_local_aws::messaging::{Bus, Server};
use daybook_settings::Environment;
use peak_alloc::PeakAlloc;
use serde_json::json;

#[global_allocator]
static ALLOCATIONS: PeakAlloc = PeakAlloc;

const MESSAGES: usize = 400;
const MESSAGE_BYTES: usize = 100_000;
const ALL_BYTES: usize = MESSAGES * MESSAGE_BYTES;

/// A round of four responses with ten messages each, each held several times: by the queue's response, as bytes on the way, and
/// parsed.
const ROUND: usize = ALL_BYTES / 2;

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: OperatorCommand,
}

async fn fill(client: &aws_sdk_sqs::Client, url: &str) {
    let text = "x".repeat(MESSAGE_BYTES);
    for seq in 1..=MESSAGES {
        let message = json!({
            "pk": "AGGREGATE#todo#1", "sk": format!("OUTBOX#{seq:012}#0"), "messageId": format!("m{seq}"),
            "messageType": "TodoUpdated", "messageSeq": seq, "detail": format!("{{\"text\":\"{text}\"}}"),
            "occurredAt": "2026-11-21T01:02:03.456Z", "seqNum": seq, "ttl": 1_800_000_000,
        });
        let body = json!({"message": message, "error": {"code": "X", "text": ""}, "attempts": 1, "deadLetteredAt": ""})
            .to_string();
        client.send_message().queue_url(url).message_body(body).send().await.unwrap();
    }
}

#[tokio::test]
async fn dlq_commands_hold_a_bounded_number_of_bytes() {
    let bus = Bus::with("main", "dlq");
    let server = Server::start(bus.router()).await.unwrap();
    let url = format!("{}/000000000000/dlq", server.url());
    let client = aws_sdk_sqs::Client::new(&daybook_function_runtime::aws_config_at(server.url()));
    fill(&client, &url).await;
    let rate = NonZeroU32::MAX;
    for (line, bound) in [
        ("dlq list".to_owned(), ROUND),
        ("dlq stats".to_owned(), ROUND),
        (format!("dlq redrive --yes --rate {rate}"), ALL_BYTES + ROUND),
    ] {
        let settings = [
            ("AWS_ENDPOINT_URL_EVENTBRIDGE", server.url()),
            ("AWS_ENDPOINT_URL_SQS", server.url()),
            ("EVENT_BUS_NAME", "main"),
            ("EVENT_SOURCE", "daybook"),
            ("DLQ_URL", &url),
        ];
        let environment = settings.into_iter().collect::<Environment>();
        let registry = aggregates::registry().unwrap();
        let stack = Stack::new(environment, registry, projections::projections, Interrupt::new());
        let mut context = OperatorContext { stack, out: Box::new(std::io::sink()) };
        let command = Line::try_parse_from(std::iter::once("daybook").chain(line.split(' '))).unwrap().command;
        let before = ALLOCATIONS.current_usage();
        ALLOCATIONS.reset_peak_usage();
        assert_eq!(command.run(&mut context).await.unwrap(), Exit::Clean);
        let peak = ALLOCATIONS.peak_usage().saturating_sub(before);
        println!("{line}: {peak} bytes more than before, for {ALL_BYTES} bytes of messages");
        assert!(peak < bound, "{line}: {peak} bytes, at most {bound} expected");
    }
    assert_eq!(bus.delivered().len(), MESSAGES);
}
