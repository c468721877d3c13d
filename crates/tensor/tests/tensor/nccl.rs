//! How NCCL is called, tested with a fake library that checks its arguments: calls that continue in the background,
//! delayed errors, groups that never connect. Real sums need GPUs.

use myxtts_tensor::cuda::nccl::{Nccl, NcclError};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// Compiled with the C compiler that links Rust programs.
fn fake() -> (tempfile::TempDir, Arc<Nccl>) {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tensor/fake_nccl.c");
    let library = folder.path().join("libnccl.so");
    let made =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status().unwrap();
    assert!(made.success());
    // SAFETY: the library has no initialisers.
    let library = unsafe { libloading::Library::new(&library) }.unwrap();
    (folder, Nccl::from_library(library).unwrap())
}

#[test]
fn processes_join_and_their_calls_continue_in_the_background() {
    let (_folder, nccl) = fake();
    let id = nccl.new_id().unwrap();
    assert_eq!(id.len(), 128);
    for blocking in [false, true] {
        let joined = nccl.join(&id, (1, 2), LIMIT, blocking).unwrap();
        assert_eq!((joined.rank(), joined.world()), (1, 2));
        // SAFETY: the fake library touches no memory.
        unsafe {
            joined.all_reduce_sum(64, 5, std::ptr::null_mut()).unwrap();
            joined.all_reduce_sum_bf16(64, 5, std::ptr::null_mut()).unwrap();
            joined.broadcast(64, 5, 0, std::ptr::null_mut()).unwrap();
        }
        joined.check().unwrap();
        // SAFETY: as above.
        let gone = unsafe { joined.all_reduce_sum(64, 13, std::ptr::null_mut()) }.unwrap_err().to_string();
        assert!(gone.contains("remote process exited"), "{gone}");
        assert!(joined.check().is_err());
        joined.abort();
        assert!(matches!(joined.check(), Err(NcclError::Aborted { rank: 1 })));
    }
}

#[test]
fn a_group_that_never_connects_times_out() {
    let (_folder, nccl) = fake();
    let id = nccl.new_id().unwrap();
    let began = Instant::now();
    let error = nccl.join(&id, (3, 99), Duration::from_millis(100), false).err().unwrap().to_string();
    assert!(error.contains("99 ranks did not connect") && error.contains("NCCL_SOCKET_IFNAME"), "{error}");
    assert!(began.elapsed() < LIMIT);
    let foreign = nccl.join(&[0; 128], (0, 2), LIMIT, false).err().unwrap().to_string();
    assert!(foreign.contains("invalid argument"), "{foreign}");
    assert!(
        nccl.join(&id[..7], (0, 2), LIMIT, false).err().unwrap().to_string().contains("128 are required")
    );
}

#[test]
fn a_hung_call_can_be_aborted_from_another_thread() {
    let (_folder, nccl) = fake();
    let id = nccl.new_id().unwrap();
    let joined = Arc::new(nccl.join(&id, (0, 2), LIMIT, false).unwrap());
    let other = joined.clone();
    let waiting = std::thread::spawn(move || {
        // SAFETY: the fake library touches no memory.
        unsafe { other.all_reduce_sum(64, 14, std::ptr::null_mut()) }.is_err()
    });
    std::thread::sleep(Duration::from_millis(50));
    joined.abort();
    assert!(waiting.join().unwrap());
}
