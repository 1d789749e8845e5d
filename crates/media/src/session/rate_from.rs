//! The source of a rate that is to be reserved. A refusal names it, and what to change for another rate.

use engine::stream::Refusal;
use sched::units::BytesPerSecond;

/// The source of a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RateFrom {
    /// The option of the source.
    SourceOption,
    /// The measurement when a camera was added.
    CameraMeasured,
    /// The description of a camera.
    CameraSays,
    /// The configuration, because the description of a camera has no rate.
    CameraDefault,
    /// The announced description.
    Announced,
    /// The configuration, because the announced description has no rate.
    AnnouncedDefault,
    /// The length and the size of the recording that is to be played.
    Measured,
    /// The reservation for recording it, because the recording that is to be played is too short to be measured.
    Recorded,
    /// The minimum for a player: playing has to begin soon.
    Soon,
}

impl RateFrom {
    /// True if nobody has stated the rate: the reservation follows the measured one.
    pub(crate) const fn is_guess(self) -> bool {
        matches!(
            self,
            Self::CameraMeasured | Self::CameraDefault | Self::AnnouncedDefault
        )
    }

    /// The source in words, and what to change.
    const fn explanation(self) -> &'static str {
        match self {
            Self::SourceOption => "from `--rate` of the source: add the source with a lower rate",
            Self::CameraMeasured => {
                "from the measurement when the camera was added: add it again if it sends less now"
            }
            Self::CameraSays => {
                "from the camera's description (b=AS or b=TIAS) plus a tenth; if the camera sends much less, reserve less with `--rate` of the source"
            }
            Self::CameraDefault => {
                "a guess, `rate` under [rtsp], because the camera's description has no rate (b=AS or b=TIAS): state one with `--rate` of the camera"
            }
            Self::Announced => {
                "from the announced description (b=AS or b=TIAS) plus a tenth: announce a lower rate if the packets need less"
            }
            Self::AnnouncedDefault => {
                "a guess, `rate` under [rtsp], because the announced description has no rate: announce one (b=AS of each track), or set a lower `rate`"
            }
            Self::Measured => "from the size and the duration of the recording, plus a tenth",
            Self::Recorded => {
                "from the reservation for recording it, because it is too short to be measured: record it with a lower rate (b=AS or b=TIAS of its description, or `--rate` of its source)"
            }
            Self::Soon => "from the minimum, a block in 4 s, because playing begins with a block",
        }
    }

    /// The message of a refusal of this rate.
    pub(crate) fn refused(self, rate: BytesPerSecond, refusal: &Refusal) -> String {
        match refusal {
            Refusal::Load { .. } | Refusal::Invalid { .. } => {
                // Rounded up: a rate is not shown lower than it is.
                let megabytes = rate.0.div_ceil(1_000) as f64 / 1e3;
                format!(
                    "{refusal}; the {megabytes:.3} MB/s are {}",
                    self.explanation()
                )
            }
            // Another rate would be refused as well.
            Refusal::Share { .. } | Refusal::Memory { .. } | Refusal::Pool(_) => {
                refusal.to_string()
            }
        }
    }
}
