//! The section about a program. It shows how long the program's threads spent in each state, and
//! the longest delays.

use ticktax_model::machine::Throttling;
use ticktax_model::real_time::{RealTimeHeld, RealTimeLimit};
use ticktax_model::recording::Level;
use ticktax_model::statement::Statement;
use ticktax_model::victim::{
    Blocked, Delay, DelayKind, Interferer, StateAccount, Target, ThreadState, ThreadTimes, Usage,
    VictimStatement,
};
use ticktax_model::{Kind, Nanos};

use super::cells::Cells;
use super::locks::lock_name;
use super::numbers::{
    MIGRATION, WAKE_UP, counted, displayed, exact, grouped, percent, quantiles, rate, time_or_blank,
};
use super::page::{Page, TIE, Tone, columns, tied};
use super::stalls::{call_name, delay_in_words, place_name, released, row_name};
use super::untraced::Untraced;
use super::{group_settings, sampled, wait_code, wall};

/// Maximum number of culprits to name.
const CULPRITS: usize = 5;
/// Maximum number of places to list where a program was blocked.
const PLACES: usize = 8;
/// Maximum number of wakers to name per place.
const ENDERS: usize = 3;
/// Maximum number of threads whose imbalance is listed.
const OFF_SHOWN: usize = 4;

/// Returns the title of the section.
pub(super) fn title(victim: &VictimStatement) -> String {
    format!("Time of {}", program_name(victim))
}

/// Writes the section. Writes nothing if no program was watched.
pub(super) fn write(page: &mut Page, statement: &Statement) {
    let Some(victim) = &statement.victim else {
        return;
    };
    page.section(&title(victim));
    let wall = wall(statement);
    match &victim.threads {
        Some(threads) if threads.threads > 0 => {
            accounts(page, threads, wall);
            latency(page, threads);
            interferers(page, "Waited behind", &threads.behind, threads, wall);
            let by = &threads.interrupted_by;
            interferers(page, "Interrupted by", by, threads, wall);
            delays(page, threads);
            stalled(page, threads, wall);
            blocked(page, victim, threads, wall);
            short_lived(page, victim, threads);
            real_time(page, &threads.real_time);
            balance(page, threads);
        }
        Some(_) => page.line(Tone::Warning, "None of its threads ran."),
        None => {
            let remedy = match statement.level {
                Level::Kernel => "its threads were not followed".to_owned(),
                Level::Proc => Untraced::from_statement(statement).remedy("run as root"),
            };
            let text = format!(
                "Its waits, what ran instead, and its interruptions are only known from a trace: \
                 {remedy}."
            );
            page.paragraph(Tone::Warning, "", &text);
        }
    }
    if let Some(usage) = &victim.usage {
        counters(page, usage);
    }
    if let Some(quota) = victim.throttling.as_ref().filter(|quota| quota.periods > 0) {
        throttling(page, quota);
    }
    group_settings::write(page, statement, victim);
    if let Some(stolen) = victim.stolen.filter(|&stolen| stolen > Nanos::ZERO) {
        let text = format!(
            "{} stolen by the hypervisor across all CPUs, during any work",
            tied(stolen)
        );
        page.paragraph(Tone::Warning, "Steal: ", &text);
    }
    scarcity(page, statement, wall);
}

fn program_name(victim: &VictimStatement) -> String {
    match (&victim.target, victim.pid) {
        // Name a service, container or pod without its path.
        (Target::Cgroup(_), _) if victim.name.starts_with('/') => {
            format!("the cgroup {}", victim.name)
        }
        (_, Some(pid)) => format!("{} ({pid})", victim.name),
        (_, None) => victim.name.clone(),
    }
}

