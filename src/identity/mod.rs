//! Who an account is: its signing key and the host that holds its repo.
