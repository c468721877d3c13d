//! Parsing CUPTI's activity records, and statistics over them.

use std::collections::HashMap;
use std::sync::Arc;

// Activity kinds.
pub(super) const MEMCPY: u32 = 1;
pub(super) const MEMSET: u32 = 2;
const KERNEL: u32 = 3;
pub(super) const CONCURRENT_KERNEL: u32 = 10;
pub(super) const MEMCPY_BETWEEN_DEVICES: u32 = 22;

/// Type of an activity record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activity {
    /// A kernel.
    Kernel,
    /// A memory copy.
    Memcpy,
    /// A memory fill.
    Memset,
}

/// One kernel, copy or fill the GPU executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelRecord {
    /// Type of the activity.
    pub activity: Activity,
    /// Kernel name (C++ names are mangled); `memcpy` or `memset` for the others.
    pub name: Arc<str>,
    /// Start in nanoseconds, on the clock of `KernelTimes::now`.
    pub start_ns: u64,
    /// End in nanoseconds, on the same clock.
    pub end_ns: u64,
    /// Device index.
    pub device: u32,
    /// CUPTI's stream id.
    pub stream: u32,
    /// Blocks per dimension; zeros for a copy or fill.
    pub grid: [i32; 3],
    /// Threads per block and dimension; zeros for a copy or fill.
    pub block: [i32; 3],
    /// Registers per thread.
    pub registers: u16,
    /// Shared memory per block in bytes, static and dynamic.
    pub shared_memory: u32,
    /// Bytes copied or filled; 0 for a kernel.
    pub bytes: u64,
}

/// Parses one record. CUPTI versions add fields at the end and change none that is read here: kernel records have
/// this layout from version 4 (CUDA 9) to 13 (CUDA 13.4), copies and fills likewise. Invalid records and records
/// without times are `None`.
pub(super) fn parse(bytes: &[u8], name: impl FnOnce(u64) -> Arc<str>) -> Option<KernelRecord> {
    fn at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
        bytes.get(offset..offset + N)?.try_into().ok()
    }
    let u16_at = |offset| at(bytes, offset).map(u16::from_ne_bytes);
    let u32_at = |offset| at(bytes, offset).map(u32::from_ne_bytes);
    let i32_at = |offset| at(bytes, offset).map(i32::from_ne_bytes);
    let u64_at = |offset| at(bytes, offset).map(u64::from_ne_bytes);

    let activity = match u32_at(0)? {
        KERNEL | CONCURRENT_KERNEL => Activity::Kernel,
        MEMCPY | MEMCPY_BETWEEN_DEVICES => Activity::Memcpy,
        MEMSET => Activity::Memset,
        _ => return None,
    };
    let (start_ns, end_ns) = (u64_at(16)?, u64_at(24)?);
    if start_ns == 0 || end_ns < start_ns {
        return None;
    }
    let mut record = KernelRecord {
        activity,
        name: "".into(),
        start_ns,
        end_ns,
        device: 0,
        stream: 0,
        grid: [0; 3],
        block: [0; 3],
        registers: 0,
        shared_memory: 0,
        bytes: 0,
    };
    if activity == Activity::Kernel {
        record.registers = u16_at(6)?;
        record.device = u32_at(40)?;
        record.stream = u32_at(48)?;
        record.grid = [i32_at(52)?, i32_at(56)?, i32_at(60)?];
        record.block = [i32_at(64)?, i32_at(68)?, i32_at(72)?];
        record.shared_memory = u32_at(76)?.saturating_add(u32_at(80)?);
        record.name = name(u64_at(104)?);
    } else {
        record.bytes = u64_at(8)?;
        record.device = u32_at(32)?;
        record.stream = u32_at(40)?;
        record.name = if activity == Activity::Memcpy { "memcpy".into() } else { "memset".into() };
    }
    Some(record)
}

