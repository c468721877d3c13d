//! Replicas in threads: exact sums, and no replica left waiting.

use std::time::Duration;

use myxtts_tensor::collective::{Collective, CollectiveError, Replica};

/// Values of very different magnitudes, so that the order of addition affects the bits.
fn values(rank: usize, len: usize, round: usize) -> Vec<f32> {
    let mut seed = (rank as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (round as u64 * 7919);
    (0..len)
        .map(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let exponent = (seed >> 40) % 24;
            (seed as i32) as f32 / (1u64 << exponent) as f32
        })
        .collect()
}

fn serial_sum(world: usize, len: usize, round: usize) -> Vec<f32> {
    let mut sum = values(0, len, round);
    for rank in 1..world {
        for (sum, value) in sum.iter_mut().zip(values(rank, len, round)) {
            *sum += value;
        }
    }
    sum
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits())
}

/// Runs one closure per replica, each in its thread; fails instead of hanging.
fn together<T: Send + 'static>(
    world: usize,
    work: impl Fn(Replica) -> T + Send + Sync + 'static,
) -> Vec<std::thread::Result<T>> {
    let (done, wait) = std::sync::mpsc::channel();
    let work = std::sync::Arc::new(work);
    let threads: Vec<_> = Replica::group(world)
        .into_iter()
        .map(|replica| {
            let (done, work) = (done.clone(), work.clone());
            std::thread::spawn(move || {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(replica)));
                let _ = done.send(());
                result
            })
        })
        .collect();
    for _ in 0..world {
        wait.recv_timeout(Duration::from_secs(60)).expect("a replica hangs");
    }
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn sums_are_the_serial_sum_bit_for_bit_on_every_replica() {
    for world in 1..=8 {
        for len in [0, 1, 2, 15, 16, 17, 31, 63, 100, 127, 129, 1000, 4097, 50_001] {
            let expected = serial_sum(world, len, 0);
            let results = together(world, move |replica| {
                let mut own = values(replica.rank(), len, 0);
                replica.all_reduce_sum(&mut own).unwrap();
                own
            });
            for result in results {
                assert!(same_bits(&result.unwrap(), &expected), "{world} replicas, {len} values");
            }
        }
    }
}

#[test]
fn a_thousand_rounds_of_calls_succeed() {
    let results = together(5, |replica| {
        for round in 0..1000 {
            let len = round % 97;
            let mut own = values(replica.rank(), len, round);
            replica.all_reduce_sum(&mut own).unwrap();
            assert!(same_bits(&own, &serial_sum(5, len, round)));
            let mut copy = values(replica.rank(), len, round);
            let root = round % 5;
            replica.broadcast(&mut copy, root).unwrap();
            assert!(same_bits(&copy, &values(root, len, round)));
        }
    });
    for result in results {
        result.unwrap();
    }
}

/// Errors the surviving replicas got after replica 2 ended in round 10 of 20.
fn survivors(end: fn(&Replica)) -> Vec<CollectiveError> {
    let results = together(4, move |replica| {
        let mut own = vec![1.0; 1000];
        for round in 0..20 {
            if replica.rank() == 2 && round == 10 {
                // The others are likely to be waiting by now.
                std::thread::sleep(Duration::from_millis(20));
                end(&replica);
                return Ok(());
            }
            replica.all_reduce_sum(&mut own)?;
        }
        Ok(())
    });
    results
        .into_iter()
        .enumerate()
        .filter(|(rank, _)| *rank != 2)
        .map(|(_, r)| r.unwrap().unwrap_err())
        .collect()
}

#[test]
fn when_a_replica_ends_the_others_get_its_reason() {
    type End = fn(&Replica);
    let cases: [(End, &str); 3] = [
        (|_| {}, "it left the group"),
        (|_| panic!("planted"), "it panicked"),
        (|replica| replica.fail("loss is not finite"), "loss is not finite"),
    ];
    for (end, words) in cases {
        let errors = survivors(end);
        assert_eq!(errors.len(), 3);
        for error in errors {
            assert_eq!(error, CollectiveError::Ended { rank: 2, world: 4, reason: words.into() });
        }
    }
}

#[test]
fn replicas_may_end_while_others_are_inside_a_call() {
    // A fast replica ends right after its last call; the slow ones still finish that call.
    for _ in 0..300 {
        let results = together(3, |replica| {
            let mut own = vec![replica.rank() as f32; 3000];
            replica.all_reduce_sum(&mut own).map(|()| own)
        });
        for result in results {
            assert!(result.unwrap().unwrap().iter().all(|&x| x == 3.0));
        }
    }
}

#[test]
fn disagreeing_calls_are_an_error_and_the_group_stays_usable() {
    let results = together(3, |replica| {
        let mut own = vec![1.0; if replica.rank() == 1 { 5 } else { 4 }];
        let first = replica.all_reduce_sum(&mut own);
        let second = if replica.rank() == 2 {
            replica.all_reduce_sum(&mut own)
        } else {
            replica.broadcast(&mut own, 1)
        };
        let mut own = vec![1.0; 4];
        replica.all_reduce_sum(&mut own).unwrap();
        assert_eq!(own, [3.0; 4]);
        [first, second].map(|result| result.unwrap_err().to_string())
    });
    for result in results {
        let [lengths, calls] = result.unwrap();
        assert_eq!(
            lengths,
            "replica 1 of 3 called all_reduce_sum of 5 values while replica 0 called all_reduce_sum of 4 values"
        );
        assert!(calls.contains("replica 1 of 3 called broadcast of 5 values"), "{calls}");
    }
}
