//! Progress on standard error, if that is a terminal.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};

/// The length of a bar that shows a fraction instead of a count.
const FRACTION_STEPS: u64 = 1000;

/// Whether standard error is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// A progress bar or spinner; dropping it clears it.
#[derive(Debug)]
pub(crate) struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// A bar that [`set_fraction`](Self::set_fraction) moves.
    pub(crate) fn of_fraction() -> Self {
        Self::styled(ProgressBar::new(FRACTION_STEPS), "{elapsed_precise} [{bar:30}] {percent:>3}%  {msg}")
    }

    /// A bar that [`advance`](Self::advance) moves, up to `total`.
    pub(crate) fn of_count(total: usize) -> Self {
        Self::styled(ProgressBar::new(total as u64), "{elapsed_precise} [{bar:30}] {pos}/{len}  {eta} left  {msg}")
    }

    /// A spinner, for work of unknown length.
    pub(crate) fn spinner() -> Self {
        Self::styled(ProgressBar::new_spinner(), "{elapsed_precise} {spinner} {msg}")
    }

    fn styled(bar: ProgressBar, template: &str) -> Self {
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(bar.with_style(style.progress_chars("=> ")))
    }

    /// Shows the completed fraction, from 0 to 1, and the current activity.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 1000")]
    pub(crate) fn set_fraction(&self, fraction: f64, doing: String) {
        self.0.set_position((fraction.clamp(0.0, 1.0) * FRACTION_STEPS as f64) as u64);
        self.0.set_message(doing);
    }

    /// Adds `more` to the completed items.
    pub(crate) fn advance(&self, more: usize) {
        self.0.inc(more as u64);
    }

    /// Shows the current activity.
    pub(crate) fn set_message(&self, doing: String) {
        self.0.set_message(doing);
        self.0.tick();
    }

    /// Calls `print` while the bar is hidden.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
