//! Checks that plots show the figures of their documents.

use ticktax_model::case::{CaseHead, CaseNotes, CaseStatement, Line, RowKind};
use ticktax_model::comparison::Scale;
use ticktax_model::document::Document;
use ticktax_model::kernels::{Allowance, GuestClock, KernelRow, KernelTable, KernelsStatement};
use ticktax_model::mem::{CheckBasis, MemWalk, PageBacking, WalkPoint};
use ticktax_model::statement::Statement;

use super::reader::read;
use crate::html::escape::text;
use crate::html::plots::draw;
use crate::text::account_name;
use crate::text::tests::samples::{empty, kernel_level};
use crate::text::tests::{
    accounting, beats, changes, comparisons, incidents, memory, net_experiment, pace, trials,
    victims,
};

/// Returns the HTML of the plot with this ID.
fn plot(document: &Document, id: &str) -> String {
    let mut plots = draw(document).into_iter();
    let plot = plots.find(|plot| plot.id == id);
    plot.unwrap_or_else(|| panic!("no {id}")).html
}

#[test]
fn the_balance_sheet_has_every_account_and_part() {
    let statement = kernel_level();
    let sheet = plot(&statement.clone().into(), "balance");
    for account in &statement.accounts {
        let expected = format!(
            "<span class=\"name\">{}</span> <span title=\"{} ns\">{}</span>",
            text(&account_name(account)),
            account.time.0,
            account.time
        );
        assert!(sheet.contains(&expected), "{expected} of {sheet}");
        for part in &account.parts {
            assert!(sheet.contains(&part.name), "{} of {sheet}", part.name);
        }
    }
    assert_eq!(
        sheet.matches("<details>").count(),
        sheet.matches("</details>").count()
    );
    assert!(sheet.contains(">100.0 %</span>"), "{sheet}");
}

