//! CUPTI records of products run eagerly and from a captured graph, and sums over GPUs with NCCL. Skipped, with the
//! reason, if a GPU or the library is missing.

use crate::gpu::{self, Gpu};
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DevicePtr, sys};
use myxtts_tensor::cuda::cupti::{Activity, KernelRecord, KernelTimes, busy, by_name};
use myxtts_tensor::cuda::gemm::*;
use myxtts_tensor::cuda::nccl::Nccl;

/// A stream on each device. cudarc panics if there is no driver.
fn streams() -> Option<(Gpu, Vec<Arc<CudaStream>>)> {
    let gpu = gpu::present("CUPTI and NCCL")?;
    let count = std::panic::catch_unwind(CudaContext::device_count).ok()?.ok()?;
    let stream = |device| CudaContext::new(device as usize).ok()?.new_stream().ok();
    let streams = (0..count).map(stream).collect::<Option<_>>()?;
    Some((gpu, streams))
}

macro_rules! or_skip {
    ($value:expr, $why:expr) => {
        match $value {
            Some(value) => value,
            None => {
                println!("skipped: {}", $why);
                return;
            }
        }
    };
}

#[test]
fn every_kernel_is_recorded_eager_and_captured() {
    let (_gpu, streams) = or_skip!(streams(), "no CUDA device");
    let stream = streams[0].clone();
    let times = or_skip!(KernelTimes::start().map_err(|e| println!("{e}")).ok(), "no CUPTI");
    let size = 2048;
    let values = stream.clone_htod(&vec![half::bf16::ONE; size * size]).unwrap();
    let mut out = stream.alloc_zeros::<half::bf16>(size * size).unwrap();
    let workspace = stream.alloc_zeros::<u8>(DEFAULT_WORKSPACE).unwrap();
    stream.synchronize().unwrap();
    let lt = Arc::new(Lt::load().unwrap());
    let address = workspace.device_ptr(&stream).0;
    let table = Arc::new(GemmTable::in_memory());
    // SAFETY: the workspace has that size and outlives the engine.
    let engine = unsafe { GemmEngine::new(lt, table, address, DEFAULT_WORKSPACE).unwrap() };
    let gemm = Gemm::packed(size, size, size, Element::Bf16);
    let (a, d) = (values.device_ptr(&stream).0, out.device_ptr(&stream).0);
    // SAFETY: the buffers have the sizes of the product and outlive it.
    let run = || unsafe { engine.run(&gemm, &Operands::new(a, a, d), stream.cu_stream()).unwrap() };

    run();
    stream.synchronize().unwrap();
    let from = times.now().unwrap();
    for _ in 0..10 {
        run();
    }
    stream.synchronize().unwrap();
    let eager = times.now().unwrap();
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    for _ in 0..10 {
        run();
    }
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).unwrap().unwrap();
    graph.upload().unwrap();
    stream.synchronize().unwrap();
    let captured = times.now().unwrap();
    graph.launch().unwrap();
    stream.synchronize().unwrap();
    let to = times.now().unwrap();
    let recorded = times.stop().unwrap();
    assert_eq!(recorded.dropped, 0);
    // Other programs may use the GPU meanwhile, but none has a product of this size.
    let ours = recorded.records.iter().filter(|r| r.start_ns >= from && r.end_ns <= eager);
    let stream_of_ours = ours.max_by_key(|r| r.end_ns - r.start_ns).unwrap().stream;
    let ours: Vec<_> = recorded.records.iter().filter(|r| r.stream == stream_of_ours).collect();
    let kernels = |from, to| {
        let inside =
            |r: &&&KernelRecord| r.activity == Activity::Kernel && r.start_ns >= from && r.end_ns <= to;
        ours.iter().filter(inside).count()
    };
    for (name, count, nanoseconds) in by_name(&recorded.records).iter().take(5) {
        println!("{count:4} x {:9.1} us in all  {name}", *nanoseconds as f64 / 1e3);
    }
    println!(
        "kernels: {} eager (busy {:.3}), {} from the graph (busy {:.3})",
        kernels(from, eager),
        busy(ours.iter().copied(), from, eager),
        kernels(captured, to),
        busy(ours.iter().copied(), captured, to)
    );
    // A product may be several kernels if k is split, but not fewer than one.
    assert!(kernels(from, eager) >= 10);
    assert_eq!(kernels(captured, to), kernels(from, eager));
    assert!(busy(ours.iter().copied(), from, eager) > 0.0);
    stream.memset_zeros(&mut out).unwrap();
}

#[test]
fn nccl_sums_over_all_gpus_captured_too() {
    let (_gpu, streams) = or_skip!(streams(), "no CUDA device");
    let nccl = or_skip!(Nccl::load().map_err(|e| println!("{e}")).ok(), "no NCCL");
    println!("NCCL {}, {} GPUs", nccl.version().unwrap(), streams.len());
    let devices: Vec<i32> = (0..streams.len() as i32).collect();
    let communicators = nccl.communicators(&devices).unwrap();
    let len = 1_000_003;
    std::thread::scope(|scope| {
        for (communicator, stream) in communicators.iter().zip(&streams) {
            scope.spawn(move || {
                stream.context().bind_to_thread().unwrap();
                let host: Vec<f32> = (0..len).map(|i| (i % 100 + communicator.rank()) as f32).collect();
                let mut values = stream.clone_htod(&host).unwrap();
                let address = values.device_ptr(stream).0;
                // SAFETY: the address holds `len` f32 for the whole test.
                let sum =
                    || unsafe { communicator.all_reduce_sum(address, len, stream.cu_stream()).unwrap() };
                let world = communicator.world();
                let check = |got: Vec<f32>| {
                    for (i, got) in got.into_iter().enumerate() {
                        let expected = (0..world).map(|rank| (i % 100 + rank) as f32).sum::<f32>();
                        assert_eq!(got, expected, "{i}");
                    }
                };
                sum();
                stream.synchronize().unwrap();
                check(stream.clone_dtoh(&values).unwrap());

                stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
                sum();
                let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
                let graph = stream.end_capture(flags).unwrap().unwrap();
                stream.memcpy_htod(&host, &mut values).unwrap();
                graph.launch().unwrap();
                stream.synchronize().unwrap();
                check(stream.clone_dtoh(&values).unwrap());
                // SAFETY: as above.
                unsafe { communicator.broadcast(address, len, 0, stream.cu_stream()).unwrap() };
                stream.synchronize().unwrap();
                communicator.check().unwrap();
            });
        }
    });
}
