//! Tests traffic accounts with hand-made rows.

use ticktax_fixture::{books, header, row, thread, whole};
use ticktax_model::net::TracedTraffic;
use ticktax_model::net::TrafficAccount::{
    self, Idle, ReceiverCall, ReceiverUser, SenderCall, SenderUser, Soaker, SoftirqReceive,
    Unexplained,
};
use ticktax_model::recording::{Header, Row, RowSink};
use ticktax_model::{Interval, Kind, Nanos, Owner, Source, SourceId, SourceTable};

use super::{TrafficError, TrafficLedger, UserTimes};

/// The interval from the first byte to the last.
const TRAFFIC: Interval = Interval::new(Nanos(200), Nanos(700));

struct Cast {
    sources: SourceTable,
    sender: SourceId,
    receiver: SourceId,
    soaker: SourceId,
    idle: SourceId,
    receive: SourceId,
}

fn cast() -> Cast {
    let mut sources = SourceTable::default();
    let mut intern = |source| sources.intern(source);
    let tool = |name: &str, tid| thread(Owner::Tool, name, "ticktax", (70, tid));
    Cast {
        sender: intern(tool("ttx-net-send", 71)),
        receiver: intern(tool("ttx-net-recv", 72)),
        soaker: intern(thread(Owner::Probe, "soak", "ticktax", (70, 73))),
        idle: intern(Source::idle()),
        receive: intern(Source::kernel(Kind::Softirq, "NET_RX", "")),
        sources,
    }
}

/// Builds a recording that lasts 1000 ns on CPU 0 and 900 ns on CPU 1. A soaker is calibrated
/// before and after the traffic.
fn recorded(cast: &Cast) -> (Vec<Row>, Header) {
    let rows = vec![
        whole(0, 0, 150, cast.soaker),
        // The sender is running when the traffic starts, and is interrupted by receive work both
        // before and after that.
        whole(0, 190, 20, cast.receive),
        whole(0, 300, 100, cast.receive),
        row(0, 150, 450, 330, cast.sender),
        whole(0, 600, 400, cast.idle),
        whole(1, 100, 200, cast.idle),
        whole(1, 300, 300, cast.receiver),
        whole(1, 600, 400, cast.soaker),
    ];
    let header = Header {
        cpus: vec![books(0, 0, 1_000), books(1, 100, 1_000)],
        ..header()
    };
    (rows, header)
}

fn time(books: &TracedTraffic, account: TrafficAccount) -> i64 {
    books.time(account).0
}

fn finish(
    ledger: TrafficLedger,
    cast: &Cast,
    header: &Header,
    sender: i64,
    receiver: i64,
) -> TracedTraffic {
    let user = UserTimes {
        sender: Nanos(sender),
        receiver: Nanos(receiver),
    };
    ledger.finish(&cast.sources, header, TRAFFIC, user).unwrap()
}

#[test]
fn only_time_between_the_first_and_the_last_byte_is_booked() {
    let cast = cast();
    let (rows, header) = recorded(&cast);
    let mut ledger = TrafficLedger::new(Some(71), Some(72));
    for row in &rows {
        ledger.row(&cast.sources, row);
    }
    let books = finish(ledger, &cast, &header, 30, 0);
    assert_eq!(books.elapsed, Nanos(1_000));
    // The sender's row from 200 to 600, minus 10 ns of the first row of receive work and 100 ns of
    // the second.
    assert_eq!(
        (time(&books, SenderUser), time(&books, SenderCall)),
        (30, 260)
    );
    assert_eq!(time(&books, SoftirqReceive), 110);
    assert_eq!(
        (time(&books, ReceiverUser), time(&books, ReceiverCall)),
        (0, 300)
    );
    assert_eq!((time(&books, Idle), time(&books, Soaker)), (200, 100));
    assert_eq!(time(&books, Unexplained), 0);
    let sum: Nanos = books.accounts.iter().map(|account| account.time).sum();
    assert_eq!(sum, books.elapsed);
    assert_eq!(books.of_traffic(), Nanos(700));
    // All receive work interrupted the sender, on the sender's CPU.
    let [first, second] = &*books.cpus else {
        panic!("{books:?}");
    };
    assert_eq!(
        (first.net_softirq, first.interrupts_on_sender),
        (Nanos(110), Nanos(110))
    );
    assert_eq!(
        (second.receiver, second.net_softirq),
        (Nanos(300), Nanos(0))
    );
}

#[test]
fn booking_rows_early_or_late_gives_the_same_accounts() {
    let cast = cast();
    let (rows, header) = recorded(&cast);
    let mut at_once = TrafficLedger::new(Some(71), Some(72));
    let mut gradually = TrafficLedger::new(Some(71), Some(72));
    for (i, row) in (1_i64..).zip(&rows) {
        at_once.row(&cast.sources, row);
        gradually.row(&cast.sources, row);
        gradually.reach(&cast.sources, Nanos(200), Nanos((200 + 100 * i).min(700)));
    }
    let at_once = finish(at_once, &cast, &header, 7, 9);
    assert_eq!(finish(gradually, &cast, &header, 7, 9), at_once);
}

#[test]
fn time_of_lost_rows_is_unexplained_and_not_spread() {
    let cast = cast();
    let (mut rows, header) = recorded(&cast);
    rows.remove(4);
    let mut ledger = TrafficLedger::new(Some(71), Some(72));
    for row in &rows {
        ledger.row(&cast.sources, row);
    }
    let books = finish(ledger, &cast, &header, 0, 0);
    assert_eq!((time(&books, Idle), time(&books, Unexplained)), (100, 100));
}

#[test]
fn a_trace_without_the_traffics_threads_is_an_error() {
    let cast = cast();
    let (rows, header) = recorded(&cast);
    let mut ledger = TrafficLedger::new(Some(71), Some(4_711));
    for row in &rows {
        ledger.row(&cast.sources, row);
    }
    let result = ledger.finish(&cast.sources, &header, TRAFFIC, UserTimes::default());
    assert_eq!(result, Err(TrafficError::OtherThreadIds));
}
