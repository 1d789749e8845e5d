//! Settings of a drive that are changed for a measurement: read look-ahead and write cache, both turned off.
//!
//! With look-ahead a drive answers reads from its memory, and its mechanics cannot be seen. A write cache hides the
//! times of writes. Neither is the kernel's: `blockdev --setra` does not concern direct I/O, and
//! `queue/write_cache` does not reach the drive. So the tools of ATA (`hdparm`) and SCSI (`sdparm`) are asked, if
//! they are installed. A setting that cannot be turned off is reported with its effect.
//!
//! The settings before the change are in a file beside the profile until they are restored. After a crash the next
//! measurement finds that file, says so, and restores them.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::samples::with_suffix;
use crate::failure::{Failure, io_failure};

/// A setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// The drive reads on and keeps what it read.
    ReadLookAhead,
    /// The drive answers writes before they are on the medium.
    WriteCache,
}

impl Setting {
    /// Its name in a sentence.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::ReadLookAhead => "read look-ahead",
            Self::WriteCache => "the write cache",
        }
    }

    /// The effect on a measurement if it stays on.
    fn remains(self) -> &'static str {
        match self {
            Self::ReadLookAhead => {
                "reads may come from the drive's memory, so tracks may not be told apart"
            }
            Self::WriteCache => "each write is forced through it, as the server does",
        }
    }
}

/// A tool that changes settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// For ATA.
    Hdparm,
    /// For SCSI.
    Sdparm,
}

/// Whether a setting is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// It is on.
    On,
    /// It is off.
    Off,
}

/// A setting before it was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Before {
    /// The setting.
    pub setting: Setting,
    /// The tool that changes it.
    pub tool: Tool,
    /// Its state before.
    pub was: Switch,
}

/// The file of settings before a measurement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    device: PathBuf,
    serial: String,
    #[serde(default)]
    before: Vec<Before>,
}

/// The tools of this machine.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// The folders of programs; `None`: those of this process.
    pub path: Option<OsString>,
}

impl Tools {
    /// The tools in the usual folders, those of root included.
    #[must_use]
    pub fn usual() -> Self {
        let mut path = std::env::var_os("PATH").unwrap_or_default();
        path.push(":/usr/sbin:/sbin");
        Self { path: Some(path) }
    }

