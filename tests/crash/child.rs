//! The process that is stopped: this program again, told by its environment what to do.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use diesel::connection::{Instrumentation, InstrumentationEvent, set_default_instrumentation};
use serde_json::{Value, json};

use crate::ground;
use crate::life::{self, Setup};
use crate::trap::{Stop, Trap};

/// What to do, as JSON.
const ORDER: &str = "BACKFILL_CRASH_ORDER";
static TRAP: std::sync::OnceLock<Trap> = std::sync::OnceLock::new();

/// Where a process is to stop, and the file in which it says so.
#[derive(Debug, Clone)]
pub(crate) struct Place<'a> {
    pub(crate) name: &'a str,
    pub(crate) times: u64,
    pub(crate) file: PathBuf,
}

/// Starts a process. It ends at the place, or in order once its stdin is closed. Without a setup it only opens the database.
pub(crate) fn start(db: &str, place: &Place<'_>, setup: Option<&Setup>, log: &Path) -> Child {
    let order = json!({"db": db, "place": place.name, "times": place.times, "file": place.file, "setup": setup.map(Setup::to_json)});
    let log = std::fs::File::options().append(true).create(true).open(log).expect("a log");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env(ORDER, order.to_string()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
    command.spawn().expect("it starts")
}

/// Does what the environment says. `false`: it says nothing.
pub(crate) fn obey() -> bool {
    let Ok(order) = std::env::var(ORDER) else { return false };
    let order: Value = serde_json::from_str(&order).expect("an order");
    let text = |name: &str| order[name].as_str().expect("text");
    let trap = Trap::new(text("place"), order["times"].as_u64().expect("a number"), Stop::Process(text("file").into()));
    TRAP.set(trap.clone()).expect("the first");
    set_default_instrumentation(|| Some(Box::new(Watch))).expect("nobody has panicked");
    let store = ground::open(text("db")).expect("the database opens");
    if !order["setup"].is_null() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        runtime.block_on(life::live(Setup::from_json(&order["setup"]), store, trap, told()));
    }
    true
}

/// Waits until stdin is closed.
async fn told() {
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.expect("a thread").expect("stdin");
}

/// Watches the statements of every connection.
struct Watch;

impl Instrumentation for Watch {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        let Some(trap) = TRAP.get() else { return };
        let writes = std::thread::current().name() == Some("store-writer");
        match event {
            InstrumentationEvent::CommitTransaction { .. } if writes => trap.reach_now("before:commit"),
            InstrumentationEvent::FinishQuery { query, .. } if writes && query.to_string().starts_with("COMMIT") => {
                trap.reach_now("after:commit")
            }
            // The database is opened by the thread that began it all.
            InstrumentationEvent::FinishQuery { .. } if !writes => trap.reach_now("opening"),
            _ => {}
        }
    }
}
