//! `filter`: a single softirq that runs for about the planned length.
//!
//! Many sockets inspect a packet on a private loopback device. Each one runs a slow filter, which
//! drops the packet. All of this happens in a single `NET_RX` softirq on the sender's CPU, before
//! the send call returns. A measurement at the start shows how many sockets the planned length
//! takes.

use std::net::UdpSocket;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use ticktax_model::Nanos;

use crate::clock;
use crate::control::{Arm, Control};
use crate::counters::CounterWatch;
use crate::error::InjectError;
use crate::place;
use crate::plan::Plan;
use crate::sys;
use crate::truth::{Count, Event, Measured, Truth};

use super::softirq::{PAYLOAD, drain, own_loopback};
use super::{thread, truth_of};

/// Number of sockets for measuring the time per socket. No more than `MOST` sockets are ever
/// opened, because a process can have 1024 open files.
const TRIED: u16 = 4;
const MOST: u16 = 900;
/// Number of packets sent for the measurement. Only the fastest one counts.
const TRIALS: usize = 5;
/// Filter lengths to try, in steps. The first one that the kernel accepts is used. A step takes 25
/// to 50 ns.
///
/// A step also takes 32 bytes. A socket's options may take 20 KiB in old kernels and 128 KiB in new
/// ones (`net.core.optmem_max`).
const STEPS: [u16; 2] = [3_900, 500];

pub(super) fn run(plan: &Plan, control: &Control) -> Result<Truth, InjectError> {
    place::pin(place::SELF, plan.cpu)?;
    let (sender, receiver) = own_loopback()?;
    let mut filters = Vec::new();
    add(&mut filters, TRIED.into())?;
    let mut tried = Nanos::MAX;
    for _ in 0..TRIALS {
        let (start, end) = send(&sender)?;
        tried = tried.min(end - start);
        drain(&receiver);
    }
    let each = tried.as_secs_f64() / f64::from(TRIED);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the count is below a thousand, or refused"
    )]
    let needed = (plan.schedule.length.as_secs_f64() / each).ceil() as usize;
    if needed > usize::from(MOST) {
        let longest = Nanos(tried.0 / i64::from(TRIED) * i64::from(MOST));
        return Err(InjectError::Refused {
            kind: plan.disturbance.name(),
            why: format!("lasts {longest} at most here: give a shorter --length"),
        });
    }
    let more = needed.saturating_sub(filters.len());
    add(&mut filters, more)?;

    let counter = CounterWatch::softirqs("NET_RX", plan.cpu);
    let walk = control.walk(plan, Arm::WhenEarly, |due, _| {
        let (start, end) = send(&sender)?;
        drain(&receiver);
        Ok(Event {
            due,
            start,
            length: end - start,
            cpu_time: None,
        })
    })?;

    let passed = walk.log.length;
    let also = [thread(plan.disturbance.comm())];
    let mut truth = truth_of(plan, walk, "NET_RX", &[also[0].as_str(), "local_timer"]);
    truth.measured.push(Measured::new(
        passed,
        "CLOCK_MONOTONIC around the sends: a ceiling",
    ));
    truth.counts.push(Count {
        name: "sockets that filter".into(),
        value: filters.len() as u64,
    });
    truth.counts.extend(counter.end());
    Ok(truth)
}

/// Sends a packet. Returns when the call started and ended.
fn send(sender: &UdpSocket) -> Result<(Nanos, Nanos), InjectError> {
    let start = clock::now();
    sender
        .send(&PAYLOAD)
        .map_err(|e| super::softirq::failed("send over the loopback", &e))?;
    Ok((start, clock::now()))
}

/// Adds `count` sockets that slowly inspect every packet and then drop it.
fn add(filters: &mut Vec<OwnedFd>, count: usize) -> Result<(), InjectError> {
    for _ in 0..count {
        let socket = sys::packet_socket()
            .map_err(|e| InjectError::system("make a packet socket", e, "run as root"))?;
        let [many, few] = STEPS;
        let filtered = match sys::filter_slowly(&socket, many) {
            Err(Errno::ENOMEM) => sys::filter_slowly(&socket, few),
            other => other,
        };
        filtered.map_err(|e| {
            let hint = "allow classic BPF filters, and raise net.core.optmem_max to 20480";
            InjectError::system("give a socket a filter", e, hint)
        })?;
        filters.push(socket);
    }
    Ok(())
}
