//! Shapes a link with queueing disciplines on its devices: tbf for a rate, or netem for a rate, a
//! delay and losses. Also reads how many packets the queueing disciplines dropped.
//!
//! The messages to the kernel are those of `tc qdisc replace dev … root …`.

use nix::errno::Errno;
use ticktax_host::netlink::{Body, Netlink, REPLACE, attribute, double, word};
use ticktax_model::Nanos;
use ticktax_model::net::{LinkSpec, Shaper, Shaping};

use super::devices::{INDEX, open};
use super::error::{NetError, words};
use super::{LINK_DELAYS, LINK_LOSSES, LINK_RATES};

// <linux/rtnetlink.h>
const NEW_QDISC: u16 = 36;
const GET_QDISC: u16 = 38;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const STATS: u16 = 7;
const STATS_QUEUE: u16 = 3;
/// Value for the parent of a device's root queueing discipline.
const ROOT: u32 = 0xffff_ffff;
/// Size of `struct tcmsg`, and the offsets of its fields for the device index and the parent.
const TCMSG: usize = 20;
const AT_DEVICE: usize = 4;
const AT_PARENT: usize = 12;

// <linux/pkt_sched.h>
const TBF_PARMS: u16 = 1;
const TBF_RATE64: u16 = 4;
const TBF_BURST: u16 = 6;
const NETEM_RATE: u16 = 6;
const NETEM_RATE64: u16 = 8;
const NETEM_LATENCY64: u16 = 10;
/// Unit, in ns, in which the kernel's older structures count time.
const PSCHED: u64 = 64;

/// Size of an Ethernet header, in bytes, which the disciplines count as part of a packet.
const ETHERNET: u64 = 14;
/// Size of tbf's token bucket, as time at the link's rate. The bucket always has room for at least
/// two frames.
const BURST: Nanos = Nanos::from_millis(1);
/// Maximum length of tbf's queue, as time at the link's rate. The queue always has room for at
/// least ten frames.
const QUEUE: Nanos = Nanos::from_millis(50);
const FRAMES: u64 = 10;
/// Maximum length of netem's queue, in packets, on a link without a rate. The queue holds all
/// packets that are being delayed.
const UNLIMITED: u32 = 100_000;

/// A queueing discipline with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Setting {
    /// Token bucket filter. The rate is in bytes per second. The sizes of the bucket (`burst`) and
    /// the queue (`limit`) are in bytes.
    Tbf { rate: u64, burst: u32, limit: u32 },
    /// Network emulator. The rate is in bytes per second, the queue length (`limit`) in packets,
    /// and the loss a fraction of 2^32.
    Netem {
        rate: Option<u64>,
        delay: Nanos,
        limit: u32,
        loss: u32,
    },
}

/// Returns an error if a limit in `spec` is out of range.
pub(super) fn check(spec: &LinkSpec) -> Result<(), NetError> {
    let refused = |what: &'static str, range: &str| {
        Err(NetError::LinkRange {
            what,
            range: range.to_owned(),
        })
    };
    if spec.rate.is_some_and(|rate| !LINK_RATES.contains(&rate)) {
        return refused("rate", "1M to 100G bit/s");
    }
    if spec
        .delay
        .is_some_and(|delay| !LINK_DELAYS.contains(&delay))
    {
        return refused("delay", "0 to 300ms in each direction");
    }
    if spec.loss.is_some_and(|loss| !LINK_LOSSES.contains(&loss)) {
        return refused("loss", "0 to 20 % each way");
    }
    Ok(())
}

/// Shapes the link on the device in this namespace, and reads the resulting limits back. Returns
/// `None` if `spec` sets no limits.
pub(super) fn narrow(
    netlink: &Netlink,
    spec: &LinkSpec,
    mtu: u32,
) -> Result<Option<Shaping>, NetError> {
    if spec.is_plain() {
        return Ok(None);
    }
    let mut why = Errno::ENOENT;
    // For a rate alone, prefer tbf, which is more precise. If the kernel lacks it, use netem.
    let settings = [Setting::tbf(spec, mtu), Some(Setting::netem(spec, mtu))];
    for setting in settings.into_iter().flatten() {
        match netlink.ask(NEW_QDISC, REPLACE, &setting.message()) {
            Ok(()) => return in_effect(netlink, spec).map(Some),
            Err(Errno::ENOENT) => {}
            Err(error) => {
                why = error;
                break;
            }
        }
    }
    Err(match why {
        Errno::ENOENT if spec.is_rate_alone() => NetError::NoQdisc {
            asked: "a link with a rate",
            qdisc: "tbf and netem",
            option: "CONFIG_NET_SCH_TBF or CONFIG_NET_SCH_NETEM",
            module: "sch_tbf",
        },
        Errno::ENOENT => NetError::NoQdisc {
            asked: "a link with delay or loss",
            qdisc: "netem",
            option: "CONFIG_NET_SCH_NETEM",
            module: "sch_netem",
        },
        error => NetError::Link { why: words(error) },
    })
}

