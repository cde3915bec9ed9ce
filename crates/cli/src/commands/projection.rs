//! `daybook projection`: fills views from the events, and lets suspended aggregates go on.

use std::collections::BTreeSet;
use std::num::{NonZeroU32, NonZeroUsize};

use clap::{Args, Subcommand};
use daybook_decider::Model;
use daybook_event_store::StoreError;
use daybook_projection::{ProjectionModel, Projections};
use daybook_table::ChangedAggregates;
use daybook_view_store::View;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::operator::checkpoint::{Checkpoint, CheckpointArgs};
use crate::operator::listing::ListedAggregate;
use crate::operator::pacing::Pacer;
use crate::operator::selection::{AggregateName, SelectionArgs};
use crate::operator::target::{ChangesArgs, SETTINGS_TO_FIND, STACK_HELP, TableArgs, ViewsArgs};
use crate::operator::walk::{AggregateWalk, WalkProgress};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// Fill views from the events, and let suspended aggregates go on.
#[derive(Clone, Debug, Subcommand)]
pub enum ProjectionCommand {
    Fill(ProjectionFillArgs),
    Suspended(ProjectionSuspendedArgs),
    Resume(ProjectionResumeArgs),
}

/// Tell the projector to project every aggregate, so that views show events from before.
///
/// Views show an aggregate from its next event on. After read models are turned on, or after a release with a new
/// projection or a new VERSION of one, this command fills them: it sends the key of each aggregate that a projection
/// follows to the projector's queue, at a bounded rate. Views are filled while commands go on, and an aggregate that
/// they show already is not counted twice. The command ends when all keys are in the queue; the views are full when the
/// queue is empty.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct ProjectionFillArgs {
    /// Only for the aggregates that this projection follows; can be repeated. Default: all projections.
    #[arg(value_name = "PROJECTION")]
    pub projections: Vec<String>,
    /// Maximum aggregates per second.
    #[arg(long, value_name = "N", default_value = "200")]
    pub rate: NonZeroU32,
    /// Go on where an earlier run ended: the cursor that it printed.
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<crate::operator::listing::Cursor>,
    /// Where the progress is stored.
    #[command(flatten)]
    pub checkpoint: CheckpointArgs,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which table.
    #[command(flatten)]
    pub table: TableArgs,
    /// Which queue.
    #[command(flatten)]
    pub changes: ChangesArgs,
}

/// List the aggregates that are suspended in a view, because an event of them cannot be folded.
///
/// Reads the whole views table. Exit status 1 if there are any.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct ProjectionSuspendedArgs {
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which views.
    #[command(flatten)]
    pub views: ViewsArgs,
}

/// Let suspended aggregates go on, after the projection's code or the event was corrected.
///
/// Their events are folded in order, from the one that could not be folded. If it still cannot be folded, the aggregate is
/// suspended again.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct ProjectionResumeArgs {
    /// The aggregates. Default: all suspended ones, which reads the whole views table.
    #[arg(value_name = "TYPE/ID")]
    pub aggregates: Vec<AggregateName>,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which views.
    #[command(flatten)]
    pub views: ViewsArgs,
    /// Which queue.
    #[command(flatten)]
    pub changes: ChangesArgs,
}

/// The number of aggregates by result.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FillCounts {
    sent: u64,
    unreadable: u64,
}

impl ProjectionCommand {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// When a table or the queue cannot be read or written.
    pub(super) async fn run(self, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
        match self {
            Self::Fill(args) => fill(args, context).await,
            Self::Suspended(args) => suspended(args, context).await,
            Self::Resume(args) => resume(args, context).await,
        }
    }

    /// The table of events that the command reads.
    pub(super) fn table(&self) -> Option<&TableArgs> {
        match self {
            Self::Fill(args) => Some(&args.table),
            Self::Suspended(_) | Self::Resume(_) => None,
        }
    }
}

