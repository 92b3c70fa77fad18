//! Tables that draw the values in each line on a shared axis.

use std::fmt::Write;

use super::axis::Axis;
use super::chart::shape;
use crate::html::escape::{attribute, text};
use crate::html::quantity::Quantity;

/// Width of an axis and of the margin at each end, in SVG units.
const WIDTH: f64 = 240.0;
const EDGE: f64 = 8.0;
/// Vertical distance between marks of different kinds, in SVG units.
const LANE: f64 = 8.0;

/// A mark on a line: a value, a range, or both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// Index of the mark's kind in the table. Each kind has its own shape and height.
    pub(super) kind: usize,
    pub(super) at: Option<f64>,
    pub(super) over: Option<(f64, f64)>,
}

impl Mark {
    /// Marks a value.
    pub(super) fn at(kind: usize, value: f64) -> Self {
        Self {
            kind,
            at: Some(value),
            over: None,
        }
    }

    /// Marks a range.
    pub(super) fn over(kind: usize, ends: (f64, f64)) -> Self {
        Self {
            kind,
            at: None,
            over: Some(ends),
        }
    }

    /// Returns the values that the mark covers: the value itself and the ends of the range.
    pub(super) fn values(&self) -> impl Iterator<Item = f64> + Clone + use<> {
        let over = self.over.into_iter().flat_map(|(low, high)| [low, high]);
        self.at.into_iter().chain(over)
    }
}

/// A table with drawings, under construction.
pub(super) struct Strips<'a> {
    title: &'a str,
    kinds: &'a [&'a str],
    axes: Vec<Axis>,
    /// Whether to draw a vertical line at 0.
    zero: bool,
    html: String,
    columns: usize,
}

impl<'a> Strips<'a> {
    /// Creates a table with a title. Each line starts with a drawing for each axis, followed by the
    /// columns. `kinds` contains the names of the kinds of marks.
    pub(super) fn new(
        title: &'a str,
        columns: &[&str],
        kinds: &'a [&'a str],
        axes: Vec<Axis>,
    ) -> Self {
        let name = attribute(title);
        let mut html = format!(
            "<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"{name}\">\n<table>\n\
             <caption class=\"unseen\">{}</caption>\n<thead>\n<tr><td></td>",
            text(title)
        );
        for axis in &axes {
            html.push_str("<td>");
            scale(&mut html, axis);
            html.push_str("</td>");
        }
        for column in columns {
            let _ = write!(html, "<th scope=\"col\">{}</th>", text(column));
        }
        html.push_str("</tr>\n</thead>\n<tbody>\n");
        Self {
            title,
            kinds,
            zero: false,
            columns: 1 + columns.len() + axes.len(),
            axes,
            html,
        }
    }

    /// Makes the drawings include a vertical line at 0.
    pub(super) fn with_zero(mut self) -> Self {
        self.zero = true;
        self
    }

    /// Writes a title for the lines that follow.
    pub(super) fn group(&mut self, title: &str) {
        let _ = writeln!(
            self.html,
            "<tr class=\"strong\"><th scope=\"row\" colspan=\"{}\">{}</th></tr>",
            self.columns,
            text(title)
        );
    }

    /// Writes a line: its name, its marks on each axis, and its numbers. The drawings come before
    /// the numbers so that they are visible on a phone.
    pub(super) fn row(&mut self, name: &str, cells: &[Quantity], marks: &[&[Mark]]) {
        let _ = write!(self.html, "<tr><th scope=\"row\">{}</th>", text(name));
        let lanes = self.kinds.len().max(1);
        for (axis, marks) in self.axes.iter().zip(marks) {
            self.html.push_str("<td>");
            strip(&mut self.html, axis, lanes, self.zero, marks);
            self.html.push_str("</td>");
        }
        for cell in cells {
            cell.cell(&mut self.html);
        }
        self.html.push_str("</tr>\n");
    }

    /// Returns the finished table, with a key to the kinds of marks above it.
    pub(super) fn finish(mut self) -> String {
        self.html.push_str("</tbody>\n</table>\n</div>\n");
        if self.kinds.len() < 2 {
            return self.html;
        }
        let mut key = format!(
            "<ul class=\"key\" aria-label=\"{}\">\n",
            attribute(&format!("Symbols in {}", self.title))
        );
        for (kind, name) in self.kinds.iter().enumerate() {
            let mut drawn = String::new();
            shape(&mut drawn, kind, 20.0, 6.0, 4.0);
            let _ = writeln!(
                key,
                "<li><svg class=\"sample\" viewBox=\"0 0 40 12\" aria-hidden=\"true\" focusable=\"false\">\
                 <path class=\"mark c{kind}\" d=\"{drawn}\"/></svg> {}</li>",
                text(name)
            );
        }
        key.push_str("</ul>\n");
        key + &self.html
    }
}

