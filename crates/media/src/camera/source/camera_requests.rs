//! Requests that a camera sends in the connection. Either side may send requests (RFC 2326, section 10), and some
//! cameras hang up if theirs are not answered.

use rtsp_types::headers::{ALLOW, CSEQ, LOCATION, PUBLIC, SESSION};
use rtsp_types::{Method, Request, Response, StatusCode, Version};

use super::SourceError;

/// The methods that are understood.
const METHODS: &str = "OPTIONS, GET_PARAMETER, SET_PARAMETER, REDIRECT, TEARDOWN";

/// The answer to a request, and the error that ends the session after it, if any.
pub(super) fn answer(request: &Request<Vec<u8>>) -> (Response<Vec<u8>>, Option<SourceError>) {
    let (mut status, mut end) = (StatusCode::Ok, None);
    match request.method() {
        Method::Options => {}
        // Without a body these are keep-alives.
        Method::GetParameter | Method::SetParameter if request.body().is_empty() => {}
        Method::GetParameter | Method::SetParameter => status = StatusCode::ParameterNotUnderstood,
        Method::Teardown => end = Some(SourceError::TornDown),
        Method::Redirect => {
            let to = request.header(&LOCATION).map(|to| to.as_str().trim());
            let to = to.filter(|to| !to.is_empty()).map(str::to_owned);
            end = Some(to.map_or(SourceError::TornDown, SourceError::Redirect));
        }
        _ => status = StatusCode::NotImplemented,
    }
    let mut answer = Response::builder(Version::V1_0, status);
    if status == StatusCode::NotImplemented {
        answer = answer.header(ALLOW, METHODS);
    }
    if *request.method() == Method::Options {
        answer = answer.header(PUBLIC, METHODS);
    }
    for name in [CSEQ, SESSION] {
        if let Some(value) = request.header(&name) {
            answer = answer.header(name, value.as_str());
        }
    }
    (answer.build(Vec::new()), end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtsp::input::{Input, Next};

    #[test]
    fn request_of_a_camera_is_answered() {
        let check = |head: &str, body: &str| {
            let mut input = Input::default();
            let length = body.len();
            let text = format!(
                "{head} RTSP/1.0\r\ncseq: 77\r\nsession: 12\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            input.add(text.as_bytes());
            let Next::Request(request) = input.next_item().unwrap() else {
                panic!("{head} is no request");
            };
            let (answer, end) = answer(&request);
            assert_eq!(answer.header(&CSEQ).unwrap(), "77");
            assert_eq!(answer.header(&SESSION).unwrap(), "12");
            let is_listed = answer.header(&PUBLIC).is_some();
            assert_eq!(is_listed, head.starts_with("OPTIONS"), "{head}");
            (u16::from(answer.status()), end.is_some())
        };
        for (head, body, status, ends) in [
            ("OPTIONS *", "", 200, false),
            ("OPTIONS rtsp://h/a", "", 200, false),
            ("GET_PARAMETER *", "", 200, false),
            ("GET_PARAMETER rtsp://h/a", "jitter\r\n", 451, false),
            ("SET_PARAMETER rtsp://h/a", "", 200, false),
            ("SET_PARAMETER rtsp://h/a", "a: b\r\n", 451, false),
            ("ANNOUNCE rtsp://h/a", "v=0\r\n", 501, false),
            ("PLAY rtsp://h/a", "", 501, false),
            ("PLAY_NOTIFY rtsp://h/a", "", 501, false),
            ("TEARDOWN rtsp://h/a", "", 200, true),
            ("REDIRECT rtsp://h/a", "", 200, true),
        ] {
            assert_eq!(check(head, body), (status, ends), "{head}");
        }
    }

    #[test]
    fn redirect_without_a_location_is_a_teardown() {
        let end = |location: Option<&str>| {
            let mut request = Request::builder(Method::Redirect, Version::V1_0);
            if let Some(to) = location {
                request = request.header(LOCATION, to);
            }
            answer(&request.build(Vec::new())).1
        };
        assert!(
            matches!(end(Some(" rtsp://h/b ")), Some(SourceError::Redirect(to)) if to == "rtsp://h/b")
        );
        assert!(matches!(end(Some(" ")), Some(SourceError::TornDown)));
        assert!(matches!(end(None), Some(SourceError::TornDown)));
    }
}
