//! Sizes that make no sense, by the control API: each gets a 4xx that says what, where and what to do,
//! and changes nothing.

use serde_json::{Value, json};
use testkit::site::{DISK_MIB, Site, call};

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
    // The place: a part of the request, or the thing that the sentence names.
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

/// Sizes of volumes below, at and past a sector, what recordings begin with, and a chunk.
const SMALL: [u64; 11] = [
    1, 511, 512, 513, 1_024, 3_584, 4_095, 4_096, 4_608, 65_535, 65_537,
];

#[test]
fn volumes_of_every_small_size_are_answered_for() {
    let (site, server) = Site::serving(1);
    let ask = |method: &str, path: &str, body: Value| {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        call(&site, method, path, &body)
    };
    for size in SMALL {
        let volume = format!("/v1/volumes/v{size}");
        let made = json!({ "name": format!("v{size}"), "size_bytes": size });
        assert_eq!(ask("POST", "/v1/volumes", made).0, 201, "{size}");
        let recordings = ask("GET", &format!("{volume}/recordings"), Value::Null);
        assert_eq!(recordings, (200, json!([])), "{size}");
        let retention = format!("{volume}/retention");
        let (status, problem) = ask("GET", &retention, Value::Null);
        assert_eq!(status, 409, "{size}: {problem}");
        let (status, problem) = ask("PATCH", &retention, json!({ "keep_for_ns": 1 }));
        assert_eq!(status, 422, "{size}: {problem}");
        let what = problem["what"].as_str().unwrap_or_default();
        assert!(
            what.contains("too small for recordings"),
            "{size}: {problem}"
        );
        for op in ["record", "play"] {
            let stream =
                json!({ "volume": format!("v{size}"), "op": op, "rate_bytes_per_second": 100_000 });
            let (status, reserved) = ask("POST", "/v1/streams", stream);
            assert_eq!(status, 201, "{size} {op}: {reserved}");
            let stream = format!("/v1/streams/{}", reserved["id"]);
            assert_eq!(ask("DELETE", &stream, Value::Null).0, 200, "{size} {op}");
        }
    }
    // All of the smallest one, and what is in it then.
    let data = testkit::pattern(1, 512);
    let from = testkit::site::told::file(&site, "data", &data);
    let to = site.path("back").display().to_string();
    let stream = ["--volume", "v1", "--rate", "100KB/s"];
    site.run(&[&["stream", "record", "--from", &from][..], &stream].concat())
        .done();
    site.run(&[&["stream", "play", "--to", &to][..], &stream].concat())
        .done();
    assert!(testkit::site::read(&site.path("back")) == data);
    let (status, problem) = ask("GET", "/v1/volumes/v1/recordings", Value::Null);
    assert_eq!(status, 409, "{problem}");
    assert_eq!(server.terminate().0, Some(0));
}
