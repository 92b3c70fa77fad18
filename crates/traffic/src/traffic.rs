//! Test traffic from the observer's point of view: prepare it, start it, wait for it, finish it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use ticktax_model::net::{End, EndReport, LinkSpec, Shaping, TrafficSpec};
use ticktax_model::net_experiment::{ConnectionFacts, Fact};
use ticktax_model::packets::PacketLog;
use ticktax_model::{Cpu, Nanos};

use super::error::NetError;
use super::fill::{self, BufferAsk, Logging};
use super::namespaces::{NamespacePair, RECEIVER};
use super::receive::{Listening, Receiving};
use super::send::Sending;
use super::tuning::Tuning;
use super::{Namespace, PORT};

/// Where the two ends of the traffic are, if both are on this machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LocalLink {
    /// In two network namespaces, with a pair of virtual Ethernet devices between them.
    Namespaces {
        /// MTU of the link in bytes, within [`MTU`](super::MTU).
        mtu: u32,
        /// The link's limits, which apply in each direction.
        link: LinkSpec,
    },
    /// On the loopback device.
    Loopback,
}

/// Outcome of the traffic.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Report from the end in this process. If both ends are in this process, this is the sender's.
    pub report: EndReport,
    /// Report from the other end, if it was received.
    pub other: Option<EndReport>,
    /// Log of datagrams, if the receiver is in this process and keeps one.
    pub log: Option<Box<PacketLog>>,
    /// Why the traffic ended early, if the reason was not Ctrl-C.
    pub trouble: Option<NetError>,
    /// Settings in effect at the ends in this process. Each name occurs once.
    pub facts: Vec<Fact>,
    /// The kernel's statistics on the connection when the traffic ended. Only for TCP, and only if
    /// the sender is in this process.
    pub connection: Option<ConnectionFacts>,
}

/// An end that is ready for the traffic to start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prepared {
    /// Which end it is.
    pub end: End,
    /// Kernel thread ID of this end.
    pub tid: i32,
    /// The traffic that the two ends agreed on.
    pub spec: TrafficSpec,
    /// Address of the other end.
    pub peer: SocketAddr,
    /// Token at the start of each datagram, in little-endian byte order.
    pub token: u64,
}

/// Messages that a thread sends to its owner before the traffic starts.
#[derive(Debug)]
enum Note {
    Listens(SocketAddr),
    Prepared(Prepared),
}

/// State that a thread shares with its owner.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    /// When data was first transferred, in ns, or 0 before that.
    begun: AtomicI64,
    /// When data was last transferred, in ns.
    reached: AtomicI64,
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            stop: AtomicBool::new(false),
            begun: AtomicI64::new(0),
            reached: AtomicI64::new(0),
        })
    }

    /// Records that the first data was transferred at `at`.
    pub(super) fn begin(&self, at: Nanos) {
        self.begun.store(at.0, Ordering::Relaxed);
        self.reach(at);
    }

    /// Records that data was transferred at `at`.
    pub(super) fn reach(&self, at: Nanos) {
        self.reached.store(at.0, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug)]
struct EndSettings {
    spec: TrafficSpec,
    tuning: Tuning,
}

impl EndSettings {
    /// Returns settings that keep all of the kernel's defaults.
    fn plain(spec: TrafficSpec) -> Self {
        Self {
            spec,
            tuning: Tuning::default(),
        }
    }
}

/// A thread that runs one end of the traffic.
#[derive(Debug)]
struct Worker {
    thread: Option<JoinHandle<Result<Outcome, NetError>>>,
    shared: Arc<Shared>,
    go: Option<Sender<()>>,
    notes: Receiver<Note>,
    prepared: Option<Prepared>,
}

/// The CPUs on which the two ends of the traffic run. For an end without a CPU, the scheduler
/// chooses one.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndCpus {
    /// The sender's CPU.
    pub sender: Option<Cpu>,
    /// The receiver's CPU.
    pub receiver: Option<Cpu>,
}

/// The ends of the traffic that are in this process. Dropping this stops them.
#[derive(Debug)]
pub struct Traffic {
    /// The threads that run the ends. If both ends are in this process, the sender comes first.
    workers: Vec<Worker>,
    listens: Option<SocketAddr>,
    shaping: Option<Shaping>,
}

