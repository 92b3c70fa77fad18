//! Tests for `ticktax net` between two processes over loopback. They don't need root and don't
//! measure time.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticktax_model::net::{End, EndedBy, Link, NetStatement, Protocol};

use crate::common::traffic::{receiver, wait_for_call};
use crate::common::{complaint, let_children_hear_ctrl_c, refused_as_usage, text, ticktax};

fn net(arguments: &[&str]) -> Output {
    ticktax(&[&["net"], arguments].concat())
}

fn statement(output: &Output) -> NetStatement {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn invalid_arguments_exit_with_2_and_a_hint() {
    refused_as_usage(
        &["net"],
        &[
            (&["pair", "--mtu", "127"], "choose 128 to 65535"),
            (&["pair", "--mtu", "70000"], "choose 128 to 65535"),
            (&["pair", "--size", "0"], "choose 1 to"),
            (&["pair", "--udp", "--size", "20"], "choose 24 to 65507"),
            (&["pair", "--rate", "-5M"], "invalid rate"),
            (&["pair", "--rate", "fast"], "100M"),
            (&["pair", "--for", "0"], "10ms to 7d"),
            (&["pair", "--link-rate", "64k"], "1M to 100G"),
            (&["pair", "--link-rate", "wide"], "invalid rate"),
            (&["pair", "--delay", "301ms"], "0 to 300ms"),
            (&["pair", "--delay", "-1ms"], "for example 20ms"),
            (&["pair", "--loss", "21%"], "0 to 20 %"),
            (&["pair", "--loss", "0.1"], "for example 0.1%"),
            (&["pair", "--soak", "--untraced"], "cannot be used with"),
            (&["send", "server:99999"], "invalid address"),
            (&["send"], "HOST"),
            (&["recv", "--listen", "here"], "invalid address"),
        ],
    );
}

#[test]
fn sender_and_receiver_report_the_same() {
    for udp in [false, true] {
        let (child, address) = receiver(&[]);
        let mut arguments = vec![
            "send",
            &address,
            "--untraced",
            "--for",
            "300ms",
            "--format",
            "json",
        ];
        arguments.extend(udp.then_some("--udp"));
        let sent = net(&arguments);
        let received = child.wait_with_output().unwrap();
        for output in [&sent, &received] {
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        }
        let (sent, received) = (statement(&sent), statement(&received));
        assert_eq!(
            (&sent.local_ends[..], &received.local_ends[..]),
            (&[End::Sender][..], &[End::Receiver][..])
        );
        assert_eq!(sent.sender, received.sender);
        assert_eq!(sent.receiver, received.receiver);
        assert!(matches!(&sent.link, Link::Network { peer } if *peer == address));
        let (out, back) = (sent.sender.unwrap(), sent.receiver.unwrap());
        assert!(out.bytes > 0 && out.ended_early.is_none());
        match sent.spec.protocol {
            Protocol::Tcp => assert_eq!(out.bytes, back.bytes),
            Protocol::Udp => {
                let datagrams = back.datagrams.unwrap();
                assert_eq!(datagrams.sent, Some(out.calls));
                assert_eq!(datagrams.arrived + datagrams.lost().unwrap(), out.calls);
            }
        }
    }
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = net(&["recv", "--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains(&address));
}

#[test]
fn an_address_without_a_receiver_is_named() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let output = net(&["send", &address, "--untraced"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = complaint(&output);
    assert!(
        errors.contains(&address) && errors.contains("net recv"),
        "{errors}"
    );
}

/// Starts a sender that runs for an hour unless it is stopped.
fn sender(address: &str, more: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_ticktax"))
        .args(["net", "send", address, "--untraced", "--for", "1h"])
        .args(["--format", "json"])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_killed_receiver_ends_the_sender_with_partial_results() {
    let (mut child, address) = receiver(&[]);
    let sender = sender(&address, &["--rate", "1M"]);
    wait_for_traffic(&sender);
    child.kill().unwrap();
    child.wait().unwrap();
    let output = sender.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("disconnected"));
    let statement = statement(&output);
    assert_eq!(
        statement.sender.unwrap().ended_early,
        Some(EndedBy::PeerGone)
    );
    assert_eq!(statement.receiver, None);
}

#[test]
fn ctrl_c_at_the_sender_ends_both_with_partial_results() {
    let_children_hear_ctrl_c();
    let (child, address) = receiver(&[]);
    let sender = sender(&address, &["--rate", "1k", "--udp"]);
    wait_for_traffic(&sender);
    kill(
        Pid::from_raw(sender.id().try_into().unwrap()),
        Signal::SIGINT,
    )
    .unwrap();
    let (sent, received) = (
        sender.wait_with_output().unwrap(),
        child.wait_with_output().unwrap(),
    );
    for output in [sent, received] {
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let statement = statement(&output);
        let (out, back) = (statement.sender.unwrap(), statement.receiver.unwrap());
        assert_eq!(out.ended_early, Some(EndedBy::Interrupted));
        assert_eq!(out.bytes, back.bytes);
    }
}

#[test]
fn ctrl_c_ends_a_waiting_receiver() {
    let_children_hear_ctrl_c();
    let (child, _) = receiver(&[]);
    kill(
        Pid::from_raw(child.id().try_into().unwrap()),
        Signal::SIGINT,
    )
    .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
}

#[test]
fn another_client_at_the_port_is_ignored() {
    let (child, address) = receiver(&[]);
    drop(TcpStream::connect(&address).unwrap());
    let sent = net(&["send", &address, "--untraced", "--for", "100ms"]);
    assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    assert!(child.wait_with_output().unwrap().status.success());
}

/// Waits until the sender has started to send, which is when its thread starts to sleep between
/// calls. Before that, the thread only waits for messages from the receiver.
fn wait_for_traffic(sender: &Child) {
    wait_for_call(sender, "ttx-net-send", nix::libc::SYS_clock_nanosleep);
}
