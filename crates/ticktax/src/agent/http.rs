//! The part of HTTP/1.1 that scrapers need: read a request's head, write one answer, and close the
//! connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use httparse::{EMPTY_HEADER, Status};

/// Maximum size of a request, in bytes. A scraper sends a few hundred bytes.
pub(super) const MOST_BYTES: usize = 8 << 10;

const MOST_HEADERS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageFormat {
    /// OpenMetrics text.
    Text,
    /// Prometheus' protocol buffers, with native histograms.
    Protobuf,
}

impl PageFormat {
    /// Returns the format's MIME type.
    const fn name(self) -> &'static str {
        match self {
            Self::Text => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                 encoding=delimited"
            }
        }
    }

    /// Chooses the format for an `Accept` header: `Protobuf` if the client weights protocol buffers
    /// at least as high as every text format, otherwise `Text`.
    fn accepted(header: &str) -> Self {
        let (mut protobuf, mut text) = (0.0, 0.0);
        for range in header.split(',') {
            let (kind, parameters) = range.split_once(';').unwrap_or((range, ""));
            let parameter = |name: &str| {
                let mut pairs = parameters
                    .split(';')
                    .filter_map(|pair| pair.split_once('='));
                pairs.find_map(|(key, value)| (key.trim() == name).then(|| value.trim()))
            };
            let weight = parameter("q").map_or(Some(1.0), |weight| weight.parse::<f64>().ok());
            let weight = weight
                .filter(|weight| (0.0..=1.0).contains(weight))
                .unwrap_or(0.0);
            match kind.trim() {
                "application/vnd.google.protobuf"
                    if parameter("proto") == Some("io.prometheus.client.MetricFamily")
                        && parameter("encoding") == Some("delimited") =>
                {
                    protobuf = weight.max(protobuf);
                }
                "application/openmetrics-text" | "text/plain" | "text/*" | "*/*" => {
                    text = weight.max(text);
                }
                _ => {}
            }
        }
        if protobuf > 0.0 && protobuf >= text {
            Self::Protobuf
        } else {
            Self::Text
        }
    }
}

/// The `Host` headers that the server accepts.
///
/// The check protects against DNS rebinding: a web page can make its own name resolve to 127.0.0.1.
/// The visitor's browser then lets the page read the metrics served here, but sends the page's name
/// as `Host`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hosts {
    /// Any host, because the server cannot know the names under which a public address is reached.
    Any,
    /// `localhost` and loopback addresses, with any port, because a tunnel may use a different one.
    Loopback,
}

impl Hosts {
    fn refusal(self, request: &httparse::Request<'_, '_>) -> Option<Request> {
        if self == Self::Any {
            return None;
        }
        let headers = request.headers.iter();
        let mut hosts = headers.filter(|header| header.name.eq_ignore_ascii_case("host"));
        match (hosts.next(), hosts.next()) {
            (None, _) if request.version == Some(0) => None,
            (Some(host), None) => (!is_loopback(host.value)).then_some(Request::OtherHost),
            _ => Some(Request::Hostless),
        }
    }
}

/// Returns whether a `Host` header names `localhost` or a loopback address.
fn is_loopback(host: &[u8]) -> bool {
    let Ok(host) = str::from_utf8(host) else {
        return false;
    };
    let host = host.trim();
    if let Ok(address) = host.parse::<SocketAddr>() {
        return is_loopback_address(address.ip());
    }
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return address.is_loopback();
    }
    let bracketed = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = bracketed {
        return address
            .parse::<Ipv6Addr>()
            .is_ok_and(|address| is_loopback_address(address.into()));
    }
    let (name, port) = host.split_once(':').unwrap_or((host, "0"));
    name.eq_ignore_ascii_case("localhost") && port.parse::<u16>().is_ok()
}

fn is_loopback_address(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Metrics {
        /// Whether the method is `HEAD`, so that the answer consists only of headers.
        head: bool,
        format: PageFormat,
    },
    /// The front page, which links to the metrics.
    Root,
    Unknown,
    OtherMethod,
    /// A forbidden `Host`.
    OtherHost,
    /// The request has no `Host` header, or more than one.
    Hostless,
    /// The request is not HTTP.
    Malformed,
    TooLong,
}

impl Request {
    /// Parses the bytes received so far. Returns `None` if the request is not complete yet.
    pub(super) fn parse(bytes: &[u8], hosts: Hosts) -> Option<Self> {
        let mut headers = [EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(Status::Complete(_)) => {
                let refusal = hosts.refusal(&request);
                Some(refusal.unwrap_or_else(|| Self::from_parsed(&request)))
            }
            Ok(Status::Partial) if bytes.len() < MOST_BYTES => None,
            Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => Some(Self::TooLong),
            Err(_) => Some(Self::Malformed),
        }
    }

