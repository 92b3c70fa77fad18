//! Compares sampled shares of CPU time with the traced shares and with the soaker's measurement.

use ticktax_model::Nanos;
use ticktax_model::net::{Sampled, SampledActivity, TracedTraffic};

use super::super::block::Columns;
use super::super::numbers::{counted, percent};
use super::super::page::{Page, Tone};

/// Writes each share of CPU time side by side: as traced, as sampled (by the code that ran, and by
/// thread), and as measured by the soaker.
pub(super) fn beside(
    page: &mut Page,
    books: &TracedTraffic,
    sampled: &Sampled,
    soaked: Option<Nanos>,
) {
    let cells = |cells: [&str; 4]| Columns::right([8, 9, 10, 8].into_iter().zip(cells));
    page.section("Comparison with a sampler");
    let head = cells(["traced", "sampled", "by thread", "soak"]);
    page.headings(Tone::Faint, "", &head);
    let soaked = soaked.map(|time| time.share_of(books.elapsed));
    for doing in SampledActivity::ALL {
        let traced = percent(books.doing(doing).share_of(books.elapsed));
        let (by_code, by_thread) = sampled.shares(doing);
        let got = match (doing, soaked) {
            (SampledActivity::Spare, Some(share)) => percent(share),
            _ => String::new(),
        };
        let text = cells([&traced, &percent(by_code), &percent(by_thread), &got]);
        page.row(Tone::Plain, 2, name(doing), &text);
    }
    let gone = soaked.map_or_else(String::new, |share| {
        format!(
            " soak: CPU time that the soak probe got, computed from the work it did. It did not \
             get {}.",
            percent(1.0 - share)
        )
    });
    let lost = match sampled.samples_lost {
        0 => String::new(),
        lost => format!(", {} lost", counted(lost, "sample")),
    };
    let text = format!(
        "{}{lost}, one every {} on each CPU. sampled: by the code that ran. by thread: by the \
         current thread, so that softirqs count for the thread that they interrupt, or as idle. A \
         sampler cannot see interrupts, because its own timer interrupt waits until they \
         end.{gone}",
        counted(sampled.samples(), "sample"),
        sampled.period,
    );
    page.paragraph(Tone::Faint, "", &text);
}

fn name(doing: SampledActivity) -> &'static str {
    match doing {
        SampledActivity::Sender => "sender",
        SampledActivity::Receiver => "receiver",
        SampledActivity::Softirq => "softirqs",
        SampledActivity::Irq => "interrupts",
        SampledActivity::Other => "others and unexplained",
        SampledActivity::Spare => "idle, or used by the soak probe",
    }
}
