//! Seeks and rotation (block `dm_mech_g1`).
//!
//! All kinds of seeks become a table of distances and times. A formula is sampled at each distance up to 64
//! cylinders and from there at steps of 2 %, between which it is straight to within a microsecond.

use super::fields::{Fields, MILLIS_MAX, float, integer, nanos};
use super::lexer::{At, text};
use super::tree::Value;
use super::{Files, ImportError};
use crate::plant::controller::description::{Access, Mechanics};

const RPM_MAX: f64 = 1_000_000.0;
const POINTS_MAX: usize = 1_000_000;
const CYLINDERS_MAX: u64 = 100_000_000;

pub(super) type Seeks = Vec<(u64, u64)>;

/// The mechanics of a drive with so many cylinders and heads.
pub(super) fn read(
    files: &dyn Files,
    block: &Fields<'_>,
    cylinders: u64,
    heads: u64,
    notes: &mut Vec<String>,
) -> Result<(Mechanics, Seeks), ImportError> {
    let access = match block
        .word("Access time type")?
        .unwrap_or("trackSwitchPlusRotation")
    {
        "constant" => Access::Constant,
        "averageRotation" => Access::HalfRotation,
        "trackSwitchPlusRotation" => Access::Full,
        other => {
            let problem = format!(
                "`{other}` is none of constant, averageRotation and trackSwitchPlusRotation"
            );
            return Err(block.wrong_at("Access time type", problem));
        }
    };
    let rpm = block.float("Rotation speed (in rpms)", 1.0, RPM_MAX)?;
    let mut head_switch_ns = block.time("Head switch time")?;
    if access == Access::Constant {
        head_switch_ns = block.time("Constant access time")?;
    }
    if block
        .float_if("Percent error in rpms", 0.0, 100.0)?
        .is_some_and(|error| error > 0.0)
    {
        notes.push("`Percent error in rpms` has no effect: the rotation is exact".into());
    }
    let mechanics = Mechanics {
        access,
        rotation_ns: (60e9 / rpm).round() as u64,
        heads,
        head_switch_ns,
        write_settle_ns: nanos(block.float(
            "Add. write settling delay",
            -MILLIS_MAX,
            MILLIS_MAX,
        )?),
    };
    let seeks = seeks(files, block, cylinders, access)?;
    // Files keep the values of a kind of seek that was replaced by a better one.
    block.without_effect(&[
        "Single cylinder seek time",
        "Average seek time",
        "Full strobe seek time",
        "Constant seek time",
        "Constant access time",
        "First ten seek times",
        "HPL seek equation values",
        "Full seek curve",
    ]);
    notes.extend(block.unknown());
    Ok((mechanics, seeks))
}

fn seeks(
    files: &dyn Files,
    block: &Fields<'_>,
    cylinders: u64,
    access: Access,
) -> Result<Seeks, ImportError> {
    if access == Access::Constant {
        return Ok(vec![(1, 0)]);
    }
    let longest = cylinders.saturating_sub(1).max(1);
    let kind = block.word("Seek type")?;
    // A curve in a file replaces whatever else is there.
    let kind = match kind {
        _ if block.is_set("Full seek curve") => "extracted",
        Some(kind) => kind,
        None => return Err(block.wrong("`Seek type` is missing; set it")),
    };
    let milliseconds: Box<dyn Fn(u64) -> f64> = match kind {
        "extracted" => return extracted(files, block),
        "constant" => {
            let time = block.float("Constant seek time", 0.0, MILLIS_MAX)?;
            Box::new(move |_| time)
        }
        "linear" | "curve" => three_points(block, longest, kind == "curve")?,
        "hpl" | "hplplus10" => ruemmler(block, kind == "hplplus10")?,
        other => {
            let problem = format!(
                "`{other}` is none of constant, linear, curve, hpl, hplplus10 and extracted"
            );
            return Err(block.wrong_at("Seek type", problem));
        }
    };
    let mut points = Vec::new();
    for distance in distances(longest, block)? {
        let time = milliseconds(distance);
        if !(0.0..=MILLIS_MAX).contains(&time) {
            let problem = format!(
                "the formula gives {time} ms over {distance} cylinders; a seek takes 0 to {MILLIS_MAX} ms"
            );
            return Err(block.wrong_at("Seek type", problem));
        }
        points.push((distance, nanos(time) as u64));
    }
    Ok(points)
}

/// The distances at which a formula is sampled, with both sides of its bend.
fn distances(longest: u64, block: &Fields<'_>) -> Result<Vec<u64>, ImportError> {
    let bend = match block
        .list_if("HPL seek equation values")?
        .and_then(|list| list.first())
    {
        Some((Value::Word(word), _)) => integer(word).and_then(|at| u64::try_from(at).ok()),
        _ => None,
    };
    let mut distances = vec![longest];
    let third = longest / 3;
    distances.extend(
        [Some(third), bend, bend.map(|at| at.saturating_sub(1))]
            .into_iter()
            .flatten(),
    );
    let mut next = 1_u64;
    while next <= longest {
        distances.push(next);
        next += (next / 50).max(1);
        if next < 64 {
            next = distances.last().map_or(next, |last| last + 1);
        }
    }
    distances.retain(|distance| (1..=longest).contains(distance));
    distances.sort_unstable();
    distances.dedup();
    Ok(distances)
}

