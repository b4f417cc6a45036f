//! A PostgreSQL cluster that only one test uses, and may ill-treat.

use std::process::Command;

/// A cluster that only one test uses, and may ill-treat.
pub(crate) struct OwnCluster {
    folder: tempfile::TempDir,
    pub(crate) url: String,
}

impl OwnCluster {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The server may run as another user, who comes through this folder to its own.
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
        let url = Self::run("start", &folder.path().join("pg"));
        Self { folder, url }
    }

    /// Has it answer by TLS, on a port of the loopback. Returns its URL there, which names the certificate that it is to have.
    #[allow(dead_code, reason = "not every test that ill-treats one talks to it by TLS")]
    pub(crate) fn over_tls(&self) -> String {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self::run_with("tls", &self.folder(), &[port.to_string()])
    }

    pub(crate) fn folder(&self) -> std::path::PathBuf {
        self.folder.path().join("pg")
    }

    pub(crate) fn run(verb: &str, folder: &std::path::Path) -> String {
        Self::run_with(verb, folder, &[])
    }

    fn run_with(verb: &str, folder: &std::path::Path, more: &[String]) -> String {
        let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/postgres/cluster");
        let output = Command::new(script).arg(verb).arg(folder).args(more).output().unwrap();
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for OwnCluster {
    fn drop(&mut self) {
        Self::run("stop", &self.folder());
    }
}
