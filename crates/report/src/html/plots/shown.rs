//! A plot that compares each CPU's busy share according to `top` with its traced busy share.

use std::fmt::Write;

use ticktax_model::statement::Statement;

use super::{Plot, bar};
use crate::text::Topic;
use crate::text::numbers::percent;

/// Draws two bars for each CPU: one for the share shown by `top` and one for the traced share.
/// Returns `None` if no CPU has both.
pub(super) fn plot(statement: &Statement) -> Option<Plot> {
    let check = statement.accounting.as_ref()?;
    let known = check.cpus.iter();
    let known: Vec<_> = known
        .filter_map(|cpu| Some((cpu.cpu, cpu.shown_share, cpu.busy_share?)))
        .collect();
    if known.is_empty() {
        return None;
    }
    let mut html = "<p class=\"legend\">Share of the time that each CPU was busy, according to \
         /proc/stat, which <code>top</code> reads, and according to the trace. Error: the first \
         minus the second, in percentage \
         points.</p>\n\
         <div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"CPU usage in top and in \
         the trace\">\n<table>\n\
         <caption class=\"unseen\">CPU usage in top and in the \
         trace</caption>\n<thead>\n<tr><td></td>\
         <th scope=\"col\">top</th><td></td><th scope=\"col\">traced</th><td></td><th \
         scope=\"col\">error (points)</th></tr>\n</thead>\n<tbody>\n"
        .to_owned();
    for (cpu, shown, traced) in known {
        // Writing to a `String` cannot fail.
        let _ = write!(html, "<tr><th scope=\"row\">CPU {cpu}</th>");
        for (share, class) in [(shown, "other"), (traced, "part")] {
            let _ = write!(html, "<td title=\"{share}\">{}</td><td>", percent(share));
            bar(&mut html, share, class);
            html.push_str("</td>");
        }
        let _ = writeln!(html, "<td>{:+.1}</td></tr>", 100.0 * (shown - traced));
    }
    html.push_str("</tbody>\n</table>\n</div>\n");
    Some(Plot {
        id: "shown",
        title: "CPU usage in top and in the trace",
        topic: Topic::Other,
        html,
    })
}
