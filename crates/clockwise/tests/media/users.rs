//! Accounts, their rights and tokens: over RTSP, HTTP and the control API over TLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::browser::says;
use rustls::StreamOwned;
use testkit::rtsp::browser::Browser;
use testkit::rtsp::login::DigestUser;
use testkit::rtsp::tls::{Certificate, client, write};
use testkit::rtsp::{SDP_TYPE, TCP, rtp, sdp};
use testkit::site::{ReadyServer, Site, call, read_text};
use testkit::skip::have;
use testkit::until;

const SECTIONS: &str = "[access]\naccounts = \"accounts.json\"\n\
    [rtsp]\nlisten = \"0\"\n\
    [http]\ntls_listen = \"0\"\ncertificate = \"tls.pem\"\nkey = \"tls.key\"\n";

fn install(site: &Site, certificate: &Certificate) {
    // The key first: a pair that does not match is refused until both are there.
    for (name, text, mode) in [
        ("tls.key", &certificate.key, 0o600),
        ("tls.pem", &certificate.pem, 0o644),
    ] {
        let new = site.path(&format!("{name}.new"));
        write(&new, text, mode);
        std::fs::rename(new, site.path(name)).expect("it can be renamed");
    }
}

fn site() -> (Site, Certificate) {
    let site = Site::new(2);
    let text = read_text(&site.config()) + SECTIONS;
    std::fs::write(site.config(), text).expect("it can be written");
    let certificate = Certificate::new();
    install(&site, &certificate);
    site.run(&["pool", "create"]).done();
    (site, certificate)
}

fn address(serve: &ReadyServer, of: &str) -> SocketAddr {
    let address = serve.said[of].as_str().map(str::parse);
    address.expect("it is served").expect("an address")
}

/// A request over TLS, and the status and text of its answer. `None` if this certificate is not the server's.
fn asked(
    at: SocketAddr,
    certificate: &Certificate,
    line: &str,
    headers: &str,
    body: &str,
) -> Option<(u16, String)> {
    let socket = TcpStream::connect(at).expect("the server listens");
    let mut stream = StreamOwned::new(client(at, certificate), socket);
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n{headers}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).expect("a status");
    Some((status.parse().expect("a number"), answer))
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

/// Adds a user, and makes a token.
fn user(site: &Site, name: &str, password: &str, rights: &[&str]) -> String {
    site.run_with_input(&[&["user", "add", name], rights].concat(), password)
        .done();
    let made = site.json(&["user", "token", name, "t"]);
    made["token"].as_str().expect("a token").to_owned()
}

