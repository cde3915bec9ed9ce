//! Waits for changes of the sources, builds them, and replaces the functions by those in a new process.

mod build_command;
mod process;
mod sources;

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, iter, mem};

use tokio::task::{JoinError, JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::error::DevError;
use crate::functions::{FunctionSettings, Functions, UpdateQueue, UpdateRequests};
use crate::restart::process::End;
use crate::restart::sources::{FileState, SourceFiles, file_state};
use crate::usage::UsageMeter;

pub use build_command::{RestartArgs, Restarts};
pub use process::serve;

/// The pause between two checks of the sources, and after the unexpected end of the functions.
const PAUSE: Duration = Duration::from_millis(500);

/// Files that are saved together are built together: a build begins when nothing has changed for this time.
const UNCHANGED_FOR: Duration = Duration::from_millis(50);

/// The maximum time from the first source that a build reads until it has written the binary.
const MAX_BUILD_TIME: Duration = Duration::from_secs(5 * 60);

pub(crate) struct Rebuilder {
    restarts: Restarts,
    settings: FunctionSettings,
    meter: UsageMeter,
    functions: Functions,
    updates: UpdateQueue,
    /// The processes of the current version and of those before it that still work.
    processes: JoinSet<End>,
    /// The sources that were built last, or could not be built.
    seen: SourceFiles,
    started: Option<FileState>,
    /// Whether the next build prints warnings and errors only: the first one usually finds that everything is built.
    is_quiet: bool,
    last_build: Result<(), &'static str>,
    last_start: Result<(), &'static str>,
}

impl Rebuilder {
    pub(crate) async fn start(
        restarts: Restarts,
        settings: FunctionSettings,
        meter: UsageMeter,
    ) -> Result<(Functions, Self), DevError> {
        let started = file_state(&restarts.binary);
        let mut seen = files(&restarts).await.unwrap_or_default();
        // The build may have read a file before its last change, if that was while it ran. Such a file is built again.
        let (all, begun) = (seen.len(), started.and_then(|(built, _)| built.checked_sub(MAX_BUILD_TIME)));
        seen.retain(|_, (changed, _)| begun.is_some_and(|begun| *changed < begun));
        let is_quiet = seen.len() < all;
        let (version, process) = process::start(&restarts, &settings).await?;
        let (requests, updates) = UpdateRequests::new();
        let functions = Functions::new(version, Some(requests));
        let mut processes = JoinSet::new();
        processes.spawn(process.run());
        let rebuilder = Self {
            restarts,
            settings,
            meter,
            functions: functions.clone(),
            updates,
            processes,
            seen,
            started,
            is_quiet,
            last_build: Ok(()),
            last_start: Ok(()),
        };
        Ok((functions, rebuilder))
    }

    /// Keeps the functions up to date until the stack stops. Then waits until they have ended.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.work() => {}
        }
        self.functions.end();
        while self.processes.join_next().await.is_some() {}
    }

    async fn work(&mut self) {
        loop {
            let (mut requests, mut ended) = (Vec::new(), Vec::new());
            tokio::select! {
                request = self.updates.requests.recv() => match request {
                    Some(request) => requests.push(request),
                    None => return,
                },
                Some(end) = self.processes.join_next() => ended.push(end),
                () = sleep(PAUSE) => {}
            }
            requests.extend(iter::from_fn(|| self.updates.requests.try_recv().ok()));
            ended.extend(iter::from_fn(|| self.processes.try_join_next()));
            let is_unexpected = |end: &Result<End, JoinError>| matches!(end, Ok(End::Unexpected));
            let is_down = ended.iter().any(is_unexpected) || self.processes.is_empty();
            // This check begins after the requests have arrived, so it notices every file that was saved before them.
            if let Err(other_main) = self.update(is_down).await {
                self.keep_functions(&other_main);
            }
            for request in requests {
                // Fails if nobody waits any more.
                let _ = request.send(self.last_build.and(self.last_start));
            }
        }
    }

    /// Leaves the functions as they are while the binary is that of another project, until it is built here again.
    fn keep_functions(&mut self, other_main: &Path) {
        const REPLACED: Result<(), &str> = Err("another project has replaced the binary");
        self.updates.build_began.send_replace(None);
        if self.last_build != REPLACED {
            eprintln!(
                "daybook: the build of another project, with {}, has replaced {}; the functions stay as they are: run \
                 `cargo build` here, and give each project a target folder of its own",
                other_main.display(),
                self.restarts.binary.display()
            );
            self.last_build = REPLACED;
        }
        // When it is this project's again, it is built.
        self.seen.clear();
    }

    /// Starts the functions if they are down, builds the sources if they have changed, and uses the result. The error is the file
    /// with the `main` of another project, from which the binary is built now.
    async fn update(&mut self, is_down: bool) -> Result<(), PathBuf> {
        let mut now = files(&self.restarts).await?;
        if is_down {
            sleep(PAUSE).await;
            self.start_version().await;
        }
        while now != self.seen {
            now = self.once_unchanged(now).await?;
            let is_quiet = mem::take(&mut self.is_quiet);
            if !is_quiet {
                eprintln!("daybook: building after a change of {}", changed_file(&self.seen, &now).display());
            }
            self.updates.build_began.send_replace(Some(Instant::now()));
            let built = self.restarts.build.run(is_quiet).await;
            self.seen = now;
            now = files(&self.restarts).await?;
            self.last_build = Err("the build failed");
            match built {
                Ok(status) if status.success() => {
                    self.last_build = Ok(());
                    // The build may have found more sources, and may have read those that have changed since before or after
                    // their change.
                    let is_current = self.seen.iter().all(|(file, state)| now.get(file) == Some(state));
                    if is_current {
                        self.seen.clone_from(&now);
                    }
                    // Another cargo may have built it.
                    if file_state(&self.restarts.binary) != self.started {
                        self.start_version().await;
                    }
                }
                Ok(status) => eprintln!("daybook: the build failed ({status}); the previous version keeps running"),
                Err(error) => eprintln!("daybook: cannot build ({error}); the previous version keeps running"),
            }
        }
        self.updates.build_began.send_replace(None);
        Ok(())
    }

    async fn once_unchanged(&self, mut last: SourceFiles) -> Result<SourceFiles, PathBuf> {
        loop {
            sleep(UNCHANGED_FOR).await;
            let now = files(&self.restarts).await?;
            if now == last {
                return Ok(now);
            }
            last = now;
        }
    }

    /// Starts the binary as it is now, and uses it when it is ready.
    async fn start_version(&mut self) {
        self.started = file_state(&self.restarts.binary);
        match process::start(&self.restarts, &self.settings).await {
            Ok((version, process)) => {
                self.processes.spawn(process.run());
                self.last_start = Ok(());
                let usage = self.functions.replace(version, &self.settings.clock).await;
                self.meter.add(usage);
                eprintln!("daybook: the functions run in a new process");
            }
            Err(error) => {
                self.last_start = Err("the functions do not start");
                let error = daybook_function_runtime::with_causes(&error);
                eprintln!("daybook: {error}; the functions stay as they are");
            }
        }
    }
}

/// The state of the sources, as [`sources::SourceList::files`] returns it. Reading it does not delay other tasks.
async fn files(restarts: &Restarts) -> Result<SourceFiles, PathBuf> {
    let sources = restarts.sources.clone();
    spawn_blocking(move || sources.files()).await.unwrap_or_else(|_| Ok(SourceFiles::new()))
}

/// A file that differs between two states of the sources. It is relative to the current folder if it is in it.
fn changed_file<'a>(before: &'a SourceFiles, after: &'a SourceFiles) -> &'a Path {
    let new = after.iter().find(|(file, state)| before.get(*file) != Some(state)).map(|(file, _)| file);
    let file = new.or_else(|| before.keys().find(|file| !after.contains_key(*file)));
    let file = file.map_or(Path::new(""), PathBuf::as_path);
    let here = env::current_dir().unwrap_or_default();
    file.strip_prefix(here).unwrap_or(file)
}