type Formula = Box<dyn Fn(u64) -> f64>;

/// One cylinder, the average and the longest seek: two straight lines that meet at a third of the cylinders,
/// or Lee's curve `a sqrt(d - 1) + b (d - 1) + c` (E. K. Lee and R. H. Katz, 1993).
fn three_points(block: &Fields<'_>, longest: u64, is_curve: bool) -> Result<Formula, ImportError> {
    let one = block.float("Single cylinder seek time", 0.0, MILLIS_MAX)?;
    let average = block.float("Average seek time", 0.0, MILLIS_MAX)?;
    let full = block.float("Full strobe seek time", 0.0, MILLIS_MAX)?;
    let cylinders = longest as f64;
    if is_curve {
        let a = (-10.0 * one + 15.0 * average - 5.0 * full) / (3.0 * cylinders.sqrt());
        let b = (7.0 * one - 15.0 * average + 8.0 * full) / (3.0 * cylinders);
        // Where the curve would bend the wrong way, the manual gives straight lines.
        if a >= 0.0 && b >= 0.0 {
            return Ok(Box::new(move |distance| {
                let beyond = (distance - 1) as f64;
                a * beyond.sqrt() + b * beyond + one
            }));
        }
    }
    let third = (cylinders / 3.0).max(1.0);
    Ok(Box::new(move |distance| {
        let distance = distance as f64;
        if distance <= third {
            let share = if third > 1.0 {
                (distance - 1.0) / (third - 1.0)
            } else {
                1.0
            };
            one + share * (average - one)
        } else {
            let span = (cylinders - third).max(1.0);
            average + (distance - third) / span * (full - average)
        }
    }))
}

/// Ruemmler and Wilkes' curve (1994): a root up to a bend, then a line; the first distances may be listed.
fn ruemmler(block: &Fields<'_>, has_first_ten: bool) -> Result<Formula, ImportError> {
    let values = numbers(block, "HPL seek equation values", 6)?;
    let [bend, root_base, root, line_base, line, single] = values[..6] else {
        return Err(block.wrong_at("HPL seek equation values", "six numbers are needed"));
    };
    let first_ten = if has_first_ten {
        numbers(block, "First ten seek times", 10)?
    } else if single >= 0.0 {
        vec![single]
    } else {
        Vec::new()
    };
    Ok(Box::new(move |distance| {
        let listed = usize::try_from(distance - 1)
            .ok()
            .and_then(|index| first_ten.get(index));
        if let Some(time) = listed {
            return *time;
        }
        let distance = distance as f64;
        if distance < bend {
            root_base + root * distance.sqrt()
        } else {
            line_base + line * distance
        }
    }))
}

/// A list of at least `least` numbers.
fn numbers(block: &Fields<'_>, key: &'static str, least: usize) -> Result<Vec<f64>, ImportError> {
    let wrong =
        |at: &At| ImportError::new(at, format!("`{key}` holds something else than numbers"));
    let numbers = block.list(key)?.iter().map(|(value, at)| match value {
        Value::Word(word) => float(word).ok_or_else(|| wrong(at)),
        _ => Err(wrong(at)),
    });
    let numbers = numbers.collect::<Result<Vec<f64>, _>>()?;
    if numbers.len() < least {
        let problem = format!(
            "{least} numbers are needed, and there are {}",
            numbers.len()
        );
        return Err(block.wrong_at(key, problem));
    }
    Ok(numbers)
}

/// A file with lines `distance, milliseconds` or `distance, milliseconds, deviation`, after a line that may
/// give their number.
fn extracted(files: &dyn Files, block: &Fields<'_>) -> Result<Seeks, ImportError> {
    let key = "Full seek curve";
    let name = match block.word(key)? {
        Some(name) => name.to_owned(),
        None => return Err(block.wrong_at(key, "is missing; name the file of seek times")),
    };
    let content = text(files, &name, None)?;
    let mut points = Seeks::new();
    for (number, line) in (1..).zip(content.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with("Seek distances measured") {
            continue;
        }
        let at = format!("{name}:{number}");
        let mut parts = line.split(',').map(str::trim);
        let distance = parts
            .next()
            .and_then(integer)
            .filter(|distance| *distance >= 0);
        let time = parts.next().and_then(float);
        let (Some(distance), Some(time)) = (distance, time) else {
            let problem = "is not `distance, milliseconds`".to_owned();
            return Err(ImportError::new(&at, problem));
        };
        if !(0.0..=MILLIS_MAX).contains(&time) || distance as u64 > CYLINDERS_MAX {
            let problem = format!("a seek over {distance} cylinders in {time} ms is absurd");
            return Err(ImportError::new(&at, problem));
        }
        if points.len() >= POINTS_MAX {
            return Err(ImportError::new(
                &at,
                format!("there are more than {POINTS_MAX} distances"),
            ));
        }
        if distance > 0 {
            points.push((distance as u64, nanos(time) as u64));
        }
    }
    points.sort_by_key(|(distance, _)| *distance);
    points.dedup_by_key(|(distance, _)| *distance);
    if points.is_empty() {
        return Err(ImportError::new(&name, "there is no seek time"));
    }
    Ok(points)
}
