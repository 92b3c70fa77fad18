//! Messages beside those of `tc`, of iproute2 6.1, which `strace -e trace=sendmsg -xx -s 900` showed:
//!
//!     tc qdisc replace dev va root tbf rate 100mbit burst 12500b limit 625000b
//!     tc qdisc replace dev va root netem rate 100mbit delay 20ms loss 0.1% limit 1000
//!
//! with the device's number 3 replaced by ours.

use ticktax_model::Nanos;
use ticktax_model::net::{LinkSpec, Shaper};

use super::{Setting, attribute, dropped, netem, shaping, tbf};

/// Bytes that stand in a string as digits.
fn bytes(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits
        .bytes()
        .filter(|it| !it.is_ascii_whitespace())
        .collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

const HEAD: &str = "00000000 75000000 00000000 ffffffff 00000000";

fn link(rate: Option<f64>, delay: Option<Nanos>, loss: Option<f64>) -> LinkSpec {
    LinkSpec { rate, delay, loss }
}

#[test]
fn netem_is_asked_for_as_tc_does() {
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

/// `tc` sends a table of times by length as well, for kernels before 3.8.
#[test]
fn tbf_is_asked_for_as_tc_does_without_its_table() {
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
    // How long the options are, which is without the table 0x404 bytes less.
    assert_eq!(u16::from_ne_bytes([0x38, 0x04]) - 0x404, 0x34);
    theirs[28] = 0x34;
    let ours = setting.message().0;
    assert_eq!(ours.len(), theirs.len());
    // tc rounds the bucket's time to its ticks of 64 ns the other way.
    assert_eq!(ours, theirs);
}

#[test]
fn a_link_has_room_for_frames_however_slow_or_large() {
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
    // 70 ms at 12.5 MB/s, in frames.
    let Setting::Netem { limit, .. } = Setting::netem(&delayed, 1_500) else {
        panic!("no netem");
    };
    assert_eq!(limit, 578);
}

#[test]
fn what_was_set_is_read_back() {
    for rate in [1e6, 100e6, 80e9] {
        let spec = link(Some(rate), None, None);
        let setting = Setting::tbf(&spec, 1_500).unwrap();
        let told = shaping(&setting.message().0[20..], &spec).unwrap();
        assert_eq!((told.shaper, told.effective), (Shaper::Tbf, spec));
        assert!(told.burst_bytes.is_some() && told.queue_bytes.is_some());
    }
    for rate in [None, Some(1e6), Some(80e9)] {
        let spec = link(rate, Some(Nanos::from_millis(20)), Some(0.001));
        let setting = Setting::netem(&spec, 1_500);
        let told = shaping(&setting.message().0[20..], &spec).unwrap();
        assert_eq!(told.shaper, Shaper::Netem);
        assert_eq!(told.effective.rate, rate);
        assert_eq!(told.effective.delay, spec.delay);
        assert!((told.effective.loss.unwrap() - 0.001).abs() < 1e-9);
        assert!(told.queue_packets.is_some_and(|it| it > 0));
    }
}

#[test]
fn what_is_of_another_kind_or_cut_off_is_no_link() {
    let plain = LinkSpec::default();
    let whole = Setting::tbf(&link(Some(1e6), None, None), 1_500).unwrap();
    let whole = whole.message().0[20..].to_vec();
    for length in 0..whole.len() - 12 {
        assert_eq!(shaping(&whole[..length], &plain), None, "{length}");
    }
    let mut other = whole;
    other[4..7].copy_from_slice(b"htb");
    assert_eq!(shaping(&other, &plain), None);
}

#[test]
fn drops_are_those_of_the_queue() {
    use super::{Body, STATS, STATS_QUEUE};
    let mut queue = vec![0; 20];
    queue[8] = 7;
    let stats = Body::default().put(1, &[0; 16]).put(STATS_QUEUE, &queue);
    let message = Body::default().text(1, "tbf").nested(STATS, &stats);
    assert_eq!(dropped(&message.0), Some(7));
    assert_eq!(dropped(&[]), None);
}

#[test]
fn rates_beyond_32_bits_have_an_attribute_of_their_own() {
    let rate = 1 << 33;
    let options = tbf(rate, 1, 1);
    let wide = attribute(&options.0, super::TBF_RATE64);
    assert_eq!(wide, Some(&rate.to_ne_bytes()[..]));
    let options = netem(Some(rate), Nanos::ZERO, 1, 0);
    let wide = attribute(&options.0[24..], super::NETEM_RATE64);
    assert_eq!(wide, Some(&rate.to_ne_bytes()[..]));
}
