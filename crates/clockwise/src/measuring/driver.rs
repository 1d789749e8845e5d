//! Serves the requests of a measurement on a disk, in real time.
//!
//! A thread of its own, real-time where permitted, owns the disk. It issues each request no earlier than the
//! measurement wants, and waits for completions as the server's dispatcher does: the profile then holds for the
//! server, whose thread wakes as late. It sleeps until shortly before an instant and spins for the rest.
//!
//! All transfers in one direction share one buffer. Its content does not matter. The written one has random
//! bytes, because a device that compresses stores zeros faster.
//!
//! The time of the measurement is the host's monotonic time less a base. When a measurement continues, the base is
//! such that time goes on at the last sample, and the last request is served again, uncounted: then the head is
//! where the next prediction expects it. The platters meanwhile turned by an unknown angle. A file of samples
//! therefore never continues within the observation of the rotation (see [`samples`](super::samples)).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::buffer::{Buffer, Memory, MemoryConfig};
use engine::clock;
use engine::disk::{Disk, DiskError, DiskIo, Done};
use engine::event::EventFd;
use engine::rt::{self, ThreadParams};
use measure::machine::{MeasureError, Measured, Measurement, Progress, Request, Sample, Step};
use sched::request::Op;
use sched::units::{Bytes, Nanos, SECTOR_BYTES, Sector, SectorCount, Time};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::failure::{Failure, host_failure};

/// The largest request: 16 MiB.
pub const REQUEST_SECTORS_MAX: SectorCount = SectorCount(1 << 15);
/// The most requests at a time.
pub const PLACES: usize = 32;
/// The bytes at the beginning and at the end of a drive where software keeps its signatures, as `pool create` looks at
/// them.
const ENDS: [u64; 2] = [1 << 20, 64 << 10];
/// A drive that takes longer to zero its ends does not answer.
const CLEAR_MAX: Nanos = Nanos::from_secs(30);
/// So long before an instant the thread stops sleeping.
const SPIN: Nanos = Nanos(100_000);

/// Memory for a measurement: a buffer for each direction.
///
/// # Errors
/// When the host has none.
pub fn memory() -> Result<Memory, Failure> {
    let each = REQUEST_SECTORS_MAX.bytes().get();
    let config = MemoryConfig {
        reserve: Bytes(0),
        ..MemoryConfig::new(Bytes(2 * each))
    };
    Memory::new(&config).map_err(|error| {
        Failure::failed(format!("no memory to measure with: {error}"))
            .help("free 32 MiB of memory on this machine")
    })
}

/// News of a measurement.
#[derive(Debug)]
pub enum News {
    /// Requests were served.
    Served {
        /// The requests.
        requests: Vec<Request>,
        /// Their samples, in the same order.
        samples: Vec<Sample>,
        /// How far the measurement is.
        progress: Progress,
    },
    /// A drive that was written keeps something where signatures are, for this reason.
    NotCleared(String),
    /// It is over.
    Over(End),
}

/// The end of a measurement.
#[derive(Debug)]
pub enum End {
    /// The procedure came to its end.
    Finished(Box<Result<Measured, MeasureError>>),
    /// It was told to stop.
    Stopped,
    /// The disk cannot be used any more.
    Lost(String),
}

/// A measurement under way, as its starter sees it.
pub struct Running {
    /// The events; the last is [`News::Over`].
    pub news: UnboundedReceiver<News>,
    /// Rights that the host denied to the thread, in words for the operator.
    pub denied: Vec<String>,
    stop: Box<dyn Fn() + Send + Sync>,
}

impl Running {
    /// A measurement whose requests are served elsewhere. `stop` tells it to stop.
    pub fn elsewhere(
        news: UnboundedReceiver<News>,
        stop: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self {
            news,
            denied: Vec::new(),
            stop: Box::new(stop),
        }
    }

    /// Tells the measurement to stop. It says when it has.
    pub fn stop(&self) {
        (self.stop)();
    }
}

#[derive(Clone)]
struct Stop {
    wanted: Arc<AtomicBool>,
    wake: Arc<EventFd>,
}

/// A measurement, and where it is.
pub struct Begun {
    /// The procedure.
    pub measurement: Measurement,
    /// The requests that it wants next.
    pub step: Step,
    /// The completion of its last sample.
    pub at: Time,
    /// The request of its last sample.
    pub last: Option<Request>,
}

