//! How a session with a camera is kept alive: by GET_PARAMETER or by OPTIONS. One that fails is followed by the other.

use rtsp_types::Method;

/// How one session is kept alive.
#[derive(Debug)]
pub(super) struct KeepAlive {
    by: Method,
    /// One has failed, and neither has been answered well since.
    has_failed: bool,
    /// How often it has been asked.
    times: u64,
}

impl KeepAlive {
    /// Begins with what a camera says that it knows: GET_PARAMETER if that is in its `Public`; or with the other one
    /// (`otherwise`), if the first has not kept a session.
    pub(super) fn new(public: &str, otherwise: bool) -> Self {
        let mut methods = public.split(',').map(str::trim);
        let is_listed = methods.any(|of| of.eq_ignore_ascii_case("GET_PARAMETER"));
        Self {
            by: match is_listed != otherwise {
                true => Method::GetParameter,
                false => Method::Options,
            },
            has_failed: false,
            times: 0,
        }
    }

    /// What is asked for now.
    pub(super) fn next(&mut self) -> Method {
        self.times += 1;
        self.by.clone()
    }

    /// Whether a session has been kept alive at all.
    pub(super) fn is_tried(&self) -> bool {
        self.times > 0
    }

    /// It has been answered well.
    pub(super) fn works(&mut self) {
        self.has_failed = false;
    }

    /// It was refused, or not answered: the next one is the other; whether that is to be asked at once, as it has not failed as
    /// well.
    pub(super) fn fails(&mut self) -> bool {
        self.by = match self.by {
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
    fn a_keep_alive_that_fails_is_followed_by_the_other_at_once_and_then_in_turn() {
        let mut alive = KeepAlive::new("OPTIONS, DESCRIBE,get_parameter", false);
        assert!(!alive.is_tried());
        assert_eq!(alive.next(), Method::GetParameter);
        assert!(alive.fails());
        assert_eq!(alive.next(), Method::Options);
        assert!(!alive.fails());
        assert_eq!(alive.next(), Method::GetParameter);
        alive.works();
        assert_eq!(alive.next(), Method::GetParameter);
        assert!(alive.fails() && alive.is_tried());
    }

    #[test]
    fn what_is_listed_is_first_unless_it_has_not_done() {
        for (public, otherwise, first) in [
            ("", false, Method::Options),
            ("", true, Method::GetParameter),
            ("OPTIONS, GET_PARAMETER", false, Method::GetParameter),
            ("OPTIONS, GET_PARAMETER", true, Method::Options),
            ("OPTIONS, SET_PARAMETER", false, Method::Options),
        ] {
            let mut alive = KeepAlive::new(public, otherwise);
            assert_eq!(alive.next(), first, "{public:?} {otherwise}");
        }
    }
}