/// Returns the display name of a thread state.
fn name(state: ThreadState) -> &'static str {
    match state {
        ThreadState::Running => "running",
        ThreadState::SystemCall => "in long system calls",
        ThreadState::PageFault => "in page faults",
        ThreadState::Reclaim => "reclaiming memory",
        ThreadState::Interrupted => "interrupted",
        ThreadState::Waiting => "waiting for a CPU",
        ThreadState::Throttled => "throttled by its quota",
        ThreadState::Deadline => "out of deadline budget",
        ThreadState::RealTimeLimit => "held by the real-time limit",
        ThreadState::Sleeping => "sleeping",
        ThreadState::Disk => "waiting for a disk",
        ThreadState::Lock => "blocked in the kernel",
        ThreadState::Stopped => "stopped",
        ThreadState::Frozen => "frozen",
        ThreadState::Unseen => "not traced",
    }
}

fn tone(state: ThreadState) -> Tone {
    match state {
        ThreadState::Waiting
        | ThreadState::Throttled
        | ThreadState::Deadline
        | ThreadState::RealTimeLimit
        | ThreadState::Frozen
        | ThreadState::Reclaim
        | ThreadState::Unseen => Tone::Warning,
        _ => Tone::Plain,
    }
}

fn accounts(page: &mut Page, threads: &ThreadTimes, wall: Nanos) {
    let headings = Cells {
        median: String::new(),
        p99: String::new(),
        ..Cells::headings()
    };
    page.headings(Tone::Faint, "", &headings.columns());
    let groups: [(&str, &dyn Fn(ThreadState) -> bool); 3] = [
        ("Needed the CPU", &ThreadState::is_wanted),
        ("Did not need a CPU", &|state| {
            !state.is_wanted() && state != ThreadState::Unseen
        }),
        ("Unknown", &|state| state == ThreadState::Unseen),
    ];
    for (title, belongs) in groups {
        let of_group = || {
            threads
                .accounts
                .iter()
                .filter(|account| belongs(account.state))
        };
        if of_group().next().is_none() {
            continue;
        }
        let time = of_group().map(|account| account.time).sum();
        let cells = Cells::from_time(time, threads.elapsed);
        page.row(Tone::Strong, 0, title, &cells.columns());
        for account in of_group() {
            let cells = account_cells(account, threads.elapsed, wall);
            page.row(
                tone(account.state),
                2,
                name(account.state),
                &cells.columns(),
            );
        }
    }
    let counted = counted(threads.threads, "thread");
    let sum = match threads.processes {
        0 | 1 => format!("Sum of {counted}"),
        processes => format!("Sum of {counted} in {processes} processes"),
    };
    let cells = Cells::from_time(threads.accounted, threads.elapsed);
    page.row(Tone::Strong, 0, &sum.replace(TIE, " "), &cells.columns());
    page.legend(
        "share: of the total time of its threads. per s: intervals per second. max: longest \
         interval.",
    );
}

fn account_cells(account: &StateAccount, elapsed: Nanos, wall: Nanos) -> Cells {
    Cells {
        rate: rate(account.count, wall),
        max: time_or_blank(account.max),
        ..Cells::from_time(account.time, elapsed)
    }
}

fn latency(page: &mut Page, threads: &ThreadTimes) {
    if let Some(latency) = &threads.latency {
        let text = format!(
            "{}, max {} ({}); {}",
            quantiles(latency.lengths.median, latency.lengths.p99),
            tied(latency.lengths.max),
            counted(latency.count, "wake-up"),
            counted(threads.migrations, "migration"),
        );
        page.paragraph(Tone::Plain, "Wake-up latency: ", &text);
    }
}

/// Returns the display name of a culprit. If the CPU was idle while the thread waited for it, the
/// culprit is called wake-up latency.
fn culprit_name(name: &str, pid: Option<i32>, kind: Kind) -> String {
    match pid {
        Some(pid) => format!("{name} ({pid})"),
        None if kind == Kind::Idle => WAKE_UP.to_owned(),
        None => displayed(name).to_owned(),
    }
}

