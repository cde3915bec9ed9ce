//! All checks, for a project.

use crate::files::GoldenFiles;

impl GoldenFiles {
    /// Runs all checks of the events and of the states.
    pub fn check(&self) {
        self.golden_events_of_every_version_can_be_read();
        self.golden_event_is_read_as_its_entry_lists();
        self.shape_of_a_written_version_equals_its_golden_shape();
        self.declared_forms_and_golden_entries_are_the_same();
        self.golden_example_fits_its_shape();
        self.golden_entries_of_one_form_have_one_shape();
        self.data_of_another_form_is_unreadable();
        self.golden_file_belongs_to_a_registered_type();
        self.states_of_the_golden_events_are_those_of_their_state_version();
    }
}