/// Reads the device's queueing discipline back from the kernel.
fn in_effect(netlink: &Netlink, asked: &LinkSpec) -> Result<Shaping, NetError> {
    let listed = netlink.list(GET_QDISC, &Body(vec![0; TCMSG]));
    let listed = listed.map_err(NetError::errno("read a device's queueing discipline"))?;
    let mut roots = listed.iter().filter(|message| is_root(message));
    let found = roots.find(|message| word(message, AT_DEVICE) == Some(INDEX));
    let found = found.and_then(|message| shaping(&message[TCMSG..], asked));
    found.ok_or_else(|| NetError::Link {
        why: "the values read back from the device differ".to_owned(),
    })
}

/// Returns how many packets have been dropped by the queueing disciplines of all devices in the
/// calling thread's namespace. Returns 0 if the kernel does not report this.
pub(super) fn drops() -> u64 {
    let listed = open().and_then(|netlink| netlink.list(GET_QDISC, &Body(vec![0; TCMSG])));
    let listed = listed.unwrap_or_default();
    // A root discipline's count includes the packets that its children dropped.
    let roots = listed.iter().filter(|message| is_root(message));
    roots
        .filter_map(|message| dropped(message.get(TCMSG..)?))
        .sum()
}

fn is_root(message: &[u8]) -> bool {
    word(message, AT_PARENT) == Some(ROOT)
}

/// Reads the drop count in `struct gnet_stats_queue`, whose fields are qlen, backlog, drops, …
/// Returns `None` if the kernel does not report it.
fn dropped(attributes: &[u8]) -> Option<u64> {
    let queue = attribute(attribute(attributes, STATS)?, STATS_QUEUE)?;
    word(queue, 8).map(u64::from)
}

/// Returns how many bytes the link transmits within `time` at `rate` bytes per second.
fn passes(rate: u64, time: Nanos) -> u64 {
    let bytes = u128::from(rate) * u128::from(time.0.unsigned_abs()) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn at_most<T: TryFrom<u64>>(number: u64, most: T) -> T {
    T::try_from(number).unwrap_or(most)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within the ranges of a link"
)]
impl Setting {
    /// Returns tbf's parameters, or `None` if the link has limits other than a rate.
    fn tbf(spec: &LinkSpec, mtu: u32) -> Option<Self> {
        let rate = spec.rate.filter(|_| spec.is_rate_alone())?;
        let rate = (rate / 8.0).round() as u64;
        let frame = u64::from(mtu) + ETHERNET;
        let burst = passes(rate, BURST).max(2 * frame);
        let limit = passes(rate, QUEUE).max(FRAMES * frame);
        Some(Self::Tbf {
            rate,
            burst: at_most(burst, u32::MAX),
            limit: at_most(limit, u32::MAX),
        })
    }

    fn netem(spec: &LinkSpec, mtu: u32) -> Self {
        let rate = spec.rate.map(|rate| (rate / 8.0).round() as u64);
        let delay = spec.delay.unwrap_or_default();
        let limit = rate.map_or(UNLIMITED, |rate| {
            let frame = u64::from(mtu) + ETHERNET;
            let packets = passes(rate, delay + QUEUE).div_ceil(frame);
            at_most(packets.max(FRAMES), UNLIMITED).min(UNLIMITED)
        });
        let share = spec.loss.unwrap_or_default();
        Self::Netem {
            rate,
            delay,
            limit,
            loss: (share * f64::from(u32::MAX)).round() as u32,
        }
    }
}

impl Setting {
    /// Builds the message that installs this discipline on the device.
    fn message(&self) -> Body {
        let mut body = vec![0; TCMSG];
        body[AT_DEVICE..AT_DEVICE + 4].copy_from_slice(&INDEX.to_ne_bytes());
        body[AT_PARENT..AT_PARENT + 4].copy_from_slice(&ROOT.to_ne_bytes());
        let (kind, options) = match *self {
            Self::Tbf { rate, burst, limit } => ("tbf", tbf(rate, burst, limit)),
            Self::Netem {
                rate,
                delay,
                limit,
                loss,
            } => ("netem", netem(rate, delay, limit, loss)),
        };
        Body(body).text(KIND, kind).nested(OPTIONS, &options)
    }
}