fn interferers(
    page: &mut Page,
    title: &str,
    all: &[Interferer],
    threads: &ThreadTimes,
    wall: Nanos,
) {
    if all.is_empty() {
        return;
    }
    page.line(Tone::Strong, title);
    let shown = if all.len() <= CULPRITS + 1 {
        all.len()
    } else {
        CULPRITS
    };
    for interferer in &all[..shown] {
        let cells = Cells {
            rate: rate(interferer.count, wall),
            max: interferer.max.to_string(),
            ..Cells::from_time(interferer.time, threads.elapsed)
        };
        let name = if interferer.migrated {
            MIGRATION.to_owned()
        } else {
            culprit_name(&interferer.name, interferer.pid, interferer.kind)
        };
        page.row(Tone::Plain, 2, &name, &cells.columns());
        if let Some(code) = interferer.code.as_ref().and_then(sampled::in_words) {
            page.paragraph(Tone::Faint, "    ", &code);
        }
    }
    let others = &all[shown..];
    if !others.is_empty() {
        let time = others.iter().map(|interferer| interferer.time).sum();
        let cells = Cells {
            rate: rate(others.iter().map(|interferer| interferer.count).sum(), wall),
            max: time_or_blank(others.iter().map(|interferer| interferer.max).max()),
            ..Cells::from_time(time, threads.elapsed)
        };
        let name = counted(others.len() as u64, "other").replace(TIE, " ");
        page.row(Tone::Plain, 2, &name, &cells.columns());
    }
}

fn delays(page: &mut Page, threads: &ThreadTimes) {
    let delays = &threads.delays;
    if delays.is_empty() {
        return;
    }
    // Culprits are shown with their pid, which is also the tid of one of their threads. The noun
    // makes clear that this number is a tid.
    let noun = if threads.threads > 1 { "thread " } else { "" };
    page.line(
        Tone::Strong,
        "Longest delays, and what ran instead (at: time since the start)",
    );
    for delay in delays {
        let label = format!("  {:>8}  ", delay.length.to_string());
        let by = delay.woken_by.as_ref();
        let by = by.map_or_else(String::new, |by| format!(" (woken by {})", tied(by)));
        let before = delay
            .waited_on
            .map(|cpu| format!(", first waiting on CPU {cpu}"));
        let before = before.unwrap_or_default();
        let head = format!(
            "{} {}, {}, {}{by}: ",
            delay.thread,
            tied(format!(
                "({noun}{}) on CPU {}{before}",
                delay.tid, delay.cpu
            )),
            tied(format!("at {:.6} s", delay.at.as_secs_f64())),
            delay.kind,
        );
        page.place(delay.moment());
        let what = delay_in_words(delay).unwrap_or_else(|| timeline(delay));
        page.paragraph(Tone::Plain, &label, &format!("{head}{what}"));
        let code = delay.stall.as_ref().and_then(|place| place.code.as_ref());
        if let Some(words) = code.and_then(wait_code::in_words) {
            page.paragraph(Tone::Faint, &" ".repeat(columns(&label)), &words);
        }
    }
}

/// Returns the display name of a limit that kept real-time threads from running.
pub(super) fn limit_name(limit: RealTimeLimit) -> &'static str {
    match limit {
        RealTimeLimit::Throttling => "real-time throttling (sched_rt_runtime_us)",
        RealTimeLimit::Group => "its group's real-time limit (cpu.rt_runtime_us)",
        RealTimeLimit::FairServer => "the fair server",
        RealTimeLimit::Either => "real-time throttling (sched_rt_runtime_us) or the fair server",
    }
}

/// Writes a paragraph about each program whose real-time threads were kept from running.
pub(super) fn real_time(page: &mut Page, all: &[RealTimeHeld]) {
    for held in all {
        let granted = held
            .runtime
            .filter(|_| held.limit != RealTimeLimit::FairServer);
        let granted = granted.map_or_else(String::new, |runtime| {
            let granted = format!("{runtime} of each {}", held.period);
            format!(" (real-time threads may run {})", tied(granted))
        });
        let pids = held.pids.iter().map(ToString::to_string);
        let text = format!(
            "{} ({}) was stopped by {}{granted} for {}, {}, up to {} at a time",
            held.name,
            pids.collect::<Vec<String>>().join(", "),
            limit_name(held.limit),
            tied(held.time),
            counted(held.count, "time"),
            tied(held.max),
        );
        page.paragraph(Tone::Warning, "Real time: ", &text);
    }
}

