//! The books of traffic whose rows are made by hand.

use ticktax_fixture::{books, header, row, thread, whole};
use ticktax_model::net::TrafficAccount::{
    self, Idle, ReceiverCall, ReceiverUser, SenderCall, SenderUser, Soaker, SoftirqReceive,
    Unexplained,
};
use ticktax_model::net::TrafficBooks;
use ticktax_model::recording::{Header, Row, RowSink};
use ticktax_model::{Kind, Nanos, Owner, Source, SourceId, SourceTable};

use super::TrafficLedger;

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
    let mut of = |source| sources.intern(source);
    let tool = |name: &str, tid| thread(Owner::Tool, name, "ticktax", (70, tid));
    Cast {
        sender: of(tool("ttx-net-send", 71)),
        receiver: of(tool("ttx-net-recv", 72)),
        soaker: of(thread(Owner::Probe, "soak", "ticktax", (70, 73))),
        idle: of(Source::idle()),
        receive: of(Source::kernel(Kind::Softirq, "NET_RX", "")),
        sources,
    }
}

/// A session of 1 000 ns on CPU 0, and of 900 ns on CPU 1: before and after the traffic, a soaker is being measured.
fn recorded(cast: &Cast) -> (Vec<Row>, Header) {
    let rows = vec![
        whole(0, 0, 150, cast.soaker),
        // The sender runs across the begin of the traffic, with receive work on top on both sides of it.
        whole(0, 190, 20, cast.receive),
        whole(0, 300, 100, cast.receive),
        row(0, 150, 450, 330, cast.sender),
        whole(0, 600, 400, cast.idle),
        whole(1, 100, 200, cast.idle),
        whole(1, 300, 300, cast.receiver),
        whole(1, 600, 400, cast.soaker),
    ];
    let header = Header {
        books: vec![books(0, 0, 1_000), books(1, 100, 1_000)],
        ..header()
    };
    (rows, header)
}

fn of(books: &TrafficBooks, account: TrafficAccount) -> i64 {
    books.time(account).0
}

fn ends(ledger: TrafficLedger, cast: &Cast, header: &Header, user: (i64, i64)) -> TrafficBooks {
    let window = (Nanos(200), Nanos(700));
    let user = (Nanos(user.0), Nanos(user.1));
    ledger.finish(&cast.sources, header, window, user).unwrap()
}

#[test]
fn only_what_lies_between_the_first_byte_and_the_last_is_booked() {
    let cast = cast();
    let (rows, header) = recorded(&cast);
    let mut ledger = TrafficLedger::new(Some(71), Some(72));
    for row in &rows {
        ledger.row(&cast.sources, row);
    }
    let told = ends(ledger, &cast, &header, (30, 0));
    assert_eq!(told.elapsed, Nanos(1_000));
    // 200 to 600 without the receive work in it: 10 of the first, 100 of the second.
    assert_eq!((of(&told, SenderUser), of(&told, SenderCall)), (30, 260));
    assert_eq!(of(&told, SoftirqReceive), 110);
    assert_eq!((of(&told, ReceiverUser), of(&told, ReceiverCall)), (0, 300));
    assert_eq!((of(&told, Idle), of(&told, Soaker)), (200, 100));
    assert_eq!(of(&told, Unexplained), 0);
    let sum: Nanos = told.accounts.iter().map(|it| it.time).sum();
    assert_eq!(sum, told.elapsed);
    assert_eq!(told.of_traffic(), Nanos(700));
    // All receive work ran on top of the sender, on its CPU.
    let [first, second] = &*told.cpus else {
        panic!("{told:?}");
    };
    assert_eq!(
        (first.net_softirq, first.on_sender),
        (Nanos(110), Nanos(110))
    );
    assert_eq!(
        (second.receiver, second.net_softirq),
        (Nanos(300), Nanos(0))
    );
}

#[test]
fn when_rows_are_looked_at_changes_nothing() {
    let cast = cast();
    let (rows, header) = recorded(&cast);
    let mut at_once = TrafficLedger::new(Some(71), Some(72));
    let mut by_and_by = TrafficLedger::new(Some(71), Some(72));
    for (i, row) in (1_i64..).zip(&rows) {
        at_once.row(&cast.sources, row);
        by_and_by.row(&cast.sources, row);
        by_and_by.reach(&cast.sources, Nanos(200), Nanos((200 + 100 * i).min(700)));
    }
    let at_once = ends(at_once, &cast, &header, (7, 9));
    assert_eq!(ends(by_and_by, &cast, &header, (7, 9)), at_once);
}

#[test]
fn what_is_lost_is_unexplained_and_not_spread() {
    let cast = cast();
    let (mut rows, header) = recorded(&cast);
    rows.remove(4);
    let mut ledger = TrafficLedger::new(Some(71), Some(72));
    for row in &rows {
        ledger.row(&cast.sources, row);
    }
    let told = ends(ledger, &cast, &header, (0, 0));
    assert_eq!((of(&told, Idle), of(&told, Unexplained)), (100, 100));
}

#[test]
fn a_trace_that_does_not_know_the_threads_is_no_bill() {
    let cast = cast();
    let (rows, header) = recorded(&cast);
    let mut ledger = TrafficLedger::new(Some(71), Some(4_711));
    for row in &rows {
        ledger.row(&cast.sources, row);
    }
    let window = (Nanos(200), Nanos(700));
    let told = ledger.finish(&cast.sources, &header, window, <(Nanos, Nanos)>::default());
    assert!(told.unwrap_err().contains("PID namespace"));
}
