//! Compares our messages with those that `tc` (iproute2 6.1) sent, as recorded with
//! `strace -e trace=sendmsg -xx -s 900`:
//!
//!     tc qdisc replace dev va root tbf rate 100mbit burst 12500b limit 625000b
//!     tc qdisc replace dev va root netem rate 100mbit delay 20ms loss 0.1% limit 1000
//!
//! The recorded messages contain the device index 3, which the tests replace with ours.

use ticktax_model::Nanos;
use ticktax_model::net::{LinkSpec, Shaper};

use super::{Setting, attribute, dropped, netem, shaping, tbf};

/// Decodes hexadecimal digits.
fn bytes(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

const HEAD: &str = "00000000 75000000 00000000 ffffffff 00000000";

fn link(rate: Option<f64>, delay: Option<Nanos>, loss: Option<f64>) -> LinkSpec {
    LinkSpec { rate, delay, loss }
}

#[test]
fn netem_is_requested_like_tc_does() {
    let setting = Setting::Netem {
        rate: Some(12_500_000),
        delay: Nanos::from_millis(20),
        limit: 1_000,
        loss: 4_294_967,
    };
    let theirs = "0a000100 6e6574656d000000 30000200 b4c40400 e8030000 37894100 00000000 00000000 00000000 \
                  14000600 20bcbe00 00000000 00000000 00000000";
    assert_eq!(setting.message().0, bytes(&format!("{HEAD} {theirs}")));
}

/// The message from `tc` also contains a table of transmission times by packet length, which only
/// kernels before 3.8 need.
#[test]
fn tbf_is_requested_like_tc_does_without_its_table() {
    let setting = Setting::tbf(&link(Some(100e6), None, None), 1_500).unwrap();
    let expected = Setting::Tbf {
        rate: 12_500_000,
        burst: 12_500,
        limit: 625_000,
    };
    assert_eq!(setting, expected);
    let theirs = "08000100 74626600 38000200 28000100 03010000 ffff0000 20bcbe00 00000000 00000000 00000000 \
                  68890900 093d0000 00000000 08000600 d4300000";
    let mut theirs = bytes(&format!("{HEAD} {theirs}"));
    // Length of the options. Our message has no table, so it is 0x404 bytes shorter.
    assert_eq!(u16::from_ne_bytes([0x38, 0x04]) - 0x404, 0x34);
    theirs[28] = 0x34;
    let ours = setting.message().0;
    assert_eq!(ours.len(), theirs.len());
    // `tc` rounds the time that the bucket stands for to ticks of 64 ns, in the opposite direction
    // from ours.
    assert_eq!(ours, theirs);
}

#[test]
fn slow_links_and_large_frames_have_room_for_frames() {
    for (rate, mtu) in [(1e6, 1_500), (2e6, 65_535), (1e11, 128)] {
        let Some(Setting::Tbf { burst, limit, .. }) =
            Setting::tbf(&link(Some(rate), None, None), mtu)
        else {
            panic!("no tbf");
        };
        assert!(burst > 2 * mtu && limit >= 5 * burst.min(2 * (mtu + 14)));
    }
    let delayed = link(Some(100e6), Some(Nanos::from_millis(20)), None);
    assert_eq!(Setting::tbf(&delayed, 1_500), None);
    // The limit is 70 ms of data at 12.5 MB/s, converted to frames.
    let Setting::Netem { limit, .. } = Setting::netem(&delayed, 1_500) else {
        panic!("no netem");
    };
    assert_eq!(limit, 578);
}

#[test]
fn settings_are_read_back() {
    for rate in [1e6, 100e6, 80e9] {
        let spec = link(Some(rate), None, None);
        let setting = Setting::tbf(&spec, 1_500).unwrap();
        let shaping_read = shaping(&setting.message().0[20..], &spec).unwrap();
        assert_eq!(
            (shaping_read.shaper, shaping_read.effective),
            (Shaper::Tbf, spec)
        );
        assert!(shaping_read.burst_bytes.is_some() && shaping_read.queue_bytes.is_some());
    }
    for rate in [None, Some(1e6), Some(80e9)] {
        let spec = link(rate, Some(Nanos::from_millis(20)), Some(0.001));
        let setting = Setting::netem(&spec, 1_500);
        let shaping_read = shaping(&setting.message().0[20..], &spec).unwrap();
        assert_eq!(shaping_read.shaper, Shaper::Netem);
        assert_eq!(shaping_read.effective.rate, rate);
        assert_eq!(shaping_read.effective.delay, spec.delay);
        assert!((shaping_read.effective.loss.unwrap() - 0.001).abs() < 1e-9);
        assert!(
            shaping_read
                .queue_packets
                .is_some_and(|packets| packets > 0)
        );
    }
}

#[test]
fn other_kinds_and_truncated_messages_are_rejected() {
    let plain = LinkSpec::default();
    let setting = Setting::tbf(&link(Some(1e6), None, None), 1_500).unwrap();
    let message = setting.message().0[20..].to_vec();
    for length in 0..message.len() - 12 {
        assert_eq!(shaping(&message[..length], &plain), None, "{length}");
    }
    let mut other = message;
    other[4..7].copy_from_slice(b"htb");
    assert_eq!(shaping(&other, &plain), None);
}

#[test]
fn drops_are_read_from_the_queue_statistics() {
    use super::{Body, STATS, STATS_QUEUE};
    let mut queue = vec![0; 20];
    queue[8] = 7;
    let stats = Body::default().put(1, &[0; 16]).put(STATS_QUEUE, &queue);
    let message = Body::default().text(1, "tbf").nested(STATS, &stats);
    assert_eq!(dropped(&message.0), Some(7));
    assert_eq!(dropped(&[]), None);
}

#[test]
fn rates_beyond_32_bits_have_a_separate_attribute() {
    let rate = 1 << 33;
    let options = tbf(rate, 1, 1);
    let wide = attribute(&options.0, super::TBF_RATE64);
    assert_eq!(wide, Some(&rate.to_ne_bytes()[..]));
    let options = netem(Some(rate), Nanos::ZERO, 1, 0);
    let wide = attribute(&options.0[24..], super::NETEM_RATE64);
    assert_eq!(wide, Some(&rate.to_ne_bytes()[..]));
}
