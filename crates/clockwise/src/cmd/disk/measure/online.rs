//! Requests of a measurement that a running server serves.
//!
//! The procedure runs here, and each of its steps is a call of the control API. Times are the server's, less a base,
//! so that a measurement that continues goes on at its last sample.

use std::path::Path;

use measure::facts::Facts;
use measure::machine::{Request, Sample, Step};
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use super::super::find_disk;
use super::MeasureArgs;
use crate::client::ApiClient;
use crate::failure::Failure;
use crate::measuring::driver::{Begun, End, News, Running};
use crate::measuring::target::Target;
use crate::wire::faults::FaultOp;
use crate::wire::measurement::{
    BeginMeasurement, MeasurementEnd, MeasurementRequest, MeasurementRequests, MeasurementSamples,
    MeasurementView,
};
use crate::wire::view::DiskView;

/// Time from a completion until the next request can be at the server: two calls on a host with other work.
const TURNAROUND: Nanos = Nanos::from_millis(3);

/// Requests of a call. The server takes up to 256.
const REQUESTS_PER_CALL: usize = 128;

/// A measurement that a server has begun.
pub(super) struct Online {
    client: ApiClient,
    /// Its path in the API.
    path: String,
    begun: MeasurementView,
    pub(super) target: Target,
}

impl Online {
    pub(super) async fn begin(client: ApiClient, args: &MeasureArgs) -> Result<Self, Failure> {
        let disks: Vec<DiskView> = client.get("/v1/disks").await?;
        let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
        let number = find_disk(&names, &args.device.to_string_lossy())?;
        let path = format!("/v1/disks/{number}/measurement");
        let ask = BeginMeasurement { write: args.write };
        let begun: MeasurementView = client.post(&path, &ask).await?;
        match Target::online(Path::new(&begun.path), begun.is_emulated) {
            Ok(target) => Ok(Self {
                client,
                path,
                begun,
                target,
            }),
            Err(failure) => {
                end(&client, &path).await;
                Err(failure)
            }
        }
    }

    pub(super) fn facts(&self) -> Facts {
        let begun = &self.begun;
        let unit = SectorCount(begun.unit_sectors);
        let physical = self.target.physical_of_device();
        let physical = physical
            .unwrap_or(SectorCount(begun.physical_sectors))
            .max(unit);
        let whole = begun.request_sectors_max / physical.get() * physical.get();
        let ranges = begun.writable.iter();
        Facts {
            name: self.target.model(),
            capacity: SectorCount(begun.sectors / unit.get() * unit.get()),
            unit,
            physical,
            request_max: SectorCount(whole.max(unit.get())),
            writable: ranges
                .map(|range| Sector(range.start_sector)..Sector(range.start_sector + range.sectors))
                .collect(),
            is_file: !self.target.is_device() && !self.target.is_emulated(),
            is_device: self.target.is_device(),
            turnaround: TURNAROUND,
        }
    }

    /// Ends it at the server.
    pub(super) async fn end(&self) {
        end(&self.client, &self.path).await;
    }

    /// Starts the task that makes the calls.
    pub(super) fn start(self: Box<Self>, begun: Begun) -> Running {
        let (sender, news) = unbounded_channel();
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(async move {
            let end = self.measure(begun, &sender, stopped).await;
            self.end().await;
            // Without a listener there is nobody to tell.
            let _ = sender.send(News::Over(end));
        });
        Running::elsewhere(news, move || {
            stop.send_replace(true);
        })
    }

    async fn measure(
        &self,
        begun: Begun,
        news: &UnboundedSender<News>,
        mut stopped: watch::Receiver<bool>,
    ) -> End {
        let Begun {
            mut measurement,
            mut step,
            at,
            last,
        } = begun;
        let base = self
            .begun
            .now_ns
            .cast_signed()
            .wrapping_sub(at.get().cast_signed());
        if let Some(last) = last
            && let Err(failure) = self.serve(&[last], base).await
        {
            return End::Lost(failure.what);
        }
        while let Step::Serve { requests, .. } = step {
            let served = tokio::select! {
                served = self.serve(&requests, base) => served,
                // A dropped sender means the same.
                _ = stopped.wait_for(|is_wanted| *is_wanted) => return End::Stopped,
            };
            let samples = match served {
                Ok(samples) => samples,
                Err(failure) => return End::Lost(failure.what),
            };
            step = measurement.step(&samples);
            let served = News::Served {
                requests,
                samples,
                progress: measurement.progress(),
            };
            if news.send(served).is_err() {
                return End::Stopped;
            }
        }
        let result = measurement.result();
        End::Finished(Box::new(
            result.expect("a measurement that is finished has a result"),
        ))
    }

    /// Has the server serve requests, one at a time.
    async fn serve(&self, requests: &[Request], base: i64) -> Result<Vec<Sample>, Failure> {
        let mut samples = Vec::with_capacity(requests.len());
        let path = format!("{}/requests", self.path);
        for part in requests.chunks(REQUESTS_PER_CALL) {
            let asked = |request: &Request| MeasurementRequest {
                op: match request.op {
                    Op::Read => FaultOp::Read,
                    Op::Write => FaultOp::Write,
                },
                start_sector: request.start.get(),
                sectors: request.count.get(),
                not_before_ns: request.not_before.get().saturating_add_signed(base),
            };
            let call = MeasurementRequests {
                token: self.begun.token.clone(),
                requests: part.iter().map(asked).collect(),
            };
            let answer: MeasurementSamples = self.client.post(&path, &call).await?;
            if answer.samples.len() != part.len() {
                let what = format!(
                    "{} samples of {} requests",
                    answer.samples.len(),
                    part.len()
                );
                return Err(Failure::bug(what));
            }
            let since_base = |nanos: u64| {
                let time = Time(nanos.saturating_add_signed(base.saturating_neg()));
                time.min(Sample::TIME_MAX)
            };
            samples.extend(answer.samples.iter().map(|sample| Sample {
                issued: since_base(sample.issued_ns),
                completed: since_base(sample.completed_ns.max(sample.issued_ns)),
                alone: sample.alone,
                error: sample.errno,
            }));
        }
        Ok(samples)
    }
}

/// Ends a measurement. One that has ended already, or a server that has, is no failure.
async fn end(client: &ApiClient, path: &str) {
    let ended: Result<MeasurementEnd, Failure> = client.delete(path).await;
    if let Err(failure) = ended {
        tracing::debug!("the measurement was not ended: {}", failure.what);
    }
}
