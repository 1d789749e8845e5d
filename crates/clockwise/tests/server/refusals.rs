//! Every way to be refused by a server, walked over, by commands and by calls: each says what, and what
//! to do about it, with the exit status that is documented, sizes with units, and the server serves on.

use testkit::site::told::{file, is_told, raw_bytes};
use testkit::site::{Serve, Site, call};

/// A server with a volume that a stream is reserved on.
fn busy() -> (Site, Serve, u64) {
    let (site, server) = Site::serving(2);
    site.run(&["volume", "create", "v", "--size", "8MiB"])
        .done();
    let ask = "{\"volume\":\"v\",\"op\":\"play\",\"rate_bytes_per_second\":1000,\"block_bytes\":65536,\
               \"connect_within_ms\":600000}";
    let (status, reserved) = call(&site, "POST", "/v1/streams", ask);
    assert_eq!(status, 201, "{reserved}");
    let id = reserved["id"].as_u64().expect("a number");
    (site, server, id)
}

#[test]
fn commands_that_a_server_refuses() {
    let (site, server, _) = busy();
    let run = |arguments: &[&str]| site.run(arguments);
    let empty = file(&site, "empty", b"");
    let folder = site.folder.path().display().to_string();
    for arguments in [
        &["volume", "show", "none"][..],
        &["volume", "show", ""],
        &["volume", "show", "none", "--places"],
        &["volume", "delete", "none"],
        &["volume", "grow", "none", "--size", "1GiB"],
        &["volume", "create", "a/b", "--size", "1MiB"],
        &["volume", "create", "w", "--size", "1PiB"],
        &["volume", "create", "w", "--size", "18446744073709551615"],
        &["volume", "create", "w", "--size", "1MiB", "--zone", "99"],
        &["volume", "create", "w", "--size", "1MiB", "--disk", "none"],
        &[
            "volume",
            "create",
            "w",
            "--size",
            "1MiB",
            "--from-byte",
            "1TB",
        ],
        &["volume", "grow", "v", "--size", "4MiB"],
        &["volume", "shrink", "v", "--size", "16MiB"],
        &["volume", "move", "none", "--zone", "0"],
        &["disk", "show", "none"],
        &["stream", "end", "999"],
        &["stream", "rate", "999", "1MB/s"],
        &[
            "stream", "record", "--volume", "v", "--rate", "1MB/s", "--from", "-", "--loop",
        ],
        &[
            "stream", "record", "--volume", "v", "--rate", "1MB/s", "--from", &empty, "--loop",
        ],
        &[
            "stream", "record", "--volume", "v", "--rate", "1MB/s", "--from", &folder,
        ],
        &[
            "stream",
            "record",
            "--volume",
            "v",
            "--rate",
            "1MB/s",
            "--from",
            "/nonexistent",
        ],
        &[
            "stream",
            "play",
            "--volume",
            "v",
            "--rate",
            "1MB/s",
            "--to",
            "/nonexistent/file",
        ],
        &[
            "stream",
            "play",
            "--volume",
            "none",
            "--rate",
            "1MB/s",
            "--to",
            "/dev/null",
        ],
    ] {
        is_told(2, run, arguments);
    }
    assert_eq!(
        site.json(&["volume", "list"]).as_array().map(Vec::len),
        Some(1)
    );
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_socket_for_something_else_is_no_control_socket() {
    let (site, server, _) = busy();
    let run = |arguments: &[&str]| site.run(arguments);
    for socket in ["nbd.sock", "data.sock"] {
        let path = site.path(socket).display().to_string();
        is_told(2, run, &["status", "--socket", &path]);
        let said = site.run(&["status", "--socket", &path]);
        said.fails(2, &[socket, "is not a control socket", "`api` socket"]);
    }
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn streams_and_changes_that_a_server_refuses() {
    let (site, server, id) = busy();
    let run = |arguments: &[&str]| site.run(arguments);
    let id = id.to_string();
    let stream = |way: &str, more: &[&str]| {
        let file = if way == "record" {
            "--from=/dev/null"
        } else {
            "--to=/dev/null"
        };
        let fixed = ["stream", way, "--volume", "v", file].map(str::to_owned);
        fixed
            .into_iter()
            .chain(more.iter().map(|&part| part.to_owned()))
            .collect::<Vec<_>>()
    };
    for more in [
        &["--rate", "1KB/s", "--block", "1000"][..],
        &["--rate", "1KB/s", "--block", "100KB"],
        &["--rate", "1KB/s", "--block", "1GiB"],
        &["--rate", "1KB/s", "--offset", "1GiB"],
        &["--rate", "1KB/s", "--length", "1GiB"],
        &["--rate", "1KB/s", "--length", "1000"],
    ] {
        for way in ["record", "play"] {
            let arguments = stream(way, more);
            is_told(
                2,
                run,
                &arguments.iter().map(String::as_str).collect::<Vec<_>>(),
            );
        }
    }
    for arguments in [
        &["volume", "create", "v", "--size", "1MiB"][..],
        &["volume", "delete", "v"],
        &["volume", "shrink", "v", "--size", "1MiB"],
        &["volume", "grow", "v", "--size", "9MiB", "--zone", "0"],
    ] {
        is_told(1, run, arguments);
    }
    is_told(3, run, &["stream", "rate", &id, "900GB/s"]);
    let much = stream("record", &["--rate", "900GB/s", "--block", "64KiB"]);
    is_told(3, run, &much.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(site.json(&["volume", "show", "v"])["size_bytes"], 8 << 20);
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn calls_that_a_server_refuses() {
    let (site, server, id) = busy();
    let stream = format!("/v1/streams/{id}");
    for (method, path, body) in [
        ("GET", "/v1/nothing", ""),
        ("PUT", "/v1/pool", ""),
        ("GET", "/v1/disks/7", ""),
        ("GET", "/v1/disks/x", ""),
        ("GET", "/v1/volumes/none", ""),
        ("GET", "/v1/volumes/%FF", ""),
        ("GET", "/v1/volumes/none/places", ""),
        ("GET", "/v1/volumes/v/places?from=x", ""),
        ("GET", "/v1/volumes/v/places?colour=1", ""),
        ("DELETE", "/v1/volumes/none", ""),
        ("DELETE", "/v1/volumes/v", ""),
        ("POST", "/v1/volumes", ""),
        ("POST", "/v1/volumes", "{"),
        ("POST", "/v1/volumes", "{\"name\":\"v\",\"size_bytes\":1}"),
        (
            "POST",
            "/v1/volumes",
            "{\"name\":\"w\",\"size_bytes\":1,\"placement\":{\"zone\":-1}}",
        ),
        (
            "POST",
            "/v1/volumes",
            "{\"name\":\"w\",\"size_bytes\":1,\"placement\":{\"disks\":[\"x\"]}}",
        ),
        ("PATCH", "/v1/volumes/v", "{\"size_bytes\":1}"),
        ("PATCH", "/v1/volumes/none", "{\"size_bytes\":1}"),
        ("GET", "/v1/volumes/v/move", ""),
        ("DELETE", "/v1/volumes/v/move", ""),
        ("POST", "/v1/volumes/none/move", "{\"placement\":{}}"),
        ("POST", "/v1/volumes/v/move", "{}"),
        ("GET", "/v1/streams/x", ""),
        ("GET", "/v1/streams/999", ""),
        ("GET", "/v1/streams/999/blocks", ""),
        ("GET", &format!("{stream}/blocks?from=-1"), ""),
        ("PATCH", &stream, "{\"rate_bytes_per_second\":0}"),
        (
            "PATCH",
            &stream,
            "{\"rate_bytes_per_second\":18446744073709551615}",
        ),
        ("PATCH", "/v1/streams/999", "{\"rate_bytes_per_second\":1}"),
        (
            "POST",
            "/v1/streams",
            "{\"volume\":\"v\",\"op\":\"erase\",\"rate_bytes_per_second\":1}",
        ),
        (
            "POST",
            "/v1/streams",
            "{\"volume\":\"v\",\"op\":\"play\",\"rate_bytes_per_second\":1,\"limit_bytes\":0}",
        ),
        (
            "POST",
            "/v1/streams",
            "{\"volume\":\"v\",\"op\":\"play\",\"rate_bytes_per_second\":1,\"connect_within_ms\":3600001}",
        ),
        (
            "POST",
            "/v1/streams",
            "{\"volume\":\"none\",\"op\":\"play\",\"rate_bytes_per_second\":1}",
        ),
    ] {
        let (status, problem) = call(&site, method, path, body);
        let about = format!("{method} {path} {body}: {status} {problem}");
        assert!((400..500).contains(&status), "{about}");
        let said = |part: &str| problem[part].as_str().unwrap_or_default().to_owned();
        assert!(said("what").len() > 10, "{about}");
        assert!(said("help").split(' ').count() > 2, "{about}");
        assert!(
            !raw_bytes(&said("what")) && !raw_bytes(&said("help")),
            "{about}"
        );
        assert_eq!(problem["status"], status, "{about}");
    }
    assert_eq!(call(&site, "GET", &stream, "").1["state"], "reserved");
    assert_eq!(server.terminate().0, Some(0));
}
