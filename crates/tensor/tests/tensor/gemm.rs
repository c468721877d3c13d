//! Products on the GPU against a triple loop in f64 on the same rounded inputs.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, sys};
use half::bf16;
use myxtts_tensor::cuda::gemm::*;

struct Device {
    stream: Arc<CudaStream>,
    engine: GemmEngine,
    // Dropped after the engine that uses it.
    _workspace: CudaSlice<u8>,
    _gpu: crate::gpu::Gpu,
}

/// The first GPU, if there is one. cudarc panics if there is no driver.
fn device() -> Option<Device> {
    let gpu = crate::gpu::present("products")?;
    let context = std::panic::catch_unwind(|| CudaContext::new(0)).ok()?.ok()?;
    let stream = context.new_stream().unwrap();
    let workspace = stream.alloc_zeros::<u8>(DEFAULT_WORKSPACE).unwrap();
    stream.synchronize().unwrap();
    let address = workspace.device_ptr(&stream).0;
    let lt = Arc::new(Lt::load().unwrap());
    let table = Arc::new(GemmTable::in_memory());
    // SAFETY: the workspace has that size and outlives the engine.
    let engine = unsafe { GemmEngine::new(lt, table, address, DEFAULT_WORKSPACE).unwrap() };
    Some(Device { stream, engine, _workspace: workspace, _gpu: gpu })
}

macro_rules! device_or_skip {
    () => {
        match device() {
            Some(device) => device,
            None => {
                println!("skipped: no CUDA device");
                return;
            }
        }
    };
}

/// A small generator: the tests need variety, not quality.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    /// In [-1, 1), exact in bf16.
    fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| bf16::from_f32(self.next() as f32 / (1u64 << 30) as f32 - 1.0).to_f32()).collect()
    }
}

/// Values on the device, at an offset of some elements into their buffer.
struct Buffer {
    bytes: CudaSlice<u8>,
    element: Element,
    offset: usize,
}

impl Device {
    fn upload(&self, values: &[f32], element: Element, offset: usize) -> Buffer {
        let mut bytes = vec![0u8; offset * element.size()];
        for &value in values {
            match element {
                Element::F32 => bytes.extend(value.to_le_bytes()),
                Element::Bf16 => bytes.extend(bf16::from_f32(value).to_le_bytes()),
            }
        }
        bytes.resize(bytes.len().max(1), 0);
        Buffer { bytes: self.stream.clone_htod(&bytes).unwrap(), element, offset }
    }

    fn address(&self, buffer: &Buffer) -> u64 {
        buffer.bytes.device_ptr(&self.stream).0 + (buffer.offset * buffer.element.size()) as u64
    }

    fn download(&self, buffer: &Buffer) -> Vec<f32> {
        let bytes = self.stream.clone_dtoh(&buffer.bytes).unwrap();
        let bytes = &bytes[buffer.offset * buffer.element.size()..];
        match buffer.element {
            Element::F32 => {
                bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
            }
            Element::Bf16 => {
                bytes.chunks_exact(2).map(|b| bf16::from_le_bytes(b.try_into().unwrap()).to_f32()).collect()
            }
        }
    }
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh())
}

fn gelu_derivative(x: f64) -> f64 {
    (gelu(x + 1e-6) - gelu(x - 1e-6)) / 2e-6
}

fn extent(matrix: &Matrix, rows: usize, columns: usize, batch: usize) -> usize {
    let (rows, _) = if matrix.transposed { (columns, rows) } else { (rows, columns) };
    rows * matrix.ld + (batch - 1) * matrix.batch_stride as usize
}

/// Whether the library has no algorithm for the product: not every epilogue works with every type and layout.
fn is_missing<T>(gemm: &Gemm, result: &Result<T, GemmError>) -> bool {
    if !matches!(result, Err(GemmError::Unsupported(_))) {
        return false;
    }
    println!("not supported by this library: {gemm:?}");
    // Only products documented as partially supported may be missing.
    assert!(
        matches!(
            gemm.epilogue,
            Epilogue::BiasGradA | Epilogue::BiasGradB | Epilogue::DGelu | Epilogue::DGeluBiasGrad
        ) || (gemm.output == Element::F32 && gemm.epilogue != Epilogue::None),
        "{gemm:?}"
    );
    true
}

