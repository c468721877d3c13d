//! CPU and memory, from files in the format of Linux's `/proc`.

use std::fs;
use std::path::Path;

use myxtts_monitor::HostSample;
use myxtts_monitor::host::HostProbe;

fn write(root: &Path, user: u64, idle: u64, process: u64) {
    let cores = "cpu0 1 2 3\ncpu1 1 2 3\ncpu2 1 2 3\ncpu3 1 2 3\n";
    fs::write(root.join("stat"), format!("cpu  {user} 0 0 {idle} 0 0 0 0 {user} 9\n{cores}intr 5\n"))
        .unwrap();
    fs::create_dir_all(root.join("42")).unwrap();
    let stat = format!("42 (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 {process} 7 0 0 20 0 1 0\n");
    fs::write(root.join("42/stat"), stat).unwrap();
}

#[test]
fn cpu_use_is_the_difference_of_two_samples() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    fs::write(root.join("meminfo"), "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\n").unwrap();
    write(root, 100, 100, 50);
    fs::write(root.join("42/status"), "Name:\tmyxtts\nVmRSS:\t  25 kB\n").unwrap();
    fs::write(root.join("42/comm"), "myxtts\n").unwrap();
    let mut probe = HostProbe::at(root);
    assert_eq!(probe.name_of(42).as_deref(), Some("myxtts"));
    assert_eq!(probe.name_of(43), None);
    // No time has passed.
    assert_eq!((probe.sample(Some(42)).cpu, probe.sample(None).run_memory), (None, None));
    probe.sample(Some(42));
    write(root, 400, 200, 250);
    let host = probe.sample(Some(42));
    // 300 of 400 ticks of four cores, 200 of them by the process.
    assert_eq!((host.cpu, host.run_cpu), (Some(75.0), Some(200.0)));
    let memory = (host.memory_used, host.memory_total, host.run_memory);
    assert_eq!(memory, (Some(600 << 10), Some(1000 << 10), Some(25 << 10)));
    // Counters that decrease, and a process that has ended.
    write(root, 10, 10, 0);
    assert_eq!((probe.sample(Some(42)).run_cpu, probe.sample(Some(99)).run_memory), (None, None));
}

#[test]
fn unreadable_values_are_none() {
    let root = tempfile::tempdir().unwrap();
    let mut probe = HostProbe::at(root.path());
    assert_eq!(probe.sample(Some(1)), HostSample::default());
    for text in ["", "cpu \n", "cpu a b c d\n", "cpu 18446744073709551615 1 1 18446744073709551615\n"] {
        fs::write(root.path().join("stat"), text).unwrap();
        fs::write(root.path().join("meminfo"), "MemTotal: 99999999999999999999 kB\nMemAvailable: kB\n")
            .unwrap();
        assert_eq!(probe.sample(None).memory_used, None, "{text}");
    }
}
