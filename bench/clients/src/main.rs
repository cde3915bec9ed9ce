//! The server of one process of a function for the part `hot` of the measurement: `clients ENGINE EVENT COUNT`.
//!
//! - As Lambda's Runtime API, it passes the same event COUNT times, to each worker of the process as soon as the worker asks. A
//!   process with 64 workers so has 64 clients, each of which sends its next command when it has the response.
//! - As the endpoint of AWS, it forwards each call to the DynamoDB engine at the address ENGINE. It adds
//!   `ReturnConsumedCapacity`, and counts the transactions and their units.
//!
//! It prints its port, and after the last response its figures as a line of JSON. It has no dependencies and does little for each
//! command, because it shares the machine with the function and the engine.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const NO_HEADERS: [(&str, String); 0] = [];

/// What was measured up to now.
#[derive(Default)]
struct Figures {
    passed: Vec<Instant>,
    latencies: Vec<Duration>,
    accepted: usize,
    transactions: usize,
    successful_transactions: usize,
    write_units: f64,
}

struct Server {
    engine: String,
    event: String,
    count: usize,
    figures: Mutex<Figures>,
    finished: Sender<()>,
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [engine, event, count] = <[String; 3]>::try_from(arguments).map_err(|_| "usage: clients ENGINE EVENT COUNT")?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    let (finished, last_response) = channel();
    let server = Arc::new(Server { engine, event, count: count.parse()?, figures: Mutex::default(), finished });
    let connections = server.clone();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let server = connections.clone();
            std::thread::spawn(move || {
                if let Err(error) = connection.map_err(Into::into).and_then(|connection| server.serve(connection)) {
                    eprintln!("{error}");
                }
            });
        }
    });
    last_response.recv()?;
    let figures = server.figures.lock().map_err(|error| error.to_string())?;
    let seconds = figures.passed[0].elapsed().as_secs_f64();
    let latencies: Vec<_> = figures.latencies.iter().map(|latency| latency.as_secs_f64() * 1000.0).collect();
    println!(
        "{{\"seconds\":{seconds},\"latencies\":{latencies:?},\"accepted\":{},\"transactions\":{},\
         \"successful_transactions\":{},\"write_units\":{}}}",
        figures.accepted, figures.transactions, figures.successful_transactions, figures.write_units
    );
    Ok(())
}

