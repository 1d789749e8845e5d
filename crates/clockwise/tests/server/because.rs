//! Why a stream is refused: because of which task, and how much is only still being given back. And the
//! block that a stream has which asked for none.

use clockwise::config::Config;
use clockwise::server::Server;
use sched::units::{Bytes, BytesPerSecond};
use serde_json::{Value, json};
use testkit::site::{Serve, Site, call};

/// A configuration of one disk in a file, with a floor under it or none.
fn site(more: &str) -> Site {
    let site = Site::new(1);
    let text = testkit::site::read_text(&site.config());
    std::fs::write(site.config(), format!("{more}{text}"))
        .expect("the configuration can be written");
    site.run(&["pool", "create"]).done();
    site
}

/// As `site`, served, with a volume of that size.
fn serving(more: &str, size: &str) -> (Site, Serve) {
    let site = site(more);
    let server = site.serve();
    site.run(&["volume", "create", "v", "--size", size]).done();
    (site, server)
}

/// Output of a refused command, for programs and for people.
fn refused(site: &Site, arguments: &[&str]) -> (Value, String) {
    let programs = site.run(&[&["--json"], arguments].concat());
    programs.fails(3, &[]);
    let error: Value = serde_json::from_str(&programs.err).expect("the error is JSON");
    let people = site.run(arguments);
    people.fails(3, &[]);
    (error["refusal"].clone(), people.err)
}

fn play<'a>(rate: &'a str, block: &'a str) -> Vec<&'a str> {
    let fixed = ["stream", "play", "--volume", "v", "--to", "/dev/null"];
    [&fixed[..], &["--rate", rate, "--block", block]].concat()
}

