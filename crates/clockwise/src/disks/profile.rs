//! The profile of a disk, and whether it was measured on that disk.

use std::sync::Arc;

use sched::profile::{DriveKind, DriveProfile};
use sched::units::SectorCount;

use super::bad_disk;
use crate::config::{DiskConfig, DiskKind};
use crate::device::{Identity, NodeKind};
use crate::failure::Failure;

/// Help for a disk for which no profile can be chosen.
const PROFILE_HELP: &str = "set `profile` to one that was measured on this disk";

/// The drive behind a disk, as far as profiles and statistics depend on it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Drive {
    /// Its serial number, or its identity if it has no hardware of its own.
    pub serial: Option<String>,
    /// The reason why a profile with a measurement does not count as measured here, if so.
    pub doubt: Option<String>,
}

/// A disk's profile.
pub(super) struct ChosenProfile {
    pub(super) profile: Arc<DriveProfile>,
    /// True if it was measured on this disk.
    pub(super) is_measured: bool,
    pub(super) drive: Drive,
}

/// Chooses the profile of a disk: the configured one, or else a conservative one for the kind of disk, at the
/// configured number of outstanding requests.
pub(super) fn choose(disk: &DiskConfig, capacity: SectorCount) -> Result<ChosenProfile, Failure> {
    // A device that the kernel does not list has no serial number and counts as rotational, the cautious guess.
    let identity = Identity::of(&disk.path).ok();
    let profile = match &disk.profile {
        Some(profile) => Arc::clone(profile),
        None => {
            let is_rotational = identity
                .as_ref()
                .is_none_or(|identity| identity.rotational != Some(false));
            let kind = match disk.kind {
                DiskKind::File => DriveKind::File,
                DiskKind::Emulated => DriveKind::Rotating,
                DiskKind::Block if is_rotational => DriveKind::Rotating,
                DiskKind::Block => DriveKind::SolidState,
            };
            Arc::new(
                DriveProfile::conservative(kind, capacity)
                    .map_err(|error| bad_disk(disk, error).help(PROFILE_HELP))?,
            )
        }
    };
    let doubt = doubt(&profile, identity.as_ref());
    let serial = identity.and_then(|identity| identity.serial);
    let is_measured = counts_as_measured(disk, &profile) && doubt.is_none();
    // Times that hold with several outstanding requests hold with fewer, too. More than one need a measurement of
    // this disk.
    let depth = match (disk.outstanding, &doubt) {
        (_, Some(_)) => 1,
        (Some(outstanding), None) => outstanding,
        (None, None) => profile.outstanding(),
    };
    let mut spec = profile.spec().clone();
    spec.outstanding = depth;
    let profile = DriveProfile::new(spec).map_err(|error| {
        bad_disk(disk, error).help("remove `outstanding`, or set another profile")
    })?;
    Ok(ChosenProfile {
        profile: Arc::new(profile),
        is_measured,
        drive: Drive { serial, doubt },
    })
}

/// True if a profile was measured on some disk, and is not one that is shipped for another.
fn counts_as_measured(disk: &DiskConfig, profile: &DriveProfile) -> bool {
    let is_of_file = !disk.profile_is_shipped || is_emulated_as(disk, profile);
    profile.measured() && is_of_file
}

/// The reason why the promises of a disk rest on an estimate of its service times; `None` if its profile was measured
/// on it.
#[must_use]
pub fn estimate(disk: &DiskConfig) -> Option<String> {
    let Some(profile) = &disk.profile else {
        return Some("it has no profile, and a cautious guess is used".to_owned());
    };
    let identity = Identity::of(&disk.path).ok();
    doubt(profile, identity.as_ref()).or_else(|| {
        let name = profile.name();
        let is_measured = counts_as_measured(disk, profile);
        (!is_measured).then(|| format!("the profile {name:?} was not measured on this disk"))
    })
}

