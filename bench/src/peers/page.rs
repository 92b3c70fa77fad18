//! Formats the results of all tools as a Markdown table.

use std::fmt::Write;

use ticktax_model::Nanos;

use super::statement::{
    Attribution, Counts, Latency, Noise, Peer, PeerOutcome, PeerReport, PeersStatement, Spread,
};
use crate::table::Table;

/// Formats the results of all tools as text. The text ends with a newline.
pub fn page(statement: &PeersStatement) -> String {
    let machine = &statement.machine;
    let hz = machine
        .hz_configured
        .map_or_else(|| "?".to_owned(), |hz| hz.to_string());
    let versions = statement.packages.iter();
    let versions = versions.map(|(name, version)| format!(", {name} {version}"));
    let mut page = format!(
        "Linux {} at {hz} Hz in a guest of the lab; ticktax {}{}\n\n{}",
        machine.kernel,
        statement.tool_version,
        versions.collect::<String>(),
        table(&statement.tools),
    );
    for tool in &statement.tools {
        if let Some(why) = shortfall(&tool.outcome) {
            let _ = write!(page, "\n{}: {}\n", tool.peer.name(), clean(&why));
        }
    }
    page += "\nRun one after the other, since the audit's loop has the lowest priority and would not \
             run beside osnoise's:\n\n";
    for tool in &statement.tools {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "    {}", clean(&tool.command));
    }
    page
}

/// A function that formats one table cell: one figure for one tool. It returns `None` if the tool
/// does not measure that figure.
type Show = fn(&PeerOutcome) -> Option<String>;

/// The table's rows: a label, and a function that formats the cells.
const ROWS: [(&str, Show); 25] = [
    ("CPU time watched", |outcome| {
        noise(outcome, |noise| Some(noise.watched.to_string()))
    }),
    ("Noise: gaps of at least", |outcome| {
        noise(outcome, |noise| Some(noise.floor.to_string()))
    }),
    ("  how many", |outcome| {
        gaps(outcome, |gaps| Some(gaps.gaps.to_string()))
    }),
    ("  time", |outcome| {
        noise(outcome, |noise| Some(noise.total.to_string()))
    }),
    ("  of the CPU", |outcome| {
        noise(outcome, |noise| {
            Some(percent(noise.total.share_of(noise.watched)))
        })
    }),
    ("  mean gap", |outcome| gaps(outcome, mean)),
    ("  longest gap", |outcome| {
        noise(outcome, |noise| Some(noise.longest.to_string()))
    }),
    ("  yielded to programs", |outcome| {
        noise(outcome, |noise| Some(noise.yielded?.to_string()))
    }),
    ("Counted: interrupts", |outcome| {
        count(outcome, |counts| counts.irq)
    }),
    ("  softirqs", |outcome| {
        count(outcome, |counts| counts.softirq)
    }),
    ("  threads", |outcome| {
        count(outcome, |counts| counts.thread)
    }),
    ("  NMIs", |outcome| count(outcome, |counts| counts.nmi)),
    ("  no kernel activity", |outcome| {
        count(outcome, |counts| counts.outside)
    }),
    ("Of the noise: named", |outcome| {
        share(outcome, |gaps| Some(gaps.named))
    }),
    ("  the tool's own threads", |outcome| {
        share(outcome, |gaps| Some(gaps.own))
    }),
    ("  entry and exit", |outcome| {
        share(outcome, |gaps| gaps.entry_exit)
    }),
    ("  outside the kernel", |outcome| {
        share(outcome, |gaps| Some(gaps.outside))
    }),
    ("  unexplained", |outcome| {
        share(outcome, |gaps| Some(gaps.unexplained))
    }),
    ("Explained", |outcome| {
        gaps(outcome, |gaps| Some(percent(gaps.coverage())))
    }),
    ("Late: cycles", |outcome| {
        latency(outcome, |latency| Some(latency.cycles.to_string()))
    }),
    ("  min", |outcome| {
        latency(outcome, |latency| Some(latency.thread.min.to_string()))
    }),
    ("  mean", |outcome| {
        latency(outcome, |latency| Some(latency.thread.mean.to_string()))
    }),
    ("  max", |outcome| {
        latency(outcome, |latency| Some(latency.thread.max.to_string()))
    }),
    ("  its interrupt, mean", |outcome| {
        interrupt(outcome, |irq| irq.mean)
    }),
    ("  its interrupt, max", |outcome| {
        interrupt(outcome, |irq| irq.max)
    }),
];