#[test]
fn a_stream_that_the_floor_would_make_late_is_told_so() {
    let (site, server) = serving("", "8MiB");
    // Its blocks are due sooner after each other than one piece of the floor may take.
    let (refusal, said) = refused(&site, &play("1MB/s", "64KiB"));
    assert_eq!(refusal["refused_by"], "blocking", "{refusal}");
    assert_eq!(refusal["task"], "the floor", "{refusal}");
    for words in [
        "because of the floor of best effort",
        "larger blocks",
        "`floor_slice`",
    ] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn a_stream_that_another_one_would_make_late_is_told_which() {
    let (site, server) = serving("[scheduler]\nfloor = \"0\"\n", "32MiB");
    let (refusal, _) = refused(&site, &play("900GB/s", "4KiB"));
    let fits = refusal["rate_that_fits"].as_u64().expect("something fits");
    let long = json!({
        "volume": "v", "op": "play", "rate_bytes_per_second": 100_000, "block_bytes": 8 << 20,
        "name": "the long one", "connect_within_ms": 600_000,
    });
    let (status, reserved) = call(&site, "POST", "/v1/streams", &long.to_string());
    assert_eq!(status, 201, "{reserved}");
    // Half of what fitted alone, in blocks that one of the other stream outlasts.
    let rate = format!("{}B/s", fits / 2);
    let (refusal, said) = refused(&site, &play(&rate, "4KiB"));
    assert_eq!(refusal["refused_by"], "blocking", "{refusal}");
    assert_eq!(refusal["task"], "the long one", "{refusal}");
    for words in ["because of \"the long one\"", "or end \"the long one\""] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn refusal_names_the_rate_and_block_that_would_fit() {
    let (site, server) = serving("", "32MiB");
    let ask = |rate: u64, block: Option<u64>| {
        let ask = json!({
            "volume": "v", "op": "play", "rate_bytes_per_second": rate, "block_bytes": block,
            "connect_within_ms": 600_000,
        });
        call(&site, "POST", "/v1/streams", &ask.to_string())
    };
    // Small blocks, between which a long one does not fit.
    while ask(400_000, Some(128 << 10)).0 == 201 {}
    let (status, problem) = ask(10_000_000_000, None);
    assert_eq!(status, 409, "{problem}");
    let fits = problem["refusal"]["rate_that_fits"].as_u64();
    let fits = fits.expect("something fits");
    let (status, problem) = ask(fits + fits / 100 + 1, None);
    assert_eq!(status, 409, "{fits}: {problem}");
    let (status, reserved) = ask(fits, None);
    assert_eq!(status, 201, "{fits}: {reserved}");
    assert_eq!(server.terminate().0, Some(0));
}

#[test]
fn refusal_names_shares_of_ended_streams() {
    let (site, server) = serving("", "8MiB");
    let (before, said) = refused(&site, &play("900GB/s", "64KiB"));
    assert_eq!(before["utilization_leaving"], 0.0, "{before}");
    assert_eq!(before["leaving_ns"], Value::Null, "{before}");
    assert!(!said.contains("is still held by"), "{said}");
    // One block, which is not due before the test is over: 1 MiB at 1 KB/s.
    std::fs::write(site.path("in"), vec![1; 1 << 20]).expect("a file");
    let from = site.path("in").display().to_string();
    let record = ["stream", "record", "--volume", "v", "--from", &from];
    let how = ["--rate", "1KB/s", "--block", "1MiB"];
    site.run(&[&record[..], &how].concat()).done();
    let status = site.json(&["status"]);
    assert_eq!(status["streams"], json!([]));
    let disk = &status["disks"][0];
    let held = disk["utilization_leaving"].as_f64().expect("a share");
    let promised = disk["utilization_promised"].as_f64().expect("a share");
    let floor = disk["floor"].as_f64().expect("a share");
    assert!(held > 0.0, "{disk}");
    // Nothing is promised beside the floor but what is held. Sums of shares are rounded.
    assert!((promised - floor - held).abs() < 1e-9, "{disk}");
    let period_ns = (1 << 20) * 1_000_000_u64;
    let left = disk["leaving_ns"].as_u64().expect("a time");
    assert!(left > 0 && left <= period_ns, "{disk}");
    let text = site.run(&["status"]).done().out;
    assert!(
        text.contains("ENDED streams and exports still hold"),
        "{text}"
    );
    let (after, said) = refused(&site, &play("900GB/s", "64KiB"));
    assert_eq!(after["utilization_leaving"], held, "{after}");
    assert!(after["leaving_ns"].as_u64() <= Some(left), "{after}");
    for words in [
        "is still held by reservations that have ended",
        "or try again in",
    ] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    assert_eq!(server.terminate().0, Some(0));
}

/// Memory of a recorder for each camera if it names no block.
const MEMORY_PROPOSED_FOR: Bytes = Bytes::from_mib(32);

#[test]
fn a_stream_that_asks_for_no_block_has_the_one_that_is_proposed() {
    let site = Site::new(0);
    // The memory for a camera, divided by so many disks, is less than its blocks would best have.
    let mut text = String::from(
        "[server]\napi = \"api.sock\"\nrealtime = false\n[pool]\nextent = \"64MiB\"\n[memory]\n\
         total = \"512MiB\"\n",
    );
    for disk in 0..4 {
        text += &format!(
            "[[disk]]\npath = \"disk-{disk}\"\nkind = \"file\"\nsize = \"1GiB\"\n\
             profile = \"hdd-8tb-7200\"\n"
        );
    }
    std::fs::write(site.config(), text).expect("the configuration can be written");
    site.run(&["pool", "create"]).done();
    let config = Config::read(&site.config()).expect("it is right");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads");
    let server = runtime.block_on(Server::start(&config)).expect("it serves");
    let make = json!({ "name": "v", "size_bytes": 512 << 20 });
    assert_eq!(call(&site, "POST", "/v1/volumes", &make.to_string()).0, 201);
    let pool = &server.app().pool;
    let volume = pool.open_volume("v").expect("it was made");
    let rate = BytesPerSecond(4_000_000);
    let proposed = |memory| pool.proposed_block(&volume, &(0..512 << 20), rate, memory);
    let ask = json!({ "volume": "v", "op": "play", "rate_bytes_per_second": rate.get() });
    let (status, reserved) = call(&site, "POST", "/v1/streams", &ask.to_string());
    assert_eq!(status, 201, "{reserved}");
    let block = reserved["stream"]["block_bytes"].as_u64();
    assert_eq!(block, Some(proposed(MEMORY_PROPOSED_FOR).get()));
    assert!(
        block < Some(proposed(Bytes::from_mib(256)).get()),
        "{block:?}"
    );
    drop(volume);
    runtime.block_on(server.close()).expect("it ends");
}