async fn fill(args: ProjectionFillArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let projections = projections::projections()?;
    let types = followed_types(&projections, &args.projections)?;
    let store = args.table.connect(&context.environment, SETTINGS_TO_FIND).await?;
    let queue = args.changes.connect(&context.environment).await?;
    let owner = json!({ "types": types });
    let owner = args.table.checkpoint_owner(&context.environment, &store, "projection fill", owner).await;
    let (checkpoint, progress) = Checkpoint::open::<WalkProgress<FillCounts>>(&args.checkpoint, owner)?;
    let mut progress = progress.unwrap_or_default();
    let selection = SelectionArgs { types, event_types: Vec::new(), after: args.after };
    let listing = selection.list(&store, &context.registry, &[], &progress.position).await?;
    let pacer = Pacer::new(args.rate, context.interrupt.clone());
    let visit = async |aggregate: &ListedAggregate, _model: Option<&dyn Model>| {
        let Some(key) = &aggregate.key else { return Some(Ok(Ok(false))) };
        pacer.turn().await?;
        Some(Ok::<_, StoreError>(queue.send([key.clone()].into_iter().collect()).await.map(|()| true)))
    };
    let mut failure = None;
    let report = |counts: &mut FillCounts, aggregate: &ListedAggregate, sent: Result<bool, OperatorError>| {
        let mut line = None;
        match sent {
            Ok(true) => counts.sent += 1,
            Ok(false) => {
                counts.unreadable += 1;
                let text = format!("{} unreadable: a row of the index names no aggregate", aggregate.name);
                line = Some(output_line(args.json, json!({ "unreadable": aggregate.name }), text));
            }
            Err(error) => failure = failure.take().or(Some(error)),
        }
        line
    };
    let concurrency = const { NonZeroUsize::new(8).unwrap() };
    let walk = AggregateWalk { listing, concurrency, checkpoint };
    let how_to_go_on = walk.run(context, &mut progress, visit, report).await?;
    if let Some(error) = failure {
        return Err(error);
    }
    let counts = progress.counts;
    let text = format!("{} aggregates sent to the projector", counts.sent);
    context.print_summary(args.json, &text, &counts, how_to_go_on.as_deref())?;
    Ok(match (how_to_go_on, counts.unreadable) {
        (Some(_), _) => Exit::Interrupted,
        (None, 0) => Exit::Clean,
        (None, _) => Exit::Findings,
    })
}

async fn suspended(args: ProjectionSuspendedArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let views = args.views.connect(&context.environment).await?;
    let mut suspended = views.suspended().await.map_err(|source| cannot("list suspended aggregates", source))?;
    suspended.sort_by(|one, other| (&one.view, &one.aggregate).cmp(&(&other.view, &other.aggregate)));
    for found in &suspended {
        let (view, aggregate, after, reason) = (&found.view, &found.aggregate, found.seq_num, &found.reason);
        let json = json!({
            "projection": view.name, "version": view.version, "aggregate": aggregate.to_string(),
            "seqNum": after, "reason": reason,
        });
        let text = format!("{view} {aggregate} suspended after event {after}: {reason}");
        context.print_line(&output_line(args.json, json, text))?;
    }
    let counts = json!({ "suspended": suspended.len() });
    context.print_summary(args.json, &format!("{} suspended", suspended.len()), &counts, None)?;
    Ok(if suspended.is_empty() { Exit::Clean } else { Exit::Findings })
}

async fn resume(args: ProjectionResumeArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let projections = projections::projections()?;
    let views = args.views.connect(&context.environment).await?;
    let queue = args.changes.connect(&context.environment).await?;
    let named = args.aggregates.iter().flat_map(|AggregateName(key)| {
        let following = projections.following(&key.aggregate_type);
        following.map(move |model| (View::new(model.name(), model.version()), key.clone()))
    });
    let mut to_resume: Vec<_> = named.collect();
    if args.aggregates.is_empty() {
        let found = views.suspended().await.map_err(|source| cannot("list suspended aggregates", source))?;
        to_resume.extend(found.into_iter().map(|found| (found.view, found.aggregate)));
    }
    let mut resumed = 0_u64;
    for (view, aggregate) in to_resume {
        let doing = "resume an aggregate";
        if !views.resume(&view, &aggregate).await.map_err(|source| cannot(doing, source))? {
            continue;
        }
        queue.send(ChangedAggregates::from_iter([aggregate.clone()])).await?;
        resumed += 1;
        let json = json!({ "projection": view.name, "version": view.version, "aggregate": aggregate.to_string() });
        context.print_line(&output_line(args.json, json, format!("{view} {aggregate} goes on")))?;
    }
    context.print_summary(args.json, &format!("{resumed} resumed"), &json!({ "resumed": resumed }), None)?;
    Ok(Exit::Clean)
}

/// The aggregate types that these projections follow, or all projections if none is named.
fn followed_types(projections: &Projections, names: &[String]) -> Result<Vec<String>, OperatorError> {
    let mut types = BTreeSet::new();
    let mut follow = |model: &dyn ProjectionModel| types.extend(model.follows().iter().map(ToString::to_string));
    if names.is_empty() {
        projections.iter().for_each(&mut follow);
    }
    for name in names {
        let model = projections.get(name).ok_or_else(|| {
            let known: Vec<_> = projections.iter().map(ProjectionModel::name).collect();
            OperatorError::Usage(format!("there is no projection {name:?}; there are {}", known.join(", ")))
        })?;
        follow(model);
    }
    Ok(types.into_iter().collect())
}

fn cannot(doing: &str, source: StoreError) -> OperatorError {
    OperatorError::Store { doing: format!("cannot {doing}"), source }
}
