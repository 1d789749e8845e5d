//! Pictures of curves, as SVG that is the same for the same numbers.

use std::ops::Range;

use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

/// Division of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By powers of ten.
    Log,
}

/// An axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// The quantity, with the unit.
    pub label: String,
    /// Its division.
    pub scale: Scale,
}

impl Axis {
    /// Divided evenly.
    #[must_use]
    pub fn linear(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            scale: Scale::Linear,
        }
    }

    /// Divided by powers of ten.
    #[must_use]
    pub fn log(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            scale: Scale::Log,
        }
    }
}

/// A curve.
#[derive(Clone, PartialEq, Debug)]
pub struct Curve {
    /// The quantity.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
    /// Index into [`COLOURS`], modulo their number.
    pub colour: usize,
    /// True for a bound or an aid, false for a result.
    pub is_aid: bool,
}

/// A picture with axes.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    /// The subject.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// Okabe and Ito's colours, which people of all kinds of sight can tell apart, the yellow left out.
pub const COLOURS: [RGBColor; 8] = [
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0x55, 0x55, 0x55),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x00, 0x00, 0x00),
];

const CHART_PIXELS: (u32, u32) = (560, 380);
const TITLE_PIXELS: u32 = 40;

/// Why a picture could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the picture could not be drawn: {0}")]
pub struct ChartError(String);

fn failed(error: impl std::fmt::Display) -> ChartError {
    ChartError(error.to_string())
}

/// Charts on a page, so many beside each other.
///
/// # Errors
/// When a chart has no point, or one that an axis has no place for.
pub fn page(title: &str, charts: &[Chart], columns: usize) -> Result<String, ChartError> {
    let columns = columns.clamp(1, charts.len().max(1));
    let rows = charts.len().div_ceil(columns).max(1);
    let size = (
        CHART_PIXELS.0 * columns as u32,
        CHART_PIXELS.1 * rows as u32 + TITLE_PIXELS,
    );
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let root = root.titled(title, ("sans-serif", 20)).map_err(failed)?;
        for (area, chart) in root.split_evenly((rows, columns)).iter().zip(charts) {
            match chart.y.scale {
                Scale::Linear => {
                    let y = chart.range(|point| point.1, Scale::Linear)?;
                    chart.draw(area, y)?;
                }
                Scale::Log => {
                    let y = chart.range(|point| point.1, Scale::Log)?;
                    chart.draw(area, y.log_scale())?;
                }
            }
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

impl Chart {
    /// From the smallest to the largest of a coordinate, with a little room.
    fn range(&self, of: fn(&(f64, f64)) -> f64, scale: Scale) -> Result<Range<f64>, ChartError> {
        let values = || self.curves.iter().flat_map(|curve| &curve.points).map(of);
        let (low, high) = (
            values().fold(f64::INFINITY, f64::min),
            values().fold(f64::NEG_INFINITY, f64::max),
        );
        if !low.is_finite() || !high.is_finite() {
            return Err(ChartError(format!("`{}` has no points", self.title)));
        }
        match scale {
            Scale::Linear => {
                let room = ((high - low) * 0.04).max(high.abs() * 1e-6).max(1e-9);
                Ok(low.min(0.0)..high + room)
            }
            Scale::Log if low > 0.0 => {
                // Whole decades, so that the lines of the grid are where readers look for them.
                let (from, to) = (low.log10().floor(), (high * 1.05).log10().ceil());
                Ok(10_f64.powf(from)..10_f64.powf(to.max(from + 1.0)))
            }
            Scale::Log => Err(ChartError(format!(
                "`{}` has a point at {low}, which a logarithmic axis does not",
                self.title
            ))),
        }
    }

    fn draw<Y>(&self, area: &Area<'_>, y: Y) -> Result<(), ChartError>
    where
        Y: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let x = self.range(|point| point.0, self.x.scale)?;
        let mut context = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 15))
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)
            .map_err(failed)?;
        context
            .configure_mesh()
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .light_line_style(RGBColor(0xF2, 0xF2, 0xF2))
            .bold_line_style(RGBColor(0xDD, 0xDD, 0xDD))
            .x_label_formatter(&|value| number(*value))
            .y_label_formatter(&|value| number(*value))
            .draw()
            .map_err(failed)?;
        for curve in &self.curves {
            let colour = COLOURS[curve.colour % COLOURS.len()];
            let points = curve.points.iter().copied();
            if curve.is_aid {
                let line = DashedLineSeries::new(points, 5, 4, colour.stroke_width(1));
                let drawn = context.draw_series(line).map_err(failed)?;
                drawn.label(&curve.name).legend(move |(x, y)| {
                    PathElement::new(vec![(x, y), (x + 9, y)], colour.stroke_width(1))
                });
                continue;
            }
            let line = LineSeries::new(points.clone(), colour.stroke_width(2));
            let drawn = context.draw_series(line).map_err(failed)?;
            drawn.label(&curve.name).legend(move |(x, y)| {
                PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2))
            });
            let marks = points.map(|point| Circle::new(point, 2, colour.filled()));
            context.draw_series(marks).map_err(failed)?;
        }
        context
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(RGBColor(0xCC, 0xCC, 0xCC))
            .draw()
            .map_err(failed)
    }
}

/// A number as short as it is exact enough for an axis.
fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 1e6 {
        format!("{:.0}M", value / 1e6)
    } else if magnitude >= 10_000.0 {
        format!("{:.0}k", value / 1e3)
    } else if magnitude >= 10.0 || value == 0.0 {
        format!("{value:.0}")
    } else {
        let text = format!("{value:.2}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(y: Axis, points: &[(f64, f64)]) -> Chart {
        Chart {
            title: "a chart".to_owned(),
            x: Axis::linear("x, MB/s"),
            y,
            curves: vec![Curve {
                name: "a curve".to_owned(),
                points: points.to_vec(),
                colour: 0,
                is_aid: false,
            }],
        }
    }

    #[test]
    fn a_page_shows_its_charts_and_is_the_same_again() {
        let charts = [
            chart(Axis::linear("y, s"), &[(1.0, 2.0), (2.0, 3.0)]),
            chart(Axis::log("y, ms"), &[(1.0, 0.2), (2.0, 3_000.0)]),
        ];
        let drawn = page("a page", &charts, 2).unwrap();
        for text in ["a page", "a chart", "a curve", "x, MB/s", "y, s", "y, ms"] {
            assert!(drawn.contains(text), "{text}");
        }
        assert_eq!(drawn, page("a page", &charts, 2).unwrap());
    }

    #[test]
    fn undrawable_chart_is_an_error() {
        assert!(page("", &[chart(Axis::linear(""), &[])], 1).is_err());
        assert!(page("", &[chart(Axis::log(""), &[(1.0, 0.0)])], 1).is_err());
        assert!(page("", &[chart(Axis::linear(""), &[(1.0, 0.0)])], 1).is_ok());
    }

    #[test]
    fn numbers_are_short() {
        let shown: Vec<String> = [0.0, 0.25, 1.5, 9.0, 12.0, 25_000.0, 3e6]
            .iter()
            .map(|value| number(*value))
            .collect();
        assert_eq!(shown, ["0", "0.25", "1.5", "9", "12", "25k", "3M"]);
    }
}
