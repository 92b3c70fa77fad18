//! The page that puts other people's tools beside an audit.

use ticktax_model::Nanos;
use ticktax_model::peers::{
    Attribution, Counts, Latency, Noise, Peer, PeerOutcome, PeerReport, PeersStatement, Spread,
};

use super::TextStyle;
use super::head;
use super::numbers::{date, grouped, percent, percent_of_success};
use super::pace::limitations;
use super::page::{Page, Tone, clean, tied};

/// Columns of a cell.
const CELL: usize = 11;

/// Other people's tools beside an audit as text, with a line break at the end.
pub fn peers(statement: &PeersStatement, style: &TextStyle) -> String {
    let mut page = Page::new(*style);
    let title = format!(
        "ticktax: audit beside rtla and cyclictest{}, from {}",
        head::in_world(statement.world),
        date(statement.began_unix),
    );
    page.line(Tone::Strong, &title);
    page.paragraph(
        Tone::Plain,
        "Machine   ",
        &head::machine(&statement.machine),
    );
    page.paragraph(Tone::Plain, "Kernel    ", &head::kernel(&statement.machine));
    let versions = statement.packages.iter();
    let versions =
        versions.map(|(name, version)| tied(format!("{} {}", clean(name), clean(version))));
    let versions: Vec<String> =
        std::iter::once(tied(format!("ticktax {}", statement.tool_version)))
            .chain(versions)
            .collect();
    page.paragraph(Tone::Plain, "Versions  ", &versions.join(", "));
    page.paragraph(
        Tone::Plain,
        "Run       ",
        "one after the other in one guest, never two at once: the audit's loop has the lowest \
         priority, and would not run beside osnoise's",
    );
    page.section("What each says of the same CPUs");
    table(&mut page, &statement.tools);
    unmatched(&mut page, &statement.tools);
    page.section("What was run");
    for tool in &statement.tools {
        page.paragraph(Tone::Plain, "  ", &clean(&tool.command));
    }
    page.section("What the words mean");
    page.paragraph(Tone::Faint, "", LEGEND);
    page.paragraph(Tone::Faint, "", FAIRNESS);
    limitations(&mut page, &statement.limitations);
    page.finish()
}

const LEGEND: &str = "noise: time that a loop lost which never waits, in gaps from the shortest that \
     its tool counts on. The audit's loop gives way to every program, and to ticktax; that time was \
     lent, and is no noise. osnoise's loop has the priority of any program: what programs took, rtla \
     among them, is its noise. late: how long after its timer a sleeping thread ran, and for timerlat \
     after how long the interrupt came. HW: gaps in which nothing of the kernel's ran. threads: each \
     time that one came to run; softirqs that threads run are for osnoise those threads.";

const FAIRNESS: &str = "a name: of the gaps' time what an interrupt, a softirq, an NMI or a thread \
     took. rtla osnoise itself tells of these how many and not how long; how many gaps it had, their \
     mean and their shares are worked out from the events of its tracer in the same run, gap by gap, \
     rtla's own start and end among them. What a tool's own hooks cost, and what it makes the kernel \
     do, is in its gaps: no two saw the same work. osnoise has no account for getting into and out \
     of the kernel, which is without a name there. timerlat and cyclictest attribute nothing in what \
     they print.";

/// What a cell of a row shows of a tool, and nothing where that tool does not tell.
type Show = fn(&PeerOutcome) -> Option<String>;

/// The rows, with what they show of each tool.
const ROWS: [(&str, Show); 25] = [
    ("CPU time watched", |it| {
        noise(it, |noise| Some(noise.watched.to_string()))
    }),
    ("Noise: gaps of at least", |it| {
        noise(it, |noise| Some(noise.floor.to_string()))
    }),
    ("  how many", |it| gaps(it, |gaps| Some(grouped(gaps.gaps)))),
    ("  time", |it| {
        noise(it, |noise| Some(noise.total.to_string()))
    }),
    ("  of the CPU", |it| {
        noise(it, |it| Some(percent(it.total.share_of(it.watched))))
    }),
    ("  mean gap", |it| gaps(it, mean)),
    ("  longest gap", |it| {
        noise(it, |noise| Some(noise.longest.to_string()))
    }),
    ("  lent, and no noise", |it| {
        noise(it, |noise| Some(noise.yielded?.to_string()))
    }),
    ("Came meanwhile: interrupts", |it| {
        count(it, |counts| counts.irq)
    }),
    ("  softirqs", |it| count(it, |counts| counts.softirq)),
    ("  threads", |it| count(it, |counts| counts.thread)),
    ("  NMIs", |it| count(it, |counts| counts.nmi)),
    ("  HW", |it| count(it, |counts| counts.outside)),
    ("Of the noise: a name", |it| {
        share(it, |gaps| Some(gaps.named))
    }),
    ("    the tool's own threads", |it| {
        share(it, |gaps| Some(gaps.own))
    }),
    ("  in and out of the kernel", |it| {
        share(it, |gaps| gaps.entry_exit)
    }),
    ("  nothing of the kernel's", |it| {
        share(it, |gaps| Some(gaps.outside))
    }),
    ("  without a name", |it| {
        share(it, |gaps| Some(gaps.unexplained))
    }),
    ("Explained", |it| {
        gaps(it, |gaps| Some(percent_of_success(gaps.coverage())))
    }),
    ("Late: cycles", |it| {
        latency(it, |latency| Some(grouped(latency.cycles)))
    }),
    ("  least", |it| {
        latency(it, |latency| Some(latency.thread.min.to_string()))
    }),
    ("  mean", |it| {
        latency(it, |latency| Some(latency.thread.mean.to_string()))
    }),
    ("  most", |it| {
        latency(it, |latency| Some(latency.thread.max.to_string()))
    }),
    ("  its interrupt, mean", |it| interrupt(it, |irq| irq.mean)),
    ("  its interrupt, most", |it| interrupt(it, |irq| irq.max)),
];