/// Runs one product and compares everything it writes, and checks that it writes nothing else; twice, for the same
/// bits.
fn check(device: &Device, gemm: &Gemm, random: &mut Random, offset: usize, tuned: bool) {
    gemm.validate().unwrap();
    let (m, n, k) = (gemm.m, gemm.n, gemm.k);
    let a = random.values(extent(&gemm.a, m, k, gemm.batch));
    let b = random.values(extent(&gemm.b, k, n, gemm.batch));
    let size = m * gemm.c_ld + (gemm.batch - 1) * gemm.c_batch_stride as usize;
    let before = random.values(size);
    let bias_len = if gemm.epilogue == Epilogue::BiasGradA { m } else { n };
    let bias = random.values(bias_len);
    let aux = random.values(size);
    // Whether the factor applies to a bias gradient is undocumented and not needed.
    let plain = matches!(gemm.epilogue, Epilogue::BiasGradA | Epilogue::BiasGradB);
    let alpha = if plain || random.below(2) == 0 { 1.0 } else { 0.5 };

    let on_device = |values: &[f32], element| device.upload(values, element, offset);
    let (da, db) = (on_device(&a, gemm.input), on_device(&b, gemm.input));
    let mut runs = Vec::new();
    for run in 0..3 {
        let (dd, dbias_run, daux_run) = (
            on_device(&before, gemm.output),
            device.upload(&bias, gemm.output, 0),
            device.upload(&aux, gemm.output, 0),
        );
        let mut operands = Operands {
            alpha,
            ..Operands::new(device.address(&da), device.address(&db), device.address(&dd))
        };
        if gemm.epilogue.has_bias() {
            operands = operands.bias(device.address(&dbias_run));
        }
        if gemm.epilogue.has_aux() {
            operands = operands.aux(device.address(&daux_run));
        }
        let stream = device.stream.cu_stream();
        if run == 0 && tuned {
            let (sd, sbias, saux) = (
                on_device(&before, gemm.output),
                device.upload(&bias, gemm.output, 0),
                device.upload(&aux, gemm.output, 0),
            );
            let mut scratch = Operands {
                c: device.address(&sd),
                d: device.address(&sd),
                bias: None,
                aux: None,
                ..operands
            };
            if gemm.epilogue.has_bias() {
                scratch = scratch.bias(device.address(&sbias));
            }
            if gemm.epilogue.has_aux() {
                scratch = scratch.aux(device.address(&saux));
            }
            // SAFETY: the buffers have the sizes of the product and outlive it.
            let choice = unsafe { device.engine.prepare(gemm, &scratch, stream) };
            if is_missing(gemm, &choice) {
                return;
            }
            let choice = choice.unwrap();
            assert!(choice.candidates > 0 && choice.nanoseconds > 0.0);
        }
        // SAFETY: the buffers have the sizes of the product and outlive it.
        let queued = unsafe { device.engine.run(gemm, &operands, stream) };
        if is_missing(gemm, &queued) {
            return;
        }
        queued.unwrap();
        device.stream.synchronize().unwrap();
        runs.push([device.download(&dd), device.download(&dbias_run), device.download(&daux_run)]);
    }
    for again in &runs[1..] {
        for (first, again) in runs[0].iter().zip(again) {
            assert!(
                first.iter().zip(again).all(|(x, y)| x.to_bits() == y.to_bits()),
                "not the same bits: {gemm:?}"
            );
        }
    }

    let [d, bias_after, aux_after] = &runs[0];
    let at_a = |p: usize, i: usize, l: usize| {
        let (row, column) = if gemm.a.transposed { (l, i) } else { (i, l) };
        f64::from(a[p * gemm.a.batch_stride as usize + row * gemm.a.ld + column])
    };
    let at_b = |p: usize, l: usize, j: usize| {
        let (row, column) = if gemm.b.transposed { (j, l) } else { (l, j) };
        f64::from(b[p * gemm.b.batch_stride as usize + row * gemm.b.ld + column])
    };
    // Inputs are below 1, so k terms sum to at most k: the error of f32 addition grows with it; TF32 keeps 10 bits
    // (bf16-rounded inputs are exact in TF32).
    let sum_error = 1e-6 * k as f64 + 1e-6;
    let rounding = if gemm.output == Element::Bf16 { 1.0 / 128.0 } else { 1e-6 };
    // The library may round the product before it applies the epilogue: the error scales with the largest part.
    let largest = std::cell::Cell::new(0.0f64);
    let close = |what: &str, got: f32, expected: f64, factor: f64| {
        let allowed = sum_error * factor + rounding * (expected.abs() + largest.get() + 0.01);
        assert!(
            (f64::from(got) - expected).abs() <= allowed,
            "{what}: {got} for {expected}, {allowed} allowed: {gemm:?}"
        );
    };
    let mut written = vec![false; size];
    let mut column_sums = vec![0.0f64; n];
    for p in 0..gemm.batch {
        for i in 0..m {
            for (j, column_sum) in column_sums.iter_mut().enumerate() {
                let place = p * gemm.c_batch_stride as usize + i * gemm.c_ld + j;
                written[place] = true;
                let mut x = f64::from(alpha) * (0..k).map(|l| at_a(p, i, l) * at_b(p, l, j)).sum::<f64>();
                largest.set(x.abs());
                if gemm.accumulate {
                    x += f64::from(before[place]);
                    largest.set(largest.get().max(f64::from(before[place]).abs()));
                }
                let biased = x + f64::from(*bias.get(j).unwrap_or(&0.0));
                let kept = f64::from(aux[place]);
                let expected = match gemm.epilogue {
                    Epilogue::None | Epilogue::BiasGradA | Epilogue::BiasGradB => x,
                    Epilogue::Bias => biased,
                    Epilogue::GeluBias | Epilogue::GeluAuxBias => gelu(biased),
                    Epilogue::GeluAux => gelu(x),
                    Epilogue::DGelu | Epilogue::DGeluBiasGrad => x * gelu_derivative(kept),
                };
                // The library's tanh is an approximation with an error of about 2^-11.
                let factor =
                    if gemm.epilogue.has_aux() || gemm.epilogue == Epilogue::GeluBias { 2.0 } else { 1.0 };
                let slack = if factor > 1.0 { 1e-3 * (1.0 + x.abs()) } else { 0.0 };
                let allowed = sum_error * factor + rounding * (expected.abs() + largest.get() + 0.01) + slack;
                assert!(
                    (f64::from(d[place]) - expected).abs() <= allowed,
                    "d[{p}, {i}, {j}]: {} for {expected}: {gemm:?}",
                    d[place]
                );
                *column_sum += expected;
                match gemm.epilogue {
                    Epilogue::GeluAux => close("aux", aux_after[place], x, 1.0),
                    Epilogue::GeluAuxBias => close("aux", aux_after[place], biased, 1.0),
                    _ => assert_eq!(aux_after[place], aux[place]),
                }
            }
        }
    }
    for place in 0..size {
        assert!(written[place] || d[place] == before[place], "written between the rows: {gemm:?}");
    }
    for (j, &got) in bias_after.iter().enumerate() {
        match gemm.epilogue {
            Epilogue::BiasGradA => close("bias", got, (0..k).map(|l| at_a(0, j, l)).sum(), 1.0),
            Epilogue::BiasGradB => close("bias", got, (0..k).map(|l| at_b(0, l, j)).sum(), 1.0),
            Epilogue::DGeluBiasGrad => {
                let allowed = (1e-3 + sum_error) * m as f64 + rounding * (column_sums[j].abs() + 0.01);
                assert!((f64::from(got) - column_sums[j]).abs() <= allowed, "bias[{j}]: {got}: {gemm:?}");
            }
            _ => assert_eq!(got, bias[j]),
        }
    }
}

