//! Runs products: looks up the plan, creates it on first use, and times the algorithms on request.

use std::collections::HashMap;
use std::collections::hash_map;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::result::{event, stream};
use cudarc::driver::sys::{CUevent, CUevent_flags, CUstream, CUstreamCaptureStatus_enum};

use super::plan::{Handle, Plan};
use super::{Entry, Gemm, GemmError, GemmTable, Key, Lt, Operands};

/// Size NVIDIA recommends for Hopper; a smaller one excludes algorithms that split k.
pub const DEFAULT_WORKSPACE: usize = 32 << 20;

/// Algorithms requested from the library, which sorts them by its own estimate; the estimate is not always right.
const CANDIDATES: usize = 16;

/// A later candidate must be faster by this factor; otherwise noise would choose between equals.
const MARGIN: f64 = 0.98;

/// Length of a timing window, and number of windows.
const WINDOW_NANOSECONDS: f64 = 200_000.0;
const WINDOWS: usize = 5;

/// The algorithm chosen for a product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AlgorithmChoice {
    /// Time of one product, with the operands in whatever cache they fit.
    pub nanoseconds: f64,
    /// Number of algorithms timed; 0 if the table had an entry.
    pub candidates: usize,
}

struct ChosenAlgorithm {
    plan: Plan,
    algo: [u64; 8],
    /// Measured time, from this or an earlier run; `None` for the library's first guess.
    nanoseconds: Option<f64>,
}

struct State {
    plans: HashMap<Key, ChosenAlgorithm>,
    handle: Arc<Handle>,
}

/// Runs products on one device.
///
/// An engine serves one stream at a time, because its kernels share the workspace.
pub struct GemmEngine {
    state: Mutex<State>,
    table: Arc<GemmTable>,
}

impl GemmEngine {
    /// Creates an engine on the device whose context is current. Engines of one GPU model share the table, so that
    /// replicas agree.
    ///
    /// # Safety
    /// `workspace` must be the address of `workspace_bytes` on that device, 256-byte aligned, used by nothing else,
    /// and alive as long as the engine.
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

    /// The table of chosen algorithms.
    pub fn table(&self) -> &GemmTable {
        &self.table
    }

    /// Queues the product on the stream. After the first use of a product this is one lookup and one library call;
    /// it allocates nothing and may be captured. The first use takes the algorithm from the table, or else the
    /// library's first guess.
    ///
    /// # Safety
    /// The addresses must hold what `gemm` says until the stream has executed the product; the stream must be of
    /// the engine's device.
    pub unsafe fn run(&self, gemm: &Gemm, operands: &Operands, stream: CUstream) -> Result<(), GemmError> {
        if gemm.is_empty() {
            return Ok(());
        }
        operands.check(gemm)?;
        let key = Key::new(gemm, operands);
        // A panic elsewhere leaves the map valid: plans are inserted complete.
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
        // SAFETY: guaranteed by the caller.
        unsafe { chosen.plan.launch(operands, &chosen.algo, stream) }
    }

    /// Prepares a product without running it, so that its first use may be captured: by the table, or else by the
    /// library's first guess.
    pub(crate) fn make_ready(&self, gemm: &Gemm, operands: &Operands) -> Result<(), GemmError> {
        if gemm.is_empty() {
            return Ok(());
        }
        gemm.validate()?;
        operands.check(gemm)?;
        let key = Key::new(gemm, operands);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        if let hash_map::Entry::Vacant(entry) = state.plans.entry(key) {
            let plan = Plan::new(&state.handle, &key)?;
            entry.insert(self.first(plan, &key, operands)?);
        }
        Ok(())
    }

    /// Finds the fastest algorithm, in the table or by timing, and stores it. Must not be called during capture.
    /// The operands are scratch: `d`, and what the epilogue writes, are overwritten. They should have the alignment
    /// of the real ones and contain no zeros, because a GPU uses less power on zeros and then clocks higher.
    ///
    /// Other processes wait meanwhile, so the stream must not have work that waits for them.
    ///
    /// # Safety
    /// As for [`GemmEngine::run`].
    pub unsafe fn prepare(
        &self,
        gemm: &Gemm,
        scratch: &Operands,
        stream: CUstream,
    ) -> Result<AlgorithmChoice, GemmError> {
        gemm.validate()?;
        if gemm.is_empty() {
            return Ok(AlgorithmChoice { nanoseconds: 0.0, candidates: 0 });
        }
        scratch.check(gemm)?;
        let key = Key::new(gemm, scratch);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(nanoseconds) = state.plans.get(&key).and_then(|chosen| chosen.nanoseconds) {
            return Ok(AlgorithmChoice { nanoseconds, candidates: 0 });
        }
        if capturing(stream)? {
            return Err(GemmError::Capturing(Box::new(key)));
        }
        let plan = Plan::new(&state.handle, &key)?;
        if let Some(entry) = self.table.get(&key)
            && plan.accepts(scratch, &entry.algo)?
        {
            let nanoseconds = entry.nanoseconds;
            state
                .plans
                .insert(key, ChosenAlgorithm { plan, algo: entry.algo, nanoseconds: Some(nanoseconds) });
            return Ok(AlgorithmChoice { nanoseconds, candidates: 0 });
        }
        let mut candidates = 0;
        let is_valid = |kept: &Entry| plan.accepts(scratch, &kept.algo).unwrap_or(false);
        let choose = || {
            // SAFETY: guaranteed by the caller.
            let (entry, found) = unsafe { fastest(&plan, &key, scratch, stream)? };
            candidates = found;
            Ok::<Entry, GemmError>(entry)
        };
        // Another replica or process may have chosen first; then all use its choice.
        let entry = self.table.get_or_choose(key, is_valid, choose)?;
        let nanoseconds = entry.nanoseconds;
        state.plans.insert(key, ChosenAlgorithm { plan, algo: entry.algo, nanoseconds: Some(nanoseconds) });
        Ok(AlgorithmChoice { nanoseconds, candidates })
    }

    fn first(&self, plan: Plan, key: &Key, operands: &Operands) -> Result<ChosenAlgorithm, GemmError> {
        if let Some(entry) = self.table.get(key)
            && plan.accepts(operands, &entry.algo)?
        {
            return Ok(ChosenAlgorithm { plan, algo: entry.algo, nanoseconds: Some(entry.nanoseconds) });
        }
        // The same count as when timing: the library does not promise that requesting one gives the first of many.
        match plan.algorithms(operands, CANDIDATES)?.first() {
            Some(heuristic) => Ok(ChosenAlgorithm { algo: heuristic.algo, plan, nanoseconds: None }),
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
        // An algorithm that fails to launch is skipped; a device error shows up in the next synchronisation.
        // SAFETY: guaranteed by the caller.
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
                // SAFETY: created above, destroyed once.
                let _ = unsafe { event::destroy(start) };
                Err(error.into())
            }
        }
    }

    /// Nanoseconds per launch, the minimum over several windows; `None` if it cannot be launched.
    fn time(
        &self,
        stream: CUstream,
        launch: impl Fn() -> Result<(), GemmError>,
    ) -> Result<Option<f64>, GemmError> {
        let window = |launches: usize| -> Result<Option<f64>, GemmError> {
            // SAFETY: the events are alive and belong to this context.
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
        // The first launch loads the kernel; the second determines how many launches fill a window.
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
        // SAFETY: created by `new`, destroyed once.
        unsafe {
            let _ = event::destroy(self.start);
            let _ = event::destroy(self.end);
        }
    }
}
