//! The golden files of the aggregates, by the checks of `daybook::golden`.

use daybook::golden::GoldenFiles;

fn check(check: impl FnOnce(&GoldenFiles)) {
    check(&GoldenFiles::new(aggregates::registry().unwrap(), concat!(env!("CARGO_MANIFEST_DIR"), "/golden")));
}

#[test]
fn golden_events_of_every_version_can_be_read() {
    check(GoldenFiles::golden_events_of_every_version_can_be_read);
}

#[test]
fn golden_event_is_read_as_its_entry_lists() {
    check(GoldenFiles::golden_event_is_read_as_its_entry_lists);
}

#[test]
fn shape_of_a_written_version_equals_its_golden_shape() {
    check(GoldenFiles::shape_of_a_written_version_equals_its_golden_shape);
}

#[test]
fn declared_forms_and_golden_entries_are_the_same() {
    check(GoldenFiles::declared_forms_and_golden_entries_are_the_same);
}

#[test]
fn golden_example_fits_its_shape() {
    check(GoldenFiles::golden_example_fits_its_shape);
}

#[test]
fn golden_entries_of_one_form_have_one_shape() {
    check(GoldenFiles::golden_entries_of_one_form_have_one_shape);
}

#[test]
fn data_of_another_form_is_unreadable() {
    check(GoldenFiles::data_of_another_form_is_unreadable);
}

#[test]
fn golden_file_belongs_to_a_registered_type() {
    check(GoldenFiles::golden_file_belongs_to_a_registered_type);
}

#[test]
fn states_of_the_golden_events_are_those_of_their_state_version() {
    check(GoldenFiles::states_of_the_golden_events_are_those_of_their_state_version);
}

#[test]
fn changed_fold_is_reported_with_the_next_step() {
    check(GoldenFiles::changed_fold_is_reported_with_the_next_step);
}