    /// Runs a tool; its output if it succeeded. The error is in words.
    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(program);
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
        let output = command
            .args(arguments)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => format!("{program} is not installed"),
                _ => format!("{program}: {error}"),
            })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().find(|line| !line.trim().is_empty());
            return Err(format!("{program}: {}", line.unwrap_or("it failed").trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn get(&self, tool: Tool, setting: Setting, device: &str) -> Result<Switch, String> {
        let (program, option, key) = match (tool, setting) {
            (Tool::Hdparm, Setting::ReadLookAhead) => ("hdparm", "-A", "look-ahead"),
            (Tool::Hdparm, Setting::WriteCache) => ("hdparm", "-W", "write-caching"),
            (Tool::Sdparm, Setting::ReadLookAhead) => ("sdparm", "--get=RCD", "RCD"),
            (Tool::Sdparm, Setting::WriteCache) => ("sdparm", "--get=WCE", "WCE"),
        };
        let said = self.run(program, &[option, device])?;
        let number = number_after(&said, key)
            .ok_or_else(|| format!("{program} does not say the state of {}", setting.words()))?;
        // SCSI has a bit that turns the read cache off.
        let is_inverse = key == "RCD";
        Ok(if (number != 0) == is_inverse {
            Switch::Off
        } else {
            Switch::On
        })
    }

    fn set(&self, tool: Tool, setting: Setting, to: Switch, device: &str) -> Result<(), String> {
        let (program, option) = match (tool, setting, to) {
            (Tool::Hdparm, Setting::ReadLookAhead, Switch::On) => ("hdparm", "-A1"),
            (Tool::Hdparm, Setting::ReadLookAhead, Switch::Off) => ("hdparm", "-A0"),
            (Tool::Hdparm, Setting::WriteCache, Switch::On) => ("hdparm", "-W1"),
            (Tool::Hdparm, Setting::WriteCache, Switch::Off) => ("hdparm", "-W0"),
            (Tool::Sdparm, Setting::ReadLookAhead, Switch::On) => ("sdparm", "--clear=RCD"),
            (Tool::Sdparm, Setting::ReadLookAhead, Switch::Off) => ("sdparm", "--set=RCD"),
            (Tool::Sdparm, Setting::WriteCache, Switch::On) => ("sdparm", "--set=WCE"),
            (Tool::Sdparm, Setting::WriteCache, Switch::Off) => ("sdparm", "--clear=WCE"),
        };
        self.run(program, &[option, device])?;
        // A drive may ignore the command.
        if self.get(tool, setting, device)? != to {
            return Err(format!("{program} {option} had no effect"));
        }
        Ok(())
    }
}

/// The first number behind `key` in a line, as in ` look-ahead    =  1 (on)` and `WCE           1  [cha: y]`.
fn number_after(text: &str, key: &str) -> Option<u64> {
    let after = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(key))?;
    let digits = after.trim_start_matches([' ', '=', '\t']);
    let end = digits
        .find(|char: char| !char.is_ascii_digit())
        .unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// Settings that are changed until they are restored.
#[derive(Debug)]
pub struct Changed {
    tools: Tools,
    /// Beside the profile.
    file: PathBuf,
    kept: Kept,
    /// The changes and the failed changes, in sentences.
    pub remarks: Vec<String>,
    is_restored: bool,
}

/// The file of the settings before the measurement of a profile.
#[must_use]
pub fn path_of(profile: &Path) -> PathBuf {
    with_suffix(profile, ".settings")
}

impl Changed {
    /// Turns these settings off, after the present state is in `file`.
    ///
    /// # Errors
    /// When the file cannot be written; then nothing is changed.
    pub fn turn_off(
        tools: Tools,
        file: &Path,
        device: &Path,
        serial: &str,
        settings: &[Setting],
    ) -> Result<Self, Failure> {
        let name = device.to_string_lossy();
        let mut before = Vec::new();
        let mut remarks = Vec::new();
        for setting in settings {
            let ask = |tool| tools.get(tool, *setting, &name).map(|was| (tool, was));
            let answer = ask(Tool::Hdparm)
                .or_else(|ata| ask(Tool::Sdparm).map_err(|scsi| format!("{ata}; {scsi}")));
            match answer {
                Ok((tool, was)) => before.push(Before {
                    setting: *setting,
                    tool,
                    was,
                }),
                Err(why) => remarks.push(not_off(*setting, &why)),
            }
        }
        before.retain(|before| before.was == Switch::On);
        let mut changed = Self {
            tools,
            file: file.to_owned(),
            kept: Kept {
                device: device.to_owned(),
                serial: serial.to_owned(),
                before,
            },
            remarks,
            is_restored: false,
        };
        if !changed.kept.before.is_empty() {
            write(file, &changed.kept)
                .map_err(|error| io_failure("keep the drive's settings in", file, &error))?;
        }
        for before in changed.kept.before.clone() {
            let set = (changed.tools).set(before.tool, before.setting, Switch::Off, &name);
            changed.remarks.push(match set {
                Ok(()) => format!(
                    "{} was on, and is off during the measurement",
                    before.setting.words()
                ),
                Err(why) => not_off(before.setting, &why),
            });
        }
        Ok(changed)
    }

    /// The settings that a crashed measurement left changed, if `file` is there.
    ///
    /// # Errors
    /// When the file cannot be read, or is of another drive.
    pub fn left_behind(
        tools: Tools,
        file: &Path,
        device: &Path,
        serial: &str,
    ) -> Result<Option<Self>, Failure> {
        let text = match fs::read_to_string(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| io_failure("read the settings in", file, &error))?,
        };
        let at = file.display();
        let kept: Kept = toml::from_str(&text).map_err(|error| {
            Failure::bad_input(format!("{at}: {}", error.message())).help(
                "look at the drive's settings with `hdparm -A -W DEVICE`, set them as you want them, and remove that file",
            )
        })?;
        if kept.serial != serial {
            return Err(Failure::bad_input(format!(
                "{at} has the settings of {}, serial number {}, which an interrupted measurement changed; this drive has serial number {serial}",
                kept.device.display(),
                kept.serial
            ))
            .help("measure that drive again with this `--to`, which restores its settings; or name another profile"));
        }
        let kept = Kept {
            device: device.to_owned(),
            ..kept
        };
        Ok(Some(Self {
            tools,
            file: file.to_owned(),
            kept,
            remarks: Vec::new(),
            is_restored: false,
        }))
    }

    /// True if something was changed.
    #[must_use]
    pub fn is_any(&self) -> bool {
        !self.kept.before.is_empty()
    }

    /// Restores the settings and removes the file. Returns a sentence for each setting that is not restored.
    pub fn restore(&mut self) -> Vec<String> {
        if std::mem::replace(&mut self.is_restored, true) {
            return Vec::new();
        }
        let name = self.kept.device.to_string_lossy().into_owned();
        let mut left = Vec::new();
        for before in &self.kept.before {
            if let Err(why) = (self.tools).set(before.tool, before.setting, before.was, &name) {
                left.push(format!(
                    "{} is still off and was on before: {why}",
                    before.setting.words()
                ));
            }
        }
        if left.is_empty() {
            // A file that cannot be removed is found at the next start, and restoring twice does no harm.
            let _ = fs::remove_file(&self.file);
        }
        left
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        // A setting that is not restored stays in the file, and the next start reports it.
        let _ = self.restore();
    }
}

fn not_off(setting: Setting, why: &str) -> String {
    format!(
        "{} could not be turned off ({why}): {}",
        setting.words(),
        setting.remains()
    )
}

fn write(path: &Path, kept: &Kept) -> io::Result<()> {
    let text = toml::to_string(kept).map_err(io::Error::other)?;
    let mut file = fs::File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests;