impl Traffic {
    /// Prepares both ends in this process, with the settings in `tuning`. If CPUs are given, pins
    /// the two threads to them.
    ///
    /// # Errors
    /// Returns an error if namespaces or devices cannot be created, if a setting is refused, or if
    /// the traffic is impossible.
    pub fn both(
        spec: TrafficSpec,
        local: LocalLink,
        cpus: EndCpus,
        tuning: &Tuning,
    ) -> Result<Self, NetError> {
        Self::both_ends(spec, local, cpus, tuning, None)
    }

    /// Same as [`Traffic::both`], but the traffic consists of datagrams, and the receiver logs
    /// them.
    ///
    /// # Errors
    /// Returns the same errors as [`Traffic::both`].
    pub fn both_logged(
        spec: TrafficSpec,
        local: LocalLink,
        cpus: EndCpus,
        buffer: BufferAsk,
    ) -> Result<Self, NetError> {
        Self::both_ends(spec, local, cpus, &Tuning::default(), Some(buffer))
    }

    fn both_ends(
        spec: TrafficSpec,
        local: LocalLink,
        cpus: EndCpus,
        tuning: &Tuning,
        buffer: Option<BufferAsk>,
    ) -> Result<Self, NetError> {
        Sending::check(&spec)?;
        if matches!(local, LocalLink::Loopback) && tuning.needs_namespaces() {
            return Err(NetError::NoNamespaces {
                why: "sysctls and offloads can only be varied inside them".to_owned(),
            });
        }
        let (pair, shaping) = match local {
            LocalLink::Namespaces { mtu, link } => {
                let pair = NamespacePair::make(mtu, &link)?;
                ((Some(pair.sender), Some(pair.receiver)), pair.shaping)
            }
            LocalLink::Loopback => ((None, None), None),
        };
        let logging = buffer
            .map(|buffer| {
                let ends = pair.0.as_ref().zip(pair.1.as_ref());
                let charge = fill::charge(ends, spec.call_bytes, buffer)?;
                Ok::<_, NetError>(Logging::beside_sender(buffer, charge))
            })
            .transpose()?;
        let listen = match local {
            LocalLink::Namespaces { .. } => format!("{RECEIVER}:{PORT}"),
            LocalLink::Loopback => "127.0.0.1:0".to_owned(),
        };
        let settings = || EndSettings {
            spec,
            tuning: tuning.clone(),
        };
        let mut receiver =
            Worker::receiver(listen, Some(settings()), pair.1, cpus.receiver, logging)?;
        let address = receiver.listens()?;
        let sender = Worker::sender(address.to_string(), settings(), pair.0, cpus.sender)?;
        Ok(Self {
            workers: vec![sender, receiver],
            listens: None,
            shaping,
        })
    }

    /// Prepares a sender that connects to the receiver at `address`, for example `server:7117`.
    ///
    /// # Errors
    /// Returns an error if `spec` describes traffic that cannot be sent, or if the thread cannot be
    /// created.
    pub fn send(address: String, spec: TrafficSpec, cpu: Option<Cpu>) -> Result<Self, NetError> {
        Sending::check(&spec)?;
        Ok(Self {
            workers: vec![Worker::sender(
                address,
                EndSettings::plain(spec),
                None,
                cpu,
            )?],
            listens: None,
            shaping: None,
        })
    }

    /// Prepares a receiver that accepts one sender and listens on `address`, for example
    /// `0.0.0.0:7117`.
    ///
    /// # Errors
    /// Returns an error if the receiver cannot listen on the address.
    pub fn receive(address: String, cpu: Option<Cpu>) -> Result<Self, NetError> {
        Self::receiving(address, cpu, None)
    }

    /// Same as [`Traffic::receive`], but the receiver logs the datagrams.
    ///
    /// # Errors
    /// Returns the same errors as [`Traffic::receive`].
    pub fn receive_logged(
        address: String,
        cpu: Option<Cpu>,
        buffer: BufferAsk,
    ) -> Result<Self, NetError> {
        Self::receiving(address, cpu, Some(Logging::alone(buffer)))
    }

    fn receiving(
        address: String,
        cpu: Option<Cpu>,
        logging: Option<Logging>,
    ) -> Result<Self, NetError> {
        let mut worker = Worker::receiver(address, None, None, cpu, logging)?;
        let listens = Some(worker.listens()?);
        Ok(Self {
            workers: vec![worker],
            listens,
            shaping: None,
        })
    }

