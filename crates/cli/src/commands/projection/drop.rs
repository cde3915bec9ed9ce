//! `daybook projection drop`.

use std::io::Write;
use std::num::NonZeroU32;

use clap::Args;
use daybook_event_store::StoreError;
use daybook_projection::Projections;
use daybook_view_store::{View, ViewStore};
use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::json;

use super::named::views_error;
use crate::operator::call_usage::CallMeter;
use crate::operator::pacing::Pacer;
use crate::operator::target::{STACK_HELP, StackArgs};
use crate::operator::{Exit, Interrupt, OperatorContext, OperatorError, output_line};

/// Items that are deleted by one call.
const DELETED_TOGETHER: usize = 25;

/// The segments of the table, which are read in parallel.
const SEGMENTS: i32 = 8;

/// Delete a version of a view: its rows and positions.
///
/// The command rejects the version that readers get, and a version that this code registers: deploy a release without it
/// first. It reads the whole views table. Without --yes, it deletes nothing.
///
/// Exit status 1: the command rejected the version, and nothing was changed.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct ProjectionDropArgs {
    /// The projection.
    #[arg(value_name = "PROJECTION")]
    pub name: String,
    /// The version.
    #[arg(value_name = "VERSION")]
    pub version: u32,
    /// Delete it. Default: only print what would be deleted.
    #[arg(long)]
    pub yes: bool,
    /// Maximum items that are deleted per second.
    #[arg(long, value_name = "N", default_value = "500")]
    pub rate: NonZeroU32,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// Deletes the version.
pub(super) async fn run(
    args: ProjectionDropArgs,
    projections: &Projections,
    context: &mut OperatorContext,
) -> Result<Exit, OperatorError> {
    let views = args.stack.views(&context.environment, &CallMeter::default()).await?;
    let error = views_error("delete the version");
    let view = View::new(args.name.clone(), args.version);
    let pointer = views.projection_versions(&args.name).await.map_err(&error)?.pointer;
    let is_read = pointer.is_some_and(|pointer| pointer.version == args.version);
    let is_registered = projections.get(&args.name, args.version).is_some();
    let reason = match (is_read, is_registered) {
        (true, _) => Some("readers get this version; run `daybook projection switch` first"),
        (_, true) => {
            Some("this code registers it; deploy a release without it first, and build daybook from that release")
        }
        _ => None,
    };
    if let Some(reason) = reason {
        let json = json!({ "projection": view.name, "version": view.version, "refused": reason });
        writeln!(context.out, "{}", output_line(args.json, json, format!("{view} refused: {reason}")))?;
        let counts = json!({ "dryRun": !args.yes, "items": 0 });
        context.print_summary(args.json, "nothing was deleted", &counts, None)?;
        return Ok(Exit::Findings);
    }
    let pacer = args.yes.then(|| Pacer::new(args.rate, context.interrupt.clone()));
    let interrupt = &context.interrupt;
    let segments = (0..SEGMENTS).map(|segment| drop_segment(&views, &view, segment, pacer.as_ref(), interrupt));
    let segments: FuturesUnordered<_> = segments.collect();
    let items: u64 = segments.try_fold(0, async |sum, items| Ok(sum + items)).await.map_err(&error)?;
    if context.interrupt.is_set() {
        let doing = if args.yes { "deleted" } else { "found" };
        let counts = json!({ "dryRun": !args.yes, "items": items });
        context.print_summary(args.json, &format!("{items} items of {view} {doing}"), &counts, Some("run it again"))?;
        return Ok(Exit::Interrupted);
    }
    if args.yes {
        // Last, so that `status` lists the version until it is gone.
        views.delete_mark(&view).await.map_err(&error)?;
    }
    let text = match args.yes {
        true => format!("{items} items of {view} deleted"),
        false => format!("{items} items of {view} would be deleted; run it with --yes"),
    };
    context.print_summary(args.json, &text, &json!({ "dryRun": !args.yes, "items": items }), None)?;
    Ok(Exit::Clean)
}

/// Deletes the items of a segment at the rate of the pacer, or only counts them without one. Returns their number.
async fn drop_segment(
    views: &ViewStore,
    view: &View,
    segment: i32,
    pacer: Option<&Pacer>,
    interrupt: &Interrupt,
) -> Result<u64, StoreError> {
    let (mut items, mut after) = (0, None);
    loop {
        let page = views.items_to_drop(view, (segment, SEGMENTS), after).await?;
        for keys in page.keys.chunks(DELETED_TOGETHER) {
            if let Some(pacer) = pacer {
                if pacer.turns(u32::try_from(keys.len()).unwrap_or(u32::MAX)).await.is_none() {
                    return Ok(items);
                }
                views.delete_items(keys).await?;
            }
            items += keys.len() as u64;
        }
        after = page.next;
        if after.is_none() || interrupt.is_set() {
            return Ok(items);
        }
    }
}
