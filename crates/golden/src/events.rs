//! The checks of stored events.

use std::collections::BTreeSet;
use std::fs;

use daybook_decider::{Json, Model, personal, sample};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::files::{Golden, GoldenFiles, Today, WRITE};
use crate::shape;

/// What to do after a change of an event that is not stored anywhere.
const IF_NEVER_STORED: &str = "If no release has ever stored it in this form, delete its entry, and write it again with `GOLDEN=write`, or with \
     `GOLDEN=replace` if its type was never deployed";

/// What to do after an optional field was added to an event.
const IF_OPTIONAL: &str = "A new field that earlier releases can ignore needs no new version if it is an `Option` with \
                           `#[serde(default, skip_serializing_if = \"Option::is_none\")]`: add it to the shapes of the version in \
                           the file, with `?` after its name, and add an entry with a value";

/// What to do after a change of how an earlier form is read.
const CHANGED_READING: &str =
    "correct the upcast. If the form that is written today has changed, change `reads` of the entry.";

/// JSON with personal values as callers see them: no file contains how they are marked.
pub(crate) fn shown(json: &Json) -> Value {
    serde_json::from_str(&personal::shown(json.text())).unwrap()
}

impl GoldenFiles {
    /// Adds an entry for each event of today that has none, with an example of its data, and to each form that is not written any
    /// more the events that it is read as.
    pub(crate) fn add_entries(&self, model: &dyn Model) {
        let golden = self.golden(model);
        let before = fs::read_to_string(self.file(model)).unwrap_or_else(|_| "[]".to_owned());
        let written = written(model);
        let is_todays =
            |golden: &Golden| written.iter().any(|today| today.name == golden.name && today.version == golden.version);
        let raw: Vec<&RawValue> = serde_json::from_str(&before).unwrap();
        let mut entries: Vec<String> = raw.iter().map(|entry| entry.get().to_owned()).collect();
        for (entry, golden) in entries.iter_mut().zip(&golden) {
            // An event that disappears without being retired is a mistake, which no file confirms.
            if let Ok(read) = model.read(&golden.recorded(1))
                && !is_todays(golden)
                && !entry.contains("\"reads\"")
                && (!read.is_empty() || model.retired().iter().any(|retired| retired.name == golden.name))
            {
                *entry = with_reads(entry, &read);
            }
        }
        for Golden { name, version, shape, data, .. } in &written {
            if !golden.iter().any(|golden| golden.name == *name && golden.version == *version) {
                entries.push(format!(
                    "{{\n    \"name\": \"{name}\",\n    \"version\": {version},\n    \"shape\": {shape},\n    \"data\": {data}\n  }}"
                ));
            }
        }
        if !entries.iter().map(String::as_str).eq(raw.iter().map(|entry| entry.get())) {
            let text = format!("[\n  {}\n]\n", entries.join(",\n  "));
            fs::create_dir_all(self.file(model).parent().unwrap()).unwrap();
            fs::write(self.file(model), text).unwrap();
        }
    }

    /// Adds each difference between the events in a file and those of the code.
    pub(crate) fn check_events(&self, model: &dyn Model, found: &mut Vec<String>) {
        let (golden, file) = (self.golden(model), self.file(model));
        let file = file.display();
        let (before, written) = (found.len(), written(model));
        if golden.is_empty() {
            found.push(format!("{file} is missing: without it, nothing protects the stored events. Run `{WRITE}`"));
            return;
        }
        check_forms(model, &golden, |difference| found.push(format!("{file}: {difference}")));
        for (golden, seq_num) in golden.iter().zip(1..) {
            let Golden { name, version, shape, data, .. } = golden;
            let mut differs = |difference: String| found.push(format!("{file}: {name} version {version} {difference}"));
            let misfits = shape::misfits(data, shape);
            if !misfits.is_empty() {
                differs(format!(
                    "has an example that does not fit its shape, so correct one of them: {}",
                    misfits.join(", ")
                ));
            }
            let today = written.iter().find(|written| written.name == *name && written.version == *version);
            if let Some(today) = today.filter(|today| today.shape != *shape) {
                differs(format!(
                    "has another shape than it was once stored in: {}\n  the file: {shape}\n  this code: {}",
                    changed_data(),
                    today.shape
                ));
            }
            match model.read(&golden.recorded(seq_num)) {
                Ok(read) => check_reading(golden, today.is_some(), &read, &mut differs),
                Err(error) => differs(format!(
                    "cannot be read: {}. Correct its step in `upcast`. {IF_NEVER_STORED}",
                    error.reason
                )),
            }
            check_torn(model, golden, &mut differs);
        }
        if found.len() == before {
            let events: Vec<_> = golden.iter().zip(1..).map(|(event, seq_num)| event.recorded(seq_num)).collect();
            if let Err(error) = model.fold(model.before_first_event(), &events) {
                found.push(format!("{file}: the events cannot be folded one after the other, so order the entries as events can happen: \
                     {error}"));
            }
        }
    }
}