fn described(
    random: &mut Random,
    (m, n, k): (usize, usize, usize),
    transposes: usize,
    batch: usize,
    elements: (Element, Element),
) -> Gemm {
    let (ta, tb) = (transposes & 1 == 1, transposes & 2 == 2);
    let padding = [0, 0, 1, 8][random.below(4)];
    let (ra, ca) = if ta { (k, m) } else { (m, k) };
    let (rb, cb) = if tb { (n, k) } else { (k, n) };
    let stride = |rows: usize, ld: usize| if batch == 1 { 0 } else { (rows * ld) as i64 };
    let shared = batch > 1 && random.below(2) == 0;
    Gemm {
        batch,
        a: Matrix { transposed: ta, ld: ca + padding, batch_stride: stride(ra, ca + padding) },
        b: Matrix {
            transposed: tb,
            ld: cb + padding,
            batch_stride: if shared { 0 } else { stride(rb, cb + padding) },
        },
        c_ld: n + padding,
        c_batch_stride: stride(m, n + padding),
        input: elements.0,
        output: elements.1,
        accumulate: random.below(2) == 0,
        tf32: elements.0 == Element::F32 && random.below(2) == 0,
        ..Gemm::packed(m, n, k, elements.0)
    }
}

const ELEMENTS: [(Element, Element); 3] =
    [(Element::Bf16, Element::Bf16), (Element::Bf16, Element::F32), (Element::F32, Element::F32)];

