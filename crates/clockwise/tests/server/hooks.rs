//! Hooks get each event at least once and in order, whatever they do.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use testkit::rtsp::tls::signed;
use testkit::site::{Serve, Site, call, clockwise, read_text};
use testkit::until;

/// A site whose server has a hook with these lines.
fn configured(hook: &str) -> Site {
    let site = Site::new(1);
    let text = read_text(&site.config()) + "[[hook]]\non = [\"camera-lost\"]\n" + hook + "\n";
    std::fs::write(site.config(), text).expect("the configuration can be written");
    site.run(&["pool", "create"]).done();
    site
}

/// Writes a script that may be run, and returns the line of the configuration that runs it.
fn script(site: &Site, text: &str) -> String {
    let path = site.path("hook.sh");
    let folder = site.folder.path().display();
    std::fs::write(&path, format!("#!/bin/sh\ncd {folder} || exit 1\n{text}\n")).expect("a file");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700))
        .expect("its owner may run it");
    format!("run = [\"{}\"]", path.display())
}

/// A site with a hook that runs this script.
fn with_script(text: &str) -> Site {
    let site = configured("run = [\"/bin/false\"]");
    let run = script(&site, text);
    let config = read_text(&site.config()).replace("run = [\"/bin/false\"]", &run);
    std::fs::write(site.config(), config).expect("the configuration can be written");
    site
}

/// Adds cameras that cannot be reached; the loss of each is an event.
fn lose(site: &Site, names: &[&str]) {
    for name in names {
        site.run(&["volume", "create", name, "--size", "1MiB"])
            .done();
        let source = json!({ "name": name, "url": "rtsp://127.0.0.1:1/", "volume": name });
        assert_eq!(
            call(site, "POST", "/v1/sources", &source.to_string()).0,
            201
        );
        // One after the other.
        until("its loss is in the queue", || {
            queued(site).contains(&format!("\"camera\":\"{name}\""))
        });
    }
}

/// The text of the hook's queue.
fn queued(site: &Site) -> String {
    let files = std::fs::read_dir(site.folder.path()).expect("a folder");
    let mut paths = files.map(|file| file.expect("a file").path());
    let path = paths.find(|path| path.extension().is_some_and(|of| of == "queue"));
    path.map(|path| read_text(&path)).unwrap_or_default()
}

/// The cameras of the events that a script has written, in order.
fn taken(site: &Site) -> Vec<String> {
    let text = std::fs::read_to_string(site.path("taken")).unwrap_or_default();
    let events = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let camera = |event: Value| {
        assert_eq!(event["kind"], "camera-lost", "{event}");
        event["camera"].as_str().expect("a name").to_owned()
    };
    events.map(camera).collect()
}

fn ends(server: Serve) -> String {
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    log
}

#[test]
fn a_hook_that_fails_gets_the_same_event_again_and_then_the_next() {
    let site = with_script(
        "cat > now; echo x >> tried; [ \"$(wc -l < tried)\" -ge 3 ] || exit 7; cat now >> taken",
    );
    let server = site.serve();
    lose(&site, &["a", "b"]);
    until("both have been taken", || taken(&site).len() == 2);
    assert_eq!(taken(&site), ["a", "b"]);
    assert_eq!(read_text(&site.path("tried")).lines().count(), 4);
    let log = ends(server);
    for line in [
        "a hook has failed",
        "exit status: 7",
        "a hook takes events again",
    ] {
        assert!(log.contains(line), "{line:?} in {log}");
    }
}

#[test]
fn a_hook_that_hangs_is_killed_and_delays_nothing() {
    let site = with_script(
        "cat > now; if [ ! -e tried ]; then touch tried; sleep 1000; fi; cat now >> taken",
    );
    let server = site.serve();
    lose(&site, &["a", "b"]);
    until("it hangs", || site.path("tried").exists());
    // The server goes on meanwhile.
    site.run(&["volume", "create", "c", "--size", "1MiB"])
        .done();
    until("it is called again", || taken(&site).len() == 2);
    assert_eq!(taken(&site), ["a", "b"]);
    assert!(ends(server).contains("has not taken the event within 10 s"));
}

#[test]
fn events_that_wait_survive_a_kill_of_the_server() {
    let site = with_script("cat > now; [ -e works ] || exit 1; cat now >> taken");
    let server = site.serve();
    lose(&site, &["a", "b", "c"]);
    let log = server.kill();
    assert!(log.contains("a hook has failed"), "{log}");
    assert_eq!(taken(&site), [""; 0]);
    std::fs::write(site.path("works"), "").expect("a file");
    let server = site.serve();
    until("all have been taken", || taken(&site).len() >= 3);
    assert_eq!(taken(&site)[..3], ["a", "b", "c"]);
    ends(server);
}

/// The text of a request, which gets this answer.
fn request(mut connection: impl Read + Write, answer: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"}\n") {
        let mut piece = [0; 4096];
        let count = connection.read(&mut piece).expect("a request");
        assert!(count > 0, "{}", String::from_utf8_lossy(&text));
        text.extend(&piece[..count]);
    }
    connection
        .write_all(answer.as_bytes())
        .expect("it is taken");
    connection.flush().expect("it is taken");
    String::from_utf8(text).expect("text").to_ascii_lowercase()
}

#[test]
fn an_address_gets_events_by_post_until_it_takes_them() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let site = configured(&format!("post = \"http://{address}/events?from=here\""));
    let server = site.serve();
    lose(&site, &["a"]);
    let called = || listener.accept().expect("a call").0;
    let refused = request(called(), "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n");
    let taken = request(called(), "HTTP/1.1 204 Yes\r\n\r\n");
    for text in [&refused, &taken] {
        assert!(
            text.starts_with("post /events?from=here http/1.1\r\n"),
            "{text}"
        );
        assert!(
            text.contains("content-type: application/json\r\n"),
            "{text}"
        );
        let (_, body) = text.split_once("\r\n\r\n").expect("a body");
        let event: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(event["camera"], "a");
    }
    until("it is marked as delivered", || {
        queued(&site).contains("{\"delivered\":")
    });
    assert!(ends(server).contains("status 500"));
}

#[test]
fn an_address_gets_events_by_https_if_its_certificate_is_trusted() {
    let (certificate, authority) = signed("localhost");
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der], key);
    let config = Arc::new(config.expect("a certificate"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let called = || {
        let (socket, _) = listener.accept().expect("a call");
        let tls = ServerConnection::new(Arc::clone(&config)).expect("memory");
        StreamOwned::new(tls, socket)
    };
    let site = configured(&format!("post = \"https://localhost:{port}/\""));
    let serve_trusting = |authority: &str| {
        let file = site.path("authority.pem");
        std::fs::write(&file, authority).expect("room");
        let mut command = clockwise();
        command
            .env("SSL_CERT_FILE", file)
            .env_remove("SSL_CERT_DIR");
        site.serve_by(command)
    };
    let server = serve_trusting(&signed("localhost").1);
    lose(&site, &["a"]);
    let refused = called().read(&mut [0; 16]).expect_err("it goes");
    assert!(refused.to_string().contains("fatal alert"), "{refused}");
    let log = ends(server);
    assert!(log.contains("invalid peer certificate"), "{log}");
    let server = serve_trusting(&authority);
    let taken = request(called(), "HTTP/1.1 204 Yes\r\n\r\n");
    assert!(taken.contains("\"camera\":\"a\""), "{taken}");
    until("it is marked as delivered", || {
        queued(&site).contains("{\"delivered\":")
    });
    ends(server);
}