fn table(tools: &[PeerReport]) -> Table {
    let cells = |first: &str, text: &dyn Fn(&PeerReport) -> String| {
        let tool = |peer| tools.iter().find(|tool| tool.peer == peer);
        let [a, b, c, d] = Peer::ALL.map(|peer| tool(peer).map_or_else(String::new, text));
        [first.to_owned(), a, b, c, d]
    };
    let mut table = Table::new(["", "audit", "osnoise", "timerlat", "cyclictest"]);
    for (name, show) in ROWS {
        let show = |tool: &PeerReport| show(&tool.outcome).unwrap_or_else(|| "-".to_owned());
        table.row(cells(name, &show));
    }
    table
}

/// Explains why a tool's column is empty or incomplete. Returns `None` if it is complete.
fn shortfall(outcome: &PeerOutcome) -> Option<String> {
    match outcome {
        PeerOutcome::Absent(why) => Some(why.clone()),
        PeerOutcome::Failed(why) => Some(format!("failed: {why}")),
        PeerOutcome::Noise(Noise {
            attribution: None, ..
        }) => Some(
            "there was no room for all of its tracer's events, so what has a name is not known; \
             run it for less time"
                .to_owned(),
        ),
        PeerOutcome::Noise(Noise { counts: None, .. }) => {
            Some("nothing that ran could be traced, so nothing has a name".to_owned())
        }
        _ => None,
    }
}

/// Replaces control characters, because a terminal would interpret them.
fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        0.0 => "0 %".to_owned(),
        tiny if tiny < 0.005 => "<0.01 %".to_owned(),
        small if small < 0.0995 => format!("{small:.2} %"),
        // Print 100 % only if the value is exactly 100 %.
        most if (99.995..100.0).contains(&most) => ">99.99 %".to_owned(),
        most if (99.0..99.995).contains(&most) => format!("{most:.2} %"),
        _ => format!("{percent:.1} %"),
    }
}

fn noise(outcome: &PeerOutcome, figure: fn(&Noise) -> Option<String>) -> Option<String> {
    match outcome {
        PeerOutcome::Noise(noise) => figure(noise),
        _ => None,
    }
}

fn gaps(outcome: &PeerOutcome, figure: fn(&Attribution) -> Option<String>) -> Option<String> {
    match outcome {
        PeerOutcome::Noise(noise) => figure(noise.attribution.as_ref()?),
        _ => None,
    }
}

fn share(outcome: &PeerOutcome, figure: fn(&Attribution) -> Option<Nanos>) -> Option<String> {
    match outcome {
        PeerOutcome::Noise(noise) => {
            let gaps = noise.attribution.as_ref()?;
            Some(percent(figure(gaps)?.share_of(gaps.time)))
        }
        _ => None,
    }
}

fn count(outcome: &PeerOutcome, figure: fn(&Counts) -> u64) -> Option<String> {
    match outcome {
        PeerOutcome::Noise(noise) => Some(figure(noise.counts.as_ref()?).to_string()),
        _ => None,
    }
}

fn latency(outcome: &PeerOutcome, figure: fn(&Latency) -> Option<String>) -> Option<String> {
    match outcome {
        PeerOutcome::Latency(latency) => figure(latency),
        _ => None,
    }
}

fn interrupt(outcome: &PeerOutcome, figure: fn(&Spread) -> Nanos) -> Option<String> {
    match outcome {
        PeerOutcome::Latency(latency) => Some(figure(latency.irq.as_ref()?).to_string()),
        _ => None,
    }
}

fn mean(gaps: &Attribution) -> Option<String> {
    let count = i64::try_from(gaps.gaps).ok().filter(|&count| count > 0)?;
    Some(Nanos(gaps.time.0 / count).to_string())
}

#[cfg(test)]
mod tests;
