//! Every kernel compiles for every supported architecture, and the cache stores what was compiled.
//!
//! Needs NVRTC, but no GPU. `MYXTTS_REQUIRE_NVRTC=1` makes its absence a failure.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Once;

use myxtts_tensor::cuda::cache::KernelCache;
use myxtts_tensor::cuda::compile::{Arch, CompileError, compile};
use myxtts_tensor::cuda::library::{self, Library};
use myxtts_tensor::kernels::{self, SOURCES};

const SUPPORTED: [Arch; 4] = [Arch::new(7, 5), Arch::new(8, 0), Arch::new(8, 9), Arch::new(9, 0)];
const SM_80: Arch = Arch::new(8, 0);
const SM_90A: Arch = Arch { specific: true, ..Arch::new(9, 0) };

const GOOD: &str = "extern \"C\" __global__ void twice(float* x) { x[threadIdx.x] *= 2.f; }\n";

fn has_nvrtc() -> bool {
    static REPORTED: Once = Once::new();
    match library::require(Library::Nvrtc) {
        Ok(()) => true,
        Err(missing) if std::env::var_os("MYXTTS_REQUIRE_NVRTC").is_some_and(|value| value == "1") => {
            panic!("MYXTTS_REQUIRE_NVRTC is set: {missing}")
        }
        Err(missing) => {
            // Not eprintln: the test runner captures what a passing test prints.
            REPORTED.call_once(|| _ = writeln!(std::io::stderr(), "kernels: skipped, {missing}"));
            false
        }
    }
}

#[test]
fn every_kernel_file_is_in_the_table() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kernels");
    let mut files: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".cu"))
        .collect();
    let mut table: Vec<String> = SOURCES.iter().map(|(name, _)| kernels::file_name(name)).collect();
    files.sort();
    table.sort();
    table.dedup();
    assert_eq!(files, table);
}

#[test]
fn every_kernel_compiles_for_every_supported_architecture() {
    if !has_nvrtc() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = KernelCache::in_folder(folder.path());
    for arch in SUPPORTED {
        let compiled = cache.compile_all(SOURCES, arch).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(compiled.len(), SOURCES.len());
        for ((name, _), compiled) in SOURCES.iter().zip(compiled) {
            assert!(compiled.cubin.starts_with(b"\x7fELF"), "{name} for {arch} is not a CUBIN");
            assert!(!compiled.from_cache);
        }
    }
    // One entry each, and nothing else.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), SOURCES.len() * SUPPORTED.len());
    assert!(cache.compile_all(SOURCES, SUPPORTED[0]).unwrap().iter().all(|compiled| compiled.from_cache));
}

#[test]
fn architecture_specific_code_is_compiled_separately() {
    if !has_nvrtc() {
        return;
    }
    let source = "#if defined(__CUDA_ARCH_FEAT_SM90_ALL)\n#error specific\n#endif\n";
    assert!(compile(source, "specific.cu", Arch::new(9, 0)).is_ok());
    assert!(compile(source, "specific.cu", SM_90A).is_err());
}

