//! Cameras that the server pulls from.

use media::camera::source::{LowerTransport, SourceUse as Used, State as Does};
use media::camera::sources::Source;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A source, its state and its counters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SourceView {
    /// Its name.
    pub name: String,
    /// The URL of its camera, without user and password.
    pub url: String,
    /// The user name that the camera gets.
    pub user: Option<String>,
    /// The volume for its recordings; of a source that is not recorded, the name of its live stream.
    pub volume: String,
    /// The use of its packets.
    #[serde(default)]
    pub used: SourceUse,
    /// The requested transport of packets.
    pub transport: SourceTransport,
    /// The rate to reserve; if absent, the measured rate, or the rate that the camera announces.
    pub rate_bytes_per_second: Option<u64>,
    /// The rate that was measured when it was added as a camera, and a tenth. The reservation begins with it.
    #[serde(default)]
    pub measured_bytes_per_second: Option<u64>,
    /// Its state.
    pub state: SourceState,
    /// Why it does not record, or why it records over another transport than the requested one.
    pub reason: Option<String>,
    /// The number of its present or last recording.
    pub recording: Option<u64>,
    /// Packets in that recording.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Packets that were lost, judged by gaps in the sequence numbers.
    pub lost: u64,
    /// Number of times that the recording continued after the connection to the camera was lost.
    pub gaps: u64,
    /// The duration of these gaps. A gap that has not ended is not counted.
    pub gap_ns: u64,
}

/// The state of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SourceState {
    /// It is connecting to its camera.
    Connecting,
    /// It receives and records packets.
    Recording,
    /// It has failed and waits for the next attempt.
    Waiting,
    /// The disks cannot carry it; it waits for the next attempt.
    Refused,
    /// Nobody watches it: its camera is pulled on demand.
    Idle,
    /// It has ended.
    Ended,
}

/// The use of a camera's packets.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum SourceUse {
    /// They are recorded, and can be watched live.
    #[default]
    Record,
    /// They can be watched live, and are not recorded.
    LiveOnly,
    /// As `live-only`; the camera is pulled only while it is watched.
    OnDemand,
}

/// The transport of packets from a camera.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum SourceTransport {
    /// Interleaved in the RTSP connection.
    #[default]
    Tcp,
    /// Over UDP.
    Udp,
}

/// A source to add.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddSource {
    /// Its name; the same rules as for a volume's name apply.
    pub name: String,
    /// Its URL: `rtsp://USER:PASSWORD@HOST/PATH`, or `rtsps` for TLS. The password is never shown again.
    pub url: String,
    /// The volume for its recordings. It must be absent if the camera is not recorded: its live stream has the
    /// source's name then.
    #[serde(default)]
    pub volume: Option<String>,
    /// The use of its packets.
    #[serde(default)]
    pub used: SourceUse,
    /// The transport of packets. If the camera does not support it, the other transport is used.
    #[serde(default)]
    pub transport: SourceTransport,
    /// The rate to reserve; if absent, the rate that the camera announces.
    #[serde(default)]
    pub rate_bytes_per_second: Option<u64>,
    /// With `rtsps`: trusted certificates, as PEM. The camera's certificate must be one of them or be signed
    /// by one; without them, by an authority that the server's host trusts.
    #[serde(default)]
    pub certificates: Option<String>,
}

impl From<Source> for SourceView {
    fn from(Source { spec, status }: Source) -> Self {
        Self {
            url: spec.address.shown().to_owned(),
            user: spec.address.credentials().map(|of| of.user.clone()),
            name: spec.name,
            volume: spec.volume,
            used: match spec.used {
                Used::Record => SourceUse::Record,
                Used::LiveOnly => SourceUse::LiveOnly,
                Used::OnDemand => SourceUse::OnDemand,
            },
            transport: match spec.lower {
                LowerTransport::Tcp => SourceTransport::Tcp,
                LowerTransport::Udp => SourceTransport::Udp,
            },
            rate_bytes_per_second: spec.rate.map(|rate| rate.0),
            measured_bytes_per_second: spec.measured.map(|rate| rate.0),
            state: match status.state {
                Does::Connecting => SourceState::Connecting,
                Does::Recording => SourceState::Recording,
                Does::Waiting => SourceState::Waiting,
                Does::Refused => SourceState::Refused,
                Does::Idle => SourceState::Idle,
                Does::Ended => SourceState::Ended,
            },
            reason: status.reason,
            recording: status.recording,
            packets: status.tally.packets,
            bytes: status.tally.bytes,
            lost: status.tally.lost,
            gaps: status.gaps,
            gap_ns: status.gap_ns,
        }
    }
}
