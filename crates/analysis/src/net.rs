//! Books the CPU time spent on traffic, from the first byte to the last.
//!
//! The recording starts before the traffic and ends after it. Work outside that interval is not
//! part of the traffic's cost. The start of the traffic is known only once it is under way, and its
//! end only afterwards. Rows are therefore held back until more bytes have moved after them. Rows
//! that cross the start or the end are cut there, just as in part of a recording.

mod sampled;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use ticktax_model::net::{CpuTraffic, TracedTraffic, TrafficAccount, TrafficTime};
use ticktax_model::recording::{Header, Row, RowSink};
use ticktax_model::{Cpu, Interval, Kind, Nanos, Owner, SourceTable, Span};

use crate::part::Cut;
pub use sampled::TrafficThreads;

/// Reason why the CPU time spent on traffic is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficError {
    /// No bytes were moved.
    NoTraffic,
    /// The trace contains no time from a thread that moved bytes.
    OtherThreadIds,
}

impl fmt::Display for TrafficError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoTraffic => "there was no traffic",
            Self::OtherThreadIds => {
                "the trace uses other thread IDs than the traffic: run ticktax outside the \
                 container's PID namespace"
            }
        })
    }
}

impl std::error::Error for TrafficError {}

/// User-space time that each end of the traffic spent between its calls. It is zero for an end that
/// does not run on this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct UserTimes {
    /// The sender's time.
    pub sender: Nanos,
    /// The receiver's time.
    pub receiver: Nanos,
}

/// Adds up the CPU time spent on traffic while the traffic is flowing.
#[derive(Debug)]
pub struct TrafficLedger {
    sender: Option<i32>,
    receiver: Option<i32>,
    /// Rows not yet known to belong to the traffic, in order of arrival.
    held: VecDeque<Row>,
    cut: Option<Cut>,
    begin: Nanos,
    times: BTreeMap<TrafficAccount, Nanos>,
    cpus: BTreeMap<Cpu, CpuTraffic>,
}

impl TrafficLedger {
    /// Creates an empty ledger. `sender` and `receiver` are the thread IDs of the traffic's two
    /// ends, if they run on this machine.
    pub fn new(sender: Option<i32>, receiver: Option<i32>) -> Self {
        Self {
            sender,
            receiver,
            held: VecDeque::new(),
            cut: None,
            begin: Nanos::ZERO,
            times: BTreeMap::new(),
            cpus: BTreeMap::new(),
        }
    }

    /// Notes that the traffic started at `begin` and that bytes had moved by `reached`. Books all
    /// rows that ended by then.
    pub fn reach(&mut self, sources: &SourceTable, begin: Nanos, reached: Nanos) {
        self.begin = begin;
        let cut = self.cut.get_or_insert_with(|| Cut::between(begin, reached));
        cut.end_at(reached);
        while let Some(row) = self.held.pop_front_if(|row| row.span().end() <= reached) {
            self.book(sources, &row);
        }
    }

    /// Closes the accounts after the session. `traffic` is the interval from the first byte to the
    /// last.
    ///
    /// # Errors
    /// Returns an error if there was no traffic, or if its threads are not in the trace.
    pub fn finish(
        mut self,
        sources: &SourceTable,
        header: &Header,
        traffic: Interval,
        user: UserTimes,
    ) -> Result<TracedTraffic, TrafficError> {
        let Interval { start: begin, end } = traffic;
        if end <= begin {
            return Err(TrafficError::NoTraffic);
        }
        self.begin = begin;
        let cut = self.cut.get_or_insert_with(|| Cut::between(begin, end));
        cut.end_at(end);
        for row in std::mem::take(&mut self.held) {
            self.book(sources, &row);
        }
        let seen = |account| self.times.get(&account).copied().unwrap_or_default();
        let unseen = |tid: Option<i32>, account| tid.is_some() && seen(account) == Nanos::ZERO;
        if unseen(self.sender, TrafficAccount::SenderCall)
            || unseen(self.receiver, TrafficAccount::ReceiverCall)
        {
            return Err(TrafficError::OtherThreadIds);
        }
        self.split(
            TrafficAccount::SenderCall,
            TrafficAccount::SenderUser,
            user.sender,
        );
        self.split(
            TrafficAccount::ReceiverCall,
            TrafficAccount::ReceiverUser,
            user.receiver,
        );
        Ok(self.close(header, end))
    }

