use futures_util::future::join_all;

use super::*;

#[tokio::test]
async fn pacer_interrupted_while_tasks_wait_gives_no_turn() {
    let stop = Interrupt::new();
    let pacer = Pacer::new(NonZeroU32::MIN, stop.clone());
    assert_eq!(pacer.turn().await, Some(()));
    let waiting = async { tokio::join!(pacer.turn(), pacer.turn()) };
    let ctrl_c = async { stop.cancel() };
    assert_eq!(tokio::join!(waiting, ctrl_c).0, (None, None));
}

#[tokio::test]
async fn pacer_interrupted_before_the_first_turn_gives_no_turn() {
    let stop = Interrupt::new();
    stop.cancel();
    assert_eq!(Pacer::new(NonZeroU32::MAX, stop).turn().await, None);
}

#[tokio::test(start_paused = true)]
async fn turns_that_are_taken_together_delay_the_next_turn() {
    let pacer = Pacer::new(NonZeroU32::new(100).unwrap(), Interrupt::new());
    let start = Instant::now();
    pacer.turns(100).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    pacer.turns(0).await.unwrap();
    pacer.turn().await.unwrap();
    assert_eq!(start.elapsed().as_millis(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn pacer_gives_more_than_a_thousand_turns_per_second_and_saves_none_up() {
    let pacer = Pacer::new(NonZeroU32::new(20_000).unwrap(), Interrupt::new());
    for _ in 0..2 {
        let start = Instant::now();
        join_all((0..10_000).map(|_| pacer.turn())).await;
        assert!((499..=502).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}
