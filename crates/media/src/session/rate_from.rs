//! Where a rate comes from that is to be reserved: whoever is refused it is told, and what to change.

use engine::stream::Refusal;
use sched::units::BytesPerSecond;

/// Where one comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RateFrom {
    /// The source was added with it.
    SourceOption,
    /// A camera's description says it.
    CameraSays,
    /// A camera's description says nothing.
    CameraDefault,
    /// What is announced says it.
    Announced,
    /// What is announced says nothing.
    AnnouncedDefault,
    /// The recording that is to be played.
    Measured,
    /// The recording that is to be played is short: it was reserved to record it.
    Recorded,
    /// Playing has to begin soon.
    Soon,
}

impl RateFrom {
    /// Where, and what reserves another.
    const fn told(self) -> &'static str {
        match self {
            Self::SourceOption => {
                "what the source was added with (`--rate`): add it with a lower one"
            }
            Self::CameraSays => {
                "what the camera's description says that it needs (b=AS or b=TIAS), and a tenth; some say far more than they send: `--rate` of the source reserves less"
            }
            Self::CameraDefault => {
                "`rate` under [rtsp], as the camera's description does not say what it needs (b=AS or b=TIAS): `--rate` of the source reserves less"
            }
            Self::Announced => {
                "what the announced description says that it needs (b=AS or b=TIAS), and a tenth: announce less, if less is sent"
            }
            Self::AnnouncedDefault => {
                "`rate` under [rtsp], as the announced description does not say what it needs: announce it (b=AS of each track), or set a lower `rate`"
            }
            Self::Measured => "what the recording takes over its time, and a tenth",
            Self::Recorded => {
                "what was reserved to record it, as it is too short to be measured: record it with less (b=AS or b=TIAS of its description, or `--rate` of its source)"
            }
            Self::Soon => "a block in 4 s, as playing begins with one",
        }
    }

    /// Why such a rate is refused.
    pub(crate) fn refused(self, rate: BytesPerSecond, refusal: &Refusal) -> String {
        match refusal {
            Refusal::Load { .. } | Refusal::Invalid { .. } => {
                // Rounded up: what is asked for is not less than it seems.
                let megabytes = rate.0.div_ceil(1_000) as f64 / 1e3;
                format!("{refusal}; the {megabytes:.3} MB/s are {}", self.told())
            }
            // No other rate would do.
            Refusal::Share { .. } | Refusal::Memory { .. } | Refusal::Pool(_) => {
                refusal.to_string()
            }
        }
    }
}
