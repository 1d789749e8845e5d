//! Figure 6.4: how much slack is left as more and more is promised.

use super::{Figure, FigureError, Options, Page, Statement};
use crate::chart::{Axis, Chart, Curve, page as draw};
use crate::thesis::figures::table::Table;
use crate::thesis::{Layout, SweepError, Thesis};

/// Delta-L of a layout, of the disk that has least, as pairs join.
struct Slack {
    layout: Layout,
    /// MB/s, corrected and published in seconds.
    points: Vec<(f64, f64, f64)>,
}

impl Slack {
    fn of(layout: Layout, options: &Options) -> Result<Self, FigureError> {
        let thesis = Thesis::new(layout, options.times, options.seed).map_err(SweepError::from)?;
        let (_, most, _) = thesis.admit(usize::MAX);
        let point = |pairs| {
            let (admitted, ..) = thesis.admit(pairs);
            let of_disks = admitted.delta_l();
            let seconds = |least: Option<u64>| least.unwrap_or_default() as f64 / 1e9;
            let corrected = of_disks.iter().map(|(corrected, _)| corrected.value.get());
            let published = of_disks.iter().map(|(_, published)| published.value.get());
            (
                Thesis::bandwidth(pairs).get() as f64 / 1e6,
                seconds(corrected.min()),
                seconds(published.min()),
            )
        };
        Ok(Self {
            layout,
            points: (1..=most).map(point).collect(),
        })
    }

    fn most(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.0)
    }

    fn first(&self) -> f64 {
        self.points.first().map_or(0.0, |point| point.1)
    }
}

pub(super) fn page(options: &Options) -> Result<Page, FigureError> {
    let slacks = Layout::THESIS
        .into_iter()
        .map(|layout| Slack::of(layout, options))
        .collect::<Result<Vec<Slack>, _>>()?;
    let mut table = Table::new(&["layout", "MB/s", "delta_l_s", "delta_l_published_s"]);
    let mut curves = Vec::new();
    let mut hash = crate::run::Hash::default();
    for (colour, slack) in slacks.iter().enumerate() {
        for (megabytes, corrected, published) in &slack.points {
            table.row(&[
                slack.layout.to_string(),
                format!("{megabytes:.3}"),
                format!("{corrected:.6}"),
                format!("{published:.6}"),
            ]);
            hash.add(corrected.to_bits());
        }
        curves.push(Curve {
            name: slack.layout.to_string(),
            points: slack
                .points
                .iter()
                .map(|point| (point.0, point.1))
                .collect(),
            colour,
            is_aid: false,
        });
    }
    let chart = Chart {
        title: "Delta-L of the disk that has least".to_owned(),
        x: Axis::linear("real-time load, MB/s"),
        y: Axis::linear("Delta-L, s"),
        curves,
    };
    let [rotation, random, optimized, large] = &slacks[..] else {
        unreachable!("there are four layouts");
    };
    let differ = slacks
        .iter()
        .flat_map(|slack| &slack.points)
        .filter(|point| point.1 < point.2)
        .count();
    let last = rotation.points.last().map_or(0.0, |point| point.1);
    let statements = vec![
        Statement::new(
            "with one pair Delta-L is about the shortest period: just under 3 s (rotation), 1 s (memory-optimized), 2 s \
             (with large buffers)",
            (2.0..3.0).contains(&rotation.first())
                && (0.7..1.3).contains(&optimized.first())
                && (1.4..2.5).contains(&large.first()),
            format!(
                "{:.2} s, {:.2} s and {:.2} s",
                rotation.first(),
                optimized.first(),
                large.first()
            ),
        ),
        Statement::new(
            "rotation is schedulable up to 18 MB/s",
            rotation.most() >= 17.5,
            format!(
                "up to {:.2} MB/s; at the printed periods a *Wallace and Grommit* needs 18 % more than its printed rate \
                 says",
                rotation.most()
            ),
        ),
        Statement::new(
            "fewer streams are admitted at random places, where the slowest zone counts",
            random.most() < rotation.most(),
            format!("up to {:.2} MB/s", random.most()),
        ),
        Statement::new(
            "memory-optimized is schedulable up to 15.5 MB/s, with large buffers up to 21 MB/s",
            (15.0..16.5).contains(&optimized.most()) && (20.0..22.0).contains(&large.most()),
            format!(
                "{:.2} MB/s and {:.2} MB/s, where disk 2, which has every *Wallace and Grommit*, is full: see above",
                optimized.most(),
                large.most()
            ),
        ),
        Statement::new(
            "at the end of the curve there is hardly any slack",
            last < rotation.first() / 5.0,
            format!(
                "{last:.3} s with as many pairs as are admitted: the next one needs more than what is left"
            ),
        ),
        Statement::new(
            "the published formula gives Delta-L (section 6.2)",
            differ == 0,
            format!(
                "it gives more than the corrected one at {differ} of {} loads",
                slacks.iter().map(|slack| slack.points.len()).sum::<usize>()
            ),
        ),
    ];
    Ok(Page {
        figure: Figure::Slack,
        title: "real-time load and Delta-L".to_owned(),
        notes: "MB are millions of bytes here. The thesis's periods are those of the printed table, which are a little \
                shorter than the printed rates ask for."
            .to_owned(),
        svg: draw("Figure 6.4", &[chart], 1)?,
        csv: table.into_text(),
        statements,
        hash: hash.0,
    })
}
