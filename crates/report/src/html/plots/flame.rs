//! The flame graph of a profile. Each bar is a function, as wide as its share of the time, and
//! stands on the function that called it. The outermost names are accounts.

use std::collections::BTreeMap;
use std::fmt::Write;

use ticktax_model::Nanos;
use ticktax_model::profile::{NOT_SAMPLED, Profile, ProfileScope, UNKNOWN};
use ticktax_model::recording::StackFrame;
use ticktax_model::statement::Statement;

use super::{Plot, bar};
use crate::html::escape::text;
use crate::profile::{Value, frames, functions, stacks};
use crate::text::Topic;
use crate::text::numbers::{grouped, percent};

/// Width of the graph, and height of a bar, in the SVG's units.
const WIDTH: f64 = 1_000.0;
const HEIGHT: f64 = 16.0;
/// Narrower bars, and everything on top of them, are omitted.
const MIN_WIDTH: f64 = 0.7;
/// Width of a letter, at most.
const LETTER: f64 = 6.6;
/// Maximum number of bars on top of each other.
const MAX_DEPTH: usize = 64;
/// Number of functions in the table.
const LISTED: usize = 25;

/// A function with the functions that it called.
#[derive(Debug, Default)]
struct Node {
    value: Value,
    called: BTreeMap<StackFrame, Node>,
}

impl Node {
    fn add(&mut self, frames: &[StackFrame], value: Value) {
        self.value.samples += value.samples;
        self.value.time += value.time;
        if let [first, rest @ ..] = frames {
            let called = self.called.entry(first.clone()).or_default();
            called.add(rest, value);
        }
    }

    /// Returns the number of bars on top of each other, without those that are too narrow.
    fn depth(&self, whole: Nanos) -> usize {
        let wide = self
            .called
            .values()
            .filter(|node| width(node, whole) >= MIN_WIDTH);
        wide.map(|node| node.depth(whole) + 1).max().unwrap_or(0)
    }
}

fn width(node: &Node, whole: Nanos) -> f64 {
    WIDTH * node.value.time.share_of(whole)
}

/// Draws the flame graph and the table of functions. Returns `None` without a profile.
pub(super) fn plot(statement: &Statement) -> Option<Plot> {
    let profile = statement.profile.as_ref()?;
    if profile.time <= Nanos::ZERO {
        return None;
    }
    let mut html = format!(
        "<p class=\"legend\">{} Each bar is a function, and stands on its caller. Its width is its \
         share of the time, including the functions that it called. Hover over a bar for its \
         figures. Bars below 0.07 % are omitted. {} samples at {} per second and CPU.</p>\n",
        scope(profile),
        grouped(profile.samples),
        profile.rate_hz
    );
    let mut root = Node::default();
    for (stack, value) in stacks(profile) {
        let mut frames = frames(&stack);
        frames.truncate(MAX_DEPTH);
        root.add(&frames, value);
    }
    let rows = root.depth(profile.time);
    let height = HEIGHT * rows as f64;
    let _ = writeln!(
        html,
        "<svg class=\"plot flame\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"Flame graph; the table below lists its functions\">"
    );
    let mut graph = Graph {
        whole: profile.time,
        height,
        out: &mut html,
    };
    graph.draw(&root, 0.0, 1);
    html.push_str("</svg>\n");
    table(&mut html, profile);
    Some(Plot {
        id: "flame",
        title: "Flame graph",
        topic: Topic::Other,
        html,
    })
}

fn scope(profile: &Profile) -> &'static str {
    match profile.scope {
        ProfileScope::Machine => "The time of all CPUs, by function.",
        ProfileScope::Program => "The time during which the program ran, by function.",
        ProfileScope::Waits => {
            "The time that the program waited for a CPU, by the function that ran there."
        }
    }
}

struct Graph<'a> {
    whole: Nanos,
    height: f64,
    out: &'a mut String,
}

impl Graph<'_> {
    /// Draws the functions that `node` called from left to right, starting at `x`, in row `row`
    /// from the bottom.
    fn draw(&mut self, node: &Node, x: f64, row: usize) {
        let mut x = x;
        for (frame, called) in &node.called {
            let width = width(called, self.whole);
            if width >= MIN_WIDTH {
                self.bar(frame, called.value, x, width, row);
                self.draw(called, x, row + 1);
            }
            x += width;
        }
    }

    fn bar(&mut self, frame: &StackFrame, value: Value, x: f64, width: f64, row: usize) {
        let y = self.height - HEIGHT * row as f64;
        let kind = match &*frame.name {
            NOT_SAMPLED | UNKNOWN => "unknown",
            _ if frame.is_kernel => "kernel",
            _ => "user",
        };
        let share = percent(value.time.share_of(self.whole));
        // Writing to a string does not fail.
        let _ = write!(
            self.out,
            "<g><title>{}: {}, {share}, {} samples</title><rect class=\"{kind}\" x=\"{x:.2}\" \
             y=\"{y}\" width=\"{width:.2}\" height=\"{HEIGHT}\"/>",
            text(&frame.name),
            value.time,
            value.samples
        );
        let letters = (width - 4.0) / LETTER;
        if letters >= 3.0 {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 3 and the width of the graph"
            )]
            let letters = letters as usize;
            let name = shortened(&frame.name, letters);
            let (x, y) = (x + 2.0, y + HEIGHT - 4.5);
            let _ = write!(
                self.out,
                "<text x=\"{x:.2}\" y=\"{y}\">{}</text>",
                text(&name)
            );
        }
        self.out.push_str("</g>\n");
    }
}

fn shortened(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    let first = name.chars().take(letters - 1);
    first.chain(['…']).collect()
}

/// Writes the functions with the most time, not counting the functions that they called.
fn table(out: &mut String, profile: &Profile) {
    out.push_str(
        "<table><thead><tr><th>function</th><th>account</th><th>own time</th><th>share</th>\
         <th>samples</th></tr></thead><tbody>\n",
    );
    for function in functions(profile).iter().take(LISTED) {
        let share = function.value.time.share_of(profile.time);
        let _ = write!(
            out,
            "<tr><th>{}</th><td>{}</td><td title=\"{} ns\">{}</td><td>{} ",
            text(&function.name),
            text(&function.account),
            function.value.time.0,
            function.value.time,
            text(&percent(share))
        );
        bar(out, share, "part");
        let _ = writeln!(out, "</td><td>{}</td></tr>", function.value.samples);
    }
    out.push_str("</tbody></table>\n");
}
