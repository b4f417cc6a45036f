use std::fmt;

use p256::ecdsa::signature::hazmat::PrehashSigner;
use secp256k1::{Message, SecretKey, ecdsa};
use sha2::{Digest, Sha256};

use super::{Curve, PublicKey};

/// A private key for the repos of a simulated network. Signatures are deterministic (RFC 6979) and low-S.
///
/// Not for real accounts: nothing is done against side channels nor to wipe memory.
#[derive(Clone)]
pub struct SigningKey {
    secret: Secret,
    public: PublicKey,
}

#[derive(Clone)]
enum Secret {
    K256(SecretKey),
    P256(p256::ecdsa::SigningKey),
}

impl SigningKey {
    /// The key of a curve that a seed names. Every seed names one.
    pub fn from_seed(curve: Curve, seed: &[u8; 32]) -> Self {
        let mut secret = *seed;
        loop {
            secret = Sha256::digest(secret).into();
            // Four in 2^32 hashes are no P-256 scalar, fewer for the other curve.
            if let Some(key) = Self::from_secret(curve, &secret) {
                return key;
            }
        }
    }

    /// The key with this private scalar, big-endian; `None` when it is zero or not below the order of the group.
    pub fn from_secret(curve: Curve, scalar: &[u8; 32]) -> Option<Self> {
        let (secret, point) = match curve {
            Curve::K256 => {
                let secret = SecretKey::from_secret_bytes(*scalar).ok()?;
                (Secret::K256(secret), secp256k1::PublicKey::from_secret_key(&secret).serialize())
            }
            Curve::P256 => {
                let secret = p256::ecdsa::SigningKey::from_slice(scalar).ok()?;
                let point = secret.verifying_key().to_encoded_point(true);
                let compressed = point.as_bytes().try_into().ok()?;
                (Secret::P256(secret), compressed)
            }
        };
        let public = PublicKey::from_sec1(curve, &point).ok()?;
        Some(Self { secret, public })
    }

    /// The public half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a message, which is hashed here with SHA-256: `r` and `s`, 32 bytes each, low-S.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let digest: [u8; 32] = Sha256::digest(message).into();
        match &self.secret {
            Secret::K256(secret) => ecdsa::sign(Message::from_digest(digest), secret).serialize_compact(),
            Secret::P256(secret) => {
                let signature: p256::ecdsa::Signature = secret.sign_prehash(&digest).expect("a digest of 32 bytes is long enough");
                signature.normalize_s().unwrap_or(signature).to_bytes().into()
            }
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public)
    }
}
