//! Tests for `ticktax pace --udp` between two processes over loopback. They don't need root and
//! don't measure time.

use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticktax_model::net::{End, EndedBy};
use ticktax_model::packets::PacketStatement;

use crate::common::traffic::{listening, wait_for_call};
use crate::common::{complaint, let_children_hear_ctrl_c, refused_as_usage, text, ticktax};

fn pace(arguments: &[&str]) -> Output {
    ticktax(&[&["pace", "--udp"], arguments].concat())
}

/// Starts a `pace --udp` receiver, and waits until it listens. Returns the process and its address.
fn receiver(arguments: &[&str]) -> (Child, String) {
    listening(&["pace", "--udp"], arguments)
}

fn statement(output: &Output) -> PacketStatement {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn invalid_arguments_exit_with_2_and_a_hint() {
    refused_as_usage(
        &["pace"],
        &[
            (&["--udp", "--size", "20"], "choose 24 to 65507"),
            (&["--udp", "--size", "70000"], "choose 24 to 65507"),
            (&["--udp", "--rate", "0"], "60k"),
            (&["--udp", "--rate", "fast"], "60k"),
            (&["--udp", "--for", "0"], "10ms to 7d"),
            (&["--udp", "--rcvbuf", "0"], "1..=536870912"),
            (&["--udp", "--work", "3ms"], "cannot be used with"),
            (&["--udp", "--pid", "1"], "cannot be used with"),
            (
                &["--udp", "--to", "a", "--listen", "b:1"],
                "cannot be used with",
            ),
            (
                &["--udp", "--to", "a", "--rcvbuf", "9"],
                "cannot be used with",
            ),
            (&["--udp", "--to", "server:99999"], "invalid address"),
            (&["--udp", "--listen", "here"], "invalid address"),
            (&["--size", "200"], "--udp"),
            (&["--rate", "60k"], "invalid rate"),
            (&["--rate", "max"], "invalid rate"),
        ],
    );
}

#[test]
fn between_hosts_the_receiver_reports_everything_but_delays() {
    let (child, address) = receiver(&[]);
    let sent = pace(&[
        "--to", &address, "--rate", "1k", "--for", "300ms", "--format", "json",
    ]);
    let received = child.wait_with_output().unwrap();
    for output in [&sent, &received] {
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let (sent, received) = (statement(&sent), statement(&received));
    assert_eq!(
        (&sent.local_ends[..], &received.local_ends[..]),
        (&[End::Sender][..], &[End::Receiver][..])
    );
    assert_eq!(sent.receiver, received.receiver);
    assert_eq!(
        sent.losses.map(|places| places.total),
        received.losses.map(|places| places.total)
    );
    assert!(sent.buffer.is_none() && received.buffer.is_some());
    let arrived: u64 = received.by_time.iter().map(|slot| slot.arrived).sum();
    let datagrams = received.receiver.unwrap().datagrams.unwrap();
    assert_eq!(arrived, datagrams.arrived);
    assert_eq!(datagrams.sent, Some(sent.sender.unwrap().calls));
    // The clocks on two hosts may differ, so the report must not contain any delays.
    assert_eq!(received.delays, None);
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = pace(&["--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains(&address));
}

#[test]
fn a_killed_sender_leaves_the_receiver_with_partial_results() {
    let (child, address) = receiver(&[]);
    let mut sender = Command::new(env!("CARGO_BIN_EXE_ticktax"))
        .args(["pace", "--udp", "--to", &address, "--for", "1h"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until_read(&child);
    sender.kill().unwrap();
    sender.wait().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("disconnected"));
    let received = statement(&output);
    assert_eq!(
        received.receiver.unwrap().ended_early,
        Some(EndedBy::PeerGone)
    );
    // The number of datagrams sent is unknown, so the report must not contain any losses.
    assert_eq!(received.losses, None);
}

#[test]
fn ctrl_c_at_the_receiver_ends_both_with_partial_results() {
    let_children_hear_ctrl_c();
    let (child, address) = receiver(&[]);
    let sender = Command::new(env!("CARGO_BIN_EXE_ticktax"))
        .args(["pace", "--udp", "--to", &address, "--for", "1h"])
        .args(["--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until_read(&child);
    let pid = Pid::from_raw(child.id().try_into().unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    let received = statement(&child.wait_with_output().unwrap());
    let early = received.receiver.unwrap().ended_early;
    assert_eq!(early, Some(EndedBy::Interrupted));
    let sent = statement(&sender.wait_with_output().unwrap());
    assert!(sent.sender.unwrap().calls > 0);
}

#[test]
fn a_tcp_sender_is_refused() {
    let (child, address) = receiver(&[]);
    let sent = ticktax(&["net", "send", &address, "--untraced", "--for", "100ms"]);
    assert_ne!(sent.status.code(), Some(0));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("pace --udp --to"));
}

#[test]
fn the_text_page_describes_the_traffic() {
    let (child, address) = receiver(&["--rcvbuf", "2304"]);
    let sent = pace(&["--to", &address, "--rate", "max", "--for", "200ms"]);
    assert!(child.wait_with_output().unwrap().status.success());
    let page = text(&sent.stdout);
    assert!(page.contains("of 200 B for"), "{page}");
}

/// Waits until the receiver reads datagrams. Before that, its thread only polls for messages from
/// the sender.
fn wait_until_read(receiver: &Child) {
    wait_for_call(receiver, "ttx-net-recv", nix::libc::SYS_recvmsg);
}
