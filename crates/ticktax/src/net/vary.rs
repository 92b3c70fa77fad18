//! `ticktax net pair --vary`: measures how much CPU time each setting costs.

use std::process::ExitCode;

use ticktax_experiment::{DIFFERENCE, plan};
use ticktax_model::Nanos;
use ticktax_model::net::{EndReport, Link, NetStatement, TracedTraffic, TrafficAccount};
use ticktax_model::net_experiment::{
    CpuCost, DesignCheck, ExperimentPlan, TrafficRecord, UnitCosts,
};
use ticktax_probes::clock::now;
use ticktax_traffic::experiment::{
    Factors, Judged, MOST_RUNS, MeasuredRun, PILOT_BLOCKS, RunFigures, Setup, blocks_to_resolve,
    judge, needed, spread,
};
use ticktax_traffic::{EndCpus, LocalLink, NetError, SysctlError, Traffic, Tuning, has_sysctl};

use super::{TrafficObservation, prepared};
use crate::arguments::{NetWatchArguments, PairArguments};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output;
use crate::progress::Extent;
use crate::terminal::Terminal;
use crate::trial::drawn_seed;

/// Default length of one run.
const RUN: Nanos = Nanos::from_millis(300);
const BLOCKS: u64 = 5;
/// Approximate time that a run takes in addition to its traffic, for creating the namespaces and
/// for loading and stopping the tracer.
const OVERHEAD: Nanos = Nanos::from_secs(1);

pub(super) fn run(typed: &PairArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let output = typed.watch.output();
    output.require_writable()?;
    let base = Setup {
        link: typed.link.spec(),
        ..typed.traffic.setup(Some(typed.link.mtu()), RUN)
    };
    let factors = Factors::read(&typed.experiment.vary, base);
    let factors = factors.map_err(|error| Failure::Arguments(error.to_string()))?;
    require_varied_once(typed, &factors)?;
    let blocks = typed.experiment.blocks.unwrap_or(BLOCKS);
    require_affordable(&factors, blocks)?;
    let html = output::begin_page(typed.watch.html.as_deref())?;
    let interrupt = Interrupt::listen()?;
    let began = now();
    let mut runner = Runner {
        link: link(&factors, typed, &interrupt, terminal)?,
        factors: &factors,
        cpus: typed.cpus(),
        watch: &typed.watch,
        interrupt: &interrupt,
        terminal,
        no_books: None,
        is_first: true,
    };
    let seed = typed.experiment.seed.unwrap_or_else(drawn_seed);
    let mut pilot = None;
    let mut planned = blocks;
    if let Some(resolution) = typed.experiment.resolve {
        let result = runner.pilot(seed, resolution)?;
        planned = result.blocks;
        pilot = Some(result);
    }
    let measured = runner.blocks(planned, seed, "")?;
    let ended_early = measured.ended_early;
    let failed = measured.failed;
    let mut record = TrafficRecord {
        host: ticktax_host::Proc::default().machine().host,
        link: runner.link.clone(),
        spec: factors.base().spec(),
        factors: factors.varied(),
        plan: ExperimentPlan {
            blocks: measured.blocks,
            planned,
            seed,
            resolution: typed.experiment.resolve.unwrap_or(DIFFERENCE),
            pilot_blocks: pilot.as_ref().map(|_| PILOT_BLOCKS),
            spread: pilot.as_ref().map(|pilot| pilot.spread),
            needed: Vec::new(),
            run: factors.base().length,
            took: now() - began,
            ended_early,
        },
        no_books: runner.no_books.clone(),
        details: Vec::new(),
        check: DesignCheck::default(),
        costs: UnitCosts::default(),
    };
    if let Some(pilot) = pilot {
        let resolution = record.plan.resolution;
        record.plan.needed = needed(Some(pilot.spread), resolution, pilot.tests);
    }
    let runs = &measured.runs;
    let judged = Judged {
        factors: &factors,
        runs,
        record,
    };
    let document = judge(judged, env!("CARGO_PKG_VERSION"));
    output::put(&document.into(), html, output, terminal)?;
    match failed {
        None => Ok(ExitCode::SUCCESS),
        Some(failure) => Err(failure),
    }
}

/// Rejects a factor that is both varied and set by its own option.
fn require_varied_once(typed: &PairArguments, factors: &Factors) -> Result<(), Failure> {
    let Some(twice) = typed.typed().find(|name| factors.varies(name)) else {
        return Ok(());
    };
    let option = if twice == "protocol" { "udp" } else { twice };
    Err(Failure::Arguments(format!(
        "{twice} is both varied and set by --{option}: omit one of them"
    )))
}