/// Checks that there is an entry for each declared version of each event, and no other entry, and that two entries of one form
/// agree, so that a change of one of them is detected.
fn check_forms(model: &dyn Model, golden: &[Golden], mut differs: impl FnMut(String)) {
    let stored = model.stored_events().into_iter();
    let declared: BTreeSet<_> =
        stored.flat_map(|(name, latest)| (1..=latest).map(move |version| (name, version))).collect();
    let pinned: BTreeSet<_> = golden.iter().map(|golden| (golden.name.as_str(), golden.version)).collect();
    for (name, version) in declared.difference(&pinned) {
        let next_step = match written_version(model, name) {
            Some(written) if written == *version => format!("run `{WRITE}`"),
            Some(written) if written < *version => {
                format!("write it as the coming release will store it, and run `{WRITE}`, which adds `reads`")
            }
            _ => format!("copy it from the release that wrote it, and run `{WRITE}`, which adds `reads`"),
        };
        differs(format!("an entry of {name} version {version} is missing: {next_step}"));
    }
    for (name, version) in pinned.difference(&declared) {
        differs(format!(
            "EVENTS of {} does not declare {name} version {version}. If no release has ever stored it, delete its entry",
            model.type_name()
        ));
    }
    for (index, one) in golden.iter().enumerate() {
        let same = |other: &&Golden| (&other.name, other.version) == (&one.name, one.version);
        if golden[..index].iter().find(same).is_some_and(|other| other.shape != one.shape) {
            differs(format!(
                "two entries of {} version {} have different shapes: give both the one that was stored",
                one.name, one.version
            ));
        }
    }
}

fn check_reading(golden: &Golden, is_todays: bool, read: &[(String, Json)], differs: &mut impl FnMut(String)) {
    match (&golden.reads, is_todays) {
        (None, false) => {
            return differs(format!(
                "is not written any more, and lacks `reads`, the events that it is read as: run `{WRITE}`, and check what it adds"
            ));
        }
        (Some(_), true) => return differs("is the form that is written today: remove `reads`".to_owned()),
        (None, true) | (Some(_), false) => {}
    }
    let read: Vec<_> = read.iter().map(|(name, data)| (name.clone(), shown(data))).collect();
    let itself = || vec![Today { r#type: golden.name.clone(), data: golden.data.clone() }];
    let expected = golden.reads.clone().unwrap_or_else(itself);
    let expected: Vec<_> = expected.into_iter().map(|today| (today.r#type, today.data)).collect();
    if read != expected {
        differs(format!(
            "is read as something other than its entry lists: {}\n  the file: {}\n  this code: {}",
            if is_todays { changed_data() } else { CHANGED_READING.to_owned() },
            text(&expected),
            text(&read),
        ));
    }
}

/// Checks that an event without one of its members cannot be read.
fn check_torn(model: &dyn Model, golden: &Golden, differs: &mut impl FnMut(String)) {
    let Value::Object(members) = &golden.shape else { return };
    // A retired event is read as no event, whatever its data.
    if golden.reads.as_ref().is_some_and(Vec::is_empty) {
        return;
    }
    for lost in members.keys().filter(|name| !name.ends_with('?') && golden.data.get(name.as_str()).is_some()) {
        let mut torn = golden.data.clone();
        torn.as_object_mut().unwrap().remove(lost);
        if model.read(&Golden { data: torn, ..golden.clone() }.recorded(1)).is_ok() {
            differs(format!(
                "can be read without {lost}: remove its default, or mark it as optional in the shape, as `{lost}?`"
            ));
        }
    }
}

/// What to do after a change of the data of an event that is written today.
fn changed_data() -> String {
    format!("give the event a new version. {IF_NEVER_STORED}. {IF_OPTIONAL}. See docs/evolving-events.md of Daybook.")
}

/// An entry with the events that it is read as.
fn with_reads(entry: &str, read: &[(String, Json)]) -> String {
    let events: Vec<_> =
        read.iter().map(|(name, data)| json!({"type": name, "data": shown(data)}).to_string()).collect();
    let entry = entry.strip_suffix('}').unwrap().trim_end();
    format!("{entry},\n    \"reads\": [{}]\n  }}", events.join(", "))
}

/// Events in one line, each as its name and its data.
fn text(events: &[(String, Value)]) -> String {
    let texts: Vec<_> = events.iter().map(|(name, data)| format!("{name} {data}")).collect();
    if texts.is_empty() { "no event".to_owned() } else { texts.join(", ") }
}

/// The version of the event `name` that is written today; `None` if no event of that name is written.
fn written_version(model: &dyn Model, name: &str) -> Option<u32> {
    model.events().iter().find(|event| event.name == name).map(|event| event.version)
}

/// The events as today's code writes them, each with an example.
fn written(model: &dyn Model) -> Vec<Golden> {
    let schema = Value::from(model.schemas().event.clone());
    let variants = schema["oneOf"].as_array().unwrap();
    let of = |variant: &Value| {
        let (name, data) =
            (variant["properties"]["type"]["const"].as_str()?.to_owned(), &variant["properties"]["data"]);
        let (version, shape) = (written_version(model, &name)?, shape::of(data, &schema));
        let mut event = Golden { name, version, shape, data: sample(data, &schema), reads: None };
        // With what the code writes besides the required members, such as `null` for an `Option`.
        if let Ok([(_, written)]) = model.read(&event.recorded(1)).as_deref() {
            event.data = shown(written);
        }
        Some(event)
    };
    variants.iter().filter_map(of).collect()
}
