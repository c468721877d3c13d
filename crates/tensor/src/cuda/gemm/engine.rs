//! Runs products: looks the plan up, makes it on first use, times the algorithms when asked to.

use std::collections::HashMap;
use std::collections::hash_map;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::result::{event, stream};
use cudarc::driver::sys::{CUevent, CUevent_flags, CUstream, CUstreamCaptureStatus_enum};

use super::plan::{Handle, Plan};
use super::{Entry, Gemm, GemmError, GemmTable, Key, Lt, Operands};

/// What NVIDIA advises for Hopper; a smaller one loses algorithms that split k.
pub const DEFAULT_WORKSPACE: usize = 32 << 20;

/// Algorithms asked for. The library sorts them by its own estimate, which is not always right.
const CANDIDATES: usize = 16;

/// A later candidate must win by this much, or noise would choose between equals.
const MARGIN: f64 = 0.98;

/// Time of one timed window, and how many of them.
const WINDOW_NANOSECONDS: f64 = 200_000.0;
const WINDOWS: usize = 5;

/// How an algorithm was chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Of one product, measured with the operands in whatever cache they fit.
    pub nanoseconds: f64,
    /// How many were timed; 0 when the table knew.
    pub candidates: usize,
}

struct Chosen {
    plan: Plan,
    algo: [u64; 8],
    /// Timed, here or by an earlier run; otherwise the library's first guess.
    nanoseconds: Option<f64>,
}

struct State {
    plans: HashMap<Key, Chosen>,
    handle: Arc<Handle>,
}

/// Runs products on one device.
///
/// One engine serves one stream at a time: its kernels share the workspace.
pub struct GemmEngine {
    state: Mutex<State>,
    table: Arc<GemmTable>,
}

impl GemmEngine {
    /// On the device whose context is current. Engines of one GPU model share the table, so that replicas agree.
    ///
    /// # Safety
    /// `workspace` is the address of `workspace_bytes` on that device, 256-byte aligned, used by nothing else and
    /// living as long as the engine.
    pub unsafe fn new(
        lt: Arc<Lt>,
        table: Arc<GemmTable>,
        workspace: u64,
        workspace_bytes: usize,
    ) -> Result<GemmEngine, GemmError> {
        let raw = lt.handle()?;
        let handle = Arc::new(Handle { lt, raw, workspace, workspace_bytes });
        Ok(GemmEngine { state: Mutex::new(State { plans: HashMap::new(), handle }), table })
    }

    /// Where its choices are kept.
    pub fn table(&self) -> &GemmTable {
        &self.table
    }

    /// Puts the product on the stream. After the first use of a product this is one look-up and one call of the
    /// library; nothing is allocated, and it may be captured. The first use takes the algorithm from the table or,
    /// failing that, the library's first guess.
    ///
    /// # Safety
    /// The addresses hold what `gemm` says until the stream has passed the product; the stream is of the engine's
    /// device.
    pub unsafe fn run(&self, gemm: &Gemm, operands: &Operands, stream: CUstream) -> Result<(), GemmError> {
        if gemm.is_empty() {
            return Ok(());
        }
        operands.check(gemm)?;
        let key = Key::of(gemm, operands);
        // A panic elsewhere leaves the map whole: plans are inserted complete.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let chosen = match state.plans.entry(key) {
            hash_map::Entry::Occupied(entry) => entry.into_mut(),
            hash_map::Entry::Vacant(entry) => {
                gemm.validate()?;
                if capturing(stream)? {
                    return Err(GemmError::Capturing(Box::new(key)));
                }
                let plan = Plan::new(&state.handle, &key)?;
                entry.insert(self.first(plan, &key, operands)?)
            }
        };
        // SAFETY: the caller's promise.
        unsafe { chosen.plan.launch(operands, &chosen.algo, stream) }
    }

    /// Makes a product ready without running it, so that its first use may be recorded: by the table, or failing that
    /// the library's first guess.
    pub fn make_ready(&self, gemm: &Gemm, operands: &Operands) -> Result<(), GemmError> {
        if gemm.is_empty() {
            return Ok(());
        }
        gemm.validate()?;
        operands.check(gemm)?;
        let key = Key::of(gemm, operands);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        if let hash_map::Entry::Vacant(entry) = state.plans.entry(key) {
            let plan = Plan::new(&state.handle, &key)?;
            entry.insert(self.first(plan, &key, operands)?);
        }
        Ok(())
    }

    /// Whether the library can do it: not every epilogue goes with every type and layout.
    pub fn supports(&self, gemm: &Gemm, operands: &Operands) -> Result<bool, GemmError> {
        gemm.validate()?;
        operands.check(gemm)?;
        let key = Key::of(gemm, operands);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.plans.contains_key(&key) {
            return Ok(true);
        }
        Ok(!Plan::new(&state.handle, &key)?.algorithms(operands, 1)?.is_empty())
    }

    /// Finds the fastest algorithm, by the table or by trying, and keeps it. Not while the stream is captured. The
    /// operands are scratch: `d`, and what the epilogue writes, are overwritten. They should have the alignment the
    /// real ones will have and hold no zeros (a GPU draws less power, and so clocks higher, on zeros).
    ///
    /// # Safety
    /// As for [`GemmEngine::run`].
    pub unsafe fn prepare(
        &self,
        gemm: &Gemm,
        scratch: &Operands,
        stream: CUstream,
    ) -> Result<Choice, GemmError> {
        gemm.validate()?;
        if gemm.is_empty() {
            return Ok(Choice { nanoseconds: 0.0, candidates: 0 });
        }
        scratch.check(gemm)?;
        let key = Key::of(gemm, scratch);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(nanoseconds) = state.plans.get(&key).and_then(|chosen| chosen.nanoseconds) {
            return Ok(Choice { nanoseconds, candidates: 0 });
        }
        if capturing(stream)? {
            return Err(GemmError::Capturing(Box::new(key)));
        }
        let plan = Plan::new(&state.handle, &key)?;
        if let Some(entry) = self.table.get(&key)
            && plan.accepts(scratch, &entry.algo)?
        {
            let nanoseconds = entry.nanoseconds;
            state.plans.insert(key, Chosen { plan, algo: entry.algo, nanoseconds: Some(nanoseconds) });
            return Ok(Choice { nanoseconds, candidates: 0 });
        }
        // SAFETY: the caller's promise.
        let (entry, candidates) = unsafe { fastest(&plan, &key, scratch, stream)? };
        // Another replica may have been quicker to tell the table; then its choice is everyone's.
        let entry = self.table.insert(key, entry, |kept| plan.accepts(scratch, &kept.algo).unwrap_or(false));
        let nanoseconds = entry.nanoseconds;
        state.plans.insert(key, Chosen { plan, algo: entry.algo, nanoseconds: Some(nanoseconds) });
        Ok(Choice { nanoseconds, candidates })
    }

    fn first(&self, plan: Plan, key: &Key, operands: &Operands) -> Result<Chosen, GemmError> {
        if let Some(entry) = self.table.get(key)
            && plan.accepts(operands, &entry.algo)?
        {
            return Ok(Chosen { plan, algo: entry.algo, nanoseconds: Some(entry.nanoseconds) });
        }
        // As many as when timing: the library does not promise that asking for one gives the first of many.
        match plan.algorithms(operands, CANDIDATES)?.first() {
            Some(heuristic) => Ok(Chosen { algo: heuristic.algo, plan, nanoseconds: None }),
            None => Err(GemmError::Unsupported(Box::new(*key))),
        }
    }
}

