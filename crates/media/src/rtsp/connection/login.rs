//! Authentication and rights of requests.

use engine::clock;
use rtsp_types::headers::{AUTHORIZATION, REQUIRE, UNSUPPORTED, WWW_AUTHENTICATE};
use rtsp_types::{Method, StatusCode, Version};

use super::answer::{Answer, answer};
use super::{ClientRequest, Connection, ConnectionError, Role};
use crate::rtsp::access::{AccessRight, AuthError};
use crate::rtsp::poll::Wait;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Stop;

impl Connection<'_> {
    /// The refusal of a request that has another version, requires an unknown feature, or is not authenticated
    /// where that is needed; `None` if it is admitted.
    ///
    /// # Errors
    /// After too many failed logins.
    pub(super) fn admit(
        &mut self,
        request: &ClientRequest,
    ) -> Result<Option<Answer>, ConnectionError> {
        if request.version() != Version::V1_0 {
            let said = answer(Some(request), StatusCode::RTSPVersionNotSupported);
            return Ok(Some(said.reason("only RTSP/1.0 is supported")));
        }
        // RFC 2326, section 12.32.
        if let Some(wanted) = request.header(&REQUIRE) {
            let said = answer(Some(request), StatusCode::OptionNotSupported);
            let why = format!("{:?} is not supported", wanted.as_str());
            return Ok(Some(
                said.header(UNSUPPORTED, wanted.as_str().to_owned())
                    .reason(why),
            ));
        }
        let access = self.shared.access.as_ref();
        let Some(access) = access.filter(|_| !self.is_admitted) else {
            return Ok(None);
        };
        // Clients send OPTIONS before they log in; its reply is public.
        if *request.method() == Method::Options {
            return Ok(None);
        }
        let said = request.header(&AUTHORIZATION).map(|value| value.as_str());
        let (method, uri, now) = (request.method().into(), request.request_uri(), clock::now());
        let was_logged_in = self.guard.user().is_some();
        let Err(refused) = self.guard.check(access, said, method, uri, now) else {
            if !was_logged_in {
                tracing::info!(peer = %self.peer, user = self.guard.user(), "a user has logged in");
            }
            return Ok(None);
        };
        let peer = self.peer;
        let why = match &refused {
            AuthError::Syntax(_) => {
                format!("invalid Authorization header: {}", refused.log(peer))
            }
            refused => refused.log(peer).to_owned(),
        };
        if !matches!(refused, AuthError::Nobody | AuthError::Stale) {
            self.delay_refusal()?;
        }
        if self.guard.is_shut() {
            return Err(ConnectionError::Guessing);
        }
        let challenge = self.guard.challenge(&refused, now)?;
        let said = answer(Some(request), StatusCode::Unauthorized);
        Ok(Some(said.header(WWW_AUTHENTICATE, challenge).reason(why)))
    }

    /// Delays the reply after a failed login. A connection that has logged in is not delayed: its packets must not
    /// wait.
    fn delay_refusal(&self) -> Result<(), ConnectionError> {
        let Some(access) = &self.shared.access else {
            return Ok(());
        };
        let now = clock::now();
        let until = now.saturating_add(access.failed(self.peer.ip(), now));
        while self.guard.user().is_none() && clock::now() < until {
            let mut wait = Wait::new();
            wait.readable(std::os::fd::AsFd::as_fd(&self.shared.stop), Stop);
            if !wait.sleep(true, Some(until))?.is_empty() {
                return Err(ConnectionError::Stopped);
            }
        }
        Ok(())
    }

    /// Checks that the user has a right in a volume.
    ///
    /// # Errors
    /// The refusal, if not.
    pub(super) fn may(
        &self,
        request: &ClientRequest,
        right: AccessRight,
        volume: &str,
    ) -> Result<(), Answer> {
        let (Some(access), Some(user)) = (&self.shared.access, self.guard.user()) else {
            return Ok(());
        };
        if access.allows(user, right, Some(volume)) {
            return Ok(());
        }
        let what = right.verb();
        tracing::info!(peer = %self.peer, user, volume, what, "a user lacks a right");
        let why = format!("user {user:?} may not {what} volume {volume:?}");
        let said = answer(Some(request), StatusCode::Forbidden).reason(why);
        Err(said.logged())
    }

    /// Checks that the user still has the rights with which the session was made.
    pub(super) fn may_begin(&self, request: &ClientRequest) -> Result<(), Answer> {
        match self.session.as_ref().map(|session| &session.role) {
            None => Ok(()),
            Some(Role::Publisher { destination, .. }) => {
                self.may(request, AccessRight::Record, destination.name())
            }
            Some(Role::Player { parts }) => parts.iter().try_for_each(|part| {
                self.may(
                    request,
                    AccessRight::Recordings,
                    part.archive.volume().name(),
                )
            }),
            // The session may be of either right.
            Some(Role::Viewer { streams }) => streams.iter().try_for_each(|stream| {
                let may = |right| self.may(request, right, stream.feed.name());
                may(AccessRight::Recordings).or_else(|_| may(AccessRight::Live))
            }),
        }
    }
}
