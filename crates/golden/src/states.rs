//! States as a release folded them, in `golden/<type>/state-<STATE_VERSION>.json`: the fold of stored events cannot
//! change without a new `STATE_VERSION`, because snapshots of the same version are trusted, and clients compare `ETag`s
//! that contain it.
//!
//! A file contains the shape of the state, and the state, the claims, the deadlines and the dispatches after each
//! golden event, folded one after the other.
//! Files of earlier state versions stay, so that no version is used twice.

use std::fs;
use std::path::PathBuf;

use daybook_decider::record::timestamp;
use daybook_decider::{DeclaredDeadline, Folded, Model, RecordedEvent};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::events::shown;
use crate::files::{GoldenFiles, WRITE};
use crate::shape;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fold {
    shape: Value,
    states: Vec<GoldenState>,
}

/// The state after one more golden event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GoldenState {
    event: String,
    version: u32,
    state: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    claims: Vec<String>,
    /// Each with its name, its time and its command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    deadlines: Vec<String>,
    /// Each with its name, the aggregate that gets its command, and the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dispatches: Vec<String>,
}

impl GoldenFiles {
    /// Checks that the golden events are folded into the states of their state version, and adds states that are missing if it
    /// `writes`. The error says what to do about the difference.
    pub(crate) fn check_states(&self, model: &dyn Model, writes: bool) -> Result<(), String> {
        let (file, today) = (self.state_file(model), self.fold(model));
        let pinned = file.exists().then(|| {
            let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            serde_json::from_str::<Fold>(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        });
        let result = match &pinned {
            Some(pinned) => self.compare(model, pinned, &today),
            None => Err(format!("{} is missing: run `{WRITE}`", file.display())),
        };
        let only_adds =
            pinned.is_none_or(|pinned| pinned.shape == today.shape && today.states.starts_with(&pinned.states));
        // States that the file contains are never overwritten.
        if result.is_err() && writes && only_adds {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, serde_json::to_string_pretty(&today).unwrap() + "\n").unwrap();
            return Ok(());
        }
        result
    }

    fn state_file(&self, model: &dyn Model) -> PathBuf {
        self.file(model).with_extension("").join(format!("state-{}.json", model.state_version()))
    }

    /// The fold of today's code. Panics if it is another one with a snapshot after each event. A type with the full history has
    /// no snapshots.
    fn fold(&self, model: &dyn Model) -> Fold {
        let schema = Value::from(model.schemas().state.clone());
        let (mut folded, mut restored) = (model.before_first_event(), model.before_first_event());
        let mut states = Vec::new();
        for (golden, seq_num) in self.golden(model).into_iter().zip(1..) {
            let event = golden.recorded(seq_num);
            let (after, effect) = effect(model, folded, &event);
            let (_, effect_after_snapshot) = self::effect(model, restored, &event);
            assert!(
                effect == effect_after_snapshot,
                "{}: {} has another effect after a snapshot: the JSON of the state does not contain all of it. Change a field \
                 with #[serde(skip)], or a number that can be NaN\n  without a snapshot: {effect:?}\n  after a snapshot: \
                 {effect_after_snapshot:?}",
                model.type_name(),
                golden.name,
            );
            restored = if model.full_history() { after.clone() } else { from_snapshot(model, &after) };
            folded = after;
            let claims = model.claims(&folded).unwrap();
            assert!(
                claims == model.claims(&restored).unwrap(),
                "{}: {} has other claims after a snapshot: `claims` reads something that the JSON of the state does not contain",
                model.type_name(),
                golden.name,
            );
            let claims = claims.iter().map(ToString::to_string).collect();
            let deadlines = model.deadlines(&folded).unwrap();
            assert!(
                deadlines == model.deadlines(&restored).unwrap(),
                "{}: {} has other deadlines or dispatches after a snapshot: `deadlines` or `dispatches` reads something that the JSON of \
                 the state does not contain",
                model.type_name(),
                golden.name,
            );
            let text = |DeclaredDeadline { name, due, to, command }: DeclaredDeadline| {
                let (due, to) = (due.map(timestamp), to.map(|to| to.to_string()));
                format!("{name} {} {}", due.or(to).unwrap_or_default(), command.command)
            };
            let (deadlines, dispatches): (Vec<_>, Vec<_>) = deadlines.into_iter().partition(|one| one.due.is_some());
            let [deadlines, dispatches] = [deadlines, dispatches].map(|all| all.into_iter().map(text).collect());
            let (event, version, state) = (golden.name, golden.version, effect.0);
            states.push(GoldenState { event, version, state, claims, deadlines, dispatches });
        }
        Fold { shape: shape::of(&schema, &schema), states }
    }

