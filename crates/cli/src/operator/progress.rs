//! Progress on standard error, if that is a terminal.

use daybook_operations::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// The length of a bar that shows a fraction.
const STEPS: u64 = 1000;

/// A progress bar, or a spinner as long as no fraction is known; dropping it clears it.
#[derive(Debug)]
pub(crate) struct ProgressLine(ProgressBar);

impl ProgressLine {
    pub(crate) fn new() -> Self {
        Self(ProgressBar::new_spinner().with_style(style("{elapsed_precise} {spinner} {msg}")))
    }

    /// Moves the bar.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 1000")]
    pub(crate) fn progress(&self) -> Progress {
        let bar = self.0.clone();
        Progress::new(move |fraction, doing| {
            if let Some(fraction) = fraction {
                if bar.length().is_none() {
                    bar.set_length(STEPS);
                    bar.set_style(style("{elapsed_precise} [{bar:30}] {percent:>3}%  {msg}"));
                }
                bar.set_position((fraction.clamp(0.0, 1.0) * STEPS as f64) as u64);
            }
            bar.set_message(doing);
            bar.tick();
        })
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

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}
