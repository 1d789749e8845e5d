//! A browser without a window, told what to do by the DevTools protocol over a pipe.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};

use crate::process::{OutputReader, Process, WITHIN};
use crate::skip::tool;
use crate::until;

/// Flags that keep the browser from background work.
const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-crash-reporter",
    "--autoplay-policy=no-user-gesture-required",
    "--remote-debugging-pipe",
];

/// A user of a site.
#[derive(Clone, Copy)]
pub struct SiteUser<'a> {
    pub user: &'a str,
    pub password: &'a str,
}

/// A browser with one page, and nothing of it is left when this is dropped.
pub struct Browser {
    process: Process,
    to: ChildStdin,
    from: BufReader<OutputReader<ChildStdout>>,
    number: u64,
    session: Option<String>,
    folder: PathBuf,
    /// The answer to who asks for a password.
    who: Option<(String, String)>,
    /// Number of challenges.
    pub challenges: u64,
}

impl Browser {
    /// Starts it; what it writes is in a folder of its own there.
    #[track_caller]
    pub fn start(site: &Path, who: Option<SiteUser<'_>>) -> Self {
        let folder = site.join("browser");
        std::fs::create_dir_all(&folder).expect("a folder for the browser");
        let mut profile = OsString::from("--user-data-dir=");
        profile.push(folder.join("profile"));
        // The browser reads from descriptor 3 and writes to 4.
        let mut command = tool("sh");
        command
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >&2", "sh"])
            .arg("chromium")
            .args(FLAGS)
            .arg(profile)
            .env("HOME", &folder)
            .env("TMPDIR", &folder)
            .env("XDG_RUNTIME_DIR", &folder)
            .env_remove("DBUS_SESSION_BUS_ADDRESS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        let mut process = Process::spawn(&mut command);
        let to = process.stdin.take().expect("it is piped");
        let heard = process.heard_now_and_then();
        let mut browser = Self {
            process,
            to,
            from: BufReader::new(heard),
            number: 0,
            session: None,
            folder,
            who: who.map(|who| (who.user.to_owned(), who.password.to_owned())),
            challenges: 0,
        };
        let page = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let page = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.ask("Target.attachToTarget", page);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser.ask("Page.enable", json!({}));
        browser.ask("Page.setLifecycleEventsEnabled", json!({ "enabled": true }));
        if browser.who.is_some() {
            browser.ask("Fetch.enable", json!({ "handleAuthRequests": true }));
        }
        browser
    }

    /// Opens a page; the status of the answer that it is, or why there is none.
    #[track_caller]
    pub fn open(&mut self, url: &str) -> Result<u64, String> {
        self.ask("Network.enable", json!({}));
        let id = self.tell("Page.navigate", json!({ "url": url }));
        let (mut status, mut begun, mut loaded) = (0, None, Vec::new());
        // The page of an error, before this one, may be loaded meanwhile: each has a number of its own.
        while !begun.as_ref().is_some_and(|page| loaded.contains(page)) {
            let said = self.next();
            match said["method"].as_str() {
                Some("Page.lifecycleEvent") if said["params"]["name"] == "DOMContentLoaded" => {
                    loaded.push(said["params"]["loaderId"].clone());
                }
                Some("Network.responseReceived") if said["params"]["type"] == "Document" => {
                    status = said["params"]["response"]["status"].as_u64().unwrap_or(0);
                }
                None if said["id"] == id => {
                    if let Some(error) = said["result"]["errorText"].as_str() {
                        return Err(error.to_owned());
                    }
                    begun = Some(said["result"]["loaderId"].clone());
                }
                _ => {}
            }
        }
        self.ask("Network.disable", json!({}));
        Ok(status)
    }

    /// Has a script run in each page before its own.
    #[track_caller]
    pub fn at_each_page(&mut self, script: &str) {
        let script = json!({ "source": script });
        self.ask("Page.addScriptToEvaluateOnNewDocument", script);
    }

    /// Takes the network away from the page, or gives it back.
    #[track_caller]
    pub fn set_offline(&mut self, is_offline: bool) {
        self.ask("Network.enable", json!({}));
        let conditions = json!({
            "offline": is_offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1,
        });
        self.ask("Network.emulateNetworkConditions", conditions);
    }

    /// The value of a promise of the page.
    ///
    /// # Panics
    /// If the promise is rejected.
    #[track_caller]
    pub fn does(&mut self, promise: &str) -> Value {
        let evaluated =
            json!({ "expression": promise, "awaitPromise": true, "returnByValue": true });
        let said = self.ask("Runtime.evaluate", evaluated);
        assert!(said["exceptionDetails"].is_null(), "{promise}: {said:#}");
        said["result"]["value"].clone()
    }

    #[track_caller]
    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.tell(method, params);
        loop {
            let mut said = self.next();
            if said["id"] == id {
                assert!(said["error"].is_null(), "{method}: {said}");
                return said["result"].take();
            }
        }
    }

    fn tell(&mut self, method: &str, params: Value) -> u64 {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let bytes = [message.to_string().as_bytes(), &[0]].concat();
        self.to.write_all(&bytes).expect("the browser listens");
        self.number
    }

    /// The next thing that it says; requests that wait for a word go on.
    fn next(&mut self) -> Value {
        let mut bytes = Vec::new();
        let read = self.from.read_until(0, &mut bytes);
        read.expect("the browser says something");
        assert_eq!(bytes.pop(), Some(0), "the browser has ended");
        let said: Value = serde_json::from_slice(&bytes).expect("a message");
        let request = &said["params"]["requestId"];
        match said["method"].as_str() {
            Some("Fetch.requestPaused") => {
                self.tell("Fetch.continueRequest", json!({ "requestId": request }));
            }
            Some("Fetch.authRequired") => {
                self.challenges += 1;
                let (user, password) = self.who.clone().unwrap_or_default();
                let answer = json!({ "response": "ProvideCredentials", "username": user, "password": password });
                let answer = json!({ "requestId": request, "authChallengeResponse": answer });
                self.tell("Fetch.continueWithAuth", answer);
            }
            _ => {}
        }
        said
    }

    /// The processes that belong to it.
    fn processes(&self) -> Vec<u32> {
        let Ok(all) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        let folder = self.folder.as_os_str().as_encoded_bytes();
        let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let of_it = |pid: &u32| {
            let says = |what: &str| {
                let said = std::fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
                said.windows(folder.len()).any(|of| of == folder)
            };
            *pid != std::process::id() && (says("environ") || says("cmdline"))
        };
        pids.filter(of_it).collect()
    }

    /// Ends it as one does, and checks that nothing of it is left.
    #[track_caller]
    pub fn close(mut self) {
        self.session = None;
        self.tell("Browser.close", json!({}));
        self.process.wait();
        until("all of the browser has ended", || {
            self.processes().is_empty()
        });
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A process that has ended already is fine.
        let group = Pid::from_child(&self.process);
        let _ = kill_process_group(group, Signal::KILL);
        for pid in self.processes() {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        // Its folder cannot be removed before; a test that fails is not failed twice.
        let end = Instant::now() + WITHIN;
        while !self.processes().is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