    /// Moves `time`, which a thread spent in user space, from the thread's `call` account to its
    /// `user` account.
    fn split(&mut self, call: TrafficAccount, user: TrafficAccount, time: Nanos) {
        if let Some(call_time) = self.times.get_mut(&call) {
            let part = time.clamp(Nanos::ZERO, *call_time);
            *call_time -= part;
            *self.times.entry(user).or_default() += part;
        }
    }

    fn close(mut self, header: &Header, end: Nanos) -> TracedTraffic {
        let elapsed = header.cpus.iter().map(|books| {
            let begun = books.begin.max(self.begin);
            (books.end.min(end) - begun).max(Nanos::ZERO)
        });
        let elapsed: Nanos = elapsed.sum();
        let known: Nanos = self.times.values().sum();
        *self.times.entry(TrafficAccount::Unexplained).or_default() += elapsed - known;
        let accounts = self.times.into_iter();
        let accounts = accounts.filter(|(_, time)| *time != Nanos::ZERO);
        TracedTraffic {
            elapsed,
            accounts: accounts
                .map(|(account, time)| TrafficTime { account, time })
                .collect(),
            cpus: self.cpus.into_values().collect(),
            events_lost: header.coverage.events_lost(),
        }
    }

    fn book(&mut self, sources: &SourceTable, row: &Row) {
        let Some(Row::Span(span)) = self.cut.as_mut().and_then(|cut| cut.row(sources, row)) else {
            return;
        };
        let Some(account) = self.account(sources, &span) else {
            return;
        };
        let own = span.self_time;
        *self.times.entry(account).or_default() += own;
        let on_top = span.dur - own;
        let cpu = self.cpus.entry(span.cpu);
        let cpu = cpu.or_insert_with(|| CpuTraffic::new(span.cpu));
        match account {
            TrafficAccount::SenderCall => {
                cpu.sender += own;
                cpu.interrupts_on_sender += on_top;
            }
            TrafficAccount::ReceiverCall => {
                cpu.receiver += own;
                cpu.interrupts_on_receiver += on_top;
            }
            TrafficAccount::SoftirqReceive
            | TrafficAccount::SoftirqSend
            | TrafficAccount::SoftirqPaced => cpu.net_softirq += own,
            account if account.is_left() => cpu.spare += own,
            _ => {}
        }
    }

    /// Returns the account for a span's self time, or `None` if it is not CPU time. All of a
    /// thread's time is booked as calls until its user time is known.
    fn account(&self, sources: &SourceTable, span: &Span) -> Option<TrafficAccount> {
        let source = sources.get(span.source);
        let tid = source.thread.as_ref().map(|thread| thread.tid);
        Some(match source.kind {
            Kind::Idle => TrafficAccount::Idle,
            Kind::Task if tid.is_some() && tid == self.sender => TrafficAccount::SenderCall,
            Kind::Task if tid.is_some() && tid == self.receiver => TrafficAccount::ReceiverCall,
            Kind::Task => match source.owner {
                Owner::Kernel => TrafficAccount::KernelThread,
                Owner::Program => TrafficAccount::Program,
                Owner::Tool => TrafficAccount::Tool,
                Owner::Probe => TrafficAccount::Soaker,
            },
            Kind::Softirq => match &*source.name {
                "NET_RX" => TrafficAccount::SoftirqReceive,
                "NET_TX" => TrafficAccount::SoftirqSend,
                "HRTIMER" | "TASKLET" => TrafficAccount::SoftirqPaced,
                _ => TrafficAccount::SoftirqOther,
            },
            Kind::Irq | Kind::Nmi => TrafficAccount::Irq,
            Kind::Steal => TrafficAccount::Steal,
            Kind::Gap | Kind::Wait | Kind::Frame | Kind::Late => return None,
        })
    }
}

impl RowSink for TrafficLedger {
    fn row(&mut self, _: &SourceTable, row: &Row) {
        // Edges and waits are not CPU time, and there are as many of them as packets.
        if matches!(row, Row::Span(_)) {
            self.held.push_back(row.clone());
        }
    }
}

#[cfg(test)]
mod tests;
