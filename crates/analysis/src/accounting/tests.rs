//! Tests the check on rows of known length that contain ticks.

mod causes;
mod programs;
mod witness;

use ticktax_fixture::{books, header, process, replay, row, thread};
use ticktax_model::accounting::{AccountingStatement, Bias, BiasKind, Method};
use ticktax_model::machine::{Counters, CpuTimes, Machine};
use ticktax_model::recording::{Header, Row, RowSink};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceId, SourceTable, Span};

use super::{counting, sampled};
use crate::Auditor;

const TICK: i64 = 4_000_000;
const TICKS: i64 = 2_500;
const HANDLER: i64 = 6_000;
const PID: i32 = 42;

/// The rows of a single CPU that alternates between a program's bursts and idle time, with a tick
/// every 4 ms.
struct OneCpu {
    sources: SourceTable,
    rows: Vec<Row>,
    program: SourceId,
    idle: SourceId,
    timer: SourceId,
    function: SourceId,
    /// Delay of each tick, by its number. It is shorter than the tick period.
    delay: fn(i64) -> i64,
}

impl OneCpu {
    /// Creates a CPU with these bursts, given as `(begin, end)` in ascending order. There must be
    /// idle time between them.
    fn new(bursts: &[(i64, i64)]) -> Self {
        Self::with_late_ticks(bursts, |_| 0)
    }

    /// Same as [`new`](Self::new), but each tick comes as late as `delay` returns for its number.
    fn with_late_ticks(bursts: &[(i64, i64)], delay: fn(i64) -> i64) -> Self {
        let mut sources = SourceTable::default();
        let mut kernel =
            |kind, name: &str, detail: &str| sources.intern(Source::kernel(kind, name, detail));
        let idle = kernel(Kind::Idle, "idle", "");
        let timer = kernel(Kind::Irq, "local_timer", "");
        let function = kernel(Kind::Irq, "local_timer", "tick_nohz_handler");
        let program = sources.intern(process(Owner::Program, "server", PID));
        let mut world = Self {
            sources,
            rows: Vec::new(),
            program,
            idle,
            timer,
            function,
            delay,
        };
        let mut at = 0;
        for &(begin, end) in bursts {
            world.base(world.idle, at, begin);
            world.base(world.program, begin, end);
            at = end;
        }
        world.base(world.idle, at, TICK * TICKS);
        world
    }

    fn span(&mut self, source: SourceId, start: i64, dur: i64, own: i64) {
        self.rows.push(row(0, start, dur, own, source));
    }

    /// Adds a base row (a thread's row or an idle row) and the ticks that start in it. Each of
    /// these ticks also ends within the row.
    fn base(&mut self, source: SourceId, from: i64, to: i64) {
        let mut nested = 0;
        for number in from / TICK..=to / TICK {
            let tick = number * TICK + (self.delay)(number);
            if !(from..to).contains(&tick) {
                continue;
            }
            let handler = HANDLER.min(to - tick);
            self.span(self.function, tick, handler / 2, handler / 2);
            self.span(self.timer, tick, handler, handler - handler / 2);
            nested += handler;
        }
        self.span(source, from, to - from, to - from - nested);
    }

    fn with_probe(mut self) -> Self {
        self.occupy(thread(Owner::Probe, "ttx-spin/0", "ticktax", (7, 8)));
        self
    }

    /// Replaces idle time with `thread`.
    fn occupy(&mut self, thread: Source) {
        let thread = self.sources.intern(thread);
        let idle = self.idle;
        self.rename(thread, |span| span.source == idle);
    }

    fn rename(&mut self, source: SourceId, mut which: impl FnMut(&Span) -> bool) {
        for row in &mut self.rows {
            if let Row::Span(span) = row
                && which(span)
            {
                span.source = source;
            }
        }
    }

    /// Removes the ticks whose numbers satisfy `lost`. The interrupted task then keeps running.
    fn without_ticks(mut self, lost: impl Fn(i64) -> bool) -> Self {
        let nested = [self.timer, self.function];
        let mut returned = Nanos::ZERO;
        self.rows.retain_mut(|row| {
            let Row::Span(span) = row else { return true };
            if nested.contains(&span.source) {
                let is_lost = lost(span.start.0 / TICK);
                if is_lost {
                    returned += span.self_time;
                }
                return !is_lost;
            }
            span.self_time += std::mem::take(&mut returned);
            true
        });
        self
    }

