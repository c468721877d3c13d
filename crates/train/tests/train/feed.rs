//! Batches arrive in order and within limits, and errors are reported.

use myxtts_tensor::engine::{Slot, Upload};
use myxtts_tensor::{Device, Engine, EngineOptions, Layout, Precision};
use myxtts_train::TrainError;
use myxtts_train::feed::{Depth, Feed, Maker};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

fn engine() -> Engine {
    Engine::new(Device::Cpu, Arc::new(Layout::empty()), Precision::F32, EngineOptions::default()).unwrap()
}

/// Writes the number of each batch, and counts the batches.
fn numbers(made: &Arc<AtomicU64>) -> Maker<u64> {
    let made = Arc::clone(made);
    Box::new(move |number, into, _| {
        into[..8].copy_from_slice(&number.to_le_bytes());
        made.fetch_add(1, Ordering::SeqCst);
        Ok((8, number))
    })
}

fn number_in(slot: &mut Slot) -> u64 {
    u64::from_le_bytes(slot.bytes().unwrap()[..8].try_into().unwrap())
}

const DEPTH: Depth = Depth { min: 3, max: 7, bytes: 1 << 20 };

#[test]
fn batches_arrive_in_order_from_the_first_one_requested() {
    let engine = engine();
    let made = Arc::new(AtomicU64::new(0));
    for (first, upload) in [(0, Upload::Ahead), (41, Upload::WithStep)] {
        let uploader = engine.uploader(upload).unwrap();
        let mut feed = Feed::start("numbers", uploader, 64, DEPTH, first, numbers(&made)).unwrap();
        for number in first..first + 200 {
            assert_eq!(feed.upcoming(), number);
            let mut fed = feed.next_batch().unwrap();
            assert_eq!((fed.what, number_in(&mut fed.slot)), (number, number));
            feed.give_back(fed.slot);
        }
        assert_eq!(feed.measured().batches, 200);
    }
}

#[test]
fn no_more_batches_are_made_than_there_are_slots() {
    let engine = engine();
    let made = Arc::new(AtomicU64::new(0));
    let uploader = engine.uploader(Upload::Ahead).unwrap();
    let mut feed = Feed::start("numbers", uploader, 64, DEPTH, 0, numbers(&made)).unwrap();
    let mut taken = 0;
    for round in 0..50 {
        for _ in 0..200 {
            let fed = feed.next_batch().unwrap();
            feed.give_back(fed.slot);
            taken += 1;
        }
        if round % 10 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let measured = feed.measured();
        assert!(measured.slots <= DEPTH.max && measured.bytes <= DEPTH.max * 64, "{measured:?}");
        assert!(
            made.load(Ordering::SeqCst) <= taken + DEPTH.max as u64,
            "more was made than there are slots"
        );
    }
    assert_eq!(taken, 10_000);
}

#[test]
fn waits_add_slots_and_unused_slots_are_retired() {
    let engine = engine();
    let slow: Maker<()> = Box::new(|number, _, _| {
        // An occasional delay in the first part, none later.
        if number < 60 && number % 4 == 0 {
            std::thread::sleep(Duration::from_millis(4));
        }
        Ok((0, ()))
    });
    let uploader = engine.uploader(Upload::Ahead).unwrap();
    let mut feed = Feed::start("hiccups", uploader, 64, DEPTH, 0, slow).unwrap();
    let mut deepest = 0;
    // On a busy machine the feed waits as well: it gets a minute to settle.
    let patience = Instant::now() + Duration::from_secs(60);
    for number in 0.. {
        let fed = feed.next_batch().unwrap();
        feed.give_back(fed.slot);
        let slots = feed.measured().slots;
        deepest = deepest.max(slots);
        if number >= 60 {
            assert_eq!(deepest, DEPTH.max, "waits must add slots");
            if slots < deepest {
                break;
            }
            assert!(Instant::now() < patience, "unused slots must be retired");
            // The step takes the time: batches are ready.
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

#[test]
fn errors_of_the_thread_reach_the_loop() {
    let engine = engine();
    let failing: Maker<()> = Box::new(|number, _, _| match number {
        3 => Err(TrainError::Feed("the disk is gone".into())),
        _ => Ok((0, ())),
    });
    let panicking: Maker<()> = Box::new(|number, _, _| match number {
        3 => panic!("planted panic"),
        _ => Ok((0, ())),
    });
    for (maker, said) in
        [(failing, "the disk is gone"), (panicking, "feed x panicked at batch 3: planted panic")]
    {
        let uploader = engine.uploader(Upload::Ahead).unwrap();
        let mut feed = Feed::start("feed x", uploader, 64, DEPTH, 0, maker).unwrap();
        for _ in 0..3 {
            let fed = feed.next_batch().unwrap();
            feed.give_back(fed.slot);
        }
        let error = feed.next_batch().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        assert!(feed.next_batch().is_err(), "nothing comes after it");
    }
}

/// The error appeared, but the feed then waited for its stuck thread forever, and with it the run.
#[test]
fn a_feed_whose_thread_hangs_is_named_and_ends() {
    let engine = engine();
    let (release, released) = channel::<()>();
    let hanging: Maker<()> = Box::new(move |number, _, _| {
        if number == 2 {
            let _ = released.recv();
        }
        Ok((0, ()))
    });
    let uploader = engine.uploader(Upload::Ahead).unwrap();
    let feed = Feed::start("feed x", uploader, 64, DEPTH, 0, hanging).unwrap();
    let mut feed = feed.with_stall_timeout(Duration::from_millis(300));
    let (to_test, ended) = channel();
    std::thread::spawn(move || {
        for _ in 0..2 {
            let fed = feed.next_batch().unwrap();
            feed.give_back(fed.slot);
        }
        let error = feed.next_batch().map(|_| ()).unwrap_err().to_string();
        drop(feed);
        to_test.send(error).unwrap();
    });
    let error = ended.recv_timeout(Duration::from_secs(60)).expect("the feed waits for its stuck thread");
    assert!(error.contains("the thread feed x has not made batch 2"), "{error}");
    drop(release);
}

#[test]
fn slots_are_bounded_by_bytes_but_never_fewer_than_two() {
    assert_eq!(Depth { min: 4, max: 50, bytes: 1000 }.slots(100), 10);
    assert_eq!(Depth { min: 4, max: 50, bytes: 1000 }.slots(10), 50);
    assert_eq!(Depth { min: 4, max: 50, bytes: 1000 }.slots(5000), 2);
}
