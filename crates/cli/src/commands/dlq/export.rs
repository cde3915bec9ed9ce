//! `daybook dlq export`.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use aws_sdk_sqs::types::Message;
use clap::Args;
use serde_json::{Value, json};

use crate::operator::dead_letter_message::MessageFilterArgs;
use crate::operator::queue_reading::QueueReader;
use crate::operator::target::{STACK_HELP, StackArgs};
use crate::operator::{Exit, OperatorContext, OperatorError};

/// Write messages of the dead-letter queue to a file, one JSON object per line, with body and attributes.
///
/// Use it before `dlq delete`, so that nothing is lost. The body is the text that SQS holds, unchanged. The messages stay in
/// the queue. A run that ends early leaves a file of complete lines.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct DlqExportArgs {
    /// The file. It must not exist.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Which messages.
    #[command(flatten)]
    pub filter: MessageFilterArgs,
    /// Print the summary as JSON.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// Writes the selected messages.
pub(super) async fn run(args: DlqExportArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let path = args.file.display();
    let failed = |source| OperatorError::File { doing: format!("cannot write the file {path}"), source };
    let queue = args.stack.dead_letters(&context.environment).await?;
    // Dead-letter messages may contain personal data, and a file that exists may be an earlier export.
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = BufWriter::new(options.open(&args.file).map_err(failed)?);
    let mut exported = 0;
    let export = |digest: &_, message: &Message| {
        if args.filter.selects(digest) {
            exported += 1;
            writeln!(file, "{}", exported_message(message)).map_err(failed)?;
        }
        Ok(())
    };
    let reading = QueueReader::new(&queue, None, &context.interrupt).read(export).await?;
    queue.put_back(&reading.messages).await;
    file.into_inner().map_err(|error| failed(error.into_error())).and_then(|file: File| {
        // `dlq delete` may follow.
        file.sync_all().map_err(failed)
    })?;
    let (seen, not_seen) = (reading.messages.len(), reading.not_seen);
    let text = format!("{exported} of {seen} dead-letter messages exported to {path}{}", not_seen.text());
    let summary = json!({"messages": exported, "seen": seen, "notSeen": not_seen});
    let interrupted = context.interrupt.is_set();
    context.print_summary(args.json, &text, &summary, interrupted.then_some("run it again with another file"))?;
    Ok(not_seen.exit(interrupted))
}

fn exported_message(message: &Message) -> Value {
    let attributes = message.attributes.iter().flatten();
    let attributes: BTreeMap<_, _> = attributes.map(|(name, value)| (name.as_str(), value)).collect();
    let of_sender = message.message_attributes.iter().flatten().map(|(name, value)| {
        let value = json!({
            "dataType": value.data_type,
            "stringValue": value.string_value,
            "binaryValue": value.binary_value.as_ref().map(|bytes| bytes.as_ref()),
        });
        (name, value)
    });
    let of_sender: BTreeMap<_, _> = of_sender.collect();
    json!({
        "id": message.message_id, "body": message.body, "attributes": attributes, "messageAttributes": of_sender,
    })
}
