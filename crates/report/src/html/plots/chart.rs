//! A plot with two axes.

use std::fmt::Write;

use super::axis::Axis;
use crate::html::escape::{attribute, text};

/// Width of a plot and of the margins that hold its axes, in SVG units.
const WIDTH: f64 = 720.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;

/// Maximum number of series in a plot. Each series has its own dash pattern and shape.
pub(super) const SERIES: usize = 6;

/// A plot under construction.
pub(super) struct Chart {
    x: Axis,
    y: Axis,
    height: f64,
    body: String,
}

impl Chart {
    /// An empty plot.
    pub(super) fn new(x: Axis, y: Axis, height: f64) -> Self {
        Self {
            x,
            y,
            height,
            body: String::new(),
        }
    }

    /// Returns the SVG coordinates of a point.
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let room = (WIDTH - LEFT - RIGHT, self.height - TOP - BOTTOM);
        (
            LEFT + room.0 * self.x.part(x),
            self.height - BOTTOM - room.1 * self.y.part(y),
        )
    }

    /// Draws a step curve. Each step consists of a start, an end and a level.
    pub(super) fn steps(&mut self, place: usize, steps: impl Iterator<Item = (f64, f64, f64)>) {
        let mut path = String::new();
        for (from, to, level) in steps {
            let ((from, y), (to, _)) = (self.at(from, level), self.at(to, level));
            let letter = if path.is_empty() { 'M' } else { 'L' };
            // Writing to a `String` cannot fail.
            let _ = write!(path, "{letter}{from:.1} {y:.1}H{to:.1}");
        }
        let place = place % SERIES;
        let _ = writeln!(self.body, "<path class=\"curve c{place}\" d=\"{path}\"/>");
    }

    /// Draws a line with a mark at each point.
    pub(super) fn line(&mut self, place: usize, points: impl Iterator<Item = (f64, f64)>) {
        let (mut path, mut marks) = (String::new(), String::new());
        for (x, y) in points {
            let (x, y) = self.at(x, y);
            let letter = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{x:.1} {y:.1}");
            shape(&mut marks, place, x, y, 4.0);
        }
        let place = place % SERIES;
        let _ = writeln!(
            self.body,
            "<path class=\"curve c{place}\" d=\"{path}\"/><path class=\"mark c{place}\" \
             d=\"{marks}\"/>"
        );
    }

    /// Draws a dot for each point. The resulting SVG stays compact even if there are many points.
    pub(super) fn dots(&mut self, points: impl Iterator<Item = (f64, f64)>) {
        let mut path = String::new();
        for (x, y) in points {
            let (x, y) = self.at(x, y);
            let _ = write!(path, "M{x:.1} {y:.1}h0");
        }
        let _ = writeln!(self.body, "<path class=\"dots\" d=\"{path}\"/>");
    }

    /// Draws a mark for each point, in the shape of its series.
    pub(super) fn marks(&mut self, place: usize, points: impl Iterator<Item = (f64, f64)>) {
        let mut path = String::new();
        for (x, y) in points {
            let (x, y) = self.at(x, y);
            shape(&mut path, place, x, y, 4.5);
        }
        let place = place % SERIES;
        let _ = writeln!(self.body, "<path class=\"mark c{place}\" d=\"{path}\"/>");
    }

    /// Draws a vertical line from the x axis to each point.
    pub(super) fn stems(&mut self, points: impl Iterator<Item = (f64, f64)>) {
        let mut path = String::new();
        let foot = self.height - BOTTOM;
        for (x, y) in points {
            let (x, y) = self.at(x, y);
            let _ = write!(path, "M{x:.1} {foot:.1}V{y:.1}");
        }
        let _ = writeln!(self.body, "<path class=\"stems\" d=\"{path}\"/>");
    }

    /// Writes labels above points. Labels that would overlap are joined with commas.
    pub(super) fn labels(&mut self, mut labels: Vec<(f64, f64, String)>) {
        labels.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut placed: Vec<(f64, f64, String)> = Vec::new();
        for (x, y, words) in labels {
            let (x, y) = self.at(x, y);
            match placed.last_mut().filter(|last| x - last.0 < 16.0) {
                Some(last) => {
                    last.1 = last.1.min(y);
                    let _ = write!(last.2, ", {words}");
                }
                None => placed.push((x, y, words)),
            }
        }
        for (x, y, words) in placed {
            let y = (y - 6.0).max(TOP - 2.0);
            let _ = writeln!(
                self.body,
                "<text class=\"middle label\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
                text(&words)
            );
        }
    }

    /// Completes the plot as an HTML figure. `key` is HTML that goes below the plot.
    pub(super) fn finish(self, name: &str, key: &str) -> String {
        let name = attribute(name);
        let mut html = format!(
            "<figure>\n<div class=\"scroll\" role=\"group\" tabindex=\"0\" \
             aria-label=\"{name}\">\n<svg class=\"plot\" \
             viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{name}. The table below has the \
             numbers.\">\n",
            self.height
        );
        self.axes(&mut html);
        html.push_str(&self.body);
        let _ = write!(
            html,
            "</svg>\n</div>\n<figcaption>\n{key}</figcaption>\n</figure>\n"
        );
        html
    }

    fn axes(&self, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, self.height - BOTTOM);
        for (value, name) in self.y.ticks() {
            let (_, y) = self.at(0.0, *value);
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/><text class=\"end\" \
                 x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                text(name)
            );
        }
        for (value, name) in self.x.ticks() {
            let (x, _) = self.at(*value, 0.0);
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/><text class=\"middle\" \
                 x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                bottom + 18.0,
                text(name)
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"4\" y=\"16\">{}</text><text class=\"middle\" x=\"{:.1}\" \
             y=\"{:.1}\">{}</text>",
            text(self.y.title()),
            f64::midpoint(LEFT, right),
            self.height - 8.0,
            text(self.x.title())
        );
    }
}

