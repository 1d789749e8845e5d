//! Inspection of a camera: the same requests as for a recording, and packets that are counted and dropped.

use super::error::SourceError;
use super::login::LoginError;
use super::{LowerTransport, Worker};
use crate::camera::inspection::{InspectedTrack, Inspection, InspectionError, InspectionRemedy};
use crate::rtsp::input::InputError;

impl Worker {
    /// Receives from the camera for some seconds.
    ///
    /// # Errors
    /// It cannot be reached or refuses, or sends no packets or no video.
    pub(crate) fn inspect(&self) -> Result<Inspection, InspectionError> {
        let asked = self.spec.lower;
        let mut found = self.inspect_by(asked);
        let may_switch = matches!(
            found,
            Err(SourceError::TransportRefused { .. } | SourceError::TransportSilent { .. })
        );
        if may_switch && !self.spec.address.is_secure() {
            found = self.inspect_by(asked.other());
        }
        found.map_err(|error| InspectionError {
            what: error.to_string(),
            remedy: remedy(&error),
        })
    }

    fn inspect_by(&self, lower: LowerTransport) -> Result<Inspection, SourceError> {
        let (mut camera, description) = self.describe(None)?;
        if !description.sends_pictures() {
            let encodings = description.tracks().iter().map(|of| of.encoding.as_str());
            return Err(SourceError::NoVideo(
                encodings.collect::<Vec<_>>().join(", "),
            ));
        }
        let mut waiter = self.waiter(None);
        let lower = match camera.is_secure() {
            true => LowerTransport::Tcp,
            false => lower,
        };
        let transports = camera.set_up(&description, lower, &mut waiter);
        let transports = transports.map_err(|error| match error.may_be_of_transport() {
            true => SourceError::TransportRefused {
                by: lower,
                error: Box::new(error),
            },
            false => error,
        })?;
        camera.play(&description, &mut waiter)?;
        let received = camera.count_packets(&transports, lower, &mut waiter)?;
        let tracks = description.tracks().iter().zip(&transports).zip(received);
        let tracks = tracks.map(|((track, transport), received)| InspectedTrack {
            encoding: track.encoding.clone(),
            clock_rate: track.clock_rate,
            size: track.size,
            is_recorded: transport.is_some(),
            received,
        });
        Ok(Inspection {
            tracks: tracks.collect(),
            lower,
            stated: description.rate(),
        })
    }
}

/// What to do about an error.
fn remedy(error: &SourceError) -> InspectionRemedy {
    use InspectionRemedy::{Camera, Input};
    match error {
        SourceError::NoAddress(_) | SourceError::UnknownHost(..) => {
            Input("correct the host in the URL, or give the camera's address")
        }
        SourceError::Connect(..) => Camera(
            "check that the camera is on, that the server's host can reach it, and the port in the URL (usually 554)",
        ),
        SourceError::Login(LoginError::NoCredentials | LoginError::Refused(_)) => Input(
            "write rtsp://USER:PASSWORD@HOST/PATH with the camera's user and password, and %40 for an @ in the password; many cameras need a user for RTSP or ONVIF of their own",
        ),
        SourceError::Status(_, 401 | 403, _) => {
            Input("give a user of the camera that may see its video")
        }
        SourceError::Status(_, 400 | 404 | 451 | 454, _) | SourceError::Description(_) => {
            Input("correct the path of the URL: the camera's manual or its ONVIF profile has it")
        }
        SourceError::Input(InputError::Syntax | InputError::Tls) => Input(
            "correct the port of the URL: this one does not speak RTSP, or only over TLS (rtsps)",
        ),
        SourceError::NoVideo(_) => Input(
            "correct the path of the URL; `clockwise source add` records a camera without video",
        ),
        SourceError::OwnRecording(_) => Input("give the URL of a camera"),
        SourceError::Silent(_)
        | SourceError::TransportSilent { .. }
        | SourceError::TransportRefused { .. } => Camera(
            "check that a player shows this URL; a firewall may keep UDP away: --transport tcp",
        ),
        SourceError::Stopped => Camera("repeat the command when the server has started again"),
        _ => Camera("check that a player shows this URL, and try again"),
    }
}
