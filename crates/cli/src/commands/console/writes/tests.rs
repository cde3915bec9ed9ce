use std::sync::Mutex;
use std::time::Duration;

use super::*;

#[tokio::test]
async fn end_of_a_command_is_awaited_although_nobody_waits_for_its_result() {
    let running = RunningCommands::default();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let done = Arc::new(Mutex::new(false));
    let command = {
        let done = done.clone();
        running.clone().run_to_end(async move || {
            begun.send(()).unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
            *done.lock().unwrap() = true;
            Ok(())
        })
    };
    tokio::select! {
        _ = command => panic!("the browser did not hang up"),
        begun = has_begun => begun.unwrap(),
    }
    running.wait_for_end().await;
    assert!(*done.lock().unwrap());
}

#[tokio::test]
async fn command_that_waits_for_the_end_of_the_others_does_not_begin() {
    let running = RunningCommands::default();
    let first = running.0.clone().read_owned().await;
    let end = tokio::spawn(running.clone().wait_for_end());
    while running.0.try_read().is_ok() {
        tokio::task::yield_now().await;
    }
    let late = tokio::spawn(running.run_to_end(async || Ok(())));
    tokio::task::yield_now().await;
    drop(first);
    end.await.unwrap();
    tokio::time::timeout(Duration::from_millis(100), late).await.unwrap_err();
}

#[tokio::test]
async fn panic_of_a_command_is_no_error_of_its_options() {
    let running = RunningCommands::default();
    let ended = running.clone().run_to_end(async || -> Result<(), OperatorError> { panic!("no messages") }).await;
    let error = ended.unwrap_err();
    assert!(matches!(error, OperatorError::Failed(_)), "{error}");
    assert!(error.to_string().contains("no messages"), "{error}");
    running.wait_for_end().await;
}