#[test]
fn products_of_every_layout_agree_with_the_triple_loop() {
    let device = device_or_skip!();
    let mut random = Random(1);
    let sizes = [
        (1, 1, 1),
        (1, 64, 64),
        (64, 1, 27),
        (7, 13, 5),
        (64, 64, 64),
        (33, 130, 65),
        (128, 96, 257),
        (3, 1026, 10),
    ];
    for size in sizes {
        for transposes in 0..4 {
            for elements in ELEMENTS {
                for batch in [1, 3] {
                    let gemm = described(&mut random, size, transposes, batch, elements);
                    let offset = [0, 0, 1, 3][random.below(4)];
                    check(&device, &gemm, &mut random, offset, false);
                }
            }
        }
    }
}

#[test]
fn the_tuned_algorithm_agrees_too() {
    let device = device_or_skip!();
    let mut random = Random(2);
    for size in [(64, 256, 128), (40, 1026, 64), (64, 64, 2730)] {
        for elements in ELEMENTS {
            let gemm = described(&mut random, size, 2, 1, elements);
            check(&device, &gemm, &mut random, 0, true);
        }
    }
    assert!(device.engine.table().len() >= 9);
}

#[test]
fn epilogues_agree() {
    let device = device_or_skip!();
    let mut random = Random(3);
    let all = [
        Epilogue::Bias,
        Epilogue::GeluBias,
        Epilogue::GeluAux,
        Epilogue::GeluAuxBias,
        Epilogue::DGelu,
        Epilogue::DGeluBiasGrad,
        Epilogue::BiasGradA,
        Epilogue::BiasGradB,
    ];
    for epilogue in all {
        for (elements, transposes) in ELEMENTS.iter().flat_map(|&e| (0..4).map(move |t| (e, t))) {
            for size in [(48, 64, 32), (31, 40, 17), (96, 128, 256)] {
                let mut gemm = described(&mut random, size, transposes, 1, elements);
                gemm.epilogue = epilogue;
                gemm.accumulate &= !epilogue.has_aux();
                if epilogue.has_aux() {
                    gemm.c_ld = gemm.n;
                }
                check(&device, &gemm, &mut random, 0, false);
            }
        }
    }
}

#[test]
fn a_captured_product_replays_on_new_data() {
    let device = device_or_skip!();
    let mut random = Random(4);
    let gemm = Gemm { epilogue: Epilogue::Bias, ..Gemm::packed(32, 64, 16, Element::Bf16) };
    let (a, b) = (random.values(32 * 16), random.values(16 * 64));
    let mut da = device.upload(&a, Element::Bf16, 0);
    let db = device.upload(&b, Element::Bf16, 0);
    let bias = device.upload(&vec![0.0; 64], Element::Bf16, 0);
    let dd = device.upload(&vec![0.0; 32 * 64], Element::Bf16, 0);
    let operands = Operands::new(device.address(&da), device.address(&db), device.address(&dd));
    let operands = operands.bias(device.address(&bias));
    let stream = device.stream.cu_stream();
    // SAFETY: the buffers have the sizes of the product and outlive it.
    let run = |gemm: &Gemm| unsafe { device.engine.run(gemm, &operands, stream) };
    run(&gemm).unwrap();
    device.stream.synchronize().unwrap();
    let once = device.download(&dd);

    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    device.stream.begin_capture(mode).unwrap();
    run(&gemm).unwrap();
    // A new product: rejected, and the capture continues.
    let other = Gemm { m: 31, ..gemm };
    assert!(matches!(run(&other), Err(GemmError::Capturing(_))));
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = device.stream.end_capture(flags).unwrap().unwrap();

    let doubled: Vec<u8> = a.iter().flat_map(|x| bf16::from_f32(2.0 * x).to_le_bytes()).collect();
    device.stream.memcpy_htod(&doubled, &mut da.bytes).unwrap();
    graph.launch().unwrap();
    device.stream.synchronize().unwrap();
    let twice = device.download(&dd);
    assert!(once.iter().zip(&twice).all(|(x, y)| (2.0 * x).to_bits() == y.to_bits()));
}