impl Server {
    /// Responds to the requests of a connection.
    fn serve(&self, connection: TcpStream) -> Result<()> {
        connection.set_nodelay(true)?;
        let mut requests = BufReader::new(connection.try_clone()?);
        let mut responses = connection;
        let mut engine = None;
        while let Some(request) = Message::read(&mut requests)? {
            let path = request.start.split(' ').nth(1).unwrap_or_default();
            let response = if path.ends_with("/invocation/next") {
                self.next_event()
            } else if let Some((_, invocation)) = path.split_once("/invocation/") {
                let number = invocation.split('/').next().and_then(|id| id.rsplit('-').next()).unwrap_or_default();
                self.take_response(number.parse()?, &request.body);
                Message::new("HTTP/1.1 202 Accepted", &NO_HEADERS, br#"{"status":"OK"}"#)
            } else if path.contains("/runtime/") {
                return Err(format!("the function does not start: {}", String::from_utf8_lossy(&request.body)).into());
            } else {
                self.forward(&request, &mut engine)?
            };
            responses.write_all(&response)?;
        }
        Ok(())
    }

    fn next_event(&self) -> Vec<u8> {
        let number = {
            let mut figures = self.figures.lock().expect("no thread panics");
            figures.passed.push(Instant::now());
            figures.passed.len() - 1
        };
        while number >= self.count {
            // There is no other event.
            std::thread::park();
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let headers = [
            ("Lambda-Runtime-Aws-Request-Id", format!("00000000-0000-4000-8000-{number:012}")),
            ("Lambda-Runtime-Deadline-Ms", (now.as_millis() + 300_000).to_string()),
            (
                "Lambda-Runtime-Invoked-Function-Arn",
                "arn:aws:lambda:us-east-1:123456789012:function:function".to_owned(),
            ),
            ("Content-Type", "application/json".to_owned()),
        ];
        Message::new("HTTP/1.1 200 OK", &headers, self.event.as_bytes())
    }

    fn take_response(&self, number: usize, body: &[u8]) {
        let mut figures = self.figures.lock().expect("no thread panics");
        let latency = figures.passed[number].elapsed();
        figures.latencies.push(latency);
        figures.accepted += usize::from(find(body, br#""statusCode":200"#).is_some());
        if figures.latencies.len() == self.count {
            // Only a main function that has ended does not receive it.
            let _ = self.finished.send(());
        }
    }

    /// Forwards a call to the engine. Each connection of the function has one to the engine.
    fn forward(&self, request: &Message, engine: &mut Option<BufReader<TcpStream>>) -> Result<Vec<u8>> {
        let is_transaction = request.headers.iter().any(|(_, value)| value.ends_with(".TransactWriteItems"));
        let mut body = request.body.clone();
        if is_transaction && find(&body, b"ReturnConsumedCapacity").is_none() {
            drop(body.splice(..1, *br#"{"ReturnConsumedCapacity":"TOTAL","#));
        }
        if engine.is_none() {
            let connection = TcpStream::connect(&self.engine)?;
            connection.set_nodelay(true)?;
            *engine = Some(BufReader::new(connection));
        }
        let engine = engine.as_mut().expect("it is connected");
        engine.get_mut().write_all(&Message::new(&request.start, &request.headers, &body))?;
        let response = Message::read(engine)?.ok_or("the engine closed a connection")?;
        if is_transaction {
            let mut figures = self.figures.lock().expect("no thread panics");
            figures.transactions += 1;
            if response.start.contains(" 200 ") {
                figures.successful_transactions += 1;
                figures.write_units += consumed_units(&response.body)?;
            }
        }
        Ok(Message::new(&response.start, &response.headers, &response.body))
    }
}

/// The sum of the units that a response of the engine reports for its tables.
fn consumed_units(mut body: &[u8]) -> Result<f64> {
    const NAME: &[u8] = br#""CapacityUnits":"#;
    let mut units = 0.0;
    while let Some(place) = find(body, NAME) {
        body = &body[place + NAME.len()..];
        let end = body.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.').unwrap_or(body.len());
        units += std::str::from_utf8(&body[..end])?.parse::<f64>()?;
    }
    Ok(units)
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// A request or a response of HTTP/1.1.
struct Message {
    /// The first line.
    start: String,
    /// All headers but those of the body's length.
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Message {
    /// Reads the next message of a connection; `None` at its end.
    fn read(reader: &mut BufReader<TcpStream>) -> Result<Option<Self>> {
        let start = line(reader)?;
        if start.is_empty() {
            return Ok(None);
        }
        let (mut headers, mut length, mut chunked) = (Vec::new(), 0, false);
        loop {
            let header = line(reader)?;
            let Some((name, value)) = header.split_once(':') else { break };
            let value = value.trim().to_owned();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse()?,
                "transfer-encoding" => chunked = true,
                _ => headers.push((name.to_owned(), value)),
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        while chunked {
            let start = body.len();
            let length = usize::from_str_radix(&line(reader)?, 16)?;
            body.resize(start + length, 0);
            reader.read_exact(&mut body[start..])?;
            line(reader)?;
            chunked = length > 0;
        }
        Ok(Some(Self { start, headers, body }))
    }

    /// The bytes of a message.
    fn new(start: &str, headers: &[(impl AsRef<str>, String)], body: &[u8]) -> Vec<u8> {
        let mut text = format!("{start}\r\n");
        for (name, value) in headers {
            text += &format!("{}: {value}\r\n", name.as_ref());
        }
        text += &format!("content-length: {}\r\n\r\n", body.len());
        let mut message = text.into_bytes();
        message.extend_from_slice(body);
        message
    }
}

/// The next line without its end.
fn line(reader: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}