#[test]
fn accounts_have_rights_over_rtsp_and_http() {
    let (site, certificate) = site();
    let serve = site.serve_json();
    let (rtsp, https) = (address(&serve, "rtsp"), address(&serve, "https"));
    for volume in ["cam", "other"] {
        site.run(&["volume", "create", volume, "--size", "20MiB"])
            .done();
    }
    // Everyone has to log in before there is anybody who could.
    testkit::rtsp::Client::connect(rtsp)
        .ask("DESCRIBE", "cam", "", "")
        .is(401);
    let recorder = user(
        &site,
        "recorder",
        "of recorder",
        &["--may", "record", "--volume", "cam"],
    );
    let viewer = user(&site, "viewer", "of viewer 1", &["--may", "live"]);
    let player = user(
        &site,
        "player",
        "of player 1",
        &["--may", "live,recordings", "--volume", "cam"],
    );
    let exporter = user(
        &site,
        "exporter",
        "of exporter",
        &["--may", "play", "--no-rtsp"],
    );
    let mut publisher = DigestUser::connect(rtsp, "recorder", "of recorder");
    publisher
        .ask("ANNOUNCE", "other", SDP_TYPE, &sdp(800))
        .is(403);
    publisher.records();
    for number in 0..20 {
        publisher
            .client
            .packet(0, &rtp(number, 100 * u32::from(number), 1, &[7; 500]));
    }
    publisher.ask("TEARDOWN", "cam", "", "").is(200);
    until("it is closed", || {
        let list = site.json(&["recording", "list", "cam"]);
        list[0]["is_recorded"] == false
    });
    // A user who may only watch does not play recordings, and one without Digest does not log in over RTSP.
    let mut watching = DigestUser::connect(rtsp, "viewer", "of viewer 1");
    let said = watching.ask("DESCRIBE", "cam", "", "").is(403);
    assert!(
        said.body.contains("\"viewer\" may not play volume \"cam\""),
        "{said:?}"
    );
    watching.ask("DESCRIBE", "cam/live", "", "").is(404);
    DigestUser::connect(rtsp, "player", "of player 1")
        .ask("DESCRIBE", "cam", "", "")
        .is(200);
    DigestUser::connect(rtsp, "exporter", "of exporter")
        .ask("DESCRIBE", "cam", "", "")
        .is(401);
    let get = |path: &str, token: &str| {
        let answer = asked(
            https,
            &certificate,
            &format!("GET {path}"),
            &bearer(token),
            "",
        );
        answer.expect("it is the server").0
    };
    for (path, allowed, refused) in [
        (
            "/media/cam/1/recording.json",
            vec![&player, &exporter],
            vec![&recorder, &viewer],
        ),
        (
            "/media/cam/1/track0",
            vec![&exporter],
            vec![&recorder, &viewer, &player],
        ),
        (
            "/media/cam/1/%74rack0",
            vec![&exporter],
            vec![&recorder, &viewer, &player],
        ),
        (
            "/media/cam/live/",
            vec![&viewer, &player, &exporter],
            vec![&recorder],
        ),
        (
            "/media/other/live/",
            vec![&viewer, &exporter],
            vec![&player],
        ),
        (
            "/v1/volumes/cam/recordings",
            vec![&player, &exporter],
            vec![&viewer],
        ),
        ("/v1/status", vec![], vec![&exporter]),
    ] {
        allowed
            .iter()
            .for_each(|token| assert!(![401, 403].contains(&get(path, token)), "{path}"));
        refused
            .iter()
            .for_each(|token| assert_eq!(get(path, token), 403, "{path}"));
    }
    // The page lists what its reader may play.
    let page = |token: &str| {
        let answer = asked(https, &certificate, "GET /media/", &bearer(token), "");
        answer.expect("it is the server").1
    };
    assert!(page(&player).contains("cam/1/\"") && page(&player).contains("cam/live/"));
    assert!(!page(&viewer).contains("cam/1/\"") && page(&viewer).contains("cam/live/"));
    assert!(!page(&recorder).contains("cam/"));
    // A player that is ready needs its right still, and a connection its password.
    let mut playing = DigestUser::connect(rtsp, "player", "of player 1");
    playing.ask("SETUP", "cam/1/track0", TCP, "").is(200);
    site.run(&["user", "withdraw", "player"]).done();
    playing.ask("PLAY", "cam/1", "", "").is(403);
    site.run_with_input(&["user", "password", "player"], "another one")
        .done();
    playing.ask("PLAY", "cam/1", "", "").is(401);
    // New rights apply at once, and none are left when they are withdrawn.
    site.run(&[
        "user",
        "grant",
        "viewer",
        "--may",
        "recordings",
        "--volume",
        "cam",
    ])
    .done();
    assert_eq!(get("/media/cam/1/recording.json", &viewer), 200);
    site.run(&["user", "withdraw", "viewer"]).done();
    assert_eq!(get("/media/cam/live/", &viewer), 403);
    site.run(&["user", "remove", "viewer"]).done();
    assert_eq!(get("/media/", &viewer), 401);
    serve.terminate();
}

