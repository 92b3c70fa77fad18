//! Sample periodic sources, and tests for pages about them.

use ticktax_fixture::beat;
use ticktax_model::beats::{
    AliasLine, BeatGaps, BeatKind, BeatLine, BeatStatement, EventSample, HypervisorOrFirmware,
    PeriodSpectrum, SamePeriod,
};
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::ProbeKind;
use ticktax_model::statement::Statement;
use ticktax_model::tick::TickBill;
use ticktax_model::waits::{WaitStatement, WaitedFor};
use ticktax_model::{Cpu, Kind, Lengths, Nanos};

use super::samples::kernel_level;
use super::ticks::with_ticks;
use crate::text::beats::short_period;
use crate::text::statement::statement as statement_page;

fn line(name: &str, period: f64, margin: f64, cpus: &str) -> BeatLine {
    let mut line = BeatLine {
        kind: BeatKind::Interrupt,
        cpus: cpus.parse().unwrap(),
        first: Nanos(1_234_567_890),
        lengths: Lengths {
            median: Nanos::from_millis(17),
            p99: None,
            max: Nanos::from_millis(21),
        },
        share: 0.000_55,
        ..beat(name, period, margin)
    };
    let rhythm = &mut line.rhythm;
    (rhythm.false_alarm, rhythm.jitter) = (3e-9, Nanos(310_000));
    (rhythm.seen, rhythm.expected) = (110, 116);
    line
}

fn lengths(median: i64, p99: Option<i64>, max: i64) -> Lengths {
    Lengths {
        median: Nanos(median),
        p99: p99.map(Nanos),
        max: Nanos(max),
    }
}

/// Changes how many events `line` has, how long they took, and their share of the time on its CPUs.
/// If `line` is a periodic gap, the events are the gaps themselves.
fn measured(line: &mut BeatLine, events: [u64; 2], times: Lengths, share: f64) {
    [line.rhythm.seen, line.rhythm.expected] = events;
    (line.lengths, line.share) = (times, share);
    if let Some(gaps) = &mut line.gaps {
        (gaps.count, gaps.lengths, gaps.share) = (line.rhythm.seen, times, share);
    }
}

fn gaps(share: f64) -> BeatGaps {
    BeatGaps {
        probe: ProbeKind::Spin,
        threshold: Nanos::from_micros(1),
        count: 109,
        lengths: Lengths {
            median: Nanos(17_100_000),
            p99: None,
            max: Nanos(21_100_000),
        },
        share,
        inside: 0.991,
    }
}

/// Returns a server's periodic sources over one hour: a syncer, a tick, a mixer, and two timers
/// that drift past each other.
pub(crate) fn a_server() -> BeatStatement {
    let mut syncer = line("kworker wb_workfn", 30.999e9, 4.1e5, "3");
    syncer.chain = [
        "local_timer tick_nohz_handler",
        "softirq TIMER delayed_work_timer_fn",
        "kworker wb_workfn",
    ]
    .map(str::to_owned)
    .to_vec();
    syncer.gaps = Some(gaps(0.000_56));
    syncer.kind = BeatKind::Work;
    let mut tick = line("local_timer tick_nohz_handler", 4e6, 0.02, "0-63");
    tick.rhythm.jitter = Nanos(4_100);
    let times = lengths(2_000, Some(5_200), 90_000);
    measured(&mut tick, [57_599_988, 57_600_000], times, 0.000_52);
    let mut mixer = line("mixer", 10.076e6, 9.1e3, "0,2");
    mixer.kind = BeatKind::Thread;
    (
        mixer.pid,
        mixer.rhythm.rearmed,
        mixer.rhythm.phase_jumps,
        mixer.events_per_period,
    ) = (Some(4_121), true, 1, 2.4);
    mixer.active_range = Some((Nanos::from_secs(1_800), Nanos::from_secs(3_600)));
    mixer.first = Nanos(1_800_004_000_000);
    let times = lengths(1_600, None, 21_000);
    measured(&mut mixer, [178_512, 178_642], times, 0.000_1);
    syncer.sample = Some(sample(&syncer, 110));
    mixer.sample = Some(sample(&mixer, 428_741));
    let [met, held, host] = periodic_gaps();
    let mut own = line("ticktax", 50e6, 3e3, "0");
    (own.kind, own.by_ticktax) = (BeatKind::Thread, true);
    let times = lengths(24_000, None, 120_000);
    measured(&mut own, [72_000, 72_000], times, 0.000_5);
    BeatStatement {
        beats: vec![syncer, tick, mixer, met, held, host, own],
        searched: 1_840,
        window: Nanos::from_secs(3_600),
        family_alarm: 0.01,
        limitations: vec![Limitation::BeatPeriodsTooLong {
            max_period: Nanos::from_secs(900),
        }],
        spectrum: Some(PeriodSpectrum {
            sources: vec!["kworker wb_workfn".to_owned(), "mixer".to_owned()],
            shortest: 1e5,
            longest: 900e9,
            periods: vec![5.038e6, 10.076e6, 15.4995e9, 30.999e9],
            strengths: vec![310.0, 1_240.0, 41.2, 43.0],
            source_index: vec![1, 1, 0, 0],
        }),
    }
}

