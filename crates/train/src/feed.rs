//! The way of a batch to its step: one thread makes batches as the device will have them and sends them ahead; the loop
//! takes one whenever a step is queued.
//!
//! ```text
//! maker (a thread) ──bytes──> Slot ──own copy stream──> ready ──Feed::next_batch──> Engine::take ──Feed::give_back──> free
//! ```
//!
//! Batches come in their order whatever the timing. There are as many slots as the measured waits ask for, within what
//! the plan allows in number and bytes.

use crate::asked::maker_when_asked;
use crate::diagnose::plant::Fault;
use crate::error::TrainError;
use myxtts_data::batch::{BatchInfo, Plan};
use myxtts_data::loader::{HostSlab, Loader, Options};
use myxtts_data::record::RecordSource;
use myxtts_tensor::Engine;
use myxtts_tensor::engine::{Slot, Upload, Uploader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A wait longer than this share of the time between two batches means that too few of them were ready.
const TOO_LONG: f64 = 0.01;
/// Shorter ones are the handing over itself, however soon batches are asked for: steps are queued several at once.
const AT_ONCE: Duration = Duration::from_micros(100);
/// After so many batches with most slots unused, one is given up.
const SETTLED: u64 = 500;
/// How long nothing may come before the maker is called stuck. The loader behind it names its own stuck threads sooner.
const STALL: Duration = Duration::from_secs(90);

/// What went into a batch, for whoever looks for a bottleneck. Nobody else reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// The loader's thread that put it together.
    pub worker: usize,
    /// Reading its records, on that thread.
    pub reading: Duration,
    /// Decoding and features, where records are computed as they are read, on that thread.
    pub computing: Duration,
    /// The rest of putting it together, on that thread.
    pub collating: Duration,
    /// Making it a program's inputs, on the feed's thread.
    pub filling: Duration,
    /// The feed's thread stood still for a copy that was still under way.
    pub blocked: Duration,
    /// Sending it on its way: queueing the copy where that is page-locked, all of the copy where it is not.
    pub sending: Duration,
    /// Whether that started in memory that is not page-locked.
    pub pageable: bool,
    /// Its bytes.
    pub bytes: usize,
}

/// Makes batch `number` into bytes: how many, and what the loop has to know of it. It notes what it took where it knows.
pub type Maker<T> = Box<dyn FnMut(u64, &mut [u8], &mut Made) -> Result<(usize, T), TrainError> + Send>;

/// Adds to a batch what another device makes of it, and sends it on its way, of so many bytes.
pub type Finisher<T> = Box<dyn FnMut(&Uploader, &mut Slot, usize, &mut T) -> Result<(), TrainError> + Send>;

/// How a batch is made: its bytes, and then perhaps the rest.
struct Making<T> {
    maker: Maker<T>,
    finisher: Option<Finisher<T>>,
}

/// Makes the batches of a plan in their order, from batch `first` on, each by `fill` of its bytes and what it is: ahead of
/// time on threads, or each when it is asked for where `options` have a depth of 0. `fill` notes where it stood still.
pub fn maker_of<T: 'static>(
    source: Arc<dyn RecordSource>,
    batches: &Arc<Plan>,
    first: u64,
    options: Options,
    mut fill: impl FnMut(&[u8], &BatchInfo, &mut [u8], &mut Made) -> Result<(usize, T), TrainError>
    + Send
    + 'static,
) -> Result<Maker<T>, TrainError> {
    if options.depth == 0 {
        return maker_when_asked(source, batches, &options, fill);
    }
    let bytes = batches.slab_bytes(options.ranks)?;
    let options =
        Options { depth: options.depth.min(IN_RAM / bytes.max(1)).max(2 * options.workers), ..options };
    let slabs = HostSlab::pool(options.depth + 2, bytes);
    let mut loader = Loader::start(source, batches.clone(), &batches.state(first), options, slabs)?;
    Ok(Box::new(move |_, into, made| {
        let mut batch = match loader.next() {
            Some(batch) => batch?,
            None => return Err(TrainError::NoData("the batches ended before the steps did".into())),
        };
        let info = batch.info().clone();
        let (began, blocked) = (Instant::now(), made.blocked);
        let filled = fill(batch.bytes(), &info, into, made);
        made.filling = began.elapsed().saturating_sub(made.blocked - blocked);
        made.worker = info.worker;
        made.reading = info.reading.saturating_sub(info.computing);
        made.computing = info.computing;
        made.collating = info.took.saturating_sub(info.reading);
        filled
    }))
}

