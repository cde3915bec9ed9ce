//! `daybook projection switch`.

use std::io::Write;

use clap::Args;
use daybook_projection::Projections;
use daybook_view_store::{ProjectionVersions, SwitchOutcome, View};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::named::{version, views_error};
use crate::operator::call_usage::CallMeter;
use crate::operator::target::{STACK_HELP, StackArgs};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// The pause between two switches. An invocation of the projector that began before a switch may fold an event into one
/// version and end before it folds it into the other. Its message is delivered again after the visibility time-out of the
/// queue, 3 minutes, and the invocation takes up to 30 seconds.
const PAUSE: SignedDuration = SignedDuration::from_mins(5);

/// Let the readers of a view use another version.
///
/// All readers get the other version from their next request on. The command rejects a version that is not filled or may
/// lack events (run `daybook projection rebuild` first), and a second switch of the same view within 5 minutes. As long as the
/// code registers both versions, a switch back is possible: the earlier version follows new events too.
///
/// Exit status 1: the command rejected the switch, and nothing was changed.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct ProjectionSwitchArgs {
    /// The projection.
    #[arg(value_name = "PROJECTION")]
    pub name: String,
    /// The version that readers get from now on.
    #[arg(value_name = "VERSION")]
    pub version: u32,
    /// Switch in any case. Readers may then miss rows and events that they have seen before, until the view has caught up.
    #[arg(long)]
    pub force: bool,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// Moves the pointer.
pub(super) async fn run(
    args: ProjectionSwitchArgs,
    projections: &Projections,
    context: &mut OperatorContext,
) -> Result<Exit, OperatorError> {
    let model = version(projections, &args.name, Some(args.version))?;
    let views = args.stack.views(&context.environment, &CallMeter::default()).await?;
    let error = views_error("switch the version");
    let stored = views.projection_versions(&args.name).await.map_err(&error)?;
    let to = View::new(model.name(), model.version());
    let pointer = stored.pointer.as_ref();
    let read = pointer.map(|pointer| pointer.version);
    let read = read.or_else(|| projections.read_version(&args.name, None).map(|model| model.version()));
    let from = View::new(model.name(), read.unwrap_or(to.version));
    if from == to {
        return args.end(context, &to, &to, &format!("readers of {} get version {} already", to.name, to.version));
    }
    let now = Timestamp::now();
    if !args.force
        && let Some(reason) = reason_to_refuse(&stored, &to, now)
    {
        let json = json!({ "projection": to.name, "version": to.version, "refused": reason });
        writeln!(context.out, "{}", output_line(args.json, json, format!("{to} refused: {reason}")))?;
        args.end(
            context,
            &from,
            &from,
            &format!("nothing was changed; readers of {} get version {}", to.name, from.version),
        )?;
        return Ok(Exit::Findings);
    }
    if views.switch(&from, &to, &stored, now).await.map_err(&error)? == SwitchOutcome::Conflict {
        let cause =
            "somebody else switches the same projection at the same time; check with `daybook projection status`";
        return Err(OperatorError::Read { cause: cause.to_owned() });
    }
    args.end(
        context,
        &from,
        &to,
        &format!("readers of {} get version {} from now on, instead of {}", to.name, to.version, from.version),
    )
}

impl ProjectionSwitchArgs {
    fn end(&self, context: &mut OperatorContext, from: &View, to: &View, text: &str) -> Result<Exit, OperatorError> {
        let summary = json!({ "projection": to.name, "from": from.version, "read": to.version });
        context.print_summary(self.json, text, &summary, None)?;
        Ok(Exit::Clean)
    }
}

/// Why readers could miss something after a switch.
fn reason_to_refuse(stored: &ProjectionVersions, to: &View, now: Timestamp) -> Option<String> {
    let mark = stored.marks.get(&to.version).cloned().unwrap_or_default();
    let cause = match (mark.missed_since, mark.filled_at.or(mark.read_until), mark.leads_since) {
        (Some(since), ..) => {
            Some(format!("it may lack events, because a release without it has folded events since {since:.0}"))
        }
        (None, None, _) => Some("it is not filled".to_owned()),
        (None, Some(_), None) => Some("it may show events later than the version that readers get".to_owned()),
        (None, Some(_), Some(_)) => None,
    };
    if let Some(cause) = cause {
        let View { name, version } = to;
        return Some(format!("{cause}; run `daybook projection rebuild {name} --version {version}` first"));
    }
    let next = stored.pointer.as_ref().map(|pointer| pointer.switched_at + PAUSE)?;
    (now < next).then(|| format!("the last switch was less than {} minutes ago; wait until {next:.0}", PAUSE.as_mins()))
}
