//! Metrics of disks and of the links that they share.

use std::fmt;

use super::DiskBuckets;
use super::sheet::{Kind, Labels, Metric, Sheet, counter, flag, gauge, labels, largest, seconds};
use crate::wire::service_times::DriftDirection;
use crate::wire::view::{DiskView, SmartView, StatusView};

/// Metrics with the label `disk` alone.
const DISK: &[Metric<DiskView>] = &[
    gauge("disk_size_bytes", "Size of the disk.", |disk| {
        disk.size_bytes as f64
    }),
    gauge(
        "disk_profile_measured",
        "1 if the profile was measured on the disk, 0 if it is an estimate.",
        |disk| flag(disk.profile_is_measured && disk.profile_doubt.is_none()),
    ),
    gauge(
        "disk_outstanding_requests_limit",
        "The most requests that the disk is given at a time.",
        |disk| f64::from(disk.outstanding),
    ),
    gauge(
        "disk_utilization_promised_ratio",
        "Share of the disk's time that is promised.",
        |disk| disk.utilization_promised,
    ),
    gauge(
        "disk_utilization_leaving_ratio",
        "Part of that share that ended streams and exports still hold.",
        |disk| disk.utilization_leaving,
    ),
    gauge(
        "disk_utilization_measured_ratio",
        "Share of the time for which the disk was busy since the status window began.",
        |disk| disk.utilization_measured,
    ),
    gauge(
        "disk_floor_ratio",
        "Share of the disk's time that is kept for best effort without a reservation.",
        |disk| disk.floor,
    ),
    gauge(
        "disk_delta_l_seconds",
        "Corrected delta-L of the promises; infinite if nothing is promised.",
        |disk| seconds(disk.delta_l_ns),
    ),
    gauge(
        "disk_slack_seconds",
        "Present slack; infinite if nothing is promised.",
        |disk| seconds(disk.slack_ns),
    ),
    gauge(
        "disk_requests_queued",
        "Requests that wait for the disk.",
        |disk| disk.queued as f64,
    ),
    counter(
        "disk_deadlines_missed",
        "Deadlines missed, net of the host's own lateness.",
        |disk| disk.misses as f64,
    ),
    counter(
        "disk_deadlines_missed_gross",
        "Deadlines missed, including the host's own lateness.",
        |disk| disk.misses_gross as f64,
    ),
    largest(
        "disk_lateness_max_seconds",
        "The worst lateness, net of the host's own.",
        |disk| seconds(disk.late_net_max_ns),
    ),
    largest(
        "disk_lateness_gross_max_seconds",
        "The worst lateness, including the host's own.",
        |disk| seconds(disk.late_max_ns),
    ),
    counter(
        "disk_overruns",
        "Requests that took longer than predicted, net of the host's own lateness.",
        |disk| disk.overruns as f64,
    ),
    largest("disk_overrun_max_seconds", "The longest overrun.", |disk| {
        seconds(disk.overrun_max_ns)
    }),
    gauge(
        "disk_actual_over_predicted_ratio",
        "Ratio of actual to predicted service time over all requests.",
        |disk| disk.actual_over_predicted,
    ),
    largest(
        "disk_actual_over_predicted_max_ratio",
        "The largest such ratio of one request; above 1 it is an overrun.",
        |disk| disk.actual_over_predicted_max,
    ),
    counter(
        "disk_host_late",
        "Times that the host was late to serve the disk.",
        |disk| disk.host_late_count as f64,
    ),
    largest(
        "disk_host_late_max_seconds",
        "The worst lateness of the host.",
        |disk| seconds(disk.host_late_max_ns),
    ),
    counter("disk_read_bytes", "Bytes read from the disk.", |disk| {
        disk.read_bytes as f64
    }),
    counter("disk_written_bytes", "Bytes written to the disk.", |disk| {
        disk.written_bytes as f64
    }),
    gauge(
        "disk_bad_places",
        "Places that are not used any more, because transfers failed there.",
        |disk| disk.bad_places as f64,
    ),
    gauge(
        "disk_slow_places",
        "Places that are used for best effort only, because requests took too long there.",
        |disk| disk.slow_places as f64,
    ),
    largest(
        "disk_slow_place_extra_max_seconds",
        "The longest time beyond the prediction at a slow place.",
        |disk| seconds(disk.slow_extra_max_ns),
    ),
    gauge(
        "disk_places_to_leave",
        "Bad and slow places whose data has not been moved away.",
        |disk| disk.places_to_leave as f64,
    ),
    gauge(
        "disk_stalled_seconds",
        "Time for which a stalled disk has not answered; 0 if it is not stalled.",
        |disk| seconds(disk.stalled_ns),
    ),
    counter("disk_stalls", "Stalls of the disk.", |disk| {
        disk.stalls as f64
    }),
    counter(
        "disk_comebacks",
        "Stalls after which the disk has answered again.",
        |disk| disk.comebacks as f64,
    ),
    counter(
        "disk_given_ups",
        "Times that the disk was given up after a long stall.",
        |disk| disk.given_ups as f64,
    ),
    gauge(
        "disk_failed",
        "1 if the disk has failed, was given up, or cannot make anything durable.",
        |disk| flag(disk.failed.is_some()),
    ),
    counter(
        "disk_observed_requests",
        "Pieces of requests whose service time was compared with the profile, over all restarts.",
        |disk| disk.service_times.count as f64,
    ),
    counter(
        "disk_observed_overruns",
        "Those that took longer than predicted, over all restarts.",
        |disk| disk.service_times.overruns as f64,
    ),
];

