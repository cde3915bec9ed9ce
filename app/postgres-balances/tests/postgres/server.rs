//! A PostgreSQL server that ends with the test, and a proxy in front of it that breaks connections.

use std::fs::{File, read_to_string};
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_postgres::{Client, Config, NoTls};

/// The id of the user `nobody`, as whom the server runs for root. PostgreSQL does not run as root.
const NOBODY: u32 = 65534;

/// A server with an empty table, behind a socket in a folder of its own.
pub(crate) struct Server {
    process: Child,
    folder: TempDir,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        if folder.path().metadata().unwrap().uid() == 0 {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let initdb =
            ["--pgdata=data", "--username=test", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"];
        let initdb = program("initdb", folder.path()).args(initdb).output();
        let initdb = initdb.unwrap_or_else(|error| panic!("initdb: {error}; .ci/postgres installs PostgreSQL"));
        assert!(initdb.status.success(), "{}", String::from_utf8_lossy(&initdb.stderr));
        let log = File::create(folder.path().join("log")).unwrap();
        let mut process = program("postgres", folder.path());
        process.args(["-D", "data", "-c", "listen_addresses=", "-c", "fsync=off", "-k"]).arg(folder.path());
        let process = process.stderr(log).spawn().unwrap();
        let mut server = Self { process, folder };
        while server.database().connect(NoTls).await.is_err() {
            if let Some(status) = server.process.try_wait().unwrap() {
                panic!("{status}: {}", read_to_string(server.folder.path().join("log")).unwrap());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server.connect().await.batch_execute(include_str!("../../schema.sql")).await.unwrap();
        server
    }

    pub(crate) fn database(&self) -> Config {
        database(self.folder.path())
    }

    pub(crate) async fn connect(&self) -> Client {
        let (client, connection) = self.database().connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Ends the other connections that meet a condition. Returns their number.
    pub(crate) async fn terminate(&self, condition: &str) -> usize {
        let terminate = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND {condition}"
        );
        self.connect().await.query(&terminate, &[]).await.unwrap().len()
    }
}

impl Drop for Server {
    /// The server removes its shared memory, which would remain after a kill.
    fn drop(&mut self) {
        let stopped =
            program("pg_ctl", self.folder.path()).args(["stop", "-D", "data", "-m", "immediate", "-s"]).status();
        if !stopped.is_ok_and(|status| status.success()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// A program of PostgreSQL, run as the owner of the folder.
fn program(name: &str, folder: &Path) -> Command {
    let mut command = Command::new(name);
    command.current_dir(folder);
    if folder.metadata().unwrap().uid() == NOBODY {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// The database behind the socket in a folder.
fn database(folder: &Path) -> Config {
    let mut database = Config::new();
    database.host_path(folder).user("test").dbname("postgres");
    database
}

/// Where a connection breaks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Break {
    /// The server does not see the statement.
    Before,
    /// The server executes the statement, and its response is lost.
    After,
}

/// A proxy in front of a server, with a socket in a folder of its own.
pub(crate) struct Proxy {
    folder: TempDir,
    shared: Arc<Shared>,
}

struct Shared {
    server: std::path::PathBuf,
    breaks: Mutex<Vec<(&'static str, Break)>>,
    statements: watch::Sender<usize>,
}

impl Proxy {
    pub(crate) fn to(server: &Server) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        let server = server.folder.path().join(SOCKET);
        let shared = Arc::new(Shared { server, breaks: Mutex::default(), statements: watch::Sender::new(0) });
        let of_connections = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&of_connections);
                tokio::spawn(async move { shared.forward(client).await });
            }
        });
        Self { folder, shared }
    }

    pub(crate) fn database(&self) -> Config {
        database(self.folder.path())
    }

    /// Breaks the connection of the next statement that contains `text`.
    pub(crate) fn break_next(&self, text: &'static str, at: Break) {
        self.shared.breaks.lock().unwrap().push((text, at));
    }

    /// Takes back what no statement has met yet.
    pub(crate) fn take_breaks(&self) {
        self.shared.breaks.lock().unwrap().clear();
    }

    /// Waits for this number of statements from now on.
    pub(crate) async fn statements(&self, number: usize) {
        let mut statements = self.shared.statements.subscribe();
        let last = *statements.borrow() + number;
        statements.wait_for(|statements| *statements >= last).await.unwrap();
    }
}

impl Shared {
    /// Forwards a connection until it ends or breaks. Both sides then see its end.
    async fn forward(&self, mut client: UnixStream) -> io::Result<()> {
        let mut server = UnixStream::connect(&self.server).await?;
        let (mut sent, mut received) = ([0; 8192], [0; 8192]);
        loop {
            tokio::select! {
                read = client.read(&mut sent) => {
                    let sent = &sent[..read?];
                    let at = self.break_at(sent);
                    if sent.is_empty() || at == Some(Break::Before) {
                        return Ok(());
                    }
                    server.write_all(sent).await?;
                    if at == Some(Break::After) {
                        let _lost = server.read(&mut received).await?;
                        return Ok(());
                    }
                    self.statements.send_modify(|statements| *statements += 1);
                }
                read = server.read(&mut received) => {
                    let received = &received[..read?];
                    if received.is_empty() {
                        return Ok(());
                    }
                    client.write_all(received).await?;
                }
            }
        }
    }

    fn break_at(&self, sent: &[u8]) -> Option<Break> {
        let sent = String::from_utf8_lossy(sent);
        let mut breaks = self.breaks.lock().unwrap();
        let met = breaks.iter().position(|(text, _)| sent.contains(text))?;
        Some(breaks.remove(met).1)
    }
}

/// The name of the socket of a server.
const SOCKET: &str = ".s.PGSQL.5432";