#[test]
fn control_api_over_tls_takes_tokens_of_administrators() {
    let (site, certificate) = site();
    let serve = site.serve_json();
    let https = address(&serve, "https");
    let ask = |line: &str, headers: &str, body: &str| {
        asked(https, &certificate, line, headers, body).expect("it is the server")
    };
    let admin = user(&site, "admin", "of admin 1", &["--may", "administer"]);
    let local = user(
        &site,
        "local",
        "of local 1",
        &["--may", "administer", "--volume", "v"],
    );
    assert_eq!(ask("GET /v1/status", &bearer(&admin), "").0, 200);
    assert_eq!(ask("GET /v1/status", &bearer(&local), "").0, 403);
    let (status, text) = ask("GET /v1/status", "", "");
    assert!(
        status == 401 && text.contains("www-authenticate: Bearer"),
        "{text}"
    );
    // Neither a login that browsers repeat by themselves nor a forged, foreign or expired token.
    let digest = "authorization: Digest username=\"admin\", realm=\"clockwise\", nonce=\"0\", uri=\"/v1/status\", response=\"00000000000000000000000000000000\"\r\n";
    let forged = format!("{}0", &admin[..admin.len() - 1]);
    let expired = site.json(&["user", "token", "admin", "old", "--expires", "1ms"]);
    let expired = expired["token"].as_str().expect("a token").to_owned();
    for headers in [
        digest.to_owned(),
        bearer(&forged),
        bearer(""),
        bearer(&expired),
        bearer("\u{e4}"),
        "authorization: Bearer\r\n".to_owned(),
        "authorization: Basic YWRtaW46b2YgYWRtaW4gMQ==\r\n".to_owned(),
    ] {
        assert_eq!(ask("GET /v1/status", &headers, "").0, 401, "{headers}");
    }
    let volume = "{\"name\":\"v\",\"size_bytes\":20971520}";
    assert_eq!(ask("POST /v1/volumes", "", volume).0, 401);
    assert_eq!(ask("POST /v1/volumes", &bearer(&admin), volume).0, 201);
    for nonsense in [
        "",
        "{",
        "[]",
        "{\"name\":1}",
        "{\"name\":\"x\",\"password\":\"long enough\",\"grants\":[{\"may\":[\"fly\"]}]}",
    ] {
        let (status, text) = ask("POST /v1/users", &bearer(&admin), nonsense);
        assert!((400..500).contains(&status), "{nonsense}: {text}");
    }
    // Events are followed for as long as the token is valid.
    let socket = TcpStream::connect(https).expect("the server listens");
    let mut events = StreamOwned::new(client(https, &certificate), socket);
    let follow = bearer(&admin);
    let follow = format!("GET /v1/events HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{follow}\r\n");
    events.write_all(follow.as_bytes()).expect("it is taken");
    let mut first = [0; 12];
    events.read_exact(&mut first).expect("a status");
    assert_eq!(&first, b"HTTP/1.1 200");
    site.run(&["user", "revoke", "admin", "t"]).done();
    assert_eq!(ask("GET /v1/status", &bearer(&admin), "").0, 401);
    let source = "{\"name\":\"v\",\"url\":\"rtsp://127.0.0.1:1/\",\"volume\":\"v\"}";
    assert_eq!(call(&site, "POST", "/v1/sources", source).0, 201);
    let mut rest = String::new();
    events.read_to_string(&mut rest).expect("its end");
    assert!(!rest.contains("camera-lost"), "{rest}");
    serve.terminate();
}

/// The cookie of an answer.
fn cookie_of(answer: &str) -> String {
    let of = answer.split("set-cookie: ").nth(1).expect("a cookie");
    for part in ["HttpOnly", "SameSite=Lax", "Secure"] {
        assert!(of.contains(part), "{of}");
    }
    of.split(';').next().expect("a value").to_owned()
}