    fn header() -> Header {
        let end = Nanos(TICK * TICKS);
        let counters = |at: Nanos, times: CpuTimes| Counters {
            at,
            cpu_times: [(0, times)].into(),
            ..Counters::default()
        };
        Header {
            machine: Machine {
                hz_configured: Some(250),
                accounting: vec!["TICK_CPU_ACCOUNTING".to_owned()],
                ..Machine::default()
            },
            cpus: vec![books(0, 0, end.0)],
            before: counters(Nanos::ZERO, CpuTimes::default()),
            after: counters(
                end,
                CpuTimes {
                    idle: end,
                    ..CpuTimes::default()
                },
            ),
            ..header()
        }
    }

    fn check(&self, header: &Header) -> AccountingStatement {
        let mut auditor = Auditor::new(&header.machine).without_beats();
        replay(&self.sources, &self.rows, &mut auditor);
        let statement = auditor.finish(header, &self.sources, 1);
        assert!(statement.balance.balances(), "{:?}", statement.balance);
        statement.accounting.unwrap()
    }
}

/// Returns one burst per tick. All bursts have the same phase: each lasts from `from` to `to`
/// hundredths of the tick period.
fn aligned(from: i64, to: i64) -> Vec<(i64, i64)> {
    let at = |tick: i64, part: i64| tick * TICK + TICK / 100 * part;
    (0..TICKS - 1)
        .map(|tick| (at(tick, from), at(tick, to)))
        .collect()
}

/// Returns bursts of `length` at phases that are independent of the tick. They are `pause` apart on
/// average. The random number generator uses Knuth's MMIX constants.
fn scattered(length: i64, pause: i64, mut seed: u64) -> Vec<(i64, i64)> {
    let mut random = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33).cast_signed()
    };
    let (mut bursts, mut at) = (Vec::new(), 0);
    loop {
        at += 2 * HANDLER + random() % (2 * pause);
        if at + length >= TICK * TICKS {
            return bursts;
        }
        bursts.push((at, at + length));
        at += length;
    }
}

fn phase(check: &AccountingStatement) -> Option<&Bias> {
    let mut causes = check.cpus[0].causes.iter();
    causes.find(|cause| cause.kind == BiasKind::TickPhase)
}

#[test]
fn a_program_that_runs_between_ticks_is_never_sampled() {
    let world = OneCpu::new(&aligned(20, 80));
    let check = world.check(&OneCpu::header());
    let program = &check.programs[0];
    assert_eq!((program.pid, program.sampled), (PID, Some(Nanos::ZERO)));
    assert_eq!(program.ran, Some(Nanos(2_400_000 * (TICKS - 1))));
    assert!(program.deviations.unwrap() < -20.0, "{program:?}");
    let cpu = &check.cpus[0];
    assert_eq!(cpu.ticks, Some(TICKS as u64));
    assert!((cpu.busy_share.unwrap() - 0.6).abs() < 0.003, "{cpu:?}");
    assert!((cpu.off().unwrap() + 0.6).abs() < 0.003, "{cpu:?}");
    let cause = phase(&check).unwrap();
    assert_eq!((cause.pid, cause.time), (Some(PID), -cause.ran));
}

#[test]
fn a_program_that_runs_at_every_tick_gets_every_sample() {
    let world = OneCpu::new(&aligned(97, 103));
    let check = world.check(&OneCpu::header());
    let cause = phase(&check).unwrap();
    assert_eq!(cause.sampled, Nanos(TICK * (TICKS - 1)));
    assert!(cause.time > Nanos::ZERO);
    // The program's self time does not include ticks that interrupt it.
    let program = &check.programs[0];
    assert_eq!(
        program.on_cpu.unwrap() - program.ran.unwrap(),
        Nanos(HANDLER * (TICKS - 1))
    );
}

#[test]
fn samples_of_bursts_independent_of_the_tick_are_right_on_average() {
    for (length, pause) in [
        (300_000, 5_000_000),
        (3_100_000, 4_000_000),
        (9_000_000, 7_000_000),
    ] {
        let (mut sampled, mut truth) = (0, 0);
        for seed in 1..=20 {
            let bursts = scattered(length, pause, seed);
            let world = OneCpu::new(&bursts);
            let check = world.check(&OneCpu::header());
            assert_eq!(phase(&check), None, "{length} {seed}");
            sampled += check.programs[0].sampled.unwrap().0;
            truth += bursts.iter().map(|(begin, end)| end - begin).sum::<i64>();
        }
        // The tolerance is four standard deviations of the sum of about 40 000 bursts.
        let off = sampled as f64 / truth as f64 - 1.0;
        assert!(off.abs() < 0.08, "{length}: {sampled} of {truth}");
    }
}

