//! The `[[nbd.reservation]]` sections: disk time that is reserved for exports.

use engine::volume_io::BestEffortReservation;
use sched::units::Nanos;
use serde::Deserialize;
use toml::Spanned;

use crate::exports::ExportReservation;
use crate::failure::{Failure, SourceFile};
use crate::quantity::{self, Span};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    volume: Spanned<String>,
    #[serde(deserialize_with = "quantity::text")]
    slice: Nanos,
    #[serde(deserialize_with = "quantity::text")]
    period: Nanos,
}

/// The validated sections.
///
/// # Errors
/// The first section that is not valid.
pub(super) fn reservations(
    source: &SourceFile<'_>,
    sections: Vec<Section>,
    is_exported: bool,
) -> Result<Vec<ExportReservation>, Failure> {
    let first = sections.first().map(|section| section.volume.clone());
    let mut reservations: Vec<ExportReservation> = Vec::new();
    for section in sections {
        let (slice, period) = (section.slice, section.period);
        let volume = section.volume.get_ref();
        if reservations.iter().any(|other| other.volume == *volume) {
            return Err(source
                .bad_input(
                    section.volume.span(),
                    format!("`{volume}` has two reservations"),
                )
                .help("give each export one reservation; all of its connections share it"));
        }
        if slice > period {
            return Err(source
                .bad_input(
                    section.volume.span(),
                    format!(
                        "the reservation of `{volume}` is {} in each {}, more than the whole time of a disk",
                        Span(slice),
                        Span(period)
                    ),
                )
                .help("set a `slice` that is not longer than the `period`"));
        }
        reservations.push(ExportReservation {
            volume: volume.clone(),
            share: BestEffortReservation { slice, period },
        });
    }
    match first {
        Some(volume) if !is_exported => Err(source
            .bad_input(
                volume.span(),
                format!(
                    "`{}` has a reservation, but nothing is exported",
                    volume.get_ref()
                ),
            )
            .help("set `unix` or `tcp` in [nbd] or `mount` in [fuse], or remove the reservation")),
        _ => Ok(reservations),
    }
}