/// The bytes of a field of a batch; a stage asks for none that its own settings did not make.
pub fn field<'a>(bytes: &'a [u8], info: &BatchInfo, name: &str) -> &'a [u8] {
    let field = info.layout.field(name).unwrap_or_else(|| panic!("a batch has no field {name}"));
    &bytes[field.offset..field.offset + field.bytes]
}

/// How far ahead batches are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Slots to begin with.
    pub least: usize,
    /// Slots at most.
    pub most: usize,
    /// Bytes of all slots at most.
    pub bytes: usize,
}

impl Depth {
    /// Slots at most, of so many bytes each. One is in use while another is filled: fewer than two would take turns.
    pub fn slots(&self, bytes: usize) -> usize {
        self.most.min(self.bytes / bytes.max(1)).max(2)
    }
}

/// How batches come to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feeding {
    /// Threads that read records.
    pub workers: usize,
    /// When batches are copied.
    pub upload: Upload,
    /// How far ahead they are made; none makes each when it is asked for.
    pub depth: Option<Depth>,
    /// Batches under way at once, from the plan to the step: those beyond the slots wait in RAM. There are always two for
    /// each thread, or it would stand still.
    pub under_way: usize,
    /// What is wrong with it, where something shall be.
    pub planted: Option<&'static Fault>,
}

/// Bytes of batches that may wait in RAM before they are copied.
const IN_RAM: usize = 2 << 30;

/// Bytes of batches that may wait on a device: a share nobody misses.
const WAITING: usize = 1 << 30;

impl Default for Feeding {
    fn default() -> Self {
        Feeding {
            workers: 1,
            upload: Upload::Ahead,
            depth: Some(Depth::of(DEFAULT_SLOTS)),
            under_way: 0,
            planted: None,
        }
    }
}

impl Depth {
    /// At most so many slots, and a few of them to begin with.
    pub fn of(most: usize) -> Depth {
        Depth { least: most.min(4), most: most.max(2), bytes: WAITING }
    }
}

/// As many as `data.prefetch_buffer_size` has by default.
const DEFAULT_SLOTS: usize = 12;

impl Feeding {
    /// How records are read. Where batches are made when they are asked for, no thread may be ahead with them either.
    pub fn loading(&self) -> Options {
        let workers = self.workers.max(1);
        let depth = self.depth.map_or(0, |depth| self.under_way.saturating_sub(depth.most).max(2 * workers));
        Options { workers, depth, ..Options::default() }
    }

    /// Starts a feed for an engine.
    pub fn start<T: Send + 'static>(
        &self,
        name: &str,
        engine: &Engine,
        slot_bytes: usize,
        first: u64,
        maker: Maker<T>,
    ) -> Result<Feed<T>, TrainError> {
        self.start_with(name, engine, slot_bytes, first, maker, None)
    }

    /// As `start`, with batches that are finished on another device.
    pub fn start_with<T: Send + 'static>(
        &self,
        name: &str,
        engine: &Engine,
        slot_bytes: usize,
        first: u64,
        maker: Maker<T>,
        finisher: Option<Finisher<T>>,
    ) -> Result<Feed<T>, TrainError> {
        let maker = match self.planted {
            Some(fault) => fault.maker(engine, maker),
            None => maker,
        };
        let (uploader, making) = (engine.uploader(self.upload)?, Making { maker, finisher });
        match self.depth {
            Some(depth) => Feed::ahead(name, uploader, slot_bytes, depth, first, making),
            None => {
                let slot = Some(uploader.slot(slot_bytes)?);
                let way = Way::Blocking { making, uploader, slot };
                Ok(Feed { way, next: first, meter: Meter::new() })
            }
        }
    }
}

/// A batch that lies ready.
pub struct Fed<T> {
    /// Where.
    pub slot: Slot,
    /// What it is.
    pub what: T,
    /// What went into it.
    pub made: Made,
}

impl<T> Fed<T> {
    /// Makes a batch in a slot and sends it on its way.
    fn make(
        making: &mut Making<T>,
        uploader: &Uploader,
        mut slot: Slot,
        number: u64,
    ) -> Result<Fed<T>, TrainError> {
        let mut made = Made::default();
        let asked = Instant::now();
        let bytes = slot.bytes()?;
        made.blocked = asked.elapsed();
        let (length, mut what) = (making.maker)(number, bytes, &mut made)?;
        let began = Instant::now();
        match &mut making.finisher {
            None => uploader.send(&mut slot, length)?,
            Some(finish) => finish(uploader, &mut slot, length, &mut what)?,
        }
        made.sending += began.elapsed();
        made.bytes = length;
        Ok(Fed { slot, what, made })
    }
}

