//! `daybook projection resume`.

use std::collections::BTreeMap;
use std::io::Write;

use clap::Args;
use daybook_projection::Projections;
use daybook_view_store::View;
use jiff::Timestamp;
use serde_json::json;

use super::named::views_error;
use crate::operator::call_usage::CallMeter;
use crate::operator::selection::AggregateName;
use crate::operator::target::{STACK_HELP, StackArgs};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// Resume suspended aggregates, after the projection's code or the event was corrected and deployed.
///
/// Their events are folded in order, from the one on that could not be folded. If it still cannot be folded, the aggregate
/// is suspended again.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct ProjectionResumeArgs {
    /// The aggregates. Default: all that are suspended; finding them reads the whole views table.
    #[arg(value_name = "TYPE/ID")]
    pub aggregates: Vec<AggregateName>,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// Resumes them.
pub(super) async fn run(
    args: ProjectionResumeArgs,
    projections: &Projections,
    context: &mut OperatorContext,
) -> Result<Exit, OperatorError> {
    let meter = CallMeter::default();
    let views = args.stack.views(&context.environment, &meter).await?;
    let queue = args.stack.changes_queue(&context.environment, &meter).await?;
    let named = args.aggregates.iter().flat_map(|AggregateName(key)| {
        let following = projections.following(&key.aggregate_type);
        following.map(move |model| (View::new(model.name(), model.version()), key.clone()))
    });
    let mut to_resume: Vec<_> = named.collect();
    if args.aggregates.is_empty() {
        let found = views.suspended().await.map_err(views_error("list suspended aggregates"))?;
        to_resume.extend(found.into_iter().map(|found| (found.view, found.aggregate)));
    }
    let mut resumed = 0_u64;
    for (view, aggregate) in to_resume {
        if context.interrupt.is_set() {
            break;
        }
        let failed_event = views.resume(&view, &aggregate, Timestamp::now()).await;
        let failed_event = failed_event.map_err(views_error("resume an aggregate"))?;
        let Some(failed_event) = failed_event else { continue };
        // Without the message, the aggregate would wait for its next event, so it is sent before the next one is resumed.
        queue.send(&BTreeMap::from([(aggregate.clone(), failed_event)])).await?;
        resumed += 1;
        let json = json!({ "projection": view.name, "version": view.version, "aggregate": aggregate.to_string(), "resumed": true });
        writeln!(context.out, "{}", output_line(args.json, json, format!("{view} {aggregate} resumed")))?;
    }
    let next = context.interrupt.is_set().then_some("run it again");
    context.print_summary(args.json, &format!("{resumed} resumed"), &json!({ "resumed": resumed }), next)?;
    Ok(if next.is_some() { Exit::Interrupted } else { Exit::Clean })
}
