//! The requests that keep a session alive: GET_PARAMETER or OPTIONS. When one fails, the other is tried.

use rtsp_types::Method;

/// The method that a session begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum FirstMethod {
    /// GET_PARAMETER if `Public` lists it, otherwise OPTIONS.
    #[default]
    Listed,
    /// The method that [`FirstMethod::Listed`] would not choose.
    Other,
}

/// The keep-alive of one session.
#[derive(Debug)]
pub(super) struct KeepAlive {
    method: Method,
    /// A request has failed since the last success.
    has_failed: bool,
    is_tried: bool,
}

impl KeepAlive {
    /// `public`: the value of the camera's `Public` header.
    pub(super) fn new(public: &str, first: FirstMethod) -> Self {
        let mut methods = public.split(',').map(str::trim);
        let is_listed = methods.any(|method| method.eq_ignore_ascii_case("GET_PARAMETER"));
        Self {
            method: match is_listed == (first == FirstMethod::Listed) {
                true => Method::GetParameter,
                false => Method::Options,
            },
            has_failed: false,
            is_tried: false,
        }
    }

    /// The method to send.
    pub(super) fn next(&mut self) -> Method {
        self.is_tried = true;
        self.method.clone()
    }

    /// True if a keep-alive was sent in this session.
    pub(super) fn is_tried(&self) -> bool {
        self.is_tried
    }

    pub(super) fn succeeded(&mut self) {
        self.has_failed = false;
    }

    /// The camera refused or did not answer: switches to the other method. Returns true if it should be sent at once,
    /// which is so unless both have failed in turn.
    pub(super) fn failed(&mut self) -> bool {
        self.method = match self.method {
            Method::GetParameter => Method::Options,
            _ => Method::GetParameter,
        };
        !std::mem::replace(&mut self.has_failed, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_keep_alive_is_followed_by_the_other_method_at_once_and_then_in_turn() {
        let mut alive = KeepAlive::new("OPTIONS, DESCRIBE,get_parameter", FirstMethod::Listed);
        assert!(!alive.is_tried());
        assert_eq!(alive.next(), Method::GetParameter);
        assert!(alive.failed());
        assert_eq!(alive.next(), Method::Options);
        assert!(!alive.failed());
        assert_eq!(alive.next(), Method::GetParameter);
        alive.succeeded();
        assert_eq!(alive.next(), Method::GetParameter);
        assert!(alive.failed() && alive.is_tried());
    }

    #[test]
    fn listed_method_is_first_unless_the_other_is_asked_for() {
        use FirstMethod::{Listed, Other};
        for (public, first, method) in [
            ("", Listed, Method::Options),
            ("", Other, Method::GetParameter),
            ("OPTIONS, GET_PARAMETER", Listed, Method::GetParameter),
            ("OPTIONS, GET_PARAMETER", Other, Method::Options),
            ("OPTIONS, SET_PARAMETER", Listed, Method::Options),
        ] {
            let mut alive = KeepAlive::new(public, first);
            assert_eq!(alive.next(), method, "{public:?} {first:?}");
        }
    }
}
