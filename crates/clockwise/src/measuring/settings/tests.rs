use super::*;
use std::os::unix::fs::PermissionsExt;

const BOTH: [Setting; 2] = [Setting::ReadLookAhead, Setting::WriteCache];

/// A folder with tools that keep the settings of a drive in files.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn tool(&self, name: &str, script: &str) {
        let text = format!(
            "#!/bin/sh\ncd '{}'\n{script}\n",
            self.folder.path().display()
        );
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// `hdparm` of a drive with both settings on.
    fn with_hdparm() -> Self {
        let bench = Self::new();
        fs::write(bench.path("ahead"), "1").unwrap();
        fs::write(bench.path("cache"), "1").unwrap();
        bench.tool(
            "hdparm",
            "echo \"$*\" >> log\n\
             case $1 in -A?) echo ${1#-A} > ahead;; -W?) echo ${1#-W} > cache;; esac\n\
             echo; echo \"$2:\"\n\
             echo \" look-ahead    =  $(cat ahead) (x)\"; echo \" write-caching =  $(cat cache) (x)\"",
        );
        bench
    }

    fn tools(&self) -> Tools {
        let mut path = self.folder.path().as_os_str().to_owned();
        path.push(":/usr/bin:/bin");
        Tools { path: Some(path) }
    }

    fn turn_off(&self, settings: &[Setting]) -> Changed {
        let device = Path::new("/dev/sdz");
        Changed::turn_off(self.tools(), &self.path("file"), device, "S1", settings).unwrap()
    }

    fn state(&self) -> [String; 2] {
        ["ahead", "cache"].map(|name| {
            fs::read_to_string(self.path(name))
                .unwrap()
                .trim()
                .to_owned()
        })
    }
}

#[test]
fn settings_are_turned_off_and_restored() {
    let bench = Bench::with_hdparm();
    let mut changed = bench.turn_off(&BOTH);
    assert_eq!(bench.state(), ["0", "0"]);
    assert_eq!(changed.remarks.len(), 2, "{:?}", changed.remarks);
    assert!(changed.remarks[0].contains("read look-ahead was on"));
    assert!(bench.path("file").exists());
    assert_eq!(changed.restore(), Vec::<String>::new());
    assert_eq!(bench.state(), ["1", "1"]);
    assert!(!bench.path("file").exists());
}

#[test]
fn setting_that_was_off_is_not_touched() {
    let bench = Bench::with_hdparm();
    fs::write(bench.path("cache"), "0").unwrap();
    drop(bench.turn_off(&BOTH));
    assert_eq!(bench.state(), ["1", "0"]);
    let log = fs::read_to_string(bench.path("log")).unwrap();
    assert!(!log.contains("-W0") && !log.contains("-W1"), "{log}");
}

#[test]
fn settings_after_a_crash_are_found_and_restored() {
    let bench = Bench::with_hdparm();
    // The process is gone before it restores anything.
    std::mem::forget(bench.turn_off(&BOTH[..1]));
    assert_eq!(bench.state(), ["0", "1"]);
    let file = bench.path("file");
    let device = Path::new("/dev/sdy");
    let found = |serial| Changed::left_behind(bench.tools(), &file, device, serial);
    let other = found("S2").unwrap_err();
    assert!(other.what.contains("serial number S1"), "{other:?}");
    let mut left = found("S1").unwrap().expect("there is one");
    assert!(left.is_any());
    assert_eq!(left.restore(), Vec::<String>::new());
    assert_eq!(bench.state(), ["1", "1"]);
    assert!(found("S1").unwrap().is_none());
    // The drive may have another name by then.
    let log = fs::read_to_string(bench.path("log")).unwrap();
    assert!(log.contains("-A1 /dev/sdy"), "{log}");
    fs::write(&file, "device = 3\n").unwrap();
    let damaged = found("S1").unwrap_err();
    assert!(damaged.help.contains("remove that file"), "{damaged:?}");
}

#[test]
fn scsi_drive_is_set_by_its_own_tool() {
    let bench = Bench::new();
    fs::write(bench.path("rcd"), "0").unwrap();
    fs::write(bench.path("wce"), "1").unwrap();
    bench.tool("hdparm", "echo \"$2: not an ATA device\" >&2; exit 5");
    bench.tool(
        "sdparm",
        "case $1 in --set=RCD) echo 1 > rcd;; --clear=RCD) echo 0 > rcd;;\n\
         --set=WCE) echo 1 > wce;; --clear=WCE) echo 0 > wce;; esac\n\
         echo \"    $2: MAKER MODEL  0001\"\n\
         echo \"RCD           $(cat rcd)  [cha: y, def:  0, sav:  0]\"\n\
         echo \"WCE           $(cat wce)  [cha: y, def:  1, sav:  1]\"",
    );
    let read = |name| {
        fs::read_to_string(bench.path(name))
            .unwrap()
            .trim()
            .to_owned()
    };
    let mut changed = bench.turn_off(&BOTH);
    assert_eq!((read("rcd"), read("wce")), ("1".into(), "0".into()));
    assert_eq!(changed.restore(), Vec::<String>::new());
    assert_eq!((read("rcd"), read("wce")), ("0".into(), "1".into()));
}

#[test]
fn what_cannot_be_changed_or_restored_is_said() {
    // No tool at all.
    let bench = Bench::new();
    let changed = bench.turn_off(&BOTH[..1]);
    assert!(!changed.is_any());
    let remark = &changed.remarks[0];
    assert!(
        remark.contains("hdparm is not installed") && remark.contains("told apart"),
        "{remark}"
    );
    assert!(!bench.path("file").exists());
    // A drive that ignores the command.
    let bench = Bench::with_hdparm();
    bench.tool("hdparm", "echo ' look-ahead    =  1 (on)'");
    let changed = bench.turn_off(&BOTH[..1]);
    assert!(
        changed.remarks[0].contains("had no effect"),
        "{:?}",
        changed.remarks
    );
    drop(changed);
    // A drive that is gone when its settings are to be restored.
    let bench = Bench::with_hdparm();
    let mut changed = bench.turn_off(&BOTH[..1]);
    bench.tool("hdparm", "echo 'No such device' >&2; exit 1");
    let left = changed.restore();
    assert!(
        left[0].contains("still off") && left[0].contains("No such device"),
        "{left:?}"
    );
    assert!(bench.path("file").exists(), "the next start finds it");
}
