//! The whole run as a drawing that needs no script: of each CPU how its time was shared out, column by column.

use std::fmt::Write;

use ticktax_model::{Cpu, Nanos};

use super::columns::Grid;
use super::groups::Class;
use super::section::Mark;
use crate::html::escape::{attribute, text};

/// Columns of all CPUs together, about: a hundred bytes each.
const BARS: usize = 2_400;
/// Columns of a CPU at most.
const MOST: usize = 400;
/// The size of a CPU's row, and what is left of it for its name, in the drawing's own units.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 60.0;
const HEIGHT: f64 = 44.0;
const ROW: f64 = 54.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 40.0;
/// CPUs that are drawn.
const CPUS: usize = 128;

/// What is drawn.
pub(super) struct Picture<'a> {
    pub(super) cpus: &'a [Cpu],
    pub(super) classes: &'a [Class],
    /// Of each CPU sums by class.
    pub(super) tables: &'a [Vec<Vec<u64>>],
    pub(super) grid: Grid,
    pub(super) zero: Nanos,
    /// From when to when, since the recording began.
    pub(super) range: (Nanos, Nanos),
    pub(super) marks: &'a [Mark],
}

/// Writes the drawing.
pub(super) fn write(out: &mut String, picture: &Picture<'_>) {
    let shown = picture.cpus.len().min(CPUS);
    let height = TOP + ROW * shown as f64 + BOTTOM;
    let (begin, end) = picture.range;
    // Writing to a `String` cannot fail.
    let _ = writeln!(
        out,
        "<svg class=\"plot timeline-plot\" viewBox=\"0 0 {} {height}\" role=\"img\" aria-label=\"Who had each CPU from \
         {:.3} s to {:.3} s; what lasted longest is in the tables below\">",
        LEFT + WIDTH + 10.0,
        begin.as_secs_f64(),
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
            "<path class=\"t-mark\" d=\"M{x:.1} {}l-4 -7h8z\"/><text class=\"middle\" x=\"{x:.1}\" y=\"9\">{}</text>",
            TOP - 3.0,
            place + 1
        );
    }
    out.push_str("</svg>\n");
    if picture.cpus.len() > shown {
        let _ = writeln!(
            out,
            "<p class=\"legend\">{} more CPUs are drawn by the script alone.</p>",
            picture.cpus.len() - shown
        );
    }
}

/// Writes a line of the legend for a class.
pub(super) fn key(out: &mut String, class: &Class) {
    sample(
        out,
        &format!("url(#t-{})", class.look),
        "t-frame",
        &class.name,
    );
}

/// Writes a line of the legend for what threads waited for.
pub(super) fn key_of_waits(out: &mut String) {
    sample(out, "none", "t-wait", "waits of a thread, above the CPUs");
}

fn sample(out: &mut String, fill: &str, class: &str, name: &str) {
    let _ = writeln!(
        out,
        "<li><svg class=\"sample\" viewBox=\"0 0 40 16\" aria-hidden=\"true\" focusable=\"false\">\
         <rect class=\"{class}\" width=\"40\" height=\"16\" fill=\"{fill}\"/></svg> {}</li>",
        text(name)
    );
}

/// The strokes over the colour of a look: what is told apart without colours.
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

/// Writes what classes are filled with, for drawings all over the page.
pub(super) fn patterns(out: &mut String, classes: &[Class]) {
    out.push_str(
        "<svg class=\"timeline-patterns\" width=\"0\" height=\"0\" aria-hidden=\"true\" focusable=\"false\">\n",
    );
    for Class { look, .. } in classes {
        let _ = writeln!(
            out,
            "<pattern id=\"t-{look}\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\"><rect class=\"t-{look}\" \
             width=\"8\" height=\"8\"/><path class=\"t-strokes\" d=\"{}\"/></pattern>",
            strokes(look)
        );
    }
    out.push_str("</svg>\n");
}

impl Picture<'_> {
    fn x(&self, at: i64) -> f64 {
        let (begin, end) = self.range;
        let share = (Nanos(at) - begin).share_of(end - begin);
        LEFT + WIDTH * share.clamp(0.0, 1.0)
    }
}

/// The columns of a CPU, several as one where there are too many.
fn row(out: &mut String, picture: &Picture<'_>, table: &[Vec<u64>], y: f64) {
    let Grid { width, count, .. } = picture.grid;
    let shown = picture.cpus.len().clamp(1, CPUS);
    let bars = (BARS / shown).clamp(40, MOST).min(count);
    let edge = |bar: usize| bar * count / bars;
    let begin = (picture.grid.begin() - picture.zero).0;
    let time = |column: usize| begin + width * i64::try_from(column).unwrap_or(i64::MAX);
    let (from, to) = picture.range;
    // What is stacked so far, bar by bar.
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
            // The first and the last may begin before the recording, or end after it.
            let (left, right) = (time(first).max(from.0), time(last).min(to.0));
            let length = (right - left).max(1) as f64;
            let (room, base) = if class.is_aside() {
                (8.0, aside)
            } else {
                (HEIGHT, below)
            };
            let tall = (sum as f64 / length * room).min(room - *base);
            // What is there is seen.
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
    let (begin, end) = picture.range;
    let _ = writeln!(
        out,
        "<path class=\"grid\" d=\"M{LEFT} {y}H{}\"/>",
        LEFT + WIDTH
    );
    for tenth in [0, 2, 4, 6, 8, 10] {
        let at = begin + Nanos((end - begin).0 / 10 * tenth);
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
        "<text class=\"end\" x=\"{}\" y=\"{}\">seconds since the recording began</text>",
        LEFT + WIDTH,
        y + 34.0
    );
}
