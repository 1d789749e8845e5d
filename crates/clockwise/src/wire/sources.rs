//! Cameras that are pulled from.

use media::camera::source::{Lower, State as Does};
use media::camera::sources::Source;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A source, what it does and has done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SourceView {
    /// Its name.
    pub name: String,
    /// Where its camera is, without user and password.
    pub url: String,
    /// Who asks the camera.
    pub user: Option<String>,
    /// The volume that it is recorded in.
    pub volume: String,
    /// How packets are to come.
    pub transport: SourceTransport,
    /// What is reserved; what the camera says it needs when absent.
    pub rate_bytes_per_second: Option<u64>,
    /// What it does.
    pub state: SourceState,
    /// Why it does not record, if it does not, or why by another transport than was asked for.
    pub reason: Option<String>,
    /// The recording that it makes, or made last.
    pub recording: Option<u64>,
    /// Packets in that recording.
    pub packets: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Packets that did not come, by the numbers of those that did.
    pub lost: u64,
    /// How often that recording went on after its camera was lost.
    pub gaps: u64,
    /// How long nothing came because of that; a gap that goes on is not counted yet.
    pub gap_ns: u64,
}

/// What a source does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SourceState {
    /// It asks its camera.
    Connecting,
    /// Packets come and are recorded.
    Recording,
    /// Something failed, and is tried again.
    Waiting,
    /// The disks cannot carry it; that is tried again as well.
    Refused,
    /// It has ended.
    Ended,
}

/// How packets come from a camera.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum SourceTransport {
    /// In the connection.
    #[default]
    Tcp,
    /// By UDP.
    Udp,
}

/// A camera that is to be pulled from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddSource {
    /// Its name, of the form of a volume's.
    pub name: String,
    /// Where it is: `rtsp://USER:PASSWORD@HOST/PATH`, or `rtsps` for TLS. The password is never shown again.
    pub url: String,
    /// The volume that it is recorded in.
    pub volume: String,
    /// How packets are to come; where the camera has no such transport, the other one is taken.
    #[serde(default)]
    pub transport: SourceTransport,
    /// What is reserved; what the camera says it needs when absent.
    #[serde(default)]
    pub rate_bytes_per_second: Option<u64>,
    /// With `rtsps`: certificates, as PEM. The camera's is one of them, or signed by one; without them by an authority
    /// that the server's host knows.
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
            transport: match spec.lower {
                Lower::Tcp => SourceTransport::Tcp,
                Lower::Udp => SourceTransport::Udp,
            },
            rate_bytes_per_second: spec.rate.map(|rate| rate.0),
            state: match status.state {
                Does::Connecting => SourceState::Connecting,
                Does::Recording => SourceState::Recording,
                Does::Waiting => SourceState::Waiting,
                Does::Refused => SourceState::Refused,
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
