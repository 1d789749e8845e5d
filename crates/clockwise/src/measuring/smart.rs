//! A drive's report about itself, through `smartctl --json` if that is installed.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::settings::Tools;

/// Attributes of ATA drives that tell of sectors that are read again or replaced.
const ATTRIBUTES: [(u64, &str); 3] = [
    (5, "reallocated sectors"),
    (197, "pending sectors"),
    (198, "uncorrectable sectors"),
];

/// Answers of a drive; an answer that it does not give is absent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Smart {
    /// Revolutions per minute; 0 for a drive without platters.
    pub rotation_rate_rpm: Option<u64>,
    /// True if the drive considers itself healthy.
    pub is_healthy: Option<bool>,
    /// Its temperature.
    pub temperature_celsius: Option<i64>,
    /// How long it has been on.
    pub power_on_hours: Option<u64>,
    /// Counters of bad sectors, by name.
    pub counters: Vec<(String, u64)>,
    /// Why there are no answers.
    pub absent: Option<String>,
}

impl Smart {
    /// Asks the drive.
    #[must_use]
    pub fn of(tools: &Tools, device: &Path) -> Self {
        let device = device.to_string_lossy();
        // The exit status has bits for findings of the drive, so that a failure may come with an answer.
        let script = ["-c", "smartctl --json -i -H -A \"$0\"; exit 0", &device];
        match tools.run("sh", &script) {
            Ok(text) => Self::parse(&text),
            Err(why) => Self {
                absent: Some(why),
                ..Self::default()
            },
        }
    }

    fn parse(text: &str) -> Self {
        let Ok(value) = serde_json::from_str::<Value>(text) else {
            return Self {
                absent: Some("smartctl is not installed, or does not know this device".to_owned()),
                ..Self::default()
            };
        };
        let table = value["ata_smart_attributes"]["table"].as_array();
        let counter = |(id, name): &(u64, &str)| {
            let of_id = |row: &&Value| row["id"].as_u64() == Some(*id);
            let row = table?.iter().find(of_id)?;
            Some(((*name).to_owned(), row["raw"]["value"].as_u64()?))
        };
        Self {
            rotation_rate_rpm: value["rotation_rate"].as_u64(),
            is_healthy: value["smart_status"]["passed"].as_bool(),
            temperature_celsius: value["temperature"]["current"].as_i64(),
            power_on_hours: value["power_on_time"]["hours"].as_u64(),
            counters: ATTRIBUTES.iter().filter_map(counter).collect(),
            absent: None,
        }
    }

    /// Name and value of each answer, for people.
    #[must_use]
    pub fn lines(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        let mut line = |name: &str, value: String| lines.push((name.to_owned(), value));
        match self.rotation_rate_rpm {
            Some(0) => line("rotation rate", "no platters".to_owned()),
            Some(rpm) => line("rotation rate", format!("{rpm} RPM")),
            None => {}
        }
        if let Some(is_healthy) = self.is_healthy {
            let words = if is_healthy {
                "passed"
            } else {
                "FAILED: replace the drive"
            };
            line("self-assessment", words.to_owned());
        }
        if let Some(celsius) = self.temperature_celsius {
            line("temperature", format!("{celsius} °C"));
        }
        if let Some(hours) = self.power_on_hours {
            line("power-on time", format!("{hours} h"));
        }
        for (name, value) in &self.counters {
            line(name, value.to_string());
        }
        if let Some(why) = &self.absent {
            line("SMART", why.clone());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_far_as_they_are_there() {
        let text = r#"{"smartctl":{"exit_status":8},"rotation_rate":7200,"smart_status":{"passed":false},
            "temperature":{"current":41},"power_on_time":{"hours":12},
            "ata_smart_attributes":{"table":[{"id":5,"name":"x","raw":{"value":8}},{"id":"odd"}]}}"#;
        let smart = Smart::parse(text);
        assert_eq!(smart.rotation_rate_rpm, Some(7200));
        assert_eq!(smart.counters, [("reallocated sectors".to_owned(), 8)]);
        let lines = smart.lines();
        assert!(lines.iter().any(|(_, value)| value.starts_with("FAILED")));
        assert_eq!(Smart::parse("{}"), Smart::default());
        assert!(Smart::parse("sh: smartctl: not found").absent.is_some());
        assert!(Smart::parse("").absent.is_some());
    }

    #[test]
    fn missing_tool_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let none = Tools {
            path: Some(folder.path().as_os_str().to_owned()),
        };
        let smart = Smart::of(&none, Path::new("/dev/null"));
        assert!(smart.absent.is_some(), "{smart:?}");
    }
}
