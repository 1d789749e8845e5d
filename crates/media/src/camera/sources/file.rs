//! The file that remembers the sources.
//!
//! JSON, read when the server starts. Each change replaces the whole file durably before it is answered. The file
//! contains the cameras' passwords in clear, because Digest needs them, so only its owner may read it. It is not part
//! of the pool: disks that are sold or lent must not contain passwords, and a pool that is opened on another host must
//! not start to pull cameras there.

use std::collections::BTreeSet;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sched::units::BytesPerSecond;
use serde::{Deserialize, Serialize};

use super::SOURCES_MAX;
use crate::camera::source::{Address, LowerTransport, SourceSpec, SourceUse};
use crate::rtsp::tls::TrustedCertificates;

/// A source in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceRecord {
    name: String,
    url: String,
    volume: String,
    #[serde(default, skip_serializing_if = "is_recorded")]
    used: SourceUse,
    udp: bool,
    rate_bytes_per_second: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measured_bytes_per_second: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificates: Option<String>,
}

/// Versions without live sources can read the file if there are none.
fn is_recorded(used: &SourceUse) -> bool {
    *used == SourceUse::Record
}

impl From<&SourceSpec> for SourceRecord {
    fn from(spec: &SourceSpec) -> Self {
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let login = spec.address.credentials().map_or(String::new(), |login| {
            format!("{}:{}@", encode(&login.user), encode(&login.password))
        });
        Self {
            name: spec.name.clone(),
            url: spec
                .address
                .shown()
                .replacen("://", &format!("://{login}"), 1),
            volume: spec.volume.clone(),
            used: spec.used,
            udp: spec.lower == LowerTransport::Udp,
            rate_bytes_per_second: spec.rate.map(|rate| rate.0),
            measured_bytes_per_second: spec.measured.map(|rate| rate.0),
            certificates: spec
                .trusted
                .as_ref()
                .map(|trusted| trusted.pem().to_owned()),
        }
    }
}

impl TryFrom<SourceRecord> for SourceSpec {
    type Error = String;

    fn try_from(record: SourceRecord) -> Result<Self, String> {
        let address = Address::parse(&record.url);
        let trusted = record
            .certificates
            .as_deref()
            .map(TrustedCertificates::parse)
            .transpose();
        Ok(Self {
            address: address
                .map_err(|error| format!("URL of source {:?}: {error}", record.name))?,
            trusted: trusted
                .map_err(|error| format!("certificates of source {:?}: {error}", record.name))?,
            name: record.name,
            volume: record.volume,
            used: record.used,
            lower: if record.udp {
                LowerTransport::Udp
            } else {
                LowerTransport::Tcp
            },
            rate: record.rate_bytes_per_second.map(BytesPerSecond),
            measured: record.measured_bytes_per_second.map(BytesPerSecond),
        })
    }
}

/// Parses the file.
///
/// # Errors
/// The place of the error. The text is not repeated, because it contains passwords.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<SourceSpec>, String> {
    let records: Vec<SourceRecord> = serde_json::from_slice(bytes)
        .map_err(|error| format!("line {}, column {}", error.line(), error.column()))?;
    let specs: Vec<_> = records
        .into_iter()
        .map(SourceSpec::try_from)
        .collect::<Result<_, _>>()?;
    if specs.len() > SOURCES_MAX {
        return Err(format!(
            "it has {} sources; the maximum is {SOURCES_MAX}",
            specs.len()
        ));
    }
    let mut names = BTreeSet::new();
    match specs.iter().find(|spec| !names.insert(&spec.name)) {
        Some(twice) => Err(format!("source {:?} is in it twice", twice.name)),
        None => Ok(specs),
    }
}

/// The content of the file.
pub(super) fn encode<'a>(
    specs: impl Iterator<Item = &'a SourceSpec>,
) -> serde_json::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(&specs.map(SourceRecord::from).collect::<Vec<_>>())?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_holds_the_sources() {
        let spec = SourceSpec {
            name: "a".to_owned(),
            address: Address::parse("rtsp://u%2F:p%40%22@[::1]:5/x?y=1").unwrap(),
            volume: "v \"".to_owned(),
            used: SourceUse::Record,
            lower: LowerTransport::Udp,
            rate: Some(BytesPerSecond(7)),
            measured: Some(BytesPerSecond(6)),
            trusted: None,
        };
        let other = SourceSpec {
            name: "b".to_owned(),
            address: Address::parse("rtsp://h/").unwrap(),
            used: SourceUse::OnDemand,
            lower: LowerTransport::Tcp,
            rate: None,
            ..spec.clone()
        };
        let written = encode([&spec, &other].into_iter()).unwrap();
        assert_eq!(parse(&written), Ok(vec![spec.clone(), other]));
        let twice = encode([&spec, &spec].into_iter()).unwrap();
        assert_eq!(parse(&twice), Err("source \"a\" is in it twice".to_owned()));
        let wrong = parse(b"[{\"name\": \"secret\" }]").unwrap_err();
        assert!(!wrong.contains("secret"), "{wrong}");
    }
}