/// Returns the server's periodic gaps. The first comes from two timers that coincide, the second
/// has the period of a third timer, and the third comes from the hypervisor.
fn periodic_gaps() -> [BeatLine; 3] {
    let mut met = line("gaps", 1.010_04e9, 2.0e5, "3");
    met.kind = BeatKind::Gaps;
    met.gaps = Some(gaps(0.0));
    let times = lengths(17_100, None, 21_100);
    measured(&mut met, [3_551, 3_564], times, 0.000_017);
    met.alias = Some(AliasLine {
        first: "eth0".to_owned(),
        first_period: 10e6,
        k: 1,
        second: "eth1".to_owned(),
        second_period: 10.1e6,
        n: 1,
        period: 1.01e9,
    });
    let mut held = line("gaps", 25e6, 110.0, "1");
    held.kind = BeatKind::Gaps;
    held.gaps = Some(gaps(0.0));
    let times = lengths(10_900, None, 21_000);
    measured(&mut held, [143_990, 144_000], times, 0.000_44);
    held.ran_in_gaps = vec!["call_function".to_owned(), "kworker drain".to_owned()];
    held.same_period = vec![
        SamePeriod {
            name: "hpet".to_owned(),
            offset: Some(Nanos(61_000)),
        },
        SamePeriod {
            name: "eth2".to_owned(),
            offset: None,
        },
    ];
    let mut host = line("gaps", 10e6, 40.0, "1");
    host.kind = BeatKind::Gaps;
    host.gaps = Some(gaps(0.0));
    let times = lengths(3_100, None, 12_000);
    measured(&mut host, [359_988, 360_000], times, 0.000_31);
    host.hypervisor_or_firmware = Some(HypervisorOrFirmware { host_hz: Some(100) });
    [met, held, host]
}

/// Returns the periodic sources in 20 s on the machine from [`kernel_level`]: a kernel timer, the
/// tick, and a tick of the host.
pub(crate) fn of_20_seconds() -> BeatStatement {
    let mut vmstat = line("kworker vmstat_update", 100e6, 3.1e3, "0-1");
    vmstat.kind = BeatKind::Work;
    vmstat.first = Nanos(34_567_890);
    let times = lengths(14_000, None, 90_000);
    measured(&mut vmstat, [400, 400], times, 0.000_152_5);
    let mut tick = line("local_timer tick_nohz_handler", 1e6, 0.3, "0-1");
    tick.first = Nanos(567_890);
    let times = lengths(12_100, Some(31_000), 171_000);
    measured(&mut tick, [40_000, 40_000], times, 0.012_2);
    let mut host = line("gaps", 4e6, 11.0, "1");
    host.kind = BeatKind::Gaps;
    host.first = Nanos(1_567_890);
    host.gaps = Some(gaps(0.0));
    let times = lengths(4_900, None, 12_000);
    measured(&mut host, [4_991, 5_000], times, 0.001_3);
    host.hypervisor_or_firmware = Some(HypervisorOrFirmware { host_hz: Some(250) });
    BeatStatement {
        beats: vec![vmstat, tick, host],
        searched: 31,
        window: Nanos::from_secs(20),
        family_alarm: 0.01,
        limitations: Vec::new(),
        spectrum: None,
    }
}

/// Returns a sample of the events of `line` within an hour. `of` is the total number of events.
fn sample(line: &BeatLine, of: u64) -> EventSample {
    let period = line.rhythm.period;
    let length = 3.6e12 - line.first.0 as f64;
    let beats = (length / period).min(40.0);
    let at = |place: u32| {
        let beat = (f64::from(place) * (length / period) / beats).floor();
        line.first + Nanos::from_secs(1).times(beat * period / 1e9)
    };
    EventSample {
        cpu: Some(Cpu(3)),
        events: of,
        first: line.first,
        began: (0..40).map(at).collect(),
    }
}