/// Writes a table of the program's stalls by kind.
fn stalled(page: &mut Page, threads: &ThreadTimes, wall: Nanos) {
    if threads.stalls.is_empty() {
        return;
    }
    page.line(Tone::Strong, "Stalled");
    for stall in &threads.stalls {
        let cells = Cells {
            rate: rate(stall.count, wall),
            max: stall.max.to_string(),
            ..Cells::from_time(stall.time, threads.elapsed)
        };
        page.row(Tone::Plain, 2, &row_name(stall), &cells.columns());
    }
}

/// Writes a table of the places in the kernel where the program was blocked.
fn blocked(page: &mut Page, victim: &VictimStatement, threads: &ThreadTimes, wall: Nanos) {
    // Older recordings have no places.
    let places = threads.blocked.iter();
    let mut places = places.filter(|place| place.function.is_some() || place.syscall.is_some());
    let shown: Vec<&Blocked> = places.by_ref().take(PLACES).collect();
    if shown.is_empty() {
        return;
    }
    page.line(Tone::Strong, "Blocked in the kernel, and what ended it");
    for place in shown {
        let cells = Cells {
            rate: rate(place.count, wall),
            max: place.max.to_string(),
            ..Cells::from_time(place.time, threads.elapsed)
        };
        let within = place.syscall.as_deref().map(call_name);
        let within = within.map_or_else(String::new, |call| format!(" in {call}"));
        let name = format!("{}{within}", place_name(place.on));
        page.row(Tone::Plain, 2, &name, &cells.columns());
        let by = place.ended_by.iter().take(ENDERS).map(|by| {
            let ran = by.ran.filter(|_| by.same_program);
            let ran = ran.map_or_else(String::new, |ran| {
                format!(", ran {}", percent(ran.share_of(by.time)))
            });
            let ended = tied(format!("{} {}{ran}", by.name, by.time));
            format!("{ended}{}", released(by.release.as_ref()))
        });
        let by: Vec<String> = by.collect();
        let lock = place.lock.as_deref().map(|lock| lock_name(lock, victim));
        let asked = place.caller.as_deref().filter(|_| lock.is_some());
        let lock = match (lock, asked) {
            (Some(lock), Some(caller)) => Some(format!("{lock} in {caller}")),
            (lock, _) => lock,
        };
        let at = place.function.as_deref().map(|at| format!("at {at}"));
        let by = (!by.is_empty()).then(|| format!("woken by {}", by.join("; ")));
        let parts: Vec<String> = lock.into_iter().chain(at).chain(by).collect();
        if !parts.is_empty() {
            page.paragraph(Tone::Faint, "    ", &parts.join(", "));
        }
        wait_code::of_place(page, place);
    }
    wait_code::left_out(page, threads.codes_left_out);
}

/// Writes how many short-lived processes the program started.
fn short_lived(page: &mut Page, victim: &VictimStatement, threads: &ThreadTimes) {
    for processes in &threads.short_lived {
        let text = format!(
            "{} {}, started by {}, {} of CPU time",
            processes.name,
            tied(format!("x{}", grouped(processes.count))),
            program_name(victim),
            tied(processes.time),
        );
        page.paragraph(Tone::Plain, "Short-lived: ", &text);
    }
}

