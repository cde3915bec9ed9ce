//! The random pauses between two attempts.

use std::time::Duration;

use tokio::time::sleep;

/// Maximum length of the first pause after a failure. It doubles with each further one, [`MAX_DOUBLINGS`] times.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The number of times that the length of a pause is doubled.
pub(crate) const MAX_DOUBLINGS: u32 = 4;

/// Maximum length of the pause after the first conflict, and the length that it is divided down to.
const AFTER_CONFLICTS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(20));

/// Waits until a call may succeed, or an event may be visible. `failures` is the number of pauses before this one.
pub(crate) async fn pause(failures: &mut u32) {
    let longest = FIRST_PAUSE * 2_u32.pow(*failures);
    *failures = (*failures + 1).min(MAX_DOUBLINGS);
    sleep(longest.mul_f64(fastrand::f64())).await;
}

/// Gives way to the other instances that change the same rows. An instance that has lost several times comes before the
/// others: with pauses that grow, rows would often be free while all instances wait, the longer the more instances there are.
pub(crate) async fn give_way(conflicts: &mut u32) {
    *conflicts += 1;
    let (longest, shortest) = AFTER_CONFLICTS;
    sleep((longest / *conflicts).max(shortest).mul_f64(fastrand::f64())).await;
}