/// Starts the thread.
///
/// # Errors
/// When there is no thread or no memory for it.
pub fn start(disk: Box<dyn Disk>, memory: &Memory, begun: Begun) -> Result<Running, Failure> {
    let failed = |error: io::Error| host_failure("start the measurement", &error);
    let stop = Stop {
        wanted: Arc::default(),
        wake: Arc::new(EventFd::new().map_err(failed)?),
    };
    let (sender, news) = unbounded_channel();
    let buffers = Buffers::new(memory)?;
    // A disk in memory would occupy a processor with a priority above everything else.
    let params = if disk.completes_at_once() {
        ThreadParams::ordinary("measure")
    } else {
        ThreadParams {
            io_flusher: false,
            ..ThreadParams::dispatcher("measure")
        }
    };
    let mut driver = Driver {
        disk,
        buffers,
        stop: stop.clone(),
        base: 0,
        done: Vec::new(),
        in_flight: 0,
        is_written: false,
    };
    let run = move || {
        let end = match driver.measure(begun, &sender) {
            Ok(result) => End::Finished(Box::new(result)),
            Err(Halt::Stopped) => End::Stopped,
            Err(Halt::Lost(why)) => End::Lost(why),
        };
        if !matches!(end, End::Lost(_))
            && let Err(why) = driver.clear()
        {
            // Without a listener there is nobody to tell.
            let _ = sender.send(News::NotCleared(why.to_string()));
        }
        // The disk is closed before anyone is told.
        drop(driver);
        let _ = sender.send(News::Over(end));
    };
    let (_, denied) = rt::spawn(&params, run).map_err(failed)?;
    Ok(Running {
        news,
        denied: denied.0,
        stop: Box::new(move || {
            stop.wanted.store(true, Ordering::Release);
            stop.wake.signal();
        }),
    })
}

struct Buffers {
    read: Buffer,
    written: Buffer,
}

impl Buffers {
    fn new(memory: &Memory) -> Result<Self, Failure> {
        let size = REQUEST_SECTORS_MAX.bytes().get() as usize;
        let failed = |error: String| {
            Failure::failed(format!("no memory to measure with: {error}"))
                .help("free 32 MiB of memory on this machine")
        };
        let account = memory
            .open_account_for("measure", size, 2)
            .map_err(|error| failed(error.to_string()))?;
        let allocate = || {
            account
                .allocate(size)
                .map_err(|error| failed(error.to_string()))
        };
        let (read, mut written) = (allocate()?, allocate()?);
        let filled = written.with_mut(|bytes| {
            for part in bytes.chunks_mut(1 << 20) {
                // If the host has no random bytes, the buffer is written as it is.
                let _ = rustix::rand::getrandom(part, rustix::rand::GetRandomFlags::empty());
            }
        });
        filled.map_err(|error| failed(error.to_string()))?;
        Ok(Self { read, written })
    }
}

/// The reason to end early.
enum Halt {
    Stopped,
    Lost(String),
}

impl From<io::Error> for Halt {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

struct Driver {
    disk: Box<dyn Disk>,
    buffers: Buffers,
    stop: Stop,
    /// The host's time at the measurement's time 0, in nanoseconds. Negative if the host has restarted since.
    base: i64,
    done: Vec<Done>,
    /// Requests on the disk.
    in_flight: usize,
    /// True if something was written.
    is_written: bool,
}

impl Driver {
    fn measure(
        &mut self,
        begun: Begun,
        news: &UnboundedSender<News>,
    ) -> Result<Result<Measured, MeasureError>, Halt> {
        let Begun {
            mut measurement,
            mut step,
            at,
            last,
        } = begun;
        self.disk.attach()?;
        self.base = clock::now().get().cast_signed() - at.get().cast_signed();
        if let Some(last) = last {
            self.serve(&[last], 1)?;
        }
        while let Step::Serve { requests, depth } = step {
            let samples = self.serve(&requests, depth)?;
            step = measurement.step(&samples);
            // Without a listener the measurement is stopped.
            let served = News::Served {
                requests,
                samples,
                progress: measurement.progress(),
            };
            news.send(served).map_err(|_| Halt::Stopped)?;
        }
        let result = measurement.result();
        Ok(result.expect("a measurement that is finished has a result"))
    }

