//! SMART: what drives count of their own bad sectors, by `smartctl` where that is installed.
//!
//! A drive serves the question between its requests, and the schedule does not know of it. So it is asked rarely.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::{Config, DiskConfig, DiskKind};
use crate::http::App;
use crate::wire::view::SmartView;

/// Time between two questions.
const INTERVAL: Duration = Duration::from_secs(3_600);

/// Time for an answer. Then the program is ended.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The names of ATA attributes, by their numbers.
const REALLOCATED: u64 = 5;
const PENDING: u64 = 197;

/// The part of `smartctl --json -A` that is read.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Answer {
    ata_smart_attributes: Attributes,
    /// Of SCSI drives: sectors replaced since the drive was made.
    scsi_grown_defect_list: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Attributes {
    table: Vec<Attribute>,
}

#[derive(Deserialize)]
struct Attribute {
    id: u64,
    raw: Raw,
}

#[derive(Deserialize)]
struct Raw {
    value: u64,
}

/// The counters in an answer; `None` if it has none.
fn counters(answer: &[u8]) -> Option<SmartView> {
    let answer: Answer = serde_json::from_slice(answer).ok()?;
    let attribute = |id| {
        let mut table = answer.ata_smart_attributes.table.iter();
        // Some drives keep other counts in the upper bytes.
        table
            .find(|of| of.id == id)
            .map(|of| of.raw.value & 0xffff_ffff)
    };
    let view = SmartView {
        pending_sectors: attribute(PENDING),
        reallocated_sectors: attribute(REALLOCATED).or(answer.scsi_grown_defect_list),
    };
    (view != SmartView::default()).then_some(view)
}

/// Asks a drive, unless it sleeps.
async fn ask(device: &Path) -> Option<SmartView> {
    let output = Command::new("smartctl")
        .args(["--json", "-n", "standby", "-A"])
        .arg(device)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    // The exit status has bits for old errors of the drive, so the answer alone tells.
    let output = tokio::time::timeout(TIMEOUT, output).await.ok()?.ok()?;
    counters(&output.stdout)
}

/// The change that is worth a line in the log.
fn growth(name: &str, before: SmartView, now: SmartView) -> Option<String> {
    let grown = |before: Option<u64>, now: Option<u64>, what| {
        let (before, now) = (before.unwrap_or(0), now?);
        (now > before).then(|| format!("{now} {what} sectors ({before} before)"))
    };
    let grown: Vec<String> = [
        grown(before.pending_sectors, now.pending_sectors, "pending"),
        grown(
            before.reallocated_sectors,
            now.reallocated_sectors,
            "reallocated",
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!grown.is_empty()).then(|| format!("disk {name:?}: SMART counts {}", grown.join(", ")))
}

/// Starts to ask the block devices of a configuration.
pub(super) fn start(
    app: &Arc<App>,
    config: &Config,
    ending: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let is_device = |disk: &&DiskConfig| disk.kind == DiskKind::Block;
    let devices = config.disks.iter().filter(is_device);
    let devices = devices.map(|disk| disk.path.clone()).collect();
    tokio::spawn(watch(Arc::clone(app), devices, ending))
}

/// Asks all block devices of the pool, again and again.
async fn watch(app: Arc<App>, devices: Vec<PathBuf>, mut ending: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    while !*ending.borrow() {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = ending.changed() => return,
        }
        for device in &devices {
            let asked = tokio::select! {
                asked = ask(device) => asked,
                _ = ending.changed() => return,
            };
            if let Some(now) = asked {
                let name = device.display().to_string();
                let before = app.smart.set(&name, now).unwrap_or_default();
                if let Some(line) = growth(&name, before, now) {
                    tracing::warn!("{line}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(pending: Option<u64>, reallocated: Option<u64>) -> SmartView {
        SmartView {
            pending_sectors: pending,
            reallocated_sectors: reallocated,
        }
    }

    #[test]
    fn counters_of_ata_and_scsi_drives_are_found() {
        let ata = br#"{"smartctl": {"exit_status": 64}, "ata_smart_attributes": {"revision": 10, "table": [
            {"id": 1, "name": "Raw_Read_Error_Rate", "raw": {"value": 9, "string": "9"}},
            {"id": 5, "name": "Reallocated_Sector_Ct", "raw": {"value": 4294967304, "string": "8"}},
            {"id": 197, "name": "Current_Pending_Sector", "raw": {"value": 3, "string": "3"}}]}}"#;
        assert_eq!(counters(ata), Some(view(Some(3), Some(8))));
        let scsi = br#"{"device": {"protocol": "SCSI"}, "scsi_grown_defect_list": 12}"#;
        assert_eq!(counters(scsi), Some(view(None, Some(12))));
        let none = [
            &b""[..],
            b"smartctl: not found",
            b"{}",
            b"[]",
            br#"{"ata_smart_attributes": 3}"#,
        ];
        for answer in none {
            assert_eq!(counters(answer), None);
        }
    }

    #[test]
    fn only_growth_is_told() {
        let old = view(Some(1), Some(5));
        assert_eq!(growth("sda", old, old), None);
        assert_eq!(growth("sda", old, view(Some(0), None)), None);
        let told = growth("sda", old, view(Some(2), Some(9))).unwrap();
        assert_eq!(
            told,
            "disk \"sda\": SMART counts 2 pending sectors (1 before), 9 reallocated sectors (5 before)"
        );
        assert_eq!(
            growth("sda", SmartView::default(), view(Some(0), Some(0))),
            None
        );
    }
}