/// Returns a list that shows the line style or shape of each series.
pub(super) fn key<'a>(series: impl Iterator<Item = &'a str>, are_lines: bool) -> String {
    key_from(0, series, are_lines)
}

/// Returns the same list for series whose numbers start with `first`.
pub(super) fn key_from<'a>(
    first: usize,
    series: impl Iterator<Item = &'a str>,
    are_lines: bool,
) -> String {
    let mut out = "<ul class=\"key\">\n".to_owned();
    for (place, name) in (first..).zip(series) {
        let mut drawn = String::new();
        let class = if are_lines {
            drawn.push_str("M0 6H40");
            "curve"
        } else {
            shape(&mut drawn, place, 20.0, 6.0, 4.5);
            "mark"
        };
        let _ = writeln!(
            out,
            "<li><svg class=\"sample\" viewBox=\"0 0 40 12\" aria-hidden=\"true\" \
             focusable=\"false\">\
             <path class=\"{class} c{}\" d=\"{drawn}\"/></svg> {}</li>",
            place % SERIES,
            text(name)
        );
    }
    out.push_str("</ul>\n");
    out
}

/// Draws the shape of a series around a point. Depending on the series, it is a ring, square,
/// diamond, triangle, cross or inverted triangle.
pub(super) fn shape(path: &mut String, place: usize, x: f64, y: f64, r: f64) {
    let (left, right, top, bottom) = (x - r, x + r, y - r, y + r);
    let _ = match place % SERIES {
        0 => write!(
            path,
            "M{left:.1} {y:.1}a{r} {r} 0 1 0 {0} 0a{r} {r} 0 1 0 -{0} 0",
            2.0 * r
        ),
        1 => write!(
            path,
            "M{left:.1} {top:.1}H{right:.1}V{bottom:.1}H{left:.1}z"
        ),
        2 => write!(
            path,
            "M{x:.1} {top:.1}L{right:.1} {y:.1}L{x:.1} {bottom:.1}L{left:.1} {y:.1}z"
        ),
        3 => write!(path, "M{x:.1} {top:.1}L{right:.1} {bottom:.1}H{left:.1}z"),
        4 => write!(
            path,
            "M{left:.1} {top:.1}L{right:.1} {bottom:.1}M{left:.1} {bottom:.1}L{right:.1} {top:.1}"
        ),
        _ => write!(path, "M{x:.1} {bottom:.1}L{right:.1} {top:.1}H{left:.1}z"),
    };
}
