//! Sizes that make no sense, by the control API: each gets a 4xx that says what, where and what to do,
//! and changes nothing.

mod common;

use common::{DISK_MIB, Site, call};
use serde_json::Value;

/// Sizes as they may stand in a body, and what the problem must say of each.
const SIZES: [(&str, &[&str]); 14] = [
    ("0", &["more than zero"]),
    ("-0", &["size_bytes"]),
    ("-1", &["size_bytes"]),
    ("-9223372036854775809", &["size_bytes"]),
    ("1.5", &["size_bytes"]),
    ("1e6", &["size_bytes"]),
    ("1e400", &["number out of range"]),
    ("NaN", &["expected value"]),
    ("\"1MiB\"", &["size_bytes"]),
    ("null", &["size_bytes"]),
    ("[1]", &["size_bytes"]),
    ("18446744073709551616", &["size_bytes"]),
    // The last ones that are numbers of bytes: more than whole sectors can count, more than the pool.
    ("18446744073709551615", &["16.00 EiB"]),
    ("4611686018427387904", &["4 EiB", "in the pool"]),
];

/// Checks that an answer is a problem that says all of `words`, and whose every sentence is there.
#[track_caller]
fn is_told(answer: &(u16, Value), words: &[&str]) {
    let (status, problem) = answer;
    assert!((400..500).contains(status), "{status} {problem}");
    assert_eq!(problem["status"], *status, "{problem}");
    let said = |part: &str| problem[part].as_str().unwrap_or_default().to_owned();
    assert!(
        said("help").len() > 10 && said("what").len() > 10,
        "{problem}"
    );
    let (place, what) = (said("where"), said("what"));
    // Where: a part of the request, or the thing that the sentence names.
    assert!(
        !place.is_empty() || what.contains("in the pool"),
        "{problem}"
    );
    for word in words {
        assert!(
            what.contains(word) || place.contains(word),
            "no {word:?} in {problem}"
        );
    }
}

#[test]
fn making_a_volume_of_a_size_that_is_none() {
    let (site, server) = Site::serving(1);
    for (size, words) in SIZES {
        let body = format!("{{\"name\":\"v\",\"size_bytes\":{size}}}");
        is_told(&call(&site, "POST", "/v1/volumes", &body), words);
    }
    for (body, word) in [
        ("{\"name\":\"v\"}", "missing field `size_bytes`"),
        (
            "{\"name\":\"v\",\"size_bytes\":1,\"size_bytes\":2}",
            "duplicate field `size_bytes`",
        ),
        ("{\"name\":\"v\",\"size\":1}", "unknown field `size`"),
        ("\u{0}", "expected value"),
    ] {
        is_told(&call(&site, "POST", "/v1/volumes", body), &[word]);
    }
    assert_eq!(
        call(&site, "GET", "/v1/volumes", ""),
        (200, Value::Array(Vec::new()))
    );
    assert_eq!(server.terminate().0, Some(0));
    site.run(&["pool", "check"]).done();
}

#[test]
fn resizing_a_volume_to_a_size_that_is_none() {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "4MiB"])
        .done();
    let before = call(&site, "GET", "/v1/volumes/v", "");
    let resize = |body: &str| call(&site, "PATCH", "/v1/volumes/v", body);
    for (size, words) in SIZES {
        for direction in ["", ",\"direction\":\"grow\"", ",\"direction\":\"shrink\""] {
            let answer = resize(&format!("{{\"size_bytes\":{size}{direction}}}"));
            // A size on the other side of the present one is wrong in another way.
            let is_wrong_way = answer.1["what"]
                .as_str()
                .is_some_and(|what| what.contains("would not make it"));
            is_told(&answer, if is_wrong_way { &[] } else { words });
        }
    }
    is_told(&resize("{\"size_bytes\":4194304}"), &["4 MiB", "larger"]);
    is_told(
        &resize("{\"size_bytes\":1048576,\"direction\":\"grow\"}"),
        &["1 MiB", "larger"],
    );
    is_told(
        &resize("{\"size_bytes\":8388608,\"direction\":\"shrink\"}"),
        &["8 MiB", "smaller"],
    );
    is_told(
        &resize("{\"size_bytes\":8388608,\"direction\":\"up\"}"),
        &["unknown variant `up`"],
    );
    let whole = format!("{{\"size_bytes\":{}}}", DISK_MIB << 20);
    is_told(
        &resize(&whole),
        &["64 extents (64 MiB) are needed", "in the pool"],
    );
    assert_eq!(call(&site, "GET", "/v1/volumes/v", ""), before);
    // Streams' numbers are sizes as well.
    for (size, _) in SIZES {
        let body = format!(
            "{{\"volume\":\"v\",\"op\":\"play\",\"rate_bytes_per_second\":1000,\"block_bytes\":{size}}}"
        );
        // `null` is the same as nothing: the pool proposes one.
        if size != "null" {
            is_told(&call(&site, "POST", "/v1/streams", &body), &[]);
        }
    }
    assert_eq!(resize("{\"size_bytes\":2097152}").0, 200);
    assert_eq!(server.terminate().0, Some(0));
    site.run(&["pool", "check"]).done();
}