#[test]
fn the_timer_interrupt_counts_as_tick_if_the_tick_function_has_no_name() {
    let mut world = OneCpu::new(&aligned(20, 80));
    let function = world.function;
    world.rows.retain(|row| row.source() != function);
    // Move the function's time into the interrupt that called it.
    for row in &mut world.rows {
        if let Row::Span(span) = row
            && span.source == world.timer
        {
            span.self_time = span.dur;
        }
    }
    let mut header = OneCpu::header();
    assert_eq!(world.check(&header).programs[0].sampled, None);
    header.machine.high_resolution = Some(false);
    assert_eq!(world.check(&header).programs[0].sampled, Some(Nanos::ZERO));
}

#[test]
fn sums_have_no_samples() {
    let world = OneCpu::new(&aligned(20, 80));
    let header = OneCpu::header();
    let mut auditor = Auditor::new(&header.machine).without_beats();
    let Row::Span(span) = world.rows[world.rows.len() - 1] else {
        unreachable!()
    };
    let sum = ticktax_model::recording::Sum {
        span,
        count: 1,
        max: span.dur,
        histogram: ticktax_model::Histogram::default(),
    };
    auditor.row(&world.sources, &Row::Sum(sum));
    let statement = auditor.finish(&header, &world.sources, 1);
    let check = statement.accounting.unwrap();
    assert_eq!(check.cpus[0].ticks, None);
    assert!(
        check.cpus[0]
            .causes
            .iter()
            .all(|c| c.kind != BiasKind::TickPhase)
    );
}

#[test]
fn without_counters_there_is_nothing_to_check() {
    let world = OneCpu::new(&aligned(20, 80));
    let mut header = OneCpu::header();
    header.before.cpu_times.clear();
    let auditor = Auditor::new(&header.machine).without_beats();
    let statement = auditor.finish(&header, &world.sources, 1);
    assert_eq!(statement.accounting, None);
}

#[test]
fn the_accounting_method_follows_from_the_kernel_configuration() {
    let counting_with = |options: &[&str]| {
        counting(&Machine {
            accounting: options.iter().map(|&option| option.to_owned()).collect(),
            hz_configured: Some(1000),
            ..Machine::default()
        })
    };
    let sampled = counting_with(&["TICK_CPU_ACCOUNTING", "IRQ_TIME_ACCOUNTING"]);
    assert_eq!(sampled.method, Some(Method::Sampled));
    assert_eq!(sampled.interrupts_measured, Some(true));
    assert_eq!(sampled.tick, Some(Nanos::from_millis(1)));
    let full = counting_with(&["VIRT_CPU_ACCOUNTING_GEN"]);
    assert_eq!(full.method, Some(Method::MeasuredWithoutTick));
    assert_eq!(full.interrupts_measured, Some(false));
    assert_eq!(counting_with(&[]).method, None);
    assert_eq!(counting_with(&[]).interrupts_measured, None);
}

#[test]
fn sampled_cpus_come_from_sysfs_or_else_from_the_command_line() {
    let sampled_cpus = |option: &str, cmdline: &str, file: Option<&str>| {
        let mut machine = Machine {
            accounting: vec![option.to_owned()],
            cmdline: Some(cmdline.to_owned()),
            ..Machine::default()
        };
        if let Some(text) = file {
            let path = "sys/devices/system/cpu/nohz_full".to_owned();
            machine.configured.files.insert(path, text.to_owned());
        }
        [0, 2].map(|cpu| sampled(&machine, Cpu(cpu)))
    };
    let (yes, no) = (Some(true), Some(false));
    let full = "VIRT_CPU_ACCOUNTING_GEN";
    assert_eq!(
        sampled_cpus("TICK_CPU_ACCOUNTING", "nohz_full=2", None),
        [yes, yes]
    );
    assert_eq!(sampled_cpus(full, "quiet", None), [yes, yes]);
    assert_eq!(sampled_cpus(full, "quiet nohz_full=2-3", None), [yes, no]);
    // `nohz_full` is not in force if the kernel was built without support for it or rejected its
    // value.
    assert_eq!(
        sampled_cpus(full, "nohz_full=2-3", Some(" (null)\n")),
        [yes, yes]
    );
    assert_eq!(sampled_cpus(full, "", Some("2-3\n")), [yes, no]);
    assert_eq!(
        sampled_cpus("VIRT_CPU_ACCOUNTING_NATIVE", "", None),
        [no, no]
    );
    assert_eq!(sampled(&Machine::default(), Cpu(0)), None);
}