#[test]
fn cookies_change_nothing_for_pages_of_other_sites() {
    let (site, certificate) = site();
    let serve = site.serve_json();
    let https = address(&serve, "https");
    let ask = |line: &str, headers: &str, body: &str| {
        asked(https, &certificate, line, headers, body).expect("it is the server")
    };
    user(&site, "admin", "of admin 1", &["--may", "administer"]);
    let own = format!("origin: https://{https}\r\n");
    let foreign = "origin: https://evil.example\r\n";
    let right = "{\"user\":\"admin\",\"password\":\"of admin 1\"}";
    let wrong = "{\"user\":\"admin\",\"password\":\"of nobody\"}";
    assert_eq!(ask("POST /signin", foreign, right).0, 403);
    assert_eq!(ask("POST /signin", "", right).0, 403);
    assert_eq!(ask("POST /signin", &own, wrong).0, 401);
    assert_eq!(ask("POST /signin", &own, "{\"user\":\"admin\"}").0, 422);
    let (status, answer) = ask("POST /signin", &own, right);
    assert_eq!(status, 204, "{answer}");
    let cookie = format!("cookie: {}\r\n", cookie_of(&answer));
    assert_eq!(ask("GET /v1/status", &cookie, "").0, 200);
    let volume = "{\"name\":\"v\",\"size_bytes\":20971520}";
    for headers in ["", foreign, "origin: null\r\n"] {
        let headers = format!("{cookie}{headers}");
        assert_eq!(ask("POST /v1/volumes", &headers, volume).0, 403);
        assert_eq!(ask("DELETE /v1/volumes/v", &headers, "").0, 403);
        assert_eq!(ask("POST /signout", &headers, "{}").0, 403);
    }
    let with = format!("{cookie}{own}");
    assert_eq!(ask("POST /v1/volumes", &with, volume).0, 201);
    assert_eq!(ask("POST /signout", &with, "{}").0, 204);
    assert_eq!(ask("GET /v1/status", &cookie, "").0, 401);
    // A page leads to the sign-in, a program gets an error.
    let (status, answer) = ask("GET /media/?x=1", "accept: text/html\r\n", "");
    assert!(
        status == 303 && answer.contains("location: /signin?to=%2Fmedia%2F%3Fx%3D1"),
        "{answer}"
    );
    assert_eq!(ask("GET /media/", "", "").0, 401);
    // Each change is in the audit log with its user, and nothing that was only read.
    site.run(&["volume", "delete", "v"]).done();
    let log = read_text(&site.path("audit.jsonl"));
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let has = |who: Option<&str>, does: &str, status: u64| {
        lines.iter().any(|line| {
            line["who"].as_str() == who && line["does"] == does && line["status"] == status
        })
    };
    assert!(has(None, "POST /v1/users", 201), "{log}");
    assert!(
        has(Some("admin"), "POST /signin", 401) && has(Some("admin"), "POST /signin", 204),
        "{log}"
    );
    // Strangers do not fill it.
    assert!(
        !has(None, "POST /signin", 403) && !has(None, "POST /signin", 422),
        "{log}"
    );
    assert!(has(Some("admin"), "POST /v1/volumes", 201), "{log}");
    assert!(has(None, "DELETE /v1/volumes/v", 200), "{log}");
    assert!(
        !log.contains("GET ") && !log.contains("of admin 1"),
        "{log}"
    );
    serve.terminate();
}