fn table(page: &mut Page, tools: &[PeerReport]) {
    let cells = |text: &dyn Fn(&PeerReport) -> String| {
        let cells = Peer::ALL.map(|peer| {
            let tool = tools.iter().find(|tool| tool.peer == peer);
            format!("{:>CELL$}", tool.map_or_else(String::new, text))
        });
        cells.concat()
    };
    let heading = cells(&|tool| tool.peer.name().to_owned());
    page.row(Tone::Faint, 0, "", &heading);
    for (name, show) in ROWS {
        let row = cells(&|tool| show(&tool.outcome).unwrap_or_else(|| "-".to_owned()));
        let tone = match name {
            "Explained" => Tone::Strong,
            _ => Tone::Plain,
        };
        page.row(tone, 0, name, &row);
    }
}

/// Why a tool's column has nothing in it, or not all.
fn unmatched(page: &mut Page, tools: &[PeerReport]) {
    for tool in tools {
        let (tone, why) = match &tool.outcome {
            PeerOutcome::Absent(why) => (Tone::Plain, why.clone()),
            PeerOutcome::Failed(why) => (Tone::Alarm, format!("failed: {why}")),
            PeerOutcome::Noise(Noise {
                attribution: None, ..
            }) => (
                Tone::Warning,
                "there was no room for all of its tracer's events, so what has a name is not known; \
                 run it for less time"
                    .to_owned(),
            ),
            PeerOutcome::Noise(Noise { counts: None, .. }) => (
                Tone::Warning,
                "nothing that ran could be traced, so nothing has a name".to_owned(),
            ),
            _ => continue,
        };
        page.paragraph(tone, &format!("  {}: ", tool.peer.name()), &clean(&why));
    }
}

fn noise(outcome: &PeerOutcome, of: fn(&Noise) -> Option<String>) -> Option<String> {
    match outcome {
        PeerOutcome::Noise(noise) => of(noise),
        _ => None,
    }
}

fn gaps(outcome: &PeerOutcome, of: fn(&Attribution) -> Option<String>) -> Option<String> {
    match outcome {
        PeerOutcome::Noise(noise) => of(noise.attribution.as_ref()?),
        _ => None,
    }
}

fn share(outcome: &PeerOutcome, of: fn(&Attribution) -> Option<Nanos>) -> Option<String> {
    match outcome {
        PeerOutcome::Noise(noise) => {
            let gaps = noise.attribution.as_ref()?;
            Some(percent(of(gaps)?.share_of(gaps.time)))
        }
        _ => None,
    }
}

fn count(outcome: &PeerOutcome, of: fn(&Counts) -> u64) -> Option<String> {
    match outcome {
        PeerOutcome::Noise(noise) => Some(grouped(of(noise.counts.as_ref()?))),
        _ => None,
    }
}

fn latency(outcome: &PeerOutcome, of: fn(&Latency) -> Option<String>) -> Option<String> {
    match outcome {
        PeerOutcome::Latency(latency) => of(latency),
        _ => None,
    }
}

fn interrupt(outcome: &PeerOutcome, of: fn(&Spread) -> Nanos) -> Option<String> {
    match outcome {
        PeerOutcome::Latency(latency) => Some(of(latency.irq.as_ref()?).to_string()),
        _ => None,
    }
}

fn mean(gaps: &Attribution) -> Option<String> {
    let count = i64::try_from(gaps.gaps).ok().filter(|&count| count > 0)?;
    Some(Nanos(gaps.time.0 / count).to_string())
}