/// Writes the metrics of all disks.
pub(super) fn disks(
    sheet: &mut Sheet<'_>,
    status: &StatusView,
    buckets: &[DiskBuckets],
) -> fmt::Result {
    let disks = &status.disks;
    let about = disks.iter().map(|disk| {
        let labels = labels([
            ("disk", &disk.name),
            ("profile", &disk.profile),
            ("durability", &disk.durability),
        ]);
        (labels, 1.0)
    });
    let help = "A disk, its profile, and the method by which its writes become durable; always 1.";
    sheet.one(Kind::Largest, "disk_info", help, about)?;
    sheet.table(
        DISK,
        disks
            .iter()
            .map(|disk| (labels([("disk", &disk.name)]), disk)),
    )?;
    requests(sheet, disks)?;
    distributions(sheet, disks, buckets)?;
    drift_and_smart(sheet, disks)?;
    links(sheet, disks)
}

/// A value for each disk and each value of another label.
fn each<'a, const N: usize>(
    disks: &'a [DiskView],
    label: &'static str,
    values: impl Fn(&DiskView) -> [(&'static str, f64); N],
) -> Vec<(Labels<'a>, f64)> {
    let of_disk = |disk: &'a DiskView| {
        let values = values(disk);
        values.map(|(value, count)| {
            (
                labels([("disk", disk.name.as_str()), (label, value)]),
                count,
            )
        })
    };
    disks.iter().flat_map(of_disk).collect()
}

fn requests(sheet: &mut Sheet<'_>, disks: &[DiskView]) -> fmt::Result {
    let served = each(disks, "rule", |disk| {
        [
            ("real_time", disk.served.real_time as f64),
            ("early", disk.served.early as f64),
            ("slack", disk.served.slack as f64),
            ("container", disk.served.container as f64),
        ]
    });
    let help = "Requests served, by the rule that started them.";
    sheet.one(Kind::Counter, "disk_requests_served", help, served)?;
    let completed = each(disks, "class", |disk| {
        [
            ("stream", disk.completed.streams as f64),
            ("sync", disk.completed.sync as f64),
            ("async", disk.completed.asynchronous as f64),
        ]
    });
    let help = "Requests completed: of streams, best effort that a client waits for, and other best effort.";
    sheet.one(Kind::Counter, "disk_requests_completed", help, completed)?;
    let errors = each(disks, "op", |disk| {
        [
            ("read", disk.read_errors as f64),
            ("write", disk.write_errors as f64),
        ]
    });
    let help = "Requests that failed on the disk.";
    sheet.one(Kind::Counter, "disk_errors", help, errors)
}

