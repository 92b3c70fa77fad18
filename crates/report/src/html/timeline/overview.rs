//! A drawing of the whole recording that needs no script. It shows, column by column, how each
//! CPU's time was divided.

use std::fmt::Write;

use ticktax_model::{Cpu, Interval, Nanos};

use super::columns::Grid;
use super::groups::Class;
use super::section::Mark;
use crate::html::escape::{attribute, text};

/// Approximate number of bars for all CPUs together. Each bar takes about a hundred bytes.
const BARS: usize = 2_400;
/// Maximum number of bars per CPU.
const MOST: usize = 400;
/// Width, margin and height of a CPU's row, in SVG units.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 60.0;
const HEIGHT: f64 = 44.0;
const ROW: f64 = 54.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 40.0;
/// Maximum number of CPUs drawn.
const CPUS: usize = 128;

/// Data for the drawing.
pub(super) struct Picture<'a> {
    pub(super) cpus: &'a [Cpu],
    pub(super) classes: &'a [Class],
    /// For each CPU, the sums of each class in each column.
    pub(super) tables: &'a [Vec<Vec<u64>>],
    pub(super) grid: Grid,
    pub(super) zero: Nanos,
    /// The interval that is drawn. Times count from the start of the recording.
    pub(super) range: Interval,
    pub(super) marks: &'a [Mark],
}

pub(super) fn write(out: &mut String, picture: &Picture<'_>) {
    let shown = picture.cpus.len().min(CPUS);
    let height = TOP + ROW * shown as f64 + BOTTOM;
    let Interval { start, end } = picture.range;
    // Writing to a `String` cannot fail.
    let _ = writeln!(
        out,
        "<svg class=\"plot timeline-plot\" viewBox=\"0 0 {} {height}\" role=\"img\" \
         aria-label=\"Activity of each CPU from {:.3} s to {:.3} s. The tables below list the \
         longest intervals.\">",
        LEFT + WIDTH + 10.0,
        start.as_secs_f64(),
        end.as_secs_f64()
    );
    for (place, (cpu, table)) in picture
        .cpus
        .iter()
        .zip(picture.tables)
        .take(shown)
        .enumerate()
    {
        let y = TOP + ROW * place as f64;
        let _ = writeln!(
            out,
            "<text x=\"0\" y=\"{}\">CPU {cpu}</text><path class=\"grid\" d=\"M{LEFT} {}H{}\"/>",
            y + HEIGHT / 2.0 + 4.0,
            y + HEIGHT,
            LEFT + WIDTH
        );
        row(out, picture, table, y);
    }
    axis(out, picture, TOP + ROW * shown as f64);
    for (place, mark) in picture.marks.iter().enumerate() {
        let x = picture.x(mark.at);
        let _ = writeln!(
            out,
            "<path class=\"t-mark\" d=\"M{x:.1} {}l-4 -7h8z\"/><text class=\"middle\" x=\"{x:.1}\" \
             y=\"9\">{}</text>",
            TOP - 3.0,
            place + 1
        );
    }
    out.push_str("</svg>\n");
    if picture.cpus.len() > shown {
        let _ = writeln!(
            out,
            "<p class=\"legend\">{} more CPUs are only in the interactive timeline, which needs \
             JavaScript.</p>",
            picture.cpus.len() - shown
        );
    }
}

/// Writes the entry for a class in the key below the drawing.
pub(super) fn key(out: &mut String, class: &Class) {
    sample(
        out,
        &format!("url(#t-{})", class.look),
        "t-frame",
        &class.name,
    );
}

/// Writes the entry for waits of threads in the key below the drawing.
pub(super) fn key_of_waits(out: &mut String) {
    sample(
        out,
        "none",
        "t-wait",
        "waits of a thread (rows above the CPUs)",
    );
}

fn sample(out: &mut String, fill: &str, class: &str, name: &str) {
    let _ = writeln!(
        out,
        "<li><svg class=\"sample\" viewBox=\"0 0 40 16\" aria-hidden=\"true\" focusable=\"false\">\
         <rect class=\"{class}\" width=\"40\" height=\"16\" fill=\"{fill}\"/></svg> {}</li>",
        text(name)
    );
}

/// Returns the strokes drawn over the colour of a look. They distinguish looks without relying on
/// colour.
fn strokes(look: &str) -> &'static str {
    match look {
        "p1" => "M0 8L8 0",
        "p2" => "M0 0L8 8",
        "p3" => "M0 4H8",
        "p4" => "M4 0V8",
        "others" => "M0 8L8 0M0 0L8 8",
        "kernel" => "M3 4H5",
        "tool" => "M0 4H8M4 0V8",
        "nmi" => "M0 4L4 0L8 4",
        "gap" => "M0 6H8M0 2H8",
        _ => "",
    }
}