fn timeline(delay: &Delay) -> String {
    let mut episodes: Vec<String> = delay
        .timeline
        .iter()
        .map(|episode| {
            let name = culprit_name(&episode.name, episode.pid, episode.kind);
            let length = tied(format!("for {}", episode.length));
            match (episode.count, episode.at) {
                (2.., _) => format!("{name} {length} (in {} intervals)", grouped(episode.count)),
                (_, Nanos(..=0)) => format!("{name} {length}"),
                (_, at) => format!("after {} {name} {length}", tied(at)),
            }
        })
        .collect();
    if delay.kind == DelayKind::Throttled {
        return "its CPU quota was used up".to_owned();
    }
    if let Some(limit) = delay.limit {
        episodes.insert(0, format!("stopped by {}", limit_name(limit)));
    }
    if delay.episodes_left_out > 0 {
        episodes.push(format!("{} more", grouped(delay.episodes_left_out)));
    }
    if episodes.is_empty() {
        episodes.push("cause unknown".to_owned());
    }
    episodes.join(", ")
}

fn balance(page: &mut Page, threads: &ThreadTimes) {
    let sums = format!(
        "{} accounted for, {} elapsed, {}.",
        exact(threads.accounted),
        exact(threads.elapsed),
        counted(threads.threads, "thread"),
    );
    if threads.balances() {
        page.paragraph(
            Tone::Good,
            "",
            &format!("All of its time is accounted for: {sums}"),
        );
        return;
    }
    let mut off: Vec<String> = threads
        .imbalances
        .iter()
        .take(OFF_SHOWN)
        .map(|(tid, time)| tied(format!("{time} in thread {tid}")))
        .collect();
    if threads.imbalances.len() > OFF_SHOWN {
        let more = counted((threads.imbalances.len() - OFF_SHOWN) as u64, "more thread");
        off.push(format!("in {more}"));
    }
    if off.is_empty() {
        off.push(tied(threads.accounted - threads.elapsed));
    }
    let text = format!(
        "ITS ACCOUNTS DO NOT BALANCE: off by {}. {sums}",
        off.join(", ")
    );
    page.paragraph(Tone::Alarm, "", &text);
}

/// Writes the counters from `/proc`. They were read just before and just after the recording, so
/// they cover slightly more time.
fn counters(page: &mut Page, usage: &Usage) {
    let mut parts = vec![
        format!("{} user", tied(usage.user)),
        format!("{} system", tied(usage.system)),
        format!(
            "{} voluntary context switches",
            tied(grouped(usage.voluntary))
        ),
        format!("{} involuntary", tied(grouped(usage.involuntary))),
    ];
    if let Some(waited) = usage.waited {
        parts.push(format!("waited {} for a CPU", tied(waited)));
    }
    let text = format!("{} (read before and after the recording)", parts.join(", "));
    page.paragraph(Tone::Plain, "According to /proc: ", &text);
}

fn throttling(page: &mut Page, quota: &Throttling) {
    let text = format!(
        "{} used up its CPU quota in {} of {} and was throttled for {}, summed over its CPUs",
        quota.cgroup,
        grouped(quota.throttled),
        counted(quota.periods, "period"),
        tied(quota.time),
    );
    page.paragraph(Tone::Plain, "Quota: ", &text);
}

/// Writes how long tasks on the machine stalled for CPUs, memory and disks, and how many threads
/// were runnable.
fn scarcity(page: &mut Page, statement: &Statement, wall: Nanos) {
    let parts: Vec<String> = statement
        .pressure
        .iter()
        .filter(|(_, pressure)| pressure.some > Nanos::ZERO)
        .map(|(resource, pressure)| {
            let share = percent(pressure.some.share_of(wall));
            format!(
                "{resource} {}",
                tied(format!("{} ({share})", pressure.some))
            )
        })
        .collect();
    if !parts.is_empty() {
        page.paragraph(
            Tone::Plain,
            "Machine:  ",
            &format!("tasks stalled (PSI) on {}", parts.join(", ")),
        );
    }
    if let Some(queue) = statement.run_queue.filter(|queue| queue.samples > 0) {
        let mean = queue.threads as f64 / queue.samples as f64;
        let text = format!(
            "{} runnable on average, max {}",
            tied(format!("{mean:.1} threads")),
            grouped(queue.max)
        );
        page.paragraph(Tone::Plain, "          ", &text);
    }
}