fn distributions(
    sheet: &mut Sheet<'_>,
    disks: &[DiskView],
    buckets: &[DiskBuckets],
) -> fmt::Result {
    let of_disks = || disks.iter().map(|disk| disk.name.as_str()).zip(buckets);
    let latency = of_disks().flat_map(|(disk, of)| {
        [("sync", of.sync_latency), ("async", of.async_latency)]
            .map(|(class, counts)| (labels([("disk", disk), ("class", class)]), counts))
    });
    let help = "Time from submission to completion of best-effort requests.";
    sheet.histogram("disk_best_effort_latency_seconds", help, latency)?;
    let lateness = of_disks().map(|(disk, of)| (labels([("disk", disk)]), of.stream_lateness));
    let help = "Time from deadline to completion of streams' requests, net of the host's own lateness; 0 in time.";
    sheet.histogram("disk_stream_lateness_seconds", help, lateness)
}

fn drift_and_smart(sheet: &mut Sheet<'_>, disks: &[DiskView]) -> fmt::Result {
    let drift = each(disks, "direction", |disk| {
        let is = |direction| {
            let drift = disk.service_times.drift.as_ref();
            flag(drift.is_some_and(|drift| drift.direction == direction))
        };
        [
            ("slower", is(DriftDirection::Slower)),
            ("faster", is(DriftDirection::Faster)),
        ]
    });
    let help =
        "1 if the disk's service times have drifted away from its profile in this direction.";
    sheet.one(Kind::Largest, "disk_drift", help, drift)?;
    let smart = |value: fn(&SmartView) -> Option<u64>| {
        disks.iter().filter_map(move |disk| {
            let value = value(disk.smart.as_ref()?)? as f64;
            Some((labels([("disk", disk.name.as_str())]), value))
        })
    };
    let help = "Sectors that the drive could not read and has not replaced (SMART).";
    let pending = smart(|of| of.pending_sectors);
    sheet.one(Kind::Gauge, "disk_smart_pending_sectors", help, pending)?;
    let help = "Sectors that the drive has replaced by others (SMART).";
    let reallocated = smart(|of| of.reallocated_sectors);
    sheet.one(
        Kind::Gauge,
        "disk_smart_reallocated_sectors",
        help,
        reallocated,
    )
}

fn links(sheet: &mut Sheet<'_>, disks: &[DiskView]) -> fmt::Result {
    let shared = || {
        disks
            .iter()
            .filter_map(|disk| Some((disk, disk.link.as_ref()?)))
    };
    let promises = shared().map(|(disk, link)| {
        let labels = labels([("link", &link.name), ("disk", &disk.name)]);
        (labels, flag(link.promises))
    });
    let help = "1 if the disk promises, 0 if it serves best effort only, in the place of another one on its link.";
    sheet.one(Kind::Largest, "link_disk_promises", help, promises)?;
    let of_link = |value: u64, name| (labels([("link", name)]), value as f64);
    let rates = shared().map(|(_, link)| of_link(link.rate_bytes_per_second, &link.name));
    let help = "Rate of a link that disks share.";
    sheet.one(Kind::Largest, "link_rate_bytes_per_second", help, rates)?;
    let promised = shared().map(|(_, link)| of_link(link.promised_bytes_per_second, &link.name));
    let help = "Rate of all streams on the disks of a link.";
    sheet.one(
        Kind::Largest,
        "link_promised_bytes_per_second",
        help,
        promised,
    )
}
