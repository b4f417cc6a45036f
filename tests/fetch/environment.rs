//! What the machine has to do with it.
use super::*;

/// Runs one test of this file in a process of its own, which may have an environment of its own.
fn run_with(environment: &[(&str, &str)], test: &str) {
    let program = std::env::current_exe().expect("this program");
    let run = Command::new(program).args(["--exact", test, "--nocapture"]).envs(environment.iter().copied()).output().expect("a run");
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && output.contains("1 passed"), "{output}{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn proxies_of_the_environment_are_not_used() {
    let proxy = "http://127.0.0.1:9";
    run_with(
        &[("HTTP_PROXY", proxy), ("http_proxy", proxy), ("ALL_PROXY", proxy)],
        "answers::a_repo_arrives_whole_and_the_request_says_who_asks",
    );
}

#[test]
fn development_needs_no_ca_certificates() {
    let nowhere = [("SSL_CERT_FILE", "/nonexistent/file"), ("SSL_CERT_DIR", "/nonexistent/directory")];
    run_with(&nowhere, "answers::a_repo_arrives_whole_and_the_request_says_who_asks");
    run_with(&nowhere, "environment::without_ca_certificates_only_development_gets_a_client");
}

#[test]
fn without_ca_certificates_only_development_gets_a_client() {
    let outside = HttpSource::new(HttpOptions { development: false, ..options() }, fast_pace());
    if std::env::var("SSL_CERT_FILE").as_deref() == Ok("/nonexistent/file") {
        let error = outside.expect_err("no https is possible").to_string();
        assert!(error.contains("CA certificates"), "{error}");
    }
    HttpSource::new(options(), fast_pace()).expect("plain http is possible");
}

#[test]
fn a_user_agent_that_is_no_header_is_an_error() {
    let options = HttpOptions { user_agent: "two\nlines".into(), ..options() };
    assert!(HttpSource::new(options, fast_pace()).is_err());
}
