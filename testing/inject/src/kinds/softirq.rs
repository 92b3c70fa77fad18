//! `softirq`: UDP packets over a private loopback device.
//!
//! The thread enters a new network namespace, so that the packets reach no other program. The
//! `NET_RX` softirq receives each packet on the sender's CPU before the send call returns. The
//! namespace disappears when the thread exits.

use std::net::{Ipv4Addr, UdpSocket};

use nix::sched::{CloneFlags, unshare};

use crate::clock;
use crate::control::{Arm, Control};
use crate::counters::CounterWatch;
use crate::error::InjectError;
use crate::place;
use crate::plan::Plan;
use crate::sys;
use crate::truth::{Count, Event, Measured, Truth};

use super::{thread, truth_of};

/// Payload of every packet.
pub(super) const PAYLOAD: [u8; 64] = [0; 64];

pub(super) fn run(plan: &Plan, packets: u32, control: &Control) -> Result<Truth, InjectError> {
    place::pin(place::SELF, plan.cpu)?;
    let (sender, receiver) = own_loopback()?;

    let mut arrived = 0;
    let counter = CounterWatch::softirqs("NET_RX", plan.cpu);
    let walk = control.walk(plan, Arm::WhenEarly, |due, _| {
        let (start, before) = (clock::now(), clock::thread_cpu());
        for _ in 0..packets {
            sender
                .send(&PAYLOAD)
                .map_err(|e| failed("send over the loopback", &e))?;
        }
        let cpu_time = Some(clock::thread_cpu() - before);
        let length = clock::now() - start;
        arrived += drain(&receiver);
        Ok(Event {
            due,
            start,
            length,
            cpu_time,
        })
    })?;

    let (cpu, passed, sent) = (walk.log.cpu_time, walk.log.length, walk.log.happened);
    let also = [thread(plan.disturbance.comm())];
    let mut truth = truth_of(plan, walk, "NET_RX", &[also[0].as_str(), "local_timer"]);
    // This time includes the cost of sending, which cannot be measured separately.
    truth.measured.push(Measured::new(
        cpu,
        "CLOCK_THREAD_CPUTIME_ID around the sends: a ceiling",
    ));
    truth.measured.push(Measured::new(
        passed,
        "CLOCK_MONOTONIC around the sends: a ceiling",
    ));
    truth.counts.push(Count {
        name: "packets sent".into(),
        value: sent * u64::from(packets),
    });
    truth.counts.push(Count {
        name: "packets received".into(),
        value: arrived,
    });
    truth.counts.extend(counter.end());
    Ok(truth)
}

/// Moves the calling thread to a new network namespace. Returns a sender and a receiver that are
/// connected over the namespace's loopback device.
pub(super) fn own_loopback() -> Result<(UdpSocket, UdpSocket), InjectError> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|e| {
        let hint = "run as root, on a kernel with network namespaces";
        InjectError::system("make a network namespace", e, hint)
    })?;
    let any = (Ipv4Addr::UNSPECIFIED, 0);
    let sender = UdpSocket::bind(any).map_err(|e| failed("make a socket", &e))?;
    sys::bring_lo_up(&sender)
        .map_err(|e| InjectError::system("bring the namespace's loopback up", e, "run as root"))?;
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .map_err(|e| failed("bind a socket to the loopback", &e))?;
    let address = receiver
        .local_addr()
        .map_err(|e| failed("ask for a socket's address", &e))?;
    sender
        .connect(address)
        .map_err(|e| failed("connect over the loopback", &e))?;
    receiver
        .set_nonblocking(true)
        .map_err(|e| failed("set a socket up", &e))?;
    Ok((sender, receiver))
}

/// Receives all packets that have arrived, and returns their number.
pub(super) fn drain(receiver: &UdpSocket) -> u64 {
    let mut packet = PAYLOAD;
    let mut count = 0;
    while receiver.recv(&mut packet).is_ok() {
        count += 1;
    }
    count
}

pub(super) fn failed(tried: &str, error: &std::io::Error) -> InjectError {
    InjectError::io(tried, error, "allow UDP over IPv4 in network namespaces")
}