#[test]
fn a_browser_signs_in() {
    if !have("chromium") {
        return;
    }
    let site = Site::new(2);
    let sections = "[access]\naccounts = \"accounts.json\"\n[http]\nlisten = \"0\"\n";
    let text = read_text(&site.config()) + sections;
    std::fs::write(site.config(), text).expect("it can be written");
    site.run(&["pool", "create"]).done();
    let serve = site.serve_json();
    let http = address(&serve, "http");
    user(&site, "anna", "of anna & \"Co\"", &["--may", "play"]);
    let mut browser = Browser::start(site.folder.path(), None);
    let page = format!("http://{http}/media/");
    assert_eq!(browser.open(&page), Ok(200));
    let sign_in = |password: &str| {
        format!(
            "(password => {{
                if (location.pathname !== '/signin') throw new Error(location.href);
                document.getElementById('user').value = 'anna';
                document.getElementById('password').value = password;
                document.getElementById('form').requestSubmit();
                return Promise.resolve();
            }})({})",
            serde_json::json!(password)
        )
    };
    browser.does(&sign_in("of nobody"));
    browser.does(&says("unknown user or wrong password: "));
    // The form would open the page itself, at the same time as the test does.
    let login = serde_json::json!({ "user": "anna", "password": "of anna & \"Co\"" });
    browser.does(&format!(
        "fetch('/signin', {{ method: 'POST', headers: {{ 'Content-Type': 'application/json' }}, body: JSON.stringify({login}) }})
            .then(answer => {{ if (answer.status !== 204) throw new Error(answer.status); }})"
    ));
    assert_eq!(browser.open(&page), Ok(200));
    browser.does("document.title === 'Recordings' ? Promise.resolve() : Promise.reject(new Error(location.href))");
    browser.close();
    serve.terminate();
}

#[test]
fn changed_certificate_is_used_and_a_mismatched_one_is_not() {
    let (site, first) = site();
    let log = site.path("log");
    let serve = site.serve_json_to(std::fs::File::create(&log).expect("it can be made").into());
    let https = address(&serve, "https");
    let is_used = |certificate: &Certificate| asked(https, certificate, "GET /", "", "").is_some();
    assert!(is_used(&first));
    let second = Certificate::new();
    assert!(!is_used(&second));
    install(&site, &second);
    assert!(is_used(&second) && !is_used(&first));
    // The key of another certificate.
    let third = Certificate::new();
    write(&site.path("tls.pem"), &third.pem, 0o644);
    assert!(is_used(&second) && !is_used(&third));
    until("the server says so", || {
        read_text(&log).contains("certificate invalid; keeping the previous one")
    });
    write(&site.path("tls.key"), &third.key, 0o600);
    assert!(is_used(&third));
    serve.terminate();
    write(&site.path("tls.key"), &first.key, 0o600);
    site.run(&["serve"])
        .fails(1, &["tls.key", "tls.pem", "cannot be used"]);
}

#[test]
fn user_commands_explain_their_errors() {
    let (site, _) = site();
    let serve = site.serve_json();
    let add = |name: &str, password: &str, more: &[&str]| {
        site.run_with_input(&[&["user", "add", name], more].concat(), password)
    };
    add("anna", "long enough", &["--may", "live"]).done();
    add("anna", "long enough", &["--may", "live"]).fails(1, &["\"anna\" already exists"]);
    add("paul", "short", &["--may", "live"]).fails(2, &["at least 8 characters"]);
    add("paul", "", &["--may", "live"]).fails(2, &["no password", "--generate"]);
    add("a:b", "long enough", &["--may", "live"]).fails(2, &["cannot be a name"]);
    add("paul", "long enough", &["--may", "fly"]).fails(2, &["live, recordings, export"]);
    site.run(&["user", "token", "paul", "t"])
        .fails(2, &["no user \"paul\"", "user list"]);
    site.run(&["user", "revoke", "anna", "t"])
        .fails(2, &["no token \"t\""]);
    let made = site.json(&["user", "password", "anna", "--generate"]);
    assert_eq!(made["password"].as_str().map(str::len), Some(20));
    let listed = site.run(&["user", "list"]).done();
    assert!(listed.out.contains("live in all volumes"), "{listed:?}");
    serve.terminate();
}

#[test]
fn without_accounts_users_cannot_be_added() {
    let site = Site::new(1);
    site.run(&["pool", "create"]).done();
    let serve = site.serve_json();
    site.run_with_input(&["user", "add", "anna", "--may", "live"], "long enough")
        .fails(1, &["no accounts", "[access]"]);
    serve.terminate();
}
