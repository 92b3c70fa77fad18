//! As much of HTTP/1.1 as scrapers need: a request's head is read, one answer is written, the connection is
//! closed.

use httparse::{EMPTY_HEADER, Status};

/// The most bytes of a request: a scraper sends some hundreds.
pub(super) const MOST_BYTES: usize = 8 << 10;

/// The most headers of a request.
const MOST_HEADERS: usize = 64;

/// What OpenMetrics is called.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// The metrics; without a body where only the head of an answer is wanted.
    Metrics {
        /// Whether it is.
        head: bool,
    },
    /// Where the metrics are.
    Root,
    /// Something that is not there.
    Unknown,
    /// Something that cannot be done.
    OtherMethod,
    /// Nothing that makes sense.
    Senseless,
    /// More than anybody needs to say.
    TooLong,
}

impl Request {
    /// What these first bytes of a connection ask for; `None` where more have to come.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut headers = [EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(Status::Complete(_)) => Some(Self::of(&request)),
            Ok(Status::Partial) if bytes.len() < MOST_BYTES => None,
            Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => Some(Self::TooLong),
            Err(_) => Some(Self::Senseless),
        }
    }

    fn of(request: &httparse::Request<'_, '_>) -> Self {
        let path = request.path.unwrap_or_default();
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        match (request.method.unwrap_or_default(), path) {
            ("GET", "/metrics") => Self::Metrics { head: false },
            ("HEAD", "/metrics") => Self::Metrics { head: true },
            ("GET" | "HEAD", "/") => Self::Root,
            ("GET" | "HEAD", _) => Self::Unknown,
            _ => Self::OtherMethod,
        }
    }

    /// The whole answer; `page` makes the metrics.
    pub(super) fn answer(self, page: impl FnOnce() -> String) -> String {
        let text = |status, text: &str| response(status, "text/plain; charset=utf-8", text, false);
        match self {
            Self::Metrics { head } => response("200 OK", OPEN_METRICS, &page(), head),
            Self::Root => text("200 OK", "ticktax agent: the metrics are at /metrics\n"),
            Self::Unknown => text("404 Not Found", "the metrics are at /metrics\n"),
            Self::OtherMethod => text("405 Method Not Allowed", "only GET and HEAD\n"),
            Self::Senseless => text("400 Bad Request", "this is not HTTP\n"),
            Self::TooLong => text("431 Request Header Fields Too Large", "too long\n"),
        }
    }
}

/// An answer with these words as its body, which is left out where only the `head` is wanted.
fn response(status: &str, kind: &str, body: &str, head: bool) -> String {
    let length = body.len();
    let body = if head { "" } else { body };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Allow: GET, HEAD\r\nConnection: close\r\n\r\n{body}"
    )
}

/// The answer to whoever comes while too many others are served.
pub(super) fn busy() -> String {
    response(
        "503 Service Unavailable",
        "text/plain; charset=utf-8",
        "too many connections\n",
        false,
    )
}

#[cfg(test)]
mod tests {
    use super::{MOST_BYTES, Request};

    #[test]
    fn a_scraper_gets_metrics_and_others_a_word() {
        let of = |text: &str| Request::parse(text.as_bytes());
        let metrics = Some(Request::Metrics { head: false });
        assert_eq!(of("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), metrics);
        assert_eq!(of("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), metrics);
        assert_eq!(of("GET / HTTP/1.1\r\n\r\n"), Some(Request::Root));
        assert_eq!(of("GET /x HTTP/1.1\r\n\r\n"), Some(Request::Unknown));
        let post = "POST /metrics HTTP/1.1\r\n\r\n";
        assert_eq!(of(post), Some(Request::OtherMethod));
        assert_eq!(of("GET /metrics HTT"), None);
        assert_eq!(of("\u{1}\u{2}\r\n\r\n"), Some(Request::Senseless));
    }

    #[test]
    fn what_does_not_end_is_too_long() {
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(MOST_BYTES));
        assert_eq!(Request::parse(long.as_bytes()), Some(Request::TooLong));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
        assert_eq!(Request::parse(many.as_bytes()), Some(Request::TooLong));
    }

    #[test]
    fn the_head_alone_has_the_length_of_all() {
        let page = || "12345".to_owned();
        let answer = Request::Metrics { head: true }.answer(page);
        assert!(answer.contains("Content-Length: 5\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
        let answer = Request::Metrics { head: false }.answer(page);
        assert!(answer.ends_with("\r\n\r\n12345"), "{answer}");
    }
}