/// Returns the x coordinate of a value.
fn along(axis: &Axis, value: f64) -> f64 {
    EDGE + (WIDTH - 2.0 * EDGE) * axis.part(value)
}

/// Draws as many labels of an axis as fit.
fn scale(out: &mut String, axis: &Axis) {
    let _ = write!(
        out,
        "<svg class=\"strip axis\" viewBox=\"0 0 {WIDTH} 34\" role=\"img\" aria-label=\"{}\">\
         <text x=\"0\" y=\"11\">{}</text>",
        attribute(&format!("axis: {}", axis.title())),
        text(axis.title())
    );
    let mut free = 0.0;
    for (value, name) in axis.ticks() {
        let x = along(axis, *value);
        let half = 3.4 * name.chars().count() as f64;
        let _ = write!(out, "<path class=\"grid\" d=\"M{x:.1} 30V34\"/>");
        if x - half >= free && x + half <= WIDTH + EDGE {
            let _ = write!(
                out,
                "<text class=\"middle\" x=\"{x:.1}\" y=\"27\">{}</text>",
                text(name)
            );
            free = x + half + 6.0;
        }
    }
    out.push_str("</svg>");
}

fn strip(out: &mut String, axis: &Axis, lanes: usize, zero: bool, marks: &[Mark]) {
    let height = LANE * lanes as f64 + 8.0;
    let _ = write!(
        out,
        "<svg class=\"strip\" viewBox=\"0 0 {WIDTH} {height}\" aria-hidden=\"true\" focusable=\"false\">"
    );
    for (value, _) in axis.ticks() {
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{:.1} 0V{height}\"/>",
            along(axis, *value)
        );
    }
    if zero && axis.holds(0.0) {
        let _ = write!(
            out,
            "<path class=\"zero\" d=\"M{:.1} 0V{height}\"/>",
            along(axis, 0.0)
        );
    }
    for mark in marks {
        let y = 4.0 + LANE * (mark.kind as f64 + 0.5);
        let kind = mark.kind;
        if let Some((low, high)) = mark.over {
            let (low, high) = (along(axis, low), along(axis, high));
            let _ = write!(
                out,
                "<path class=\"over c{kind}\" d=\"M{low:.1} {0:.1}V{1:.1}M{low:.1} {y:.1}H{high:.1}M{high:.1} {0:.1}V{1:.1}\"/>",
                y - 3.0,
                y + 3.0
            );
            if mark.at.is_none() {
                let mut path = String::new();
                shape(&mut path, kind, f64::midpoint(low, high), y, 3.5);
                let _ = write!(out, "<path class=\"mark c{kind}\" d=\"{path}\"/>");
            }
        }
        if let Some(value) = mark.at {
            let mut path = String::new();
            shape(&mut path, kind, along(axis, value), y, 3.5);
            let _ = write!(out, "<path class=\"mark c{kind}\" d=\"{path}\"/>");
        }
    }
    out.push_str("</svg>");
}
