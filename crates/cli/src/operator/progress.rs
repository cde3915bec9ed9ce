//! How far it is, on standard error, when that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// The bar's length where it measures time and not things.
const WHOLE: u64 = 1000;

/// A line that tells how far it is.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar over a part of the whole, told by [`at`](Self::at).
    pub fn of_part() -> Self {
        Self::styled(ProgressBar::new(WHOLE), "{elapsed_precise} [{bar:30}] {percent:>3}%  {msg}")
    }

    /// A bar over so many things.
    pub fn of(things: usize) -> Self {
        Self::styled(ProgressBar::new(things as u64), "{elapsed_precise} [{bar:30}] {pos}/{len}  {eta} left  {msg}")
    }

    /// Without an end in sight.
    pub fn spinner() -> Self {
        Self::styled(ProgressBar::new_spinner(), "{elapsed_precise} {spinner} {msg}")
    }

    fn styled(bar: ProgressBar, template: &str) -> Self {
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(bar.with_style(style.progress_chars("=> ")))
    }

    /// How much of the whole is done, from 0 to 1, and what is being done.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 1000")]
    pub fn at(&self, part: f64, doing: String) {
        self.0.set_position((part.clamp(0.0, 1.0) * WHOLE as f64) as u64);
        self.0.set_message(doing);
    }

    /// So many more things are done.
    pub fn done(&self, things: usize) {
        self.0.inc(things as u64);
    }

    /// What is being done.
    pub fn doing(&self, doing: String) {
        self.0.set_message(doing);
        self.0.tick();
    }

    /// Prints with the bar out of the way.
    pub fn print<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