    /// Compares the fold of today's code with the one that its state version has had so far. The error says what to do about the
    /// difference.
    fn compare(&self, model: &dyn Model, pinned: &Fold, today: &Fold) -> Result<(), String> {
        let (type_name, state_version) = (model.type_name(), model.state_version());
        let file = self.state_file(model);
        let changed = |what: &str, pinned: &str, today: &str| {
            Err(format!(
                "{type_name}: {what} has changed, and STATE_VERSION is still {state_version}: snapshots and `ETag`s of the \
                 earlier release would be taken for those of this one. Raise STATE_VERSION \
                 (`#[daybook::aggregate(\"{type_name}\", state_version = {next})]`), then run `{WRITE}`. If {state_version} \
                 was never deployed, delete {file} and run the command. New golden events come last in their file.\n  {file}: {pinned}\n  this code: {today}",
                file = file.display(),
                next = state_version + 1,
            ))
        };
        if pinned.shape != today.shape {
            return changed("the shape of the state", &pinned.shape.to_string(), &today.shape.to_string());
        }
        for (index, before) in pinned.states.iter().enumerate() {
            let step = today.states.get(index).unwrap_or(before);
            for (what, command, before_it, today) in [
                ("claims", "claims", &before.claims, &step.claims),
                ("deadlines", "deadlines", &before.deadlines, &step.deadlines),
                ("dispatches", "deadlines", &before.dispatches, &step.dispatches),
            ] {
                if before_it != today {
                    let what = format!(
                        "what `{what}` returns after {} version {} (`daybook {command} rebuild {type_name}` is needed after \
                         the deployment)",
                        before.event, before.version
                    );
                    return changed(&what, &format!("{before_it:?}"), &format!("{today:?}"));
                }
            }
            if today.states.get(index) != Some(before) {
                let what = format!("the state after {} version {}", before.event, before.version);
                let state = today.states.get(index).map(|step| step.state.to_string()).unwrap_or_default();
                return changed(&what, &before.state.to_string(), &state);
            }
        }
        if pinned.states.len() < today.states.len() {
            return Err(format!("{} lacks the states of new golden events: run `{WRITE}`", file.display()));
        }
        Ok(())
    }
}

/// The aggregate after an event, and what the event results in: the state, and the data of the messages.
fn effect(model: &dyn Model, before: Folded, event: &RecordedEvent) -> (Folded, (Value, Vec<Value>)) {
    let messages = model.announced(&before, "golden", event, event.message_epoch).unwrap_or_default();
    let messages = messages.iter().map(|message| message.data.read().unwrap()).collect();
    let after = model.fold(before, std::slice::from_ref(event)).unwrap();
    let state = shown(&model.state(&after).unwrap());
    (after, (state, messages))
}

/// The aggregate as a load reads it from a snapshot.
fn from_snapshot(model: &dyn Model, folded: &Folded) -> Folded {
    let json = model.state(folded).unwrap();
    model.restore(folded.version(), folded.message_seq(), &json).unwrap_or_else(|error| {
        panic!("{}: no snapshot of the state can be read: {error}. Its JSON is {}", model.type_name(), json.text())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_fold_is_reported_with_the_next_step() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../app/aggregates/golden");
        let files = GoldenFiles::new(aggregates::registry().unwrap(), folder);
        for model in files.registry.iter() {
            let today = files.fold(model);
            assert_eq!(files.compare(model, &today, &today), Ok(()));

            let mut other_state = today.clone();
            other_state.states.last_mut().unwrap().state = Value::Null;
            let mut other_shape = today.clone();
            other_shape.shape = Value::Null;
            let mut other_claims = today.clone();
            other_claims.states[0].claims.push("other:claim".to_owned());
            let mut other_deadlines = today.clone();
            other_deadlines.states[0].deadlines.push("other".to_owned());
            let mut other_dispatches = today.clone();
            other_dispatches.states[0].dispatches.push("other".to_owned());
            let what_to_do = files.compare(model, &other_dispatches, &today).unwrap_err();
            assert!(what_to_do.contains("what `dispatches` returns"), "{what_to_do}");
            assert!(what_to_do.contains("`daybook deadlines rebuild"), "{what_to_do}");
            let mut other_order = today.clone();
            other_order.states.reverse();
            let mut lost = today.clone();
            lost.states.push(lost.states[0].clone());
            for pinned in [other_state, other_shape, other_claims, other_deadlines, other_dispatches, other_order, lost]
            {
                let what_to_do = files.compare(model, &pinned, &today).unwrap_err();
                assert!(what_to_do.contains("Raise STATE_VERSION") && what_to_do.contains(WRITE), "{what_to_do}");
            }

            let mut shorter = today.clone();
            shorter.states.pop();
            let what_to_do = files.compare(model, &shorter, &today).unwrap_err();
            assert!(!what_to_do.contains("Raise STATE_VERSION") && what_to_do.contains(WRITE), "{what_to_do}");
        }
    }
}
