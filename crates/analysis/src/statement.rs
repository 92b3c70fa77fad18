//! Assembles a recording's statement from the results of the timeline's consumers.

use std::collections::BTreeMap;

use ticktax_model::accounting::AccountingStatement;
use ticktax_model::beats::BeatStatement;
use ticktax_model::guests::GuestStatement;
use ticktax_model::late_timers::LateTimers;
use ticktax_model::limitation::{Limitation, NoLateTimers};
use ticktax_model::machine::Pressure;
use ticktax_model::packet_path::PacketPaths;
use ticktax_model::profile::Profile;
use ticktax_model::recording::Header;
use ticktax_model::sampled_code::SampledSource;
use ticktax_model::statement::{GroupAccount, StartedProcesses, Statement};
use ticktax_model::tick::TickBill;
use ticktax_model::victim::VictimStatement;
use ticktax_model::waits::WaitStatement;

use crate::advice::precedence::Places;
use crate::advice::{Processes, advise};
use crate::findings::{self, Measured};
use crate::ledger::Books;
use crate::ran::Ran;

/// The consumers' results.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) books: Books,
    /// Groups with their accounts and the kernel work that they queued.
    pub(crate) groups: Vec<GroupAccount>,
    /// Virtual machines. `None` if none was seen.
    pub(crate) guests: Option<GuestStatement>,
    pub(crate) tick: Option<TickBill>,
    /// Check of the counters. `None` if it was not requested, or if its result is unknown.
    pub(crate) accounting: Option<AccountingStatement>,
    /// The recording's beats. `None` if they were not requested.
    pub(crate) beats: Option<BeatStatement>,
    /// Run-queue waits of all threads. `None` if they were not requested, or if the recording has
    /// no wake-ups.
    pub(crate) waits: Option<WaitStatement>,
    /// Late timer interrupts, or why they are unknown. `None` if they were not requested, or if no
    /// recording of this kind contains them.
    pub(crate) late_timers: Option<Result<LateTimers, NoLateTimers>>,
    /// Packet delays. `None` if no packet path was seen.
    pub(crate) packets: Option<PacketPaths>,
    /// The victim's statement. `None` if the recording has no victim.
    pub(crate) victim: Option<VictimStatement>,
    pub(crate) short_lived: Vec<StartedProcesses>,
    pub(crate) sampled: Vec<SampledSource>,
    /// Profile of the machine, or of the victim. `None` if none was recorded.
    pub(crate) profile: Option<Profile>,
    pub(crate) ran: Ran,
    /// Process ids of the victim.
    pub(crate) followed: Vec<i32>,
}

/// Assembles the statement. Findings are judged here because they compare measurements with the
/// configuration.
pub(crate) fn assemble(header: &Header, parts: Parts) -> Statement {
    let measured = Measured {
        tick: parts.tick.as_ref(),
        accounting: parts.accounting.as_ref(),
        packets: parts.packets.as_ref(),
        threads: parts
            .victim
            .as_ref()
            .and_then(|victim| victim.threads.as_ref()),
        victim: parts.victim.as_ref(),
        waits: parts.waits.as_ref(),
        guests: parts.guests.as_ref(),
        accounts: &parts.books.accounts,
        groups: &parts.groups,
    };
    let mut coverage = parts.books.coverage;
    let late_timers = match parts.late_timers {
        Some(Err(reason)) => {
            let limitation = Limitation::LateTimersNotSeen { reason };
            coverage.limitations.push(limitation);
            None
        }
        late => late.and_then(Result::ok),
    };
    let statement = Statement {
        advice: Vec::new(),
        findings: findings::judge(header, measured),
        tool_version: header.tool_version.clone(),
        world: header.world,
        level: header.level,
        machine: header.machine.clone(),
        began_unix: header.began_unix,
        part: header.part,
        balance: parts.books.balance,
        cpus: parts.books.cpus,
        short_lived: parts.short_lived,
        sampled: parts.sampled,
        profile: parts.profile,
        throttled: parts.books.throttled,
        waits: parts.waits,
        packets: parts.packets,
        gaps: parts.books.gaps,
        coverage,
        groups: parts.groups,
        accounts: parts.books.accounts,
        clock: header.clock.clone(),
        probes: header.probes.clone(),
        soakers: header.soakers.clone(),
        cost: header.cost,
        command: header.command.clone(),
        pressure: pressure(header),
        stolen: header.stolen(),
        late_timers,
        run_queue: header.after.run_queue,
        tick: parts.tick,
        accounting: parts.accounting,
        beats: parts.beats,
        victim: parts.victim,
        guests: parts.guests,
    };
    let present = header.after.present();
    let places = Places::from_header(header);
    let processes = Processes {
        autogroups: header.autogroups.as_deref().unwrap_or_default(),
        policies: &header.policies,
        present: present.as_ref(),
        ran: Some(&parts.ran),
        followed: &parts.followed,
        places: places.as_ref(),
        watched: header.victim.as_ref(),
    };
    Statement {
        advice: advise(&statement, &processes),
        ..statement
    }
}

/// Returns the pressure stall (PSI) times between the header's two counter readings, by resource.
fn pressure(header: &Header) -> BTreeMap<String, Pressure> {
    let since = |(resource, after): (&String, &Pressure)| {
        let before = header.before.pressure.get(resource)?;
        let passed = Pressure {
            some: after.some - before.some,
            full: after.full - before.full,
        };
        Some((resource.clone(), passed))
    };
    header.after.pressure.iter().filter_map(since).collect()
}