    /// Returns the address on which the receiver in this process listens, or `None` if this process
    /// has no receiver.
    pub fn listens(&self) -> Option<SocketAddr> {
        self.listens
    }

    /// Returns the link's limits as read back from the kernel, or `None` if it has no limits.
    pub fn shaping(&self) -> Option<Shaping> {
        self.shaping
    }

    /// Waits until the ends are connected, but no longer than `wait`. Returns `None` if they still
    /// aren't.
    ///
    /// # Errors
    /// Returns an error if an end failed.
    pub fn prepared(&mut self, wait: Duration) -> Result<Option<Vec<Prepared>>, NetError> {
        for worker in &mut self.workers {
            if !worker.prepare(wait)? {
                return Ok(None);
            }
        }
        Ok(self.workers.iter().map(|worker| worker.prepared).collect())
    }

    /// Starts the traffic.
    pub fn go(&mut self) {
        for worker in &mut self.workers {
            if let Some(go) = worker.go.take() {
                // If this fails, the thread has failed, which `finish` reports.
                let _ = go.send(());
            }
        }
    }

    /// Returns when data was first transferred, or `None` if none has been transferred yet.
    pub fn begun(&self) -> Option<Nanos> {
        let all = self.workers.iter().map(|worker| &worker.shared.begun);
        let begun = all.map(|begun| Nanos(begun.load(Ordering::Relaxed)));
        begun.filter(|&at| at > Nanos::ZERO).min()
    }

    /// Returns when data was last transferred.
    pub fn reached(&self) -> Nanos {
        let all = self.workers.iter().map(|worker| &worker.shared.reached);
        let reached = all.map(|reached| Nanos(reached.load(Ordering::Relaxed)));
        reached.max().unwrap_or_default()
    }

    /// Returns whether the traffic has ended.
    pub fn is_over(&self) -> bool {
        let mut threads = self
            .workers
            .iter()
            .filter_map(|worker| worker.thread.as_ref());
        threads.all(JoinHandle::is_finished)
    }

    /// Ends the traffic early. If both ends are in this process, stops only the sender, so that the
    /// receiver still gets the sender's report.
    pub fn stop(&self) {
        if let Some(first) = self.workers.first() {
            first.shared.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until the traffic has ended, and returns its outcome.
    ///
    /// # Errors
    /// Returns an error if no data was transferred.
    pub fn finish(mut self) -> Result<Outcome, NetError> {
        let mut first = None;
        for worker in &mut self.workers {
            let Some(thread) = worker.thread.take() else {
                continue;
            };
            let outcome = thread.join().unwrap_or_else(|_| {
                Err(NetError::System {
                    what: "send or receive",
                    why: "a thread crashed; please report this bug".to_owned(),
                })
            });
            match &mut first {
                None => first = Some(outcome?),
                Some(first) => merge(first, outcome),
            }
        }
        first.ok_or(NetError::Interrupted)
    }
}

/// Merges the receiver's outcome into the sender's. Takes the receiver's report from the receiver
/// itself if possible, because it might not have reached the sender.
fn merge(sender: &mut Outcome, receiver: Result<Outcome, NetError>) {
    match receiver {
        Ok(outcome) => {
            sender.other = Some(outcome.report);
            sender.log = outcome.log;
            sender.trouble = sender.trouble.take().or(outcome.trouble);
            for fact in outcome.facts {
                if sender.facts.iter().all(|known| known.name != fact.name) {
                    sender.facts.push(fact);
                }
            }
        }
        Err(error) => sender.trouble = sender.trouble.take().or(Some(error)),
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.shared.stop.store(true, Ordering::Relaxed);
            worker.go = None;
            if let Some(thread) = worker.thread.take() {
                // The outcome doesn't matter if the caller drops the traffic.
                let _ = thread.join();
            }
        }
    }
}

impl Worker {
    fn sender(
        address: String,
        EndSettings { spec, tuning }: EndSettings,
        namespace: Option<Namespace>,
        cpu: Option<Cpu>,
    ) -> Result<Self, NetError> {
        Self::start("ttx-net-send", namespace, cpu, move |talk| {
            let facts = tuning.set_here()?;
            let options = tuning.options(spec.protocol);
            let sending = Sending::connect(&address, spec, options, &talk.shared.stop)?;
            talk.wait(End::Sender, spec, sending.peer(), sending.token())?;
            let mut outcome = sending.run(options, &talk.shared)?;
            outcome.facts.extend(facts);
            Ok(outcome)
        })
    }

