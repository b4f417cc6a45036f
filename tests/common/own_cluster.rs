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

    pub(crate) fn folder(&self) -> std::path::PathBuf {
        self.folder.path().join("pg")
    }

    pub(crate) fn run(verb: &str, folder: &std::path::Path) -> String {
        let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/postgres/cluster");
        let output = Command::new(script).arg(verb).arg(folder).output().unwrap();
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for OwnCluster {
    fn drop(&mut self) {
        Self::run("stop", &self.folder());
    }
}