/// Times of the products of a training step; run with `--ignored --nocapture`.
#[test]
#[ignore = "prints times"]
fn times_of_the_gpt_step() {
    let device = device_or_skip!();
    let mut random = Random(5);
    let rows = 8 * 600;
    let linear = |n: usize, k: usize, epilogue| Gemm { epilogue, ..Gemm::packed(rows, n, k, Element::Bf16) };
    let gradient = |m: usize, n: usize, epilogue| Gemm {
        a: Matrix::packed(m).transpose(),
        output: Element::F32,
        accumulate: true,
        epilogue,
        ..Gemm::packed(m, n, rows, Element::Bf16)
    };
    let products = [
        ("qkv", linear(3072, 1024, Epilogue::Bias)),
        ("up", linear(4096, 1024, Epilogue::Bias)),
        ("up gelu", linear(4096, 1024, Epilogue::GeluAuxBias)),
        ("down", linear(1024, 4096, Epilogue::Bias)),
        ("down dgelu", linear(4096, 1024, Epilogue::DGelu)),
        ("down dgelu db", linear(4096, 1024, Epilogue::DGeluBiasGrad)),
        ("head", linear(1026, 1024, Epilogue::None)),
        ("up dW", gradient(1024, 4096, Epilogue::None)),
        ("up dW db", gradient(1024, 4096, Epilogue::BiasGradB)),
    ];
    let a = device.upload(&random.values(rows * 4096), Element::Bf16, 0);
    let b = device.upload(&random.values(rows * 4096), Element::Bf16, 0);
    let d = device.upload(&random.values(rows * 4096), Element::F32, 0);
    let aux = device.upload(&random.values(rows * 4096), Element::F32, 0);
    let bias = device.upload(&random.values(8192), Element::F32, 0);
    let operands = Operands::new(device.address(&a), device.address(&b), device.address(&d))
        .bias(device.address(&bias))
        .aux(device.address(&aux));
    for (name, gemm) in products {
        // Two floating-point operations per term.
        let flops = 2.0 * gemm.m as f64 * gemm.n as f64 * gemm.k as f64 * gemm.batch as f64;
        // SAFETY: the buffers are as large as the largest product and outlive it.
        match unsafe { device.engine.prepare(&gemm, &operands, device.stream.cu_stream()) } {
            Ok(choice) => println!(
                "{name:12} {:8.1} us  {:6.1} TFLOPS  of {} algorithms",
                choice.nanoseconds / 1e3,
                flops / choice.nanoseconds / 1e3,
                choice.candidates
            ),
            Err(error) => println!("{name:12} {error}"),
        }
    }
    let gemm = Gemm::packed(16, 16, 16, Element::Bf16);
    let stream = device.stream.cu_stream();
    // SAFETY: the buffers are larger than the product and outlive it.
    unsafe { device.engine.run(&gemm, &operands, stream).unwrap() };
    device.stream.synchronize().unwrap();
    let start = std::time::Instant::now();
    for _ in 0..1000 {
        // SAFETY: as above.
        unsafe { device.engine.run(&gemm, &operands, stream).unwrap() };
    }
    println!("host time of one small product: {:.2} us", start.elapsed().as_secs_f64() * 1e3);
    device.stream.synchronize().unwrap();
}
