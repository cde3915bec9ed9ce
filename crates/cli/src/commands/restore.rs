//! `daybook restore`.

use daybook_operations::restore::{RestoreOptions, restore};
use serde_json::json;

use crate::operator::{Ended, Exit, Session};

pub(super) async fn run(options: RestoreOptions, Session { stack, mut out }: Session<'_>) -> Ended {
    let interrupt = stack.interrupt.clone();
    let restored = restore(stack, options, |state, step, text| {
        out.print(json!({"step": step, "state": state, "text": text}), format!("{state} {step}: {text}"))
    });
    let is_complete = restored.await?;
    Ok(Exit::of(interrupt.is_cancelled() && !is_complete, is_complete))
}
