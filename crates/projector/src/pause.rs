//! The pauses between two attempts: after a conflict with another writer, or while an event is not visible yet.

use std::time::Duration;

use tokio::time::sleep;

/// Maximum length of the first pause. It doubles with each further one, [`MAX_DOUBLINGS`] times.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The number of times that the length of a pause is doubled.
pub(crate) const MAX_DOUBLINGS: u32 = 4;

/// Waits for another writer to finish. `failures` is the number of pauses before this one.
pub(crate) async fn pause(failures: &mut u32) {
    let longest = FIRST_PAUSE * 2_u32.pow(*failures);
    *failures = (*failures + 1).min(MAX_DOUBLINGS);
    sleep(longest.mul_f64(fastrand::f64())).await;
}
