//! What traffic cost: the rows between its first byte and its last, by account.
//!
//! The session that watches begins before the traffic and ends after it, and what it does then is no cost of a
//! byte. When the traffic begins is known only once it has, and when it ends only afterwards, so rows are kept until
//! bytes have moved after them, and those that cross an edge are cut there, as a part of a recording is.

mod sampled;

use std::collections::{BTreeMap, VecDeque};

use ticktax_model::net::{CpuTraffic, TrafficAccount, TrafficBooks, TrafficTime};
use ticktax_model::recording::{Header, Row, RowSink};
use ticktax_model::{Cpu, Kind, Nanos, Owner, SourceTable, Span};

use crate::part::Cut;
pub use sampled::TrafficThreads;

/// Keeps the books of traffic while it flows.
#[derive(Debug)]
pub struct TrafficLedger {
    sender: Option<i32>,
    receiver: Option<i32>,
    /// What is not yet known to be of the traffic, in the order in which it came.
    held: VecDeque<Row>,
    cut: Option<Cut>,
    begin: Nanos,
    times: BTreeMap<TrafficAccount, Nanos>,
    cpus: BTreeMap<Cpu, CpuTraffic>,
}

impl TrafficLedger {
    /// Of traffic whose ends are threads with these numbers, as far as they are on this machine.
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

    /// The traffic began at this time, and bytes have moved until `reached`: rows that ended before are booked.
    pub fn reach(&mut self, sources: &SourceTable, begin: Nanos, reached: Nanos) {
        self.begin = begin;
        let cut = self.cut.get_or_insert_with(|| Cut::between(begin, reached));
        cut.end_at(reached);
        while let Some(row) = self.held.pop_front_if(|row| row.span().end() <= reached) {
            self.book(sources, &row);
        }
    }

    /// The books, once the session has ended. `user` is how much of the threads' time was between their calls, and
    /// `end` is when the last bytes moved. Why there are none, where rows tell nothing of the traffic.
    ///
    /// # Errors
    /// No traffic was seen, or not by its threads.
    pub fn finish(
        mut self,
        sources: &SourceTable,
        header: &Header,
        (begin, end): (Nanos, Nanos),
        user: (Nanos, Nanos),
    ) -> Result<TrafficBooks, &'static str> {
        if end <= begin {
            return Err("there was no traffic");
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
            return Err(
                "the trace knows the traffic's threads by other numbers than they do: run it outside \
                 of a container's PID namespace",
            );
        }
        self.split(
            TrafficAccount::SenderCall,
            TrafficAccount::SenderUser,
            user.0,
        );
        self.split(
            TrafficAccount::ReceiverCall,
            TrafficAccount::ReceiverUser,
            user.1,
        );
        Ok(self.close(header, end))
    }

    /// Moves the user's part of a thread's time to its own account.
    fn split(&mut self, call: TrafficAccount, user: TrafficAccount, time: Nanos) {
        if let Some(all) = self.times.get_mut(&call) {
            let part = time.clamp(Nanos::ZERO, *all);
            *all -= part;
            *self.times.entry(user).or_default() += part;
        }
    }

    fn close(mut self, header: &Header, end: Nanos) -> TrafficBooks {
        let elapsed = header.books.iter().map(|books| {
            let begun = books.begin.max(self.begin);
            (books.end.min(end) - begun).max(Nanos::ZERO)
        });
        let elapsed: Nanos = elapsed.sum();
        let known: Nanos = self.times.values().sum();
        *self.times.entry(TrafficAccount::Unexplained).or_default() += elapsed - known;
        let accounts = self.times.into_iter();
        let accounts = accounts.filter(|(_, time)| *time != Nanos::ZERO);
        TrafficBooks {
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
                cpu.on_sender += on_top;
            }
            TrafficAccount::ReceiverCall => {
                cpu.receiver += own;
                cpu.on_receiver += on_top;
            }
            TrafficAccount::SoftirqReceive
            | TrafficAccount::SoftirqSend
            | TrafficAccount::SoftirqPaced => cpu.net_softirq += own,
            account if account.is_left() => cpu.left += own,
            _ => {}
        }
    }

    /// Where a span's own time belongs; nowhere if it is no CPU's. A thread's whole time is that of its calls, until
    /// the user's part is known.
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
            Kind::Gap | Kind::Wait | Kind::Frame => return None,
        })
    }
}

impl RowSink for TrafficLedger {
    fn row(&mut self, _: &SourceTable, row: &Row) {
        // Edges and waits are no CPU time, and come as often as packets.
        if matches!(row, Row::Span(_)) {
            self.held.push_back(row.clone());
        }
    }
}

#[cfg(test)]
mod tests;
