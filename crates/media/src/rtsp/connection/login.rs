//! Whether a request is by somebody who may ask for that.

use engine::clock;
use rtsp_types::headers::{AUTHORIZATION, REQUIRE, UNSUPPORTED, WWW_AUTHENTICATE};
use rtsp_types::{Method, StatusCode, Version};

use super::answer::{Answer, answer};
use super::{Asked, Connection, Ended};
use crate::rtsp::access::{Refused, Right};
use crate::rtsp::poll::Wait;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Stop;

impl Connection<'_> {
    /// What a request is answered that is not in the version that is spoken here, asks for more than there is, or is not by
    /// somebody who is known where that is asked for.
    ///
    /// # Errors
    /// When the connection has failed too often.
    pub(super) fn admit(&mut self, request: &Asked) -> Result<Option<Answer>, Ended> {
        if request.version() != Version::V1_0 {
            let said = answer(Some(request), StatusCode::RTSPVersionNotSupported);
            return Ok(Some(said.reason("RTSP/1.0 is what is spoken here")));
        }
        // Nobody relies on what there is not (RFC 2326, section 12.32).
        if let Some(wanted) = request.header(&REQUIRE) {
            let said = answer(Some(request), StatusCode::OptionNotSupported);
            let why = format!("{:?} is not known here", wanted.as_str());
            return Ok(Some(
                said.header(UNSUPPORTED, wanted.as_str().to_owned())
                    .reason(why),
            ));
        }
        let Some(access) = &self.shared.access else {
            return Ok(None);
        };
        // What it says everybody may know, and clients ask for it before anything.
        if *request.method() == Method::Options {
            return Ok(None);
        }
        let said = request.header(&AUTHORIZATION).map(|value| value.as_str());
        let (method, uri, now) = (request.method().into(), request.request_uri(), clock::now());
        let was_known = self.guard.user().is_some();
        let Err(refused) = self.guard.check(access, said, method, uri, now) else {
            if !was_known {
                tracing::info!(peer = %self.peer, user = self.guard.user(), "somebody has logged in");
            }
            return Ok(None);
        };
        let peer = self.peer;
        let why = match &refused {
            Refused::Syntax(_) => {
                format!("Authorization is not understood: {}", refused.told(peer))
            }
            refused => refused.told(peer).to_owned(),
        };
        if !matches!(refused, Refused::Nobody | Refused::Stale) {
            self.wait_as_a_penalty()?;
        }
        if self.guard.is_shut() {
            return Err(Ended::Guessing);
        }
        let challenge = self.guard.challenge(&refused, now)?;
        let said = answer(Some(request), StatusCode::Unauthorized);
        Ok(Some(said.header(WWW_AUTHENTICATE, challenge).reason(why)))
    }

    /// Lets who has failed wait. Who has a session has had the right password, and its packets do not wait.
    fn wait_as_a_penalty(&self) -> Result<(), Ended> {
        let Some(access) = &self.shared.access else {
            return Ok(());
        };
        let now = clock::now();
        let until = now.saturating_add(access.failed(self.peer.ip(), now));
        while self.guard.user().is_none() && clock::now() < until {
            let mut wait = Wait::new();
            wait.readable(std::os::fd::AsFd::as_fd(&self.shared.stop), Stop);
            if !wait.sleep(true, Some(until))?.is_empty() {
                return Err(Ended::Stopped);
            }
        }
        Ok(())
    }

    /// Whether who has logged in may do that; what it is answered if not.
    pub(super) fn may(&self, request: &Asked, right: Right, volume: &str) -> Result<(), Answer> {
        let (Some(access), Some(user)) = (&self.shared.access, self.guard.user()) else {
            return Ok(());
        };
        if access.allows(user, right, volume) {
            return Ok(());
        }
        let what = match right {
            Right::Play => "play",
            Right::Record => "record in",
        };
        tracing::info!(peer = %self.peer, user, volume, what, "somebody may not do that");
        let why = format!("user {user:?} may not {what} volume {volume:?}");
        let said = answer(Some(request), StatusCode::Forbidden).reason(why);
        Err(said.logged())
    }
}