    fn receiver(
        address: String,
        settings: Option<EndSettings>,
        namespace: Option<Namespace>,
        cpu: Option<Cpu>,
        logging: Option<Logging>,
    ) -> Result<Self, NetError> {
        Self::start("ttx-net-recv", namespace, cpu, move |talk| {
            if let Some(settings) = &settings {
                settings.tuning.set_here()?;
            }
            let options = settings
                .as_ref()
                .map(|settings| settings.tuning.options(settings.spec.protocol));
            let mut listening = Listening::at(&address, options)?;
            if let Some(logging) = logging {
                listening.log(logging)?;
            }
            talk.tell(Note::Listens(listening.address()))?;
            let receiving: Receiving = listening.welcome(&talk.shared.stop)?;
            talk.wait(
                End::Receiver,
                receiving.spec(),
                receiving.peer(),
                receiving.token(),
            )?;
            receiving.run(options, &talk.shared)
        })
    }

    fn start(
        name: &str,
        namespace: Option<Namespace>,
        cpu: Option<Cpu>,
        work: impl FnOnce(&Talk) -> Result<Outcome, NetError> + Send + 'static,
    ) -> Result<Self, NetError> {
        let (go, gone) = channel();
        let (tell, notes) = channel();
        let shared = Shared::new();
        let talk = Talk {
            shared: Arc::clone(&shared),
            tell,
            go: gone,
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                if let Some(namespace) = &namespace {
                    namespace.enter()?;
                }
                if let Some(cpu) = cpu {
                    pin(cpu)?;
                }
                work(&talk)
            })
            .map_err(NetError::system("start a thread"))?;
        Ok(Self {
            thread: Some(thread),
            shared,
            go: Some(go),
            notes,
            prepared: None,
        })
    }

    /// Waits until the thread is listening, and returns its address.
    fn listens(&mut self) -> Result<SocketAddr, NetError> {
        match self.notes.recv() {
            Ok(Note::Listens(address)) => Ok(address),
            Ok(Note::Prepared(_)) | Err(_) => Err(self.failure()),
        }
    }

    /// Waits until the thread is ready for the traffic to start, but no longer than `wait`. Returns
    /// whether it is ready.
    fn prepare(&mut self, wait: Duration) -> Result<bool, NetError> {
        if self.prepared.is_some() {
            return Ok(true);
        }
        match self.notes.recv_timeout(wait) {
            Ok(Note::Prepared(prepared)) => self.prepared = Some(prepared),
            Ok(Note::Listens(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(self.failure()),
        }
        Ok(self.prepared.is_some())
    }

    /// Returns why the thread ended before the traffic started.
    fn failure(&mut self) -> NetError {
        let thread = self.thread.take().map(JoinHandle::join);
        match thread {
            Some(Ok(Err(error))) => error,
            _ => NetError::Interrupted,
        }
    }
}

/// Channels through which a thread communicates with its owner.
#[derive(Debug)]
struct Talk {
    shared: Arc<Shared>,
    tell: Sender<Note>,
    go: Receiver<()>,
}

impl Talk {
    /// Sends a message to the owner. Fails if the owner is gone.
    fn tell(&self, note: Note) -> Result<(), NetError> {
        self.tell.send(note).map_err(|_| NetError::Interrupted)
    }

    /// Tells the owner that the thread is ready, and waits until the thread may start.
    fn wait(
        &self,
        end: End,
        spec: TrafficSpec,
        peer: SocketAddr,
        token: u64,
    ) -> Result<(), NetError> {
        let tid = gettid().as_raw();
        let prepared = Prepared {
            end,
            tid,
            spec,
            peer,
            token,
        };
        self.tell(Note::Prepared(prepared))?;
        self.go.recv().map_err(|_| NetError::Interrupted)
    }
}

/// Pins the calling thread to `cpu`.
fn pin(cpu: Cpu) -> Result<(), NetError> {
    let failed = NetError::errno("pin a thread to the chosen CPU (it must be online and allowed)");
    let mut only = CpuSet::new();
    only.set(cpu.index()).map_err(&failed)?;
    sched_setaffinity(Pid::from_raw(0), &only).map_err(&failed)
}

#[cfg(test)]
mod tests;