/// The reason why a profile with a measurement does not count as measured on this disk.
fn doubt(profile: &DriveProfile, disk: Option<&Identity>) -> Option<String> {
    let measured = profile.measurement()?;
    let name = profile.name();
    let serial = disk.and_then(|disk| disk.serial.as_deref());
    if serial != Some(measured.serial.trim()) {
        let present = match serial {
            Some(serial) => format!("this disk has serial number {serial}"),
            None => "this disk reports no serial number".to_owned(),
        };
        return profile.measured().then(|| {
            format!(
                "the profile {name:?} was measured on {}, serial number {}, but {present}: it counts as an estimate; \
                 measure this disk with `clockwise disk measure`",
                measured.model, measured.serial,
            )
        });
    }
    let is_partition = disk.is_some_and(|disk| matches!(disk.kind, NodeKind::Partition { .. }));
    if is_partition && profile.kind() == DriveKind::Rotating {
        return Some(format!(
            "the profile {name:?} is of the whole drive, and this disk is a partition of it, whose zones and seeks are \
             others: it counts as an estimate; give the whole drive"
        ));
    }
    (!profile.measured()).then(|| {
        format!(
            "the profile {name:?} was measured on this disk without writes, whose times are assumed: it counts as an \
             estimate; measure with `--write`, or promise only reads"
        )
    })
}

/// True if a disk is an emulated drive of the profile's model. Shipped profiles were measured on emulated
/// drives, so they count as measured only there.
fn is_emulated_as(disk: &DiskConfig, profile: &DriveProfile) -> bool {
    let plant = disk
        .plant
        .as_ref()
        .filter(|_| disk.kind == DiskKind::Emulated);
    plant.is_some_and(|plant| plant.name() == profile.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sched::profile::MeasurementSpec;

    /// The shipped profile of the Atlas-II as if it had been measured on the drive with serial number 161728.
    fn bound() -> DriveProfile {
        let mut spec = DriveProfile::shipped("quantum-atlas-ii")
            .unwrap()
            .spec()
            .clone();
        spec.measurement = Some(MeasurementSpec {
            model: "ATLAS II".to_owned(),
            serial: "161728".to_owned(),
            firmware: "LYK8".to_owned(),
            date: "2026-11-30T04:20:00Z".to_owned(),
            method: "by hand".to_owned(),
            samples: 10_000,
            confidence_percent: 95,
            over_actual_permille: 1_160,
        });
        DriveProfile::new(spec).unwrap()
    }

    fn disk(serial: Option<&str>, kind: NodeKind) -> Identity {
        let file = tempfile::NamedTempFile::new().unwrap();
        Identity {
            kind,
            serial: serial.map(str::to_owned),
            ..Identity::of(file.path()).unwrap()
        }
    }

    #[test]
    fn profile_counts_on_the_measured_drive_alone() {
        let doubt_on =
            |profile: &DriveProfile, serial| doubt(profile, Some(&disk(serial, NodeKind::Whole)));
        let without = DriveProfile::shipped("quantum-atlas-ii").unwrap();
        assert_eq!(doubt_on(&without, Some("1")), None);
        assert_eq!(doubt_on(&bound(), Some("161728")), None);
        let other = doubt_on(&bound(), Some("9")).unwrap();
        assert!(
            other.contains("161728") && other.contains("has serial number 9"),
            "{other}"
        );
        let none = doubt_on(&bound(), None).unwrap();
        assert!(none.contains("reports no serial number"), "{none}");
        assert_eq!(doubt(&bound(), None), Some(none));
        // An estimate stays an estimate, on whatever drive.
        let estimate = bound().vouched_for(false);
        assert_eq!(doubt_on(&estimate, None), None);
        let same = doubt_on(&estimate, Some("161728")).unwrap();
        assert!(same.contains("without writes"), "{same}");
    }

    #[test]
    fn profile_of_a_drive_with_platters_is_an_estimate_on_its_partition() {
        let kind = NodeKind::Partition {
            start_sector: 2_048,
        };
        let partition = disk(Some("161728"), kind);
        let doubted = doubt(&bound(), Some(&partition)).unwrap();
        assert!(doubted.contains("give the whole drive"), "{doubted}");
        // Without platters a part is as fast as the whole.
        let mut flat = DriveProfile::shipped("conservative-solid-state")
            .unwrap()
            .spec()
            .clone();
        (flat.measured, flat.measurement) = (true, bound().measurement().cloned());
        let flat = DriveProfile::new(flat).unwrap();
        assert_eq!(doubt(&flat, Some(&partition)), None);
    }
}