#[test]
fn a_flame_graph_is_as_wide_as_the_profile() {
    let profile = crate::profile::tests::profile();
    let statement = Statement {
        profile: Some(profile.clone()),
        ..kernel_level()
    };
    let graph = plot(&statement.into(), "flame");
    let number = |text: &str, name: &str| -> f64 {
        let (_, rest) = text.split_once(&format!(" {name}=\"")).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let bars = || graph.lines().filter(|line| line.starts_with("<g>"));
    let lowest = bars().map(|bar| number(bar, "y")).fold(0.0, f64::max);
    let outermost = bars().filter(|bar| (number(bar, "y") - lowest).abs() < 0.5);
    let width: f64 = outermost.map(|bar| number(bar, "width")).sum();
    assert!((width - 1_000.0).abs() < 0.1, "{width}");
    // `sh` ran for 500 of 5,554 ns.
    let sh = bars()
        .find(|bar| bar.contains("<title>sh: 500 ns, "))
        .unwrap();
    assert!(
        (number(sh, "width") - 1_000.0 * 500.0 / 5_554.0).abs() < 0.01,
        "{sh}"
    );
    // The account of 12 ns has a bar, and the one of 2 ns is too narrow.
    assert!(graph.contains("[not sampled]"));
    for class in ["user", "kernel", "unknown"] {
        assert!(
            graph.contains(&format!("<rect class=\"{class}\"")),
            "{class}"
        );
    }
}

#[test]
fn figures_that_were_not_measured_are_not_drawn() {
    assert!(draw(&empty().into()).is_empty());
    let ids: Vec<_> = draw(&kernel_level().into())
        .iter()
        .map(|plot| plot.id)
        .collect();
    assert_eq!(ids, ["balance"]);
}

#[test]
fn every_cpu_has_its_shown_and_traced_time() {
    let statement: Statement = accounting::checked();
    let check = statement.accounting.clone().unwrap();
    let html = plot(&statement.into(), "shown");
    let known = check.cpus.iter().filter(|cpu| cpu.busy_share.is_some());
    for cpu in known.clone() {
        let error = format!("<td>{:+.1}</td>", 100.0 * cpu.off().unwrap());
        assert!(html.contains(&error), "{error} of {html}");
    }
    assert_eq!(html.matches("<th scope=\"row\">").count(), known.count());
}

#[test]
fn curves_rise_and_end_at_the_longest_time() {
    let document: Document = pace::a_loop().into();
    let html = plot(&document, "curves");
    let curves: Vec<&str> = html.split("class=\"curve c").collect();
    assert!(curves.len() > 2, "{html}");
    for path in html
        .split(" d=\"")
        .filter(|path| path.starts_with('M') && path.contains('L'))
    {
        let (path, _) = path.split_once('"').unwrap();
        let steps = path.split(['M', 'L']).filter(|part| !part.is_empty());
        let steps: Vec<(f64, f64, f64)> = steps
            .map(|step| {
                let (from, to) = step.split_once('H').unwrap();
                let (x, y) = from.split_once(' ').unwrap();
                (x.parse().unwrap(), y.parse().unwrap(), to.parse().unwrap())
            })
            .collect();
        for pair in steps.windows(2) {
            // Times increase from left to right, so the y coordinates decrease.
            assert!(
                pair[0].2 <= pair[1].0 + 0.11 && pair[0].1 >= pair[1].1,
                "{path}"
            );
        }
    }
    let figures = pace::a_loop().figures.unwrap();
    let longest = figures.frame_time.unwrap().max.0.to_string();
    assert!(
        html.contains(&format!("<td title=\"{longest} ns\">")),
        "{longest} of {html}"
    );
}

#[test]
fn effects_are_drawn_with_their_intervals() {
    let statement = trials::two_arms();
    let html = plot(&statement.clone().into(), "effects");
    let effects = statement.effects.iter();
    let effects = effects.filter_map(|effect| effect.contrast.effect);
    let drawn = html.matches("class=\"over c0\"").count();
    assert!(drawn > 0 && drawn <= effects.count(), "{html}");
    assert!(html.contains("-3.9"), "{html}");
}

#[test]
fn every_plot_has_a_table_of_its_numbers() {
    for document in super::documents() {
        let html = crate::html::page(&document);
        let read = read(&html);
        for plot in draw(&document) {
            assert!(read.ids.contains(&plot.id.to_owned()), "{}", plot.id);
            assert!(
                plot.html.contains("<table>") || plot.id == "balance",
                "{}",
                plot.html
            );
        }
    }
}

fn head() -> CaseHead {
    CaseHead {
        name: "frame-rate".to_owned(),
        title: "Frames <by> tick rate".to_owned(),
        source: "a page".to_owned(),
        mechanism: "rounding".to_owned(),
    }
}

/// Returns a case with a row of each kind. One row's range is open at one end.
pub(super) fn a_case() -> CaseStatement {
    let line = |at: &str, kind, published, modelled, residual| Line {
        series: "frames".to_owned(),
        unit: "FPS".to_owned(),
        label: at.to_owned(),
        fact: None,
        place: None,
        published,
        derived: Some([Some(30.0), Some(31.0)]),
        modelled,
        kind,
        chosen: Vec::new(),
        residual,
        allowed: 0.5,
        known_failure: None,
        only_with: Vec::new(),
    };
    CaseStatement {
        case: head(),
        summary: None,
        constants: Vec::new(),
        rows: vec![
            line(
                "HZ=100",
                RowKind::Fit,
                Some([Some(25.0), Some(25.0)]),
                Some(25.0),
                Some(0.0),
            ),
            line(
                "HZ=250",
                RowKind::Predicted,
                Some([Some(30.0), None]),
                Some(28.5),
                Some(-1.5),
            ),
            line("HZ=300", RowKind::NotComparable, None, Some(31.0), None),
        ],
        measured: Vec::new(),
        this_machine: Vec::new(),
        hold_out: Vec::new(),
        sensitivity: Vec::new(),
        remarks: Vec::new(),
        notes: CaseNotes::default(),
    }
}

/// Returns the same case as measured on kernels, with values in a different unit.
pub(super) fn on_kernels() -> KernelsStatement {
    let row = |hz, kernel| KernelRow {
        hz,
        published: Some((24.0, 25.0)),
        modelled: Some(25.0),
        expected: Some((2.0e6, 2.5e6)),
        fit: hz == 100,
        kernel,
    };
    KernelsStatement {
        head: head(),
        release: Some("6.1.170".to_owned()),
        clock: GuestClock::Host,
        tables: vec![KernelTable {
            what: "a frame".to_owned(),
            cmdline: "nohz=off".to_owned(),
            unit: "FPS".to_owned(),
            kernel_unit: "ns".to_owned(),
            expectation: "the model of this kernel".to_owned(),
            allowed: Some(Allowance::Of(1e5)),
            rows: vec![row(100, 2.2e6), row(250, 4.1e6)],
        }],
        remarks: Vec::new(),
    }
}

/// Returns how often `words` occurs in the HTML of a plot.
fn count(html: &str, words: &str) -> usize {
    html.matches(words).count()
}

#[test]
fn a_dot_is_drawn_for_each_sampled_event() {
    let statement = beats::a_server();
    let html = plot(&statement.clone().into(), "phases");
    let samples = statement
        .beats
        .iter()
        .filter_map(|beat| beat.sample.as_ref());
    let events: usize = samples.clone().map(|sample| sample.began.len()).sum();
    assert_eq!(count(&html, "h0"), events, "{html}");
    assert_eq!(count(&html, "<figure>"), samples.count());
    assert!(
        html.contains("1. kworker wb_workfn, CPU 3: every 30.99"),
        "{html}"
    );
}

#[test]
fn peaks_have_the_numbers_of_their_sources() {
    let statement = beats::a_server();
    let html = plot(&statement.clone().into(), "spectrum");
    let (_, stems) = html.split_once("class=\"stems\" d=\"").unwrap();
    let (stems, rest) = stems.split_once('"').unwrap();
    assert_eq!(
        stems.matches('M').count(),
        statement.spectrum.unwrap().periods.len()
    );
    for number in ["1", "2"] {
        assert!(rest.contains(&format!(">{number}</text>")), "{html}");
    }
    // The spectrum also has a peak at half of the period, but that peak gets no number.
    let peak = "<td title=\"30999000000 ns\">30.999 s</td><td>43.0</td>";
    assert!(html.contains(peak), "{html}");
}

#[test]
fn the_waits_of_a_program_have_a_curve() {
    let statement = victims::with_victim(kernel_level());
    let html = plot(&statement.into(), "curves");
    assert!(html.contains("wake-up latency of game"), "{html}");
    assert!(
        html.contains(
            "<td>16240</td><td>–</td><td title=\"3210 ns\">3.210 0 µs</td><td title=\"812000 \
             ns\">812.00 µs</td>\
             <td title=\"70800000 ns\">70.800 ms</td>"
        ),
        "{html}"
    );
}

#[test]
fn rows_and_marks_are_grouped_by_kind() {
    let html = plot(&a_case().into(), "published");
    let place = |words: &str| {
        html.find(words)
            .unwrap_or_else(|| panic!("{words} of {html}"))
    };
    let predicted = place(">predicted</th>");
    let (fit, neither) = (place(">fit</th>"), place(">not comparable</th>"));
    assert!(predicted < fit && fit < neither);
    let rows = [place(">HZ=250<"), place(">HZ=100<"), place(">HZ=300<")];
    assert!(
        predicted < rows[0]
            && rows[0] < fit
            && fit < rows[1]
            && rows[1] < neither
            && neither < rows[2]
    );
    assert!(
        html.contains("30 or more") && html.contains("-1.5, differs"),
        "{html}"
    );
    // Each kind of mark occurs once in the key, and once for each of its values.
    for (kind, marks) in [(0, 3), (1, 4), (2, 4)] {
        assert_eq!(
            count(&html, &format!("class=\"mark c{kind}\"")),
            marks,
            "{kind} of {html}"
        );
    }
    assert!(html.contains("frames (FPS)"), "{html}");
}

#[test]
fn kernels_have_a_verdict_in_words() {
    let html = plot(&on_kernels().into(), "kernels");
    for words in [
        "calibration</td>",
        "off</td>",
        "kernel (ns)",
        "published (FPS)",
        "expected: the model of this kernel",
    ] {
        assert!(html.contains(words), "{words} of {html}");
    }
    // The values have two different units, so the table needs two axes.
    assert_eq!(count(&html, "class=\"strip axis\""), 2, "{html}");
    // The table for each of the five metrics has an axis.
    let html = plot(&comparisons::loops_on_kernels().into(), "arms");
    assert_eq!(count(&html, "class=\"strip axis\""), 5, "{html}");
}

#[test]
fn predictions_have_intervals_and_are_named() {
    let html = plot(&comparisons::predicted(33.0).into(), "arms");
    assert_eq!(count(&html, "class=\"over c2\""), 2, "{html}");
    assert!(
        html.contains("measured unchanged") && html.contains("predicted hz=1000"),
        "{html}"
    );
    assert!(
        html.contains("<td>33 /s</td><td>32.9 /s</td><td>33.2 /s</td>"),
        "{html}"
    );
}

#[test]
fn changes_have_a_plot_and_a_single_percentile_has_none() {
    let statement = changes::moved();
    let html = plot(&statement.clone().into(), "effects");
    assert_eq!(count(&html, "<th scope=\"row\">"), 4, "{html}");
    assert!(html.contains("points"), "{html}");
    // A curve needs more than one percentile.
    let plots = draw(&statement.into());
    assert!(plots.iter().all(|plot| plot.id != "waits"));
}

#[test]
fn arms_and_effects_of_every_comparison_are_drawn() {
    let html = plot(&pace::compared_loops().into(), "arms");
    // Five metrics for five arms, and the key of each table.
    assert_eq!(count(&html, "<h3>"), 5, "{html}");
    assert_eq!(count(&html, "class=\"mark c0\""), 30, "{html}");
    let experiment = net_experiment::small_calls();
    let html = plot(&experiment.clone().into(), "arms");
    let arms = experiment.arms.len();
    // Each of the five metrics has a table.
    assert_eq!(count(&html, "<th scope=\"row\">"), 5 * arms, "{html}");
    let html = plot(&experiment.into(), "effects");
    assert!(html.contains("size=65536: CPU time per byte"), "{html}");
    assert!(html.contains("<td>better</td>"), "{html}");
    let html = plot(&trials::lists().into(), "arms");
    assert!(html.contains("<h3>mean</h3>"), "{html}");
}

#[test]
fn effects_on_different_scales_have_their_own_axes() {
    let mut statement = trials::two_arms();
    for effect in statement.effects.iter_mut().skip(1) {
        effect.scale = Scale::Absolute;
    }
    let html = plot(&statement.into(), "effects");
    assert!(count(&html, "class=\"strip axis\"") > 1, "{html}");
}

#[test]
fn every_measured_run_has_a_mark() {
    let statement = trials::two_arms();
    let html = plot(&statement.clone().into(), "runs");
    assert!(html.contains("block 1</th>"), "{html}");
    assert!(count(&html, "class=\"mark c0\"") >= 2, "{html}");
}

#[test]
fn arms_of_a_sweep_and_incidents_have_marks() {
    let html = plot(&comparisons::sweep().into(), "arms");
    assert!(html.contains("#1003 hz=300 task.game.work=530us"), "{html}");
    // Four arms, and the key.
    assert_eq!(count(&html, "class=\"mark c1\""), 5, "{html}");
    let list = incidents::list();
    let times: usize = list.groups.iter().map(|group| group.at_unix_ms.len()).sum();
    let html = plot(&list.into(), "times");
    assert_eq!(count(&html, "class=\"mark c0\""), times, "{html}");
    let sheet = incidents::sheet(incidents::waited());
    let html = plot(&sheet.into(), "instead");
    assert!(html.contains("share"), "{html}");
}

#[test]
fn latencies_are_drawn_for_every_working_set_and_reported_cache() {
    let measured = memory::measured();
    let html = plot(&measured.clone().into(), "latency");
    for point in &measured.points {
        let row = format!("<td>{:.2}</td>", point.small.median_ns);
        assert!(html.contains(&row), "{row} of {html}");
    }
    // Both curves have a segment between each pair of working sets.
    let curves = html.split("class=\"curve c").skip(1).take(2);
    for curve in curves {
        let path = curve.split('"').nth(2).unwrap();
        assert_eq!(path.matches('L').count(), measured.points.len() - 1);
    }
    assert!(
        html.contains(">L1</text>") && html.contains(">L2</text>"),
        "{html}"
    );
}

#[test]
fn a_walk_has_its_predicted_curves_caches_and_measured_marks() {
    let point = |items, ns| WalkPoint {
        items,
        interleaved_ns: ns,
        sequential_ns: ns / 2.0,
        packed_ns: ns / 4.0,
    };
    let walk = MemWalk {
        curve: vec![point(64, 4.0), point(8192, 12.5), point(64_000, 86.25)],
        ..memory::predicted()
    };
    let html = plot(&walk.clone().into(), "walk");
    assert_eq!(html.matches("class=\"curve c").count(), 2 * 3, "{html}");
    assert!(
        html.contains("<td>12.50</td><td>6.25</td><td>3.12</td>"),
        "{html}"
    );
    assert!(html.contains(">L2</text>"), "{html}");
    assert!(!html.contains("measured"), "{html}");
    let check = memory::check(57.0, CheckBasis::Table, PageBacking::Small);
    let checked = MemWalk {
        check: Some(check),
        ..walk
    };
    let html = plot(&checked.into(), "walk");
    assert!(html.contains("fields moved together, measured"), "{html}");
    assert!(
        html.contains("<th scope=\"row\">64000, measured</th><td>90.00</td><td></td><td></td>")
    );
    // Each measured walk is drawn on the plot and shown in the key.
    for series in 3..6 {
        let class = format!("class=\"mark c{series}\"");
        assert_eq!(html.matches(&class).count(), 2, "{series}: {html}");
    }
    assert!(draw(&memory::predicted().into()).is_empty());
}