/// Rejects an experiment that would take too long, before the first run.
fn require_affordable(factors: &Factors, blocks: u64) -> Result<(), Failure> {
    let arms = factors.arms() as u64;
    let runs = arms.saturating_mul(2).saturating_mul(blocks);
    if runs <= MOST_RUNS {
        return Ok(());
    }
    let each = (factors.base().length + OVERHEAD).as_secs_f64();
    let all = Nanos::from_secs(1).times(each * runs as f64);
    Err(Failure::Arguments(format!(
        "too many runs: {runs} ({blocks} blocks of {arms} arms, about {all}), but at most \
         {MOST_RUNS} are allowed; vary fewer values, use fewer blocks, or raise --resolve"
    )))
}

/// Determines the experiment's link. Sets each value of each factor once, so that a value rejected
/// by the kernel causes an error before the first run.
fn link(
    factors: &Factors,
    typed: &PairArguments,
    interrupt: &Interrupt,
    terminal: &Terminal,
) -> Result<Link, Failure> {
    let base = factors.base();
    let (mtu, asked) = (typed.link.mtu(), typed.link.spec());
    let plain = LocalLink::Namespaces { mtu, link: asked };
    let untuned = Tuning::default();
    let (why, shaping) = match Traffic::both(base.spec(), plain, EndCpus::default(), &untuned) {
        Ok(traffic) => (None, traffic.shaping()),
        Err(error @ (NetError::NoNamespaces { .. } | NetError::NoVeth { .. }))
            if asked.is_plain() =>
        {
            (Some(error.to_string()), None)
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(why) = &why {
        let names = factors.of_namespaces();
        if !names.is_empty() {
            return Err(Failure::Arguments(format!(
                "cannot vary {}: {why}",
                names.join(", ")
            )));
        }
        terminal.complain(&format_args!(
            "using the loopback device, without --mtu: {why}"
        ));
    }
    let link = match why {
        None => Link::Veth { mtu, shaping },
        Some(why) => Link::Loopback { reason: why },
    };
    let arms = factors.factorial().arms();
    let single =
        |(_, arm): &(usize, &Vec<usize>)| arm.iter().filter(|value| **value > 0).count() <= 1;
    for (arm, _) in arms.iter().enumerate().filter(single) {
        let setup = factors.setup(arm);
        let tried = Traffic::both(
            setup.spec(),
            local_link(&link, &setup),
            EndCpus::default(),
            &setup.tuning,
        )
        .map_err(Failure::from)
        .and_then(|mut traffic| prepared(&mut traffic, interrupt).map(|_| ()));
        tried.map_err(with_sysctl_scope)?;
    }
    Ok(link)
}

/// Replaces the error about a sysctl that does not exist in a new namespace if the machine itself
/// has the sysctl. The new error says that all namespaces share it.
fn with_sysctl_scope(failure: Failure) -> Failure {
    match failure {
        Failure::Net(NetError::Sysctl(SysctlError::Absent { name }))
            if has_sysctl(&name) == Ok(true) =>
        {
            Failure::Net(NetError::Sysctl(SysctlError::Shared { name }))
        }
        other => other,
    }
}

fn local_link(link: &Link, setup: &Setup) -> LocalLink {
    match (link, setup.mtu) {
        (Link::Veth { mtu, .. }, own) => LocalLink::Namespaces {
            mtu: own.unwrap_or(*mtu),
            link: setup.link,
        },
        _ => LocalLink::Loopback,
    }
}

struct Pilot {
    spread: f64,
    tests: usize,
    blocks: u64,
}

/// Runs in the blocks that were completed.
struct Measured {
    runs: Vec<MeasuredRun>,
    blocks: u64,
    ended_early: Option<String>,
    failed: Option<Failure>,
}

struct Runner<'a> {
    link: Link,
    factors: &'a Factors,
    cpus: EndCpus,
    watch: &'a NetWatchArguments,
    interrupt: &'a Interrupt,
    terminal: &'a Terminal,
    no_books: Option<String>,
    is_first: bool,
}

impl Runner<'_> {
    /// Runs a few blocks and measures how much the effects vary between them, which determines how
    /// many blocks the experiment needs.
    fn pilot(&mut self, seed: u64, resolution: f64) -> Result<Pilot, Failure> {
        // `!seed` gives the pilot a random order that differs from the experiment's.
        let measured = self.blocks(PILOT_BLOCKS, !seed, "pilot: ")?;
        if let Some(failure) = measured.failed {
            return Err(failure);
        }
        if measured.blocks < PILOT_BLOCKS {
            return Err(NetError::Interrupted.into());
        }
        let no_spread = || {
            Failure::Arguments(
                "the blocks of the pilot run are identical, so their spread is unknown: use \
                 --blocks N"
                    .to_owned(),
            )
        };
        let (spread, tests) = spread(self.factors, &measured.runs).ok_or_else(no_spread)?;
        let blocks = blocks_to_resolve(spread, resolution, tests).ok_or_else(|| {
            Failure::Arguments(format!(
                "cannot resolve {:.2} % with a reasonable number of blocks, because the effect \
                 varies by {:.1} % between blocks: raise --resolve or --for",
                resolution * 100.0,
                spread * 100.0
            ))
        })?;
        require_affordable(self.factors, blocks)?;
        self.terminal.remark(&format!(
            "Pilot: the effect varies by {:.1} % between blocks; {blocks} blocks resolve {:.1} %",
            spread * 100.0,
            resolution * 100.0
        ));
        Ok(Pilot {
            spread,
            tests,
            blocks,
        })
    }

    /// Runs `blocks` blocks. Stops early after Ctrl-C or a failure, and keeps only complete blocks.
    /// Returns an error if no block is complete.
    fn blocks(&mut self, blocks: u64, seed: u64, what: &str) -> Result<Measured, Failure> {
        let slots = plan(self.factors.arms(), blocks, seed);
        let bar = self
            .terminal
            .progress(Extent::Runs(slots.len() as u64), what);
        let mut measured = Measured {
            runs: Vec::new(),
            blocks,
            ended_early: None,
            failed: None,
        };
        for (done, slot) in (0..).zip(&slots) {
            let setup = self.factors.setup(slot.arm);
            let figures = self.measure(&setup);
            let failure = match figures {
                _ if self.interrupt.signal().is_some() => None,
                Ok(figures) => {
                    measured.runs.push(MeasuredRun {
                        block: slot.block,
                        arm: slot.arm,
                        figures,
                    });
                    bar.reach(done + 1);
                    continue;
                }
                Err(failure) => Some(failure),
            };
            let why = failure.as_ref().map(ToString::to_string);
            measured.ended_early = Some(why.unwrap_or_else(|| "interrupted".to_owned()));
            measured.failed = failure;
            measured.blocks = slot.block;
            break;
        }
        bar.done();
        measured.runs.retain(|run| run.block < measured.blocks);
        if measured.blocks > 0 {
            return Ok(measured);
        }
        Err(measured.failed.unwrap_or(NetError::Interrupted.into()))
    }

    fn measure(&mut self, setup: &Setup) -> Result<RunFigures, Failure> {
        let local = local_link(&self.link, setup);
        let mut traffic = Traffic::both(setup.spec(), local, self.cpus, &setup.tuning)?;
        let ends = prepared(&mut traffic, self.interrupt)?;
        let observed =
            TrafficObservation::run(&mut traffic, &ends, self.watch, self.interrupt, None)?;
        let outcome = traffic.finish()?;
        if let Some(trouble) = outcome.trouble {
            return Err(trouble.into());
        }
        let (facts, connection) = (outcome.facts.clone(), outcome.connection);
        let statement = observed.statement(outcome, &ends, Some(self.link.clone()));
        if self.is_first {
            self.no_books.clone_from(&statement.untraced_reason);
            self.is_first = false;
        } else if self.no_books.is_some() != statement.traced.is_none() {
            let why = statement
                .untraced_reason
                .unwrap_or_else(|| "only some were".to_owned());
            return Err(NetError::System {
                what: "trace every run",
                why: format!("{why}; disable tracing with --untraced"),
            }
            .into());
        }
        let bytes = statement.bytes();
        let rate = statement.measured().and_then(EndReport::bits_hz);
        let (Some(rate), Some(packets)) = (rate, statement.packets()) else {
            return Err(NetError::System {
                what: "measure a run",
                why: "nothing arrived in time: raise --for".to_owned(),
            }
            .into());
        };
        let each = |count: u64| count as f64 / bytes as f64;
        let ends = [&statement.sender, &statement.receiver]
            .into_iter()
            .flatten();
        Ok(RunFigures {
            rate,
            cpu: cost(&statement),
            packets: each(packets),
            calls: each(ends.map(|end| end.calls).sum()),
            bytes,
            facts,
            connection,
        })
    }
}

/// Returns the CPU time per byte, from the traced accounts or, in an untraced run, from the CPU
/// clocks of the two threads.
fn cost(statement: &NetStatement) -> CpuCost {
    let bytes = statement.bytes() as f64;
    let each = |time: Nanos| time.0 as f64 / bytes;
    let (sender, receiver, all) = if let Some(books) = &statement.traced {
        by_account(books)
    } else {
        let cpu = |end: &Option<EndReport>| end.as_ref().map_or(Nanos::ZERO, |end| end.cpu);
        let (sender, receiver) = (cpu(&statement.sender), cpu(&statement.receiver));
        (sender, receiver, sender + receiver)
    };
    CpuCost {
        ns_per_byte: each(all),
        sender_ns_per_byte: each(sender),
        receiver_ns_per_byte: each(receiver),
        softirq_ns_per_byte: each(all - sender - receiver),
    }
}

fn by_account(books: &TracedTraffic) -> (Nanos, Nanos, Nanos) {
    let sum = |a, b| books.time(a) + books.time(b);
    (
        sum(TrafficAccount::SenderUser, TrafficAccount::SenderCall),
        sum(TrafficAccount::ReceiverUser, TrafficAccount::ReceiverCall),
        books.of_traffic(),
    )
}
