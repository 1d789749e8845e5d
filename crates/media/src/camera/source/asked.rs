//! What a camera asks for in the connection, and what it is answered: either side may ask (RFC 2326, section 10).

use rtsp_types::headers::{ALLOW, CSEQ, LOCATION, PUBLIC, SESSION};
use rtsp_types::{Method, Request, Response, StatusCode, Version};

use super::SourceError;

/// What it may ask for.
const METHODS: &str = "OPTIONS, GET_PARAMETER, SET_PARAMETER, REDIRECT, TEARDOWN";

/// The answer to a request, and why the session ends with it, if it does.
pub(super) fn answered(request: &Request<Vec<u8>>) -> (Response<Vec<u8>>, Option<SourceError>) {
    let (mut status, mut ends) = (StatusCode::Ok, None);
    match request.method() {
        Method::Options => {}
        // Without a body it asks whether somebody is there.
        Method::GetParameter | Method::SetParameter if request.body().is_empty() => {}
        Method::GetParameter | Method::SetParameter => status = StatusCode::ParameterNotUnderstood,
        Method::Teardown => ends = Some(SourceError::TornDown),
        Method::Redirect => {
            let to = request.header(&LOCATION).map(|to| to.as_str().trim());
            let to = to.filter(|to| !to.is_empty()).map(str::to_owned);
            ends = Some(to.map_or(SourceError::TornDown, SourceError::SentTo));
        }
        _ => status = StatusCode::NotImplemented,
    }
    let mut said = Response::builder(Version::V1_0, status);
    if status == StatusCode::NotImplemented {
        said = said.header(ALLOW, METHODS);
    }
    if *request.method() == Method::Options {
        said = said.header(PUBLIC, METHODS);
    }
    for name in [CSEQ, SESSION] {
        if let Some(value) = request.header(&name) {
            said = said.header(name, value.as_str());
        }
    }
    (said.build(Vec::new()), ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtsp::input::{Input, Next};

    #[test]
    fn what_a_camera_asks_for_is_answered() {
        let answer = |head: &str, body: &str| {
            let mut input = Input::default();
            let length = body.len();
            let text = format!(
                "{head} RTSP/1.0\r\ncseq: 77\r\nsession: 12\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            input.add(text.as_bytes());
            let Next::Request(request) = input.next_item().unwrap() else {
                panic!("{head} is no request");
            };
            let (said, ends) = answered(&request);
            assert_eq!(said.header(&CSEQ).unwrap(), "77");
            assert_eq!(said.header(&SESSION).unwrap(), "12");
            let is_listed = said.header(&PUBLIC).is_some();
            assert_eq!(is_listed, head.starts_with("OPTIONS"), "{head}");
            (u16::from(said.status()), ends.is_some())
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
            assert_eq!(answer(head, body), (status, ends), "{head}");
        }
    }

    #[test]
    fn a_redirection_names_where_to_unless_it_does_not() {
        let sent = |location: Option<&str>| {
            let mut request = Request::builder(Method::Redirect, Version::V1_0);
            if let Some(to) = location {
                request = request.header(LOCATION, to);
            }
            answered(&request.build(Vec::new())).1
        };
        assert!(
            matches!(sent(Some(" rtsp://h/b ")), Some(SourceError::SentTo(to)) if to == "rtsp://h/b")
        );
        assert!(matches!(sent(Some(" ")), Some(SourceError::TornDown)));
        assert!(matches!(sent(None), Some(SourceError::TornDown)));
    }
}