/// Returns the search result for a recording that keeps sums, which show no periods.
pub(super) fn nothing_repeats() -> BeatStatement {
    BeatStatement {
        family_alarm: 0.01,
        limitations: vec![Limitation::BeatTimesSummed { rows: 4_000 }],
        ..BeatStatement::default()
    }
}

/// A thread that is off CPU takes no time from others, no matter how long it sleeps.
#[test]
fn a_thread_off_its_cpu_is_not_the_costliest_source() {
    let mut statement = a_server();
    let mut asleep = line("gamesrv sleeping", 16_666_667.0, 20.0, "1");
    (asleep.kind, asleep.share) = (BeatKind::OffCpu, 0.956);
    statement.beats.insert(0, asleep);
    let page = crate::text::beats::beats(&statement, &crate::text::TextStyle::default());
    let (title, rows) = page.split_once("PERIODIC").unwrap();
    assert!(
        title.contains("The costliest is") && !title.contains("sleeping"),
        "{page}"
    );
    assert!(rows.contains("gamesrv sleeping"), "{page}");
    // These gaps may have yielded time to programs, so they do not count as a loss either.
    let mut yielded = line("gaps", 100.4e6, 7.5e4, "1");
    (yielded.kind, yielded.gaps) = (BeatKind::Gaps, Some(gaps(0.5)));
    let mut with_gaps = statement.clone();
    with_gaps.beats.insert(0, yielded);
    let page_of_gaps = crate::text::beats::beats(&with_gaps, &crate::text::TextStyle::default());
    assert!(
        page_of_gaps
            .replace('\n', " ")
            .contains("The costliest is kworker wb_workfn"),
        "{page_of_gaps}"
    );
    let full = crate::text::TextStyle {
        view: crate::View::Full,
        ..crate::text::TextStyle::default()
    };
    let page = crate::text::beats::beats(&statement, &full);
    assert!(page.contains("95.6 % of the time"), "{page}");
    assert!(!page.contains("95.6 % of the time of its CPUs"), "{page}");
}

/// Gaps may have yielded time to programs, a thread that is off CPU takes no time, and a program
/// that starts while CPUs are idle delays nothing.
#[test]
fn sources_that_take_no_time_from_others_have_no_line_on_the_machines_screen() {
    let mut yielded = line("gaps", 100.4e6, 7.5e4, "1");
    (yielded.kind, yielded.gaps) = (BeatKind::Gaps, Some(gaps(0.005)));
    let outside = BeatLine {
        hypervisor_or_firmware: Some(HypervisorOrFirmware { host_hz: None }),
        rhythm: line("gaps", 30e6, 9.0, "1").rhythm,
        ..yielded.clone()
    };
    let mut asleep = line("game sleeping", 16_666_667.0, 20.0, "1");
    (asleep.kind, asleep.pid, asleep.share) = (BeatKind::OffCpu, Some(7), 0.956);
    let mut starts = line("a new bash", 367e6, 2e6, "1");
    (starts.kind, starts.share) = (BeatKind::ThreadStarts, 0.004);
    let mut thread = line("kdamond.0", 512e6, 2e5, "1");
    (thread.kind, thread.share) = (BeatKind::Thread, 0.002);
    let mut own = line("ticktax", 50e6, 3e3, "1");
    (own.kind, own.by_ticktax) = (BeatKind::Thread, true);
    let mut statement = kernel_level();
    statement.beats = Some(BeatStatement {
        beats: vec![yielded, outside, asleep, starts, thread, own],
        ..BeatStatement::default()
    });
    let lines_with = |behind: &[(&str, i64)]| {
        let behind = behind.iter().map(|&(name, ms)| WaitedFor {
            name: name.to_owned(),
            kind: Kind::Task,
            pids: Vec::new(),
            time: Nanos::from_millis(ms),
        });
        let mut statement = statement.clone();
        statement.waits = Some(WaitStatement {
            behind: behind.collect(),
            ..WaitStatement::default()
        });
        let page = statement_page(&statement, &crate::text::TextStyle::default());
        let lines = page
            .lines()
            .skip_while(|line| !line.starts_with("PERIODIC"))
            .skip(1)
            .take_while(|line| line.contains(", CPU"));
        let names = lines.map(|line| {
            let (name, _) = line.split_once(", CPU").unwrap_or_default();
            name.split_whitespace()
                .skip(2)
                .collect::<Vec<_>>()
                .join(" ")
        });
        let left = page
            .lines()
            .find(|line| line.contains(" more (--section repeats)"));
        (
            names.collect::<Vec<String>>(),
            left.unwrap_or_default().trim().to_owned(),
        )
    };
    let gaps = "hypervisor or firmware";
    let (names, left) = lines_with(&[("bash", 9), ("kdamond.0", 9)]);
    assert_eq!(names, [gaps]);
    assert_eq!(left, "4 more (--section repeats)");
    for (name, beat) in [("kdamond.0", "kdamond.0"), ("bash", "a new bash")] {
        let (names, _) = lines_with(&[(name, 11)]);
        assert_eq!(names, [gaps, beat]);
    }
}

