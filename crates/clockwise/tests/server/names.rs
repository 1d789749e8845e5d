//! Names of volumes and streams: what cannot be read, or is read wrongly, is none.

use serde_json::{Value, json};
use testkit::site::{Site, call};

/// Texts that are no names: empty, invisible characters, or characters that change their neighbours.
const NONE: [&str; 8] = [
    " ",
    "\u{3000}",
    "a\u{200b}b",
    "a\u{202e}b",
    "a\u{2028}b",
    "\u{feff}a",
    "a\nb",
    "a/b",
];

#[test]
fn unprintable_volume_name_is_refused() {
    let (site, server) = Site::serving(1);
    for name in NONE {
        let made = site.run(&["volume", "create", name, "--size", "1MiB"]);
        made.fails(2, &["is not a valid volume name: it has", "1 to 255 bytes"]);
        assert!(!made.err.contains(['\u{202e}', '\u{200b}']), "{made:?}");
    }
    for name in ["Kamera 1", "カメラ", "...", "a\u{3000}b"] {
        let made = site.json(&["volume", "create", name, "--size", "1MiB"]);
        assert_eq!(made["name"], name);
        site.run(&["volume", "delete", name]).done();
    }
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn unprintable_stream_name_is_refused() {
    let (site, server) = Site::serving(1);
    site.run(&["volume", "create", "v", "--size", "8MiB"])
        .done();
    let reserve = |name: Value| {
        let ask = json!({
            "volume": "v", "op": "play", "rate_bytes_per_second": 1000, "block_bytes": 65536, "name": name,
        });
        call(&site, "POST", "/v1/streams", &ask.to_string())
    };
    let too_long = "x".repeat(256);
    for name in NONE.into_iter().chain(["", &too_long]) {
        let (status, problem) = reserve(json!(name));
        assert_eq!(status, 422, "{name:?}: {problem}");
        assert_eq!(problem["where"], "name", "{name:?}");
        let what = problem["what"].as_str().unwrap_or_default();
        assert!(
            what.contains("is not a valid stream name: it "),
            "{problem}"
        );
    }
    for (name, called) in [(json!("Kamera 1"), "Kamera 1"), (Value::Null, "v")] {
        let (status, reserved) = reserve(name);
        assert_eq!(status, 201, "{reserved}");
        assert_eq!(reserved["stream"]["name"], called);
    }
    assert_eq!(server.terminate().0, Some(0));
}