/// Builds tbf's options. If the kernel accepts the bucket size in bytes, it doesn't need a rate
/// table.
fn tbf(rate: u64, burst: u32, limit: u32) -> Body {
    // struct tc_tbf_qopt consists of one struct tc_ratespec for the rate and one for the peak rate,
    // then limit, buffer and mtu.
    let mut parms = ratespec(rate);
    parms.resize(2 * parms.len(), 0);
    let bucket = u64::from(burst) * 1_000_000_000 / rate.max(1) / PSCHED;
    for word in [limit, at_most(bucket, u32::MAX), 0] {
        parms.extend_from_slice(&word.to_ne_bytes());
    }
    let body = Body::default().put(TBF_PARMS, &parms);
    let body = wide(body, TBF_RATE64, rate);
    body.word(TBF_BURST, burst)
}

/// Builds a `struct tc_ratespec` for Ethernet.
fn ratespec(rate: u64) -> Vec<u8> {
    const LINK_LAYER_ETHERNET: u8 = 1;
    const CELL_LOG: u8 = 3;
    let mut bytes = vec![CELL_LOG, LINK_LAYER_ETHERNET, 0, 0, 0xff, 0xff, 0, 0];
    bytes.extend_from_slice(&at_most(rate, u32::MAX).to_ne_bytes());
    bytes
}

/// Adds the rate as the 64-bit attribute `kind` if it does not fit in 32 bits.
fn wide(body: Body, kind: u16, rate: u64) -> Body {
    match u32::try_from(rate) {
        Ok(_) => body,
        Err(_) => body.put(kind, &rate.to_ne_bytes()),
    }
}

/// Builds netem's options: `struct tc_netem_qopt`, followed by attributes.
fn netem(rate: Option<u64>, delay: Nanos, limit: u32, loss: u32) -> Body {
    let ticks = at_most(delay.0.unsigned_abs() / PSCHED, u32::MAX);
    let mut body = Vec::new();
    for word in [ticks, limit, loss, 0, 0, 0] {
        body.extend_from_slice(&word.to_ne_bytes());
    }
    let body = Body(body);
    let Some(rate) = rate else {
        return body;
    };
    let body = wide(body, NETEM_RATE64, rate);
    // struct tc_netem_rate consists of the rate, followed by the overheads per packet and per cell.
    let mut value = at_most(rate, u32::MAX).to_ne_bytes().to_vec();
    value.resize(16, 0);
    body.put(NETEM_RATE, &value)
}

/// Parses the kernel's description of a device's queueing discipline. Returns `None` if it is
/// incomplete, or if it describes a different discipline.
fn shaping(attributes: &[u8], asked: &LinkSpec) -> Option<Shaping> {
    let options = attribute(attributes, OPTIONS)?;
    match attribute(attributes, KIND)? {
        b"tbf\0" => {
            let parms = attribute(options, TBF_PARMS)?;
            let rate = attribute(options, TBF_RATE64).and_then(|value| double(value, 0));
            let rate = rate.or(word(parms, 8).map(u64::from))?;
            let bucket = u64::from(word(parms, 28)?) * PSCHED;
            Some(Shaping {
                shaper: Shaper::Tbf,
                requested: *asked,
                effective: LinkSpec {
                    rate: Some(rate as f64 * 8.0),
                    ..LinkSpec::default()
                },
                burst_bytes: Some(passes(rate, Nanos(bucket.cast_signed()))),
                queue_bytes: word(parms, 24).map(u64::from),
                queue_packets: None,
            })
        }
        b"netem\0" => {
            let rate = attribute(options.get(24..)?, NETEM_RATE).and_then(|value| word(value, 0));
            let wide =
                attribute(options.get(24..)?, NETEM_RATE64).and_then(|value| double(value, 0));
            let rate = wide.or(rate.map(u64::from)).filter(|&rate| rate > 0);
            let latency = attribute(options.get(24..)?, NETEM_LATENCY64);
            let latency = latency
                .and_then(|value| double(value, 0))
                .map(u64::cast_signed);
            let ticks = (u64::from(word(options, 0)?) * PSCHED).cast_signed();
            let delay = Nanos(latency.unwrap_or(ticks));
            let loss = f64::from(word(options, 8)?) / f64::from(u32::MAX);
            Some(Shaping {
                shaper: Shaper::Netem,
                requested: *asked,
                effective: LinkSpec {
                    rate: rate.map(|rate| rate as f64 * 8.0),
                    delay: (delay > Nanos::ZERO).then_some(delay),
                    loss: (loss > 0.0).then_some(loss),
                },
                burst_bytes: None,
                queue_bytes: None,
                queue_packets: word(options, 4),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