/// Batches, ahead of time.
pub struct Feed<T> {
    way: Way<T>,
    next: u64,
    meter: Meter,
}

enum Way<T> {
    Ahead(Ahead<T>),
    Blocking { making: Making<T>, uploader: Uploader, slot: Option<Slot> },
}

struct Ahead<T> {
    ready: Option<Receiver<Result<Fed<T>, TrainError>>>,
    free: Option<Sender<Slot>>,
    thread: Option<JoinHandle<()>>,
    /// The number of the batch that is made next.
    made_until: Arc<AtomicU64>,
    /// Slots nobody fills now. All were made at the start, so that no memory is taken while steps run.
    spare: Vec<Slot>,
    slot_bytes: usize,
    slots: usize,
    wanted: usize,
    least: usize,
    most: usize,
    /// The batch that was last waited for, or at which a slot was last given up.
    settled_since: u64,
}

/// What was measured of a feed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Batches given.
    pub batches: u64,
    /// Time the loop waited for them.
    pub waited: Duration,
    /// The last wait.
    pub last_wait: Duration,
    /// What went into the last batch.
    pub last_made: Made,
    /// Slots that are filled in turn.
    pub slots: usize,
    /// Bytes they and the spare ones take, on the host and again on the device.
    pub bytes: usize,
}

struct Meter {
    measured: Measured,
    last: Option<Instant>,
}