/// Writes the classes' fill patterns, which all drawings on the page use.
pub(super) fn patterns(out: &mut String, classes: &[Class]) {
    out.push_str(
        "<svg class=\"timeline-patterns\" width=\"0\" height=\"0\" aria-hidden=\"true\" \
         focusable=\"false\">\n",
    );
    for Class { look, .. } in classes {
        let _ = writeln!(
            out,
            "<pattern id=\"t-{look}\" width=\"8\" height=\"8\" \
             patternUnits=\"userSpaceOnUse\"><rect class=\"t-{look}\" \
             width=\"8\" height=\"8\"/><path class=\"t-strokes\" d=\"{}\"/></pattern>",
            strokes(look)
        );
    }
    out.push_str("</svg>\n");
}

impl Picture<'_> {
    fn x(&self, at: i64) -> f64 {
        let share = (Nanos(at) - self.range.start).share_of(self.range.length());
        LEFT + WIDTH * share.clamp(0.0, 1.0)
    }
}

/// Draws the columns of a CPU as bars. If there are too many columns, each bar combines several.
fn row(out: &mut String, picture: &Picture<'_>, table: &[Vec<u64>], y: f64) {
    let Grid { width, count, .. } = picture.grid;
    let shown = picture.cpus.len().clamp(1, CPUS);
    let bars = (BARS / shown).clamp(40, MOST).min(count);
    let edge = |bar: usize| bar * count / bars;
    let begin = (picture.grid.begin() - picture.zero).0;
    let time = |column: usize| begin + width * i64::try_from(column).unwrap_or(i64::MAX);
    let Interval {
        start: from,
        end: to,
    } = picture.range;
    // Height that is already stacked in each bar.
    let mut below = vec![0.0; bars];
    let mut aside = vec![0.0; bars];
    for (class, sums) in picture.classes.iter().zip(table) {
        if class.look == "idle" {
            continue;
        }
        let mut path = String::new();
        for (bar, (below, aside)) in below.iter_mut().zip(&mut aside).enumerate() {
            let (first, last) = (edge(bar), edge(bar + 1));
            let sum: u64 = sums[first..last].iter().sum();
            if sum == 0 {
                continue;
            }
            // The first and the last bar can extend beyond the recording, so cut them off.
            let (left, right) = (time(first).max(from.0), time(last).min(to.0));
            let length = (right - left).max(1) as f64;
            let (room, base) = if class.is_aside() {
                (8.0, aside)
            } else {
                (HEIGHT, below)
            };
            let tall = (sum as f64 / length * room).min(room - *base);
            // Make even the shortest interrupt visible.
            let tall = tall.max(if class.lane > 0 { 0.6 } else { 0.0 });
            let foot = if class.is_aside() {
                y - 1.0
            } else {
                y + HEIGHT
            };
            let (x, wide) = (picture.x(left), picture.x(right) - picture.x(left));
            if tall >= 0.05 {
                let _ = write!(
                    path,
                    "M{x:.1} {:.1}h{wide:.1}v-{tall:.1}h-{wide:.1}z",
                    foot - *base
                );
                *base += tall;
            }
        }
        if !path.is_empty() {
            let _ = writeln!(out, "<path fill=\"url(#t-{})\" d=\"{path}\"/>", class.look);
        }
    }
}

fn axis(out: &mut String, picture: &Picture<'_>, y: f64) {
    let range = picture.range;
    let _ = writeln!(
        out,
        "<path class=\"grid\" d=\"M{LEFT} {y}H{}\"/>",
        LEFT + WIDTH
    );
    for tenth in [0, 2, 4, 6, 8, 10] {
        let at = range.start + Nanos(range.length().0 / 10 * tenth);
        let class = match tenth {
            0 => "begin",
            10 => "end",
            _ => "middle",
        };
        let (x, at) = (picture.x(at.0), format!("{:.3}", at.as_secs_f64()));
        let _ = writeln!(
            out,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{}\">{}</text>",
            y + 16.0,
            attribute(&at)
        );
    }
    let _ = writeln!(
        out,
        "<text class=\"end\" x=\"{}\" y=\"{}\">seconds since the start of the recording</text>",
        LEFT + WIDTH,
        y + 34.0
    );
}
