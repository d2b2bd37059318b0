//! Sends one command to a Redis server and reads its numeric answer: only as much of RESP as that takes.
//!
//! The protocol: <https://redis.io/docs/latest/develop/reference/protocol-spec/>. Each reading opens a new connection,
//! so a restarted server needs no special care.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::clock;
use crate::http;

/// How long a read blocks before it checks whether to continue.
const SLICE: Duration = Duration::from_millis(20);
/// The longest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Sends the words to `HOST:PORT` and reads a number.
///
/// # Errors
/// The reason in words.
pub(super) fn ask(
    address: &str,
    words: &[String],
    until_ns: u64,
    stop: &mut dyn FnMut() -> bool,
) -> Result<f64, String> {
    let found = address.to_socket_addrs().map_err(|e| format!("cannot resolve `{address}`: {e}"))?;
    let found: Vec<SocketAddr> = found.collect();
    let (mut stream, at) =
        http::connect(&found, Duration::from_secs(1), until_ns).map_err(|e| e.to_string())?;
    let broken = |e: std::io::Error| format!("connection to {at} lost: {e}");
    stream.set_read_timeout(Some(SLICE)).map_err(broken)?;
    stream.set_write_timeout(Some(Duration::from_secs(1))).map_err(broken)?;
    stream.write_all(&command(words)).map_err(broken)?;
    let (mut received, mut chunk) = (Vec::new(), [0u8; 4096]);
    loop {
        if stop() {
            return Err("interrupted".into());
        }
        if clock::now_ns() >= until_ns {
            return Err("no complete reply in time".into());
        }
        if received.len() > MAX_ANSWER_BYTES {
            return Err(format!("the reply is longer than {MAX_ANSWER_BYTES} bytes"));
        }
        match stream.read(&mut chunk) {
            Ok(0) => return Err("it closed the connection".into()),
            Ok(n) => received.extend_from_slice(&chunk[..n]),
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(e) => return Err(broken(e)),
        }
        if let Some(number) = number_in(&received) {
            return number;
        }
    }
}

/// Encodes the command as an array of bulk strings.
fn command(words: &[String]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    out
}

/// The answer's number; `None` while the answer is incomplete.
fn number_in(bytes: &[u8]) -> Option<Result<f64, String>> {
    let end = bytes.windows(2).position(|w| w == b"\r\n")?;
    let line = String::from_utf8_lossy(&bytes[1..end.max(1)]).into_owned();
    let number = |text: &str| {
        let number = text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        number.ok_or_else(|| format!("the reply is not a number but `{}`", super::short(text)))
    };
    Some(match bytes[0] {
        b':' | b',' | b'(' | b'+' => number(&line),
        b'-' => Err(format!("it replied with the error `{}`", super::short(&line))),
        b'_' => Err("there is nothing at this key".into()),
        b'$' => match line.parse::<i64>() {
            Ok(length) if length < 0 => Err("there is nothing at this key".into()),
            Ok(length) => {
                let text = bytes.get(end + 2..)?.get(..usize::try_from(length).ok()?)?;
                number(&String::from_utf8_lossy(text))
            }
            Err(_) => Err(format!("`{}` is not a length", super::short(&line))),
        },
        _ => Err(format!("the reply is not a number but begins with `{}`", bytes[0] as char)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_go_out_as_bulk_strings() {
        let words = ["LLEN", "gr\u{fc}n"].map(str::to_owned);
        assert_eq!(command(&words), "*2\r\n$4\r\nLLEN\r\n$5\r\ngr\u{fc}n\r\n".as_bytes());
    }

    #[test]
    fn answers() {
        for (text, expect) in [
            (":42\r\n", Some(Ok(42.0))),
            (":-1\r\n", Some(Ok(-1.0))),
            ("$4\r\n12.5\r\n", Some(Ok(12.5))),
            ("$4\r\n12", None),
            ("$4", None),
            ("$-1\r\n", Some(Err("there is nothing at this key"))),
            ("_\r\n", Some(Err("there is nothing at this key"))),
            ("+7\r\n", Some(Ok(7.0))),
            ("+OK\r\n", Some(Err("the reply is not a number but `OK`"))),
            ("-WRONGTYPE x\r\n", Some(Err("it replied with the error `WRONGTYPE x`"))),
            ("*1\r\n:1\r\n", Some(Err("the reply is not a number but begins with `*`"))),
            ("", None),
            ("\r\n", Some(Err("the reply is not a number but begins with `\r`"))),
        ] {
            assert_eq!(number_in(text.as_bytes()), expect.map(|e| e.map_err(str::to_owned)), "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_answer_makes_it_panic(bytes: Vec<u8>) {
            let _ = number_in(&bytes);
        }
    }
}