impl<T: Send + 'static> Feed<T> {
    /// Starts to make batches, from number `first` on, into slots of `slot_bytes`.
    pub fn start(
        name: &str,
        uploader: Uploader,
        slot_bytes: usize,
        depth: Depth,
        first: u64,
        maker: Maker<T>,
    ) -> Result<Feed<T>, TrainError> {
        Feed::ahead(name, uploader, slot_bytes, depth, first, Making { maker, finisher: None })
    }

    fn ahead(
        name: &str,
        uploader: Uploader,
        slot_bytes: usize,
        depth: Depth,
        first: u64,
        mut making: Making<T>,
    ) -> Result<Feed<T>, TrainError> {
        let (to_loop, ready) = channel();
        let (free, to_maker) = channel::<Slot>();
        let most = depth.slots(slot_bytes);
        let least = depth.least.clamp(2, most);
        let mut spare = (0..most).map(|_| uploader.slot(slot_bytes)).collect::<Result<Vec<_>, _>>()?;
        for slot in spare.drain(..least) {
            // The other end is held here: it cannot be gone.
            let _ = free.send(slot);
        }
        let named = name.to_owned();
        let made_until = Arc::new(AtomicU64::new(first));
        let counted = Arc::clone(&made_until);
        let make = move || {
            let mut number = first;
            while let Ok(slot) = to_maker.recv() {
                let made = catch_unwind(AssertUnwindSafe(|| Fed::make(&mut making, &uploader, slot, number)));
                let made = made.unwrap_or_else(|panic| {
                    let said = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
                    let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                    Err(TrainError::Feed(format!("the thread {named} panicked at batch {number}: {said}")))
                });
                let over = made.is_err();
                if to_loop.send(made).is_err() || over {
                    return;
                }
                number += 1;
                counted.store(number, Ordering::Release);
            }
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(make)
            .map_err(|error| TrainError::Feed(format!("the thread {name} could not be started: {error}")))?;
        let way = Way::Ahead(Ahead {
            ready: Some(ready),
            free: Some(free),
            thread: Some(thread),
            made_until,
            spare,
            slot_bytes,
            slots: least,
            wanted: least,
            least,
            most,
            settled_since: 0,
        });
        Ok(Feed { way, next: first, meter: Meter::new() })
    }

    /// Makes each batch when it is asked for: to see what making them ahead buys.
    pub fn blocking(
        uploader: Uploader,
        slot_bytes: usize,
        first: u64,
        maker: Maker<T>,
    ) -> Result<Feed<T>, TrainError> {
        let slot = Some(uploader.slot(slot_bytes)?);
        let making = Making { maker, finisher: None };
        Ok(Feed { way: Way::Blocking { making, uploader, slot }, next: first, meter: Meter::new() })
    }

    /// Waits until every slot holds a batch, and until a point in time; says how many lie ready. A maker that has failed
    /// is not waited for: the next batch says why.
    pub fn wait_until_full(&self, not_before: Instant) -> usize {
        let Way::Ahead(ahead) = &self.way else { return 0 };
        let late = Instant::now() + STALL;
        loop {
            let ready = (ahead.made_until.load(Ordering::Acquire) - self.next) as usize;
            let over = ahead.thread.as_ref().is_none_or(JoinHandle::is_finished);
            let now = Instant::now();
            if (ready >= ahead.slots && now >= not_before) || over || now > late {
                return ready;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The number of the batch that comes next.
    pub fn upcoming(&self) -> u64 {
        self.next
    }

    /// The next batch. Its slot is to be given back when a program has taken it.
    pub fn next_batch(&mut self) -> Result<Fed<T>, TrainError> {
        let asked = Instant::now();
        let fed = match &mut self.way {
            Way::Blocking { making, uploader, slot } => {
                let slot = slot.take().ok_or_else(|| TrainError::Feed("a slot was not given back".into()))?;
                Fed::make(making, uploader, slot, self.next)?
            }
            Way::Ahead(ahead) => ahead.receive(self.next)?,
        };
        let between = self.meter.took(asked);
        self.next += 1;
        self.meter.measured.last_made = fed.made;
        if let Way::Ahead(ahead) = &mut self.way {
            ahead.resize(&self.meter.measured, between);
        }
        Ok(fed)
    }

    /// Hands a slot back to be filled again.
    pub fn give_back(&mut self, slot: Slot) {
        match &mut self.way {
            Way::Blocking { slot: place, .. } => *place = Some(slot),
            Way::Ahead(ahead) => ahead.give_back(slot),
        }
    }

    /// What was measured until now.
    pub fn measured(&self) -> Measured {
        let (slots, bytes) = match &self.way {
            Way::Blocking { .. } => (1, 0),
            Way::Ahead(ahead) => (ahead.slots, (ahead.slots + ahead.spare.len()) * ahead.slot_bytes),
        };
        Measured { slots, bytes, ..self.meter.measured }
    }
}

impl<T> Ahead<T> {
    fn receive(&mut self, number: u64) -> Result<Fed<T>, TrainError> {
        let ready = self.ready.as_ref().ok_or_else(|| TrainError::Feed("the feed has ended".into()))?;
        match ready.recv_timeout(STALL) {
            Ok(fed) => fed,
            Err(RecvTimeoutError::Timeout) => {
                Err(TrainError::Feed(format!("no batch {number} within {} s", STALL.as_secs())))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(TrainError::Feed(format!("the thread that makes batches ended before batch {number}")))
            }
        }
    }

    fn give_back(&mut self, slot: Slot) {
        if self.slots > self.wanted {
            self.slots -= 1;
            self.spare.push(slot);
            return;
        }
        if let Some(free) = &self.free {
            // A maker that is gone has said why, or is about to.
            let _ = free.send(slot);
        }
    }

    /// One slot more after a wait that was too long, one less after a good while without any.
    fn resize(&mut self, measured: &Measured, between: Duration) {
        let long = measured.last_wait > between.mul_f64(TOO_LONG).max(AT_ONCE);
        // The first batch is always waited for.
        if long && measured.batches > 1 {
            self.settled_since = measured.batches;
            self.wanted = (self.wanted + 1).min(self.most);
            if self.slots < self.wanted
                && let (Some(free), Some(slot)) = (&self.free, self.spare.pop())
            {
                let _ = free.send(slot);
                self.slots += 1;
            }
        } else if measured.batches - self.settled_since >= SETTLED {
            self.settled_since = measured.batches;
            self.wanted = (self.wanted - 1).max(self.least);
        }
    }
}

impl Meter {
    fn new() -> Meter {
        Meter { measured: Measured::default(), last: None }
    }

    /// Notes a wait, and says how long ago the batch before was given.
    fn took(&mut self, asked: Instant) -> Duration {
        let now = Instant::now();
        self.measured.last_wait = now - asked;
        self.measured.waited += now - asked;
        self.measured.batches += 1;
        self.last.replace(now).map_or(Duration::from_secs(3600), |last| now - last)
    }
}

impl<T> Drop for Ahead<T> {
    fn drop(&mut self) {
        // Without either end of its channels the thread ends after the batch it is at.
        self.free = None;
        self.ready = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
