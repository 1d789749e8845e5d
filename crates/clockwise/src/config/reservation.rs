//! Disk time reserved for exports: `[[nbd.reservation]]`.

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

/// What the sections say, where they make sense.
///
/// # Errors
/// The first that does not.
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
                .wrong(
                    section.volume.span(),
                    format!("`{volume}` has a reservation already"),
                )
                .help("give each export one reservation, which all of its connections share"));
        }
        if slice > period {
            return Err(source
                .wrong(
                    section.volume.span(),
                    format!(
                        "the reservation of `{volume}` is {} in each {}: more than all of a disk",
                        Span(slice),
                        Span(period)
                    ),
                )
                .help("give a `slice` that is shorter than the `period`"));
        }
        reservations.push(ExportReservation {
            volume: volume.clone(),
            share: BestEffortReservation { slice, period },
        });
    }
    match first {
        Some(volume) if !is_exported => Err(source
            .wrong(
                volume.span(),
                format!(
                    "`{}` has a reservation, but nothing is exported",
                    volume.get_ref()
                ),
            )
            .help(
                "give `unix` or `tcp` in [nbd] or `mount` in [fuse], or take the reservation out",
            )),
        _ => Ok(reservations),
    }
}