/// Returns a statement about a machine with a 250 Hz tick, on which others waited behind process 9,
/// called `name`.
fn waited_behind(name: &str) -> Statement {
    let mut statement = kernel_level();
    statement.tick = with_ticks().tick.map(|bill| TickBill {
        hz_configured: Some(250),
        ..bill
    });
    statement.waits = Some(WaitStatement {
        behind: vec![WaitedFor {
            name: name.to_owned(),
            kind: Kind::Task,
            pids: vec![9],
            time: Nanos::from_secs(2),
        }],
        ..WaitStatement::default()
    });
    statement
}

/// A program woken by a timer is a periodic source, even if its period and on-CPU time are
/// multiples of the tick. A program that nothing wakes is merely switched by the scheduler at the
/// tick.
#[test]
fn a_program_woken_at_whole_ticks_has_a_line() {
    let mut thief = line("ttx-inj-fifo", 300e6, 2e3, "1");
    (thief.kind, thief.pid, thief.share) = (BeatKind::Thread, Some(9), 0.13);
    thief.lengths.median = Nanos::from_millis(40);
    let mut statement = waited_behind("ttx-inj-fifo");
    let mut shown = |chain: &[&str]| {
        thief.chain = chain.iter().map(|&name| name.to_owned()).collect();
        statement.beats = Some(BeatStatement {
            beats: vec![thief.clone()],
            ..BeatStatement::default()
        });
        statement_page(&statement, &crate::text::TextStyle::default()).contains("ttx-inj-fifo (9)")
    };
    assert!(shown(&["timerfd_tmrproc", "ttx-inj-fifo"]));
    assert!(!shown(&[]));
}

/// If two programs share a CPU and one of them sometimes sleeps, either of them can run for any
/// length of time.
#[test]
fn runs_at_each_tick_are_time_slices_if_wakers_are_known() {
    let mut server = line("gamesrv", 4e6, 2e3, "1");
    (server.kind, server.pid, server.share) = (BeatKind::Thread, Some(9), 0.24);
    server.lengths.median = Nanos::from_micros(1_400);
    server.chain.clear();
    let mut other = line("kworker vmstat_update", 1e9, 2e3, "1");
    let mut statement = waited_behind("gamesrv");
    let mut shown = |server: &BeatLine, chain: &[&str]| {
        other.chain = chain.iter().map(|&name| name.to_owned()).collect();
        statement.beats = Some(BeatStatement {
            beats: vec![server.clone(), other.clone()],
            ..BeatStatement::default()
        });
        let page = statement_page(&statement, &crate::text::TextStyle::default());
        page.contains("4.00 ms  gamesrv (9)")
    };
    let woken = ["local_timer tick_nohz_handler", "kworker vmstat_update"];
    assert!(!shown(&server, &woken));
    // If no wakers are known, a timer might have woken the program.
    assert!(shown(&server, &[]));
    server.chain = vec![
        "local_timer hrtimer_wakeup".to_owned(),
        "gamesrv".to_owned(),
    ];
    assert!(shown(&server, &woken));
}

#[test]
fn a_short_period_has_three_digits_after_rounding_and_fits_its_column() {
    for (ns, text) in [
        (123_400.0, "123 µs"),
        (999_400.0, "999 µs"),
        (999_800.0, "1.00 ms"),
        (9.996e6, "10.0 ms"),
        (99.98e6, "100 ms"),
        (738e9, "12 min"),
        (86_400e9, "1440 min"),
        (999.8e6, "1.00 s"),
        (30.999e9, "31.0 s"),
    ] {
        assert_eq!(short_period(ns), text);
    }
}