    fn from_parsed(request: &httparse::Request<'_, '_>) -> Self {
        let path = request.path.unwrap_or_default();
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        match (request.method.unwrap_or_default(), path) {
            (method @ ("GET" | "HEAD"), "/metrics") => {
                let headers = request.headers.iter();
                let mut accepts =
                    headers.filter(|header| header.name.eq_ignore_ascii_case("accept"));
                let accepts = accepts.find_map(|header| std::str::from_utf8(header.value).ok());
                Self::Metrics {
                    head: method == "HEAD",
                    format: accepts.map_or(PageFormat::Text, PageFormat::accepted),
                }
            }
            ("GET" | "HEAD", "/") => Self::Root,
            ("GET" | "HEAD", _) => Self::Unknown,
            _ => Self::OtherMethod,
        }
    }

    pub(super) fn answer(self, page: impl FnOnce(PageFormat) -> Vec<u8>) -> Vec<u8> {
        let text = |status, text: &str| {
            response(status, "text/plain; charset=utf-8", text.as_bytes(), false)
        };
        match self {
            Self::Metrics { head, format } => {
                response("200 OK", format.name(), &page(format), head)
            }
            Self::Root => text("200 OK", "ticktax agent: metrics are at /metrics\n"),
            Self::Unknown => text("404 Not Found", "not found: metrics are at /metrics\n"),
            Self::OtherMethod => text("405 Method Not Allowed", "use GET or HEAD\n"),
            Self::OtherHost => text(
                "421 Misdirected Request",
                "only requests to localhost or a loopback address are served: scrape one of these, \
                 or start the agent with \
                 --listen-anywhere\n",
            ),
            Self::Hostless => text("400 Bad Request", "send one Host header\n"),
            Self::Malformed => text("400 Bad Request", "not an HTTP request\n"),
            Self::TooLong => text(
                "431 Request Header Fields Too Large",
                "the request is too long\n",
            ),
        }
    }
}