fn capturing(stream: CUstream) -> Result<bool, GemmError> {
    // SAFETY: a query.
    let status = unsafe { stream::is_capturing(stream)? };
    Ok(status != CUstreamCaptureStatus_enum::CU_STREAM_CAPTURE_STATUS_NONE)
}

/// # Safety
/// As for [`GemmEngine::run`].
unsafe fn fastest(
    plan: &Plan,
    key: &Key,
    scratch: &Operands,
    stream: CUstream,
) -> Result<(Entry, usize), GemmError> {
    let found = plan.algorithms(scratch, CANDIDATES)?;
    let timer = Timer::new()?;
    let mut best: Option<Entry> = None;
    for heuristic in &found {
        // An algorithm that fails to launch is no candidate; a fault of the device shows in the next synchronisation.
        // SAFETY: the caller's promise.
        let launch = || unsafe { plan.launch(scratch, &heuristic.algo, stream) };
        let Some(nanoseconds) = timer.time(stream, launch)? else { continue };
        if best.as_ref().is_none_or(|best| nanoseconds < best.nanoseconds * MARGIN) {
            best = Some(Entry { algo: heuristic.algo, nanoseconds });
        }
    }
    best.map(|entry| (entry, found.len())).ok_or(GemmError::Unsupported(Box::new(*key)))
}

struct Timer {
    start: CUevent,
    end: CUevent,
}

impl Timer {
    fn new() -> Result<Timer, GemmError> {
        let flags = CUevent_flags::CU_EVENT_DEFAULT;
        let start = event::create(flags)?;
        match event::create(flags) {
            Ok(end) => Ok(Timer { start, end }),
            Err(error) => {
                // SAFETY: made above.
                let _ = unsafe { event::destroy(start) };
                Err(error.into())
            }
        }
    }

    /// Nanoseconds of one launch, the least over a few windows; `None` when it cannot be launched.
    fn time(
        &self,
        stream: CUstream,
        launch: impl Fn() -> Result<(), GemmError>,
    ) -> Result<Option<f64>, GemmError> {
        let window = |launches: usize| -> Result<Option<f64>, GemmError> {
            // SAFETY: the events are live and of this context.
            unsafe {
                event::record(self.start, stream)?;
                for _ in 0..launches {
                    if launch().is_err() {
                        return Ok(None);
                    }
                }
                event::record(self.end, stream)?;
                event::synchronize(self.end)?;
                Ok(Some(f64::from(event::elapsed(self.start, self.end)?) * 1e6 / launches as f64))
            }
        };
        // The first launch loads the kernel; the second says how many make a window.
        if window(1)?.is_none() {
            return Ok(None);
        }
        let Some(once) = window(1)? else { return Ok(None) };
        let launches = ((WINDOW_NANOSECONDS / once.max(1.0)) as usize).clamp(1, 50);
        let mut least = f64::INFINITY;
        for _ in 0..WINDOWS {
            match window(launches)? {
                Some(nanoseconds) => least = least.min(nanoseconds),
                None => return Ok(None),
            }
        }
        Ok(Some(least))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        unsafe {
            let _ = event::destroy(self.start);
            let _ = event::destroy(self.end);
        }
    }
}