#[test]
fn a_compile_error_names_file_and_line() {
    if !has_nvrtc() {
        return;
    }
    let text = format!("{GOOD}\nextern \"C\" __global__ void planted(float* x) {{ x[0] = ; }}\n");
    let source = kernels::with_prelude("planted", &text);
    let error = compile(&source, "planted.cu", SM_80).unwrap_err();
    assert!(matches!(&error, CompileError::Source { file, .. } if file == "planted.cu"), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("planted.cu(3): error"), "{message}");
    assert!(message.contains("sm_80"), "{message}");
    // The parallel version reports the same error, though all the other kernels are fine.
    let kernels = [("good", GOOD), ("planted", text.as_str()), ("good", GOOD)];
    let error =
        KernelCache::in_folder(tempfile::tempdir().unwrap().path()).compile_all(&kernels, SM_80).unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[test]
fn an_unknown_architecture_is_named() {
    if !has_nvrtc() {
        return;
    }
    let error = compile(GOOD, "good.cu", Arch::new(3, 0)).unwrap_err();
    assert!(matches!(error, CompileError::Arch { .. }), "{error:?}");
    assert!(error.to_string().contains("does not compile for sm_30, only for "), "{error}");
    assert_eq!(Arch::for_device(9, 0).unwrap(), Arch::new(9, 0));
    // Code for 9.0 would run on a 9.9, if it existed.
    assert_eq!(Arch::for_device(9, 9).unwrap(), Arch::new(9, 0));
    assert!(Arch::for_device(3, 0).is_err());
}

#[test]
fn a_second_compilation_comes_from_the_cache_without_the_compiler() {
    if !has_nvrtc() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = KernelCache::in_folder(folder.path().join("made/when/needed"));
    let first = cache.compile(GOOD, "good.cu", SM_80).unwrap();
    let second = cache.compile(GOOD, "good.cu", SM_80).unwrap();
    assert!(!first.from_cache && second.from_cache);
    assert_eq!(first.cubin, second.cubin);

    // A forged entry, which the compiler could not have produced.
    let entry = cache.entry(GOOD, "good.cu", SM_80).unwrap().unwrap();
    let forged = b"not an output of NVRTC";
    let begin = fs::read(&entry).unwrap()[..8].to_vec();
    fs::write(&entry, [&begin[..], blake3::hash(forged).as_bytes(), forged].concat()).unwrap();
    assert_eq!(cache.compile(GOOD, "good.cu", SM_80).unwrap().cubin, forged);

    // Another source, architecture or variant is another entry.
    for (source, arch) in [
        (format!("{GOOD} "), SM_80),
        (GOOD.to_owned(), Arch::new(8, 9)),
        (GOOD.to_owned(), Arch::new(9, 0)),
        (GOOD.to_owned(), SM_90A),
    ] {
        assert!(!cache.compile(&source, "good.cu", arch).unwrap().from_cache);
    }
    assert!(cache.take_warning().is_none());
}

#[test]
fn a_damaged_entry_is_compiled_again() {
    if !has_nvrtc() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = KernelCache::in_folder(folder.path());
    let first = cache.compile(GOOD, "good.cu", SM_80).unwrap();
    let entry = cache.entry(GOOD, "good.cu", SM_80).unwrap().unwrap();
    let whole = fs::read(&entry).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for damaged in [&flipped[..], &whole[..whole.len() - 1], &whole[..20], b""] {
        fs::write(&entry, damaged).unwrap();
        assert_eq!(cache.compile(GOOD, "good.cu", SM_80).unwrap(), first);
        assert_eq!(fs::read(&entry).unwrap(), whole);
    }
    assert!(cache.compile(GOOD, "good.cu", SM_80).unwrap().from_cache);
}

#[test]
fn an_unwritable_folder_only_disables_the_cache() {
    if !has_nvrtc() {
        return;
    }
    // A file where the folder should be: not even root can write there.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let cache = KernelCache::in_folder(file.join("kernels"));
    for _ in 0..2 {
        assert!(!cache.compile(GOOD, "good.cu", SM_80).unwrap().from_cache);
    }
    let warning = cache.take_warning().unwrap().to_string();
    assert!(warning.contains(file.to_str().unwrap()) && warning.contains("MYXTTS_CACHE"), "{warning}");
    assert!(cache.take_warning().is_none());
}

/// A kernel that does not wait in `enter` could read what the previous kernel has not written yet. `enter_later`
/// marks a kernel that loads weights first.
#[test]
fn every_kernel_starts_with_enter() {
    let mut kernels = 0;
    for (name, text) in SOURCES {
        for kernel in text.split("__global__").skip(1) {
            let mut depth = 0;
            let body = kernel.char_indices().find(|&(_, c)| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                c == '{' && depth == 0
            });
            let body = body.map_or("", |(at, _)| &kernel[at + 1..]);
            let first = body.trim_start_matches(|c: char| c.is_whitespace() || c == '\\');
            let signature: String = kernel.chars().take(80).collect();
            assert!(
                first.starts_with("enter();")
                    || first.starts_with("enter_later();")
                        && text.contains("enter();\n")
                        && text.contains("wait_for_last();\n"),
                "{name}.cu: a kernel does not start with enter(): {signature}"
            );
            kernels += 1;
        }
    }
    assert!(kernels > 80, "only {kernels} kernels were found");
}