/// Builds an answer, without a body if `head` is true. The `Vary` header tells caches that the
/// format depends on `Accept`.
fn response(status: &str, kind: &str, body: &[u8], head: bool) -> Vec<u8> {
    let length = body.len();
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Allow: GET, HEAD\r\nVary: Accept\r\nConnection: close\r\n\r\n"
    )
    .into_bytes();
    if !head {
        answer.extend_from_slice(body);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::{Hosts, MOST_BYTES, PageFormat, Request};

    fn parse(bytes: &[u8]) -> Option<Request> {
        Request::parse(bytes, Hosts::Any)
    }

    #[test]
    fn requests_are_recognized() {
        let parsed = |text: &str| parse(text.as_bytes());
        let metrics = Some(Request::Metrics {
            head: false,
            format: PageFormat::Text,
        });
        assert_eq!(parsed("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), metrics);
        assert_eq!(parsed("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), metrics);
        assert_eq!(parsed("GET / HTTP/1.1\r\n\r\n"), Some(Request::Root));
        assert_eq!(parsed("GET /x HTTP/1.1\r\n\r\n"), Some(Request::Unknown));
        let post = "POST /metrics HTTP/1.1\r\n\r\n";
        assert_eq!(parsed(post), Some(Request::OtherMethod));
        assert_eq!(parsed("GET /metrics HTT"), None);
        assert_eq!(parsed("\u{1}\u{2}\r\n\r\n"), Some(Request::Malformed));
    }

    #[test]
    fn only_loopback_hosts_are_accepted() {
        let parsed = |headers: &str| {
            let request = format!("GET /metrics HTTP/1.1\r\n{headers}\r\n");
            Request::parse(request.as_bytes(), Hosts::Loopback)
        };
        let served = parse(b"GET /metrics HTTP/1.1\r\n\r\n");
        for host in [
            "localhost",
            "localhost:9559",
            "LocalHost:80",
            "127.0.0.1",
            "127.0.0.1:9559",
            "127.8.9.10:1",
            "[::1]:9559",
            "[::1]",
            "[::ffff:127.0.0.1]:9559",
        ] {
            assert_eq!(parsed(&format!("host:  {host} \r\n")), served, "{host}");
        }
        for host in [
            "",
            "rebound.example",
            "rebound.example:9559",
            "localhost.rebound.example",
            "127.0.0.1.rebound.example",
            "localhost:9559:1",
            "localhost:x",
            "0.0.0.0:9559",
            "10.0.0.1:9559",
            "[::]:9559",
            "[::1",
            "::1",
            "user@localhost",
        ] {
            let answer = parsed(&format!("Host: {host}\r\n"));
            assert_eq!(answer, Some(Request::OtherHost), "{host}");
        }
        assert_eq!(parsed(""), Some(Request::Hostless));
        let two = "Host: localhost\r\nHost: rebound.example\r\n";
        assert_eq!(parsed(two), Some(Request::Hostless));
        // A request with a foreign `Host` is refused on every path, so it gets neither the front
        // page nor a 404 page.
        let front = b"GET / HTTP/1.1\r\nHost: rebound.example\r\n\r\n";
        let refused = Request::parse(front, Hosts::Loopback);
        assert_eq!(refused, Some(Request::OtherHost));
        // HTTP/1.0 does not require a `Host` header.
        let old = b"GET /metrics HTTP/1.0\r\n\r\n";
        assert_eq!(Request::parse(old, Hosts::Loopback), served);
    }

    #[test]
    fn endless_requests_are_too_long() {
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(MOST_BYTES));
        assert_eq!(parse(long.as_bytes()), Some(Request::TooLong));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
        assert_eq!(parse(many.as_bytes()), Some(Request::TooLong));
    }

    #[test]
    fn a_head_request_gets_the_length_of_the_full_answer() {
        let answer = |head| {
            let format = PageFormat::Text;
            let answer = Request::Metrics { head, format }.answer(|_| b"12345".to_vec());
            String::from_utf8(answer).unwrap()
        };
        let head = answer(true);
        assert!(head.contains("Content-Length: 5\r\n"), "{head}");
        assert!(head.ends_with("\r\n\r\n"), "{head}");
        let all = answer(false);
        assert!(all.ends_with("\r\n\r\n12345"), "{all}");
    }

    #[test]
    fn protocol_buffers_are_served_if_weighted_at_least_like_text() {
        let protobuf = "application/vnd.google.protobuf;\
            proto=io.prometheus.client.MetricFamily;encoding=delimited";
        for (accepts, format) in [
            ("", PageFormat::Text),
            ("*/*", PageFormat::Text),
            // Sent by Prometheus 2.42, with and without native histograms.
            (
                &*format!("{protobuf},application/openmetrics-text;version=1.0.0;q=0.8,*/*;q=0.1"),
                PageFormat::Protobuf,
            ),
            (
                "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,\
                 */*;q=0.1",
                PageFormat::Text,
            ),
            // Sent by Prometheus 3. The weights depend on its preferred format.
            (
                &*format!("{protobuf};q=0.6,application/openmetrics-text;q=0.5,*/*;q=0.2"),
                PageFormat::Protobuf,
            ),
            (
                &*format!("application/openmetrics-text;q=0.6,{protobuf};q=0.5,*/*;q=0.2"),
                PageFormat::Text,
            ),
            (&*format!("{protobuf};q=0"), PageFormat::Text),
            (&*format!("{protobuf};q=often"), PageFormat::Text),
            ("application/vnd.google.protobuf", PageFormat::Text),
        ] {
            let request = format!("GET /metrics HTTP/1.1\r\naccept: {accepts}\r\n\r\n");
            let head = false;
            let expected = Some(Request::Metrics { head, format });
            assert_eq!(parse(request.as_bytes()), expected, "{accepts}");
        }
    }

    /// Parses mutations of a valid request, with bytes changed, removed or repeated. Every test run
    /// uses the same mutations.
    #[test]
    fn no_request_causes_a_panic_or_an_endless_read() {
        let seed = b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:9559\r\nAccept: \
                     application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                     encoding=delimited;q=0.6,text/plain;q=0.5,*/*;q=0.1\r\n\r\n";
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state >> 33).unwrap() % below
        };
        for _ in 0..50_000 {
            let mut bytes = seed.to_vec();
            for _ in 0..next(8) {
                let place = next(bytes.len());
                match next(4) {
                    0 => bytes[place] = u8::try_from(next(256)).unwrap(),
                    1 => drop(bytes.drain(place..bytes.len().min(place + next(40)))),
                    2 => bytes.extend_from_within(place..),
                    _ => bytes.truncate(place.max(1)),
                }
                if bytes.is_empty() {
                    break;
                }
            }
            match Request::parse(&bytes, Hosts::Loopback) {
                None => assert!(bytes.len() < MOST_BYTES),
                Some(request) => {
                    let answer = request.answer(|_| b"page".to_vec());
                    assert!(answer.starts_with(b"HTTP/1.1 "));
                }
            }
        }
    }
}