    /// Serves requests in their order, at most `depth` at a time.
    fn serve(&mut self, requests: &[Request], depth: u32) -> Result<Vec<Sample>, Halt> {
        let depth = (depth as usize).clamp(1, self.disk.places());
        let mut samples: Vec<Option<Sample>> = vec![None; requests.len()];
        let mut issued = vec![Time::ZERO; requests.len()];
        let (mut next, mut ended) = (0, 0);
        while ended < requests.len() {
            let mut until = None;
            while next < requests.len() && next - ended < depth {
                let not_before = requests[next].not_before.get();
                let due = Time(not_before.saturating_add_signed(self.base));
                if clock::now() + SPIN < due {
                    until = Some(Time(due.get() - SPIN.get()));
                    break;
                }
                while clock::now() < due {
                    std::hint::spin_loop();
                }
                issued[next] = clock::now();
                if let Err(error) = self.submit(next, &requests[next]) {
                    let now = clock::now();
                    samples[next] = Some(self.sample(issued[next], now, errno(error)?));
                    ended += 1;
                }
                next += 1;
            }
            if ended == requests.len() {
                break;
            }
            self.disk.wait(until, &self.stop.wake, &mut self.done)?;
            self.in_flight = self.in_flight.saturating_sub(self.done.len());
            for done in std::mem::take(&mut self.done) {
                let index = done.tag as usize;
                let completed = Time(done.at.get().saturating_sub(done.host_late.get()));
                let error = match done.result {
                    Ok(()) => None,
                    Err(error) => errno(error)?,
                };
                samples[index] = Some(self.sample(issued[index], completed, error));
                ended += 1;
            }
            if self.stop.wanted.load(Ordering::Acquire) {
                return Err(Halt::Stopped);
            }
        }
        Ok(samples.into_iter().flatten().collect())
    }

    fn submit(&mut self, index: usize, request: &Request) -> Result<(), DiskError> {
        let buffer = match request.op {
            Op::Read => &self.buffers.read,
            Op::Write => &self.buffers.written,
        };
        let bytes = request.count.bytes().get() as usize;
        let invalid = DiskError::Invalid {
            start: request.start,
            count: request.count,
        };
        let segments = buffer.segments(request.op, 0..bytes).map_err(|_| invalid)?;
        self.disk.submit(DiskIo {
            tag: index as u64,
            op: request.op,
            start: request.start,
            count: request.count,
            segments,
            // As the server writes.
            durable: true,
        })?;
        self.in_flight += 1;
        self.is_written |= request.op == Op::Write;
        Ok(())
    }

    /// Zeroes both ends of a drive that was written. What was there is destroyed in part, and must not count as a pool
    /// or a file system any more.
    fn clear(&mut self) -> io::Result<()> {
        if !self.is_written {
            return Ok(());
        }
        let deadline = clock::now() + CLEAR_MAX;
        // A write under way would come after the zeros.
        self.settle(deadline)?;
        let zeroed = self.buffers.written.with_mut(|bytes| bytes.fill(0));
        zeroed.map_err(io::Error::other)?;
        let block = u64::from(self.disk.block_bytes());
        let size = self.disk.capacity().bytes().get() / block * block;
        let [head, tail] = ENDS.map(|bytes| bytes.min(size));
        for (start, bytes) in [(0, head), (size - tail, tail)] {
            let zeros = Request {
                op: Op::Write,
                start: Sector(start / SECTOR_BYTES),
                count: SectorCount(bytes / SECTOR_BYTES),
                not_before: Time::ZERO,
            };
            self.submit(0, &zeros).map_err(io::Error::other)?;
            for done in self.settle(deadline)? {
                done.result.map_err(io::Error::other)?;
            }
        }
        Ok(())
    }

    /// Waits until nothing is on the disk.
    fn settle(&mut self, deadline: Time) -> io::Result<Vec<Done>> {
        let never = EventFd::new()?;
        let mut all = Vec::new();
        while self.in_flight > 0 {
            if clock::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.disk.wait(Some(deadline), &never, &mut self.done)?;
            self.in_flight = self.in_flight.saturating_sub(self.done.len());
            all.append(&mut self.done);
        }
        Ok(all)
    }

    fn sample(&self, issued: Time, completed: Time, error: Option<i32>) -> Sample {
        let since_base = |time: Time| Time(time.get().saturating_add_signed(-self.base));
        Sample {
            issued: since_base(issued),
            completed: since_base(completed.max(issued)),
            alone: true,
            error,
        }
    }
}

/// The error number of a request that failed, unless the disk is gone.
fn errno(error: DiskError) -> Result<Option<i32>, Halt> {
    match error {
        DiskError::Io { errno, .. } => Ok(Some(errno)),
        DiskError::Invalid { .. } => Ok(Some(rustix::io::Errno::INVAL.raw_os_error())),
        DiskError::Gone { .. } | DiskError::Busy => Err(Halt::Lost(error.to_string())),
    }
}