/// Fraction (0 to 1) of the time between `from` and `to` in which at least one kernel ran. Copies and fills do not
/// count. Pass the records of one device only.
pub fn busy<'a>(records: impl IntoIterator<Item = &'a KernelRecord>, from: u64, to: u64) -> f64 {
    if to <= from {
        return 0.0;
    }
    let mut intervals: Vec<(u64, u64)> = records
        .into_iter()
        .filter(|record| record.activity == Activity::Kernel)
        .map(|record| (record.start_ns.max(from), record.end_ns.min(to)))
        .filter(|(start, end)| start < end)
        .collect();
    intervals.sort_unstable();
    let (mut covered, mut reached) = (0, from);
    for (start, end) in intervals {
        covered += end.saturating_sub(start.max(reached));
        reached = reached.max(end);
    }
    covered as f64 / (to - from) as f64
}

/// Total time by name, largest first: name, count, nanoseconds.
pub fn by_name(records: &[KernelRecord]) -> Vec<(Arc<str>, usize, u64)> {
    let mut totals: HashMap<&Arc<str>, (usize, u64)> = HashMap::new();
    for record in records {
        let total = totals.entry(&record.name).or_default();
        total.0 += 1;
        total.1 += record.end_ns - record.start_ns;
    }
    let mut totals: Vec<_> = totals.into_iter().map(|(name, (n, ns))| (name.clone(), n, ns)).collect();
    totals.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.0.cmp(&b.0)));
    totals
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::cupti::sys;

    use super::*;

    fn kernel(start_ns: u64, end_ns: u64) -> KernelRecord {
        parse(&kernel_bytes(start_ns, end_ns), |_| "k".into()).unwrap()
    }

    fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    }

    /// A kernel record laid out by the CUDA 12.4 bindings.
    fn kernel_bytes(start_ns: u64, end_ns: u64) -> Vec<u8> {
        type K = sys::CUpti_ActivityKernel9;
        let mut bytes = vec![0; size_of::<K>()];
        put(&mut bytes, offset_of!(K, kind), &10u32.to_ne_bytes());
        put(&mut bytes, offset_of!(K, registersPerThread), &96u16.to_ne_bytes());
        put(&mut bytes, offset_of!(K, start), &start_ns.to_ne_bytes());
        put(&mut bytes, offset_of!(K, end), &end_ns.to_ne_bytes());
        put(&mut bytes, offset_of!(K, deviceId), &1u32.to_ne_bytes());
        put(&mut bytes, offset_of!(K, streamId), &7u32.to_ne_bytes());
        let grid = [offset_of!(K, gridX), offset_of!(K, gridY), offset_of!(K, gridZ)];
        let block = [offset_of!(K, blockX), offset_of!(K, blockY), offset_of!(K, blockZ)];
        for (i, offset) in grid.into_iter().chain(block).enumerate() {
            put(&mut bytes, offset, &(i as i32 + 1).to_ne_bytes());
        }
        put(&mut bytes, offset_of!(K, staticSharedMemory), &1000i32.to_ne_bytes());
        put(&mut bytes, offset_of!(K, dynamicSharedMemory), &24i32.to_ne_bytes());
        put(&mut bytes, offset_of!(K, name), &0xABCDu64.to_ne_bytes());
        bytes
    }

    #[test]
    fn kernel_records_match_the_bindings() {
        let parsed = parse(&kernel_bytes(100, 250), |address| format!("at {address:x}").into()).unwrap();
        let expected = KernelRecord {
            activity: Activity::Kernel,
            name: "at abcd".into(),
            start_ns: 100,
            end_ns: 250,
            device: 1,
            stream: 7,
            grid: [1, 2, 3],
            block: [4, 5, 6],
            registers: 96,
            shared_memory: 1024,
            bytes: 0,
        };
        assert_eq!(parsed, expected);
    }

    #[test]
    fn copy_and_fill_records_match_the_bindings() {
        type C = sys::CUpti_ActivityMemcpy5;
        type S = sys::CUpti_ActivityMemset4;
        type P = sys::CUpti_ActivityMemcpyPtoP4;
        let copy = [
            offset_of!(C, bytes),
            offset_of!(C, start),
            offset_of!(C, end),
            offset_of!(C, deviceId),
            offset_of!(C, streamId),
        ];
        let fill = [
            offset_of!(S, bytes),
            offset_of!(S, start),
            offset_of!(S, end),
            offset_of!(S, deviceId),
            offset_of!(S, streamId),
        ];
        let between = [
            offset_of!(P, bytes),
            offset_of!(P, start),
            offset_of!(P, end),
            offset_of!(P, deviceId),
            offset_of!(P, streamId),
        ];
        for (kind, offsets, name) in [(1u32, copy, "memcpy"), (2, fill, "memset"), (22, between, "memcpy")] {
            let mut bytes = vec![0; 96];
            put(&mut bytes, 0, &kind.to_ne_bytes());
            put(&mut bytes, offsets[0], &4096u64.to_ne_bytes());
            put(&mut bytes, offsets[1], &5u64.to_ne_bytes());
            put(&mut bytes, offsets[2], &9u64.to_ne_bytes());
            put(&mut bytes, offsets[3], &2u32.to_ne_bytes());
            put(&mut bytes, offsets[4], &3u32.to_ne_bytes());
            let record = parse(&bytes, |_| unreachable!()).unwrap();
            assert_eq!((&*record.name, record.bytes, record.start_ns, record.end_ns), (name, 4096, 5, 9));
            assert_eq!((record.device, record.stream), (2, 3));
        }
    }

    #[test]
    fn invalid_records_are_skipped() {
        let good = kernel_bytes(100, 200);
        // Truncated at every length up to the last field that is read.
        for length in 0..112 {
            assert_eq!(parse(&good[..length], |_| "k".into()), None, "{length}");
        }
        assert!(parse(&good[..112], |_| "k".into()).is_some());
        assert_eq!(parse(&kernel_bytes(0, 0), |_| "k".into()), None);
        assert_eq!(parse(&kernel_bytes(200, 100), |_| "k".into()), None);
        let mut other = good;
        put(&mut other, 0, &4u32.to_ne_bytes());
        assert_eq!(parse(&other, |_| "k".into()), None);
    }

    #[test]
    fn busy_is_the_union_of_kernel_intervals_over_wall_time() {
        let share = |intervals: &[(u64, u64)], from, to| {
            let records: Vec<_> = intervals.iter().map(|&(start, end)| kernel(start, end)).collect();
            busy(&records, from, to)
        };
        assert_eq!(share(&[], 0, 100), 0.0);
        assert_eq!(share(&[(10, 20)], 0, 100), 0.1);
        assert_eq!(share(&[(10, 20), (20, 30)], 0, 100), 0.2);
        // Overlapping on two streams, nested, out of order, past the ends.
        assert_eq!(share(&[(10, 30), (20, 40)], 0, 100), 0.3);
        assert_eq!(share(&[(10, 90), (20, 30), (40, 50)], 0, 100), 0.8);
        assert_eq!(share(&[(80, 90), (10, 20)], 0, 100), 0.2);
        assert_eq!(share(&[(1, 150), (190, 300)], 100, 200), 0.6);
        assert_eq!(share(&[(10, 20)], 50, 50), 0.0);
        let mut copy = kernel(10, 60);
        copy.activity = Activity::Memcpy;
        assert_eq!(busy([&copy, &kernel(50, 60)], 0, 100), 0.1);
    }

    #[test]
    fn times_by_name_are_sorted() {
        let named = |name: &str, start, end| KernelRecord { name: name.into(), ..kernel(start, end) };
        let totals = by_name(&[named("a", 1, 2), named("b", 1, 11), named("a", 3, 5)]);
        assert_eq!(totals, [("b".into(), 1, 10), ("a".into(), 2, 3)]);
    }
}
