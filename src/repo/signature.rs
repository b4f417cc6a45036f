use std::fmt;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ParsedPublicKey};
use secp256k1::{Message, ecdsa};
use sha2::{Digest, Sha256};

/// The two curves that accounts sign with (atproto.com/specs/cryptography).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Curve {
    /// secp256k1, "k256", ES256K.
    K256,
    /// NIST P-256, "p256", secp256r1, ES256.
    P256,
}

impl Curve {
    /// Half the order of the group, rounded down: the highest `s` of a low-S signature.
    pub(super) const fn half_order(self) -> &'static [u8; 32] {
        match self {
            Self::K256 => {
                b"\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x5d\x57\x6e\x73\x57\xa4\x50\x1d\xdf\xe9\x2f\x46\x68\x1b\x20\xa0"
            }
            Self::P256 => {
                b"\x7f\xff\xff\xff\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff\xde\x73\x7d\x56\xd3\x8b\xcf\x42\x79\xdc\xe5\x61\x7e\x31\x92\xa8"
            }
        }
    }

    /// The multicodec of a compressed public key, as the two bytes of its varint.
    const fn codec(self) -> [u8; 2] {
        match self {
            Self::K256 => [0xe7, 0x01],
            Self::P256 => [0x80, 0x24],
        }
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::K256 => "secp256k1",
            Self::P256 => "P-256",
        })
    }
}

/// Why text is not a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not multibase base58btc: `z`, then base58 of at most 67 bytes.
    #[error("the key is not base58btc multibase text")]
    Multibase,
    /// A multikey of a type that no account may sign with.
    #[error("the key is neither secp256k1 nor P-256")]
    Codec,
    /// A verification method whose type is neither `Multikey` nor one of the two legacy types.
    #[error("the type of the verification method is unknown")]
    MethodType,
    /// The bytes are no point of the curve, or have the wrong length.
    #[error("the key is not a point of {0}")]
    Point(Curve),
}

/// Why a signature does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Not 64 bytes; a DER encoding for example.
    #[error("the signature has {0} bytes instead of 64")]
    Length(usize),
    /// `s` lies in the upper half of the group, so that anybody could have derived it from another signature.
    #[error("the signature is not low-S")]
    HighS,
    /// Well-formed, but not of this message by this key.
    #[error("the signature is not of this key")]
    Mismatch,
}

/// A key that signs an account's commits, parsed once and ready to verify with. Cloning is cheap.
#[derive(Clone)]
pub struct PublicKey {
    compressed: [u8; 33],
    point: Point,
}

/// The point in the form that its library verifies fastest with.
#[derive(Clone)]
enum Point {
    K256(secp256k1::PublicKey),
    P256(ParsedPublicKey),
}

impl PublicKey {
    /// Reads a `publicKeyMultibase` of type `Multikey`: `z` and base58btc of the codec and a compressed point.
    ///
    /// # Errors
    /// When the text is no base58btc, another type of key, or not a point of its curve.
    pub fn from_multikey(multibase: &str) -> Result<Self, KeyError> {
        let mut buffer = [0; MAX_KEY_BYTES];
        let bytes = decode_multibase(multibase, &mut buffer)?;
        let (codec, point) = bytes.split_first_chunk().ok_or(KeyError::Codec)?;
        let curve = [Curve::K256, Curve::P256].into_iter().find(|curve| curve.codec() == *codec).ok_or(KeyError::Codec)?;
        let compressed: &[u8; 33] = point.try_into().map_err(|_| KeyError::Point(curve))?;
        Self::from_sec1(curve, compressed)
    }

    /// Reads a `did:key:z…`.
    ///
    /// # Errors
    /// As [`Self::from_multikey`]; other DIDs are [`KeyError::Multibase`].
    pub fn from_did_key(did: &str) -> Result<Self, KeyError> {
        Self::from_multikey(did.strip_prefix("did:key:").ok_or(KeyError::Multibase)?)
    }

    /// Reads a `publicKeyMultibase` of a legacy type: `z` and base58btc of the point alone, uncompressed (65 bytes) or compressed (33).
    ///
    /// # Errors
    /// When the text is no base58btc or not a point of the curve.
    pub fn from_legacy(curve: Curve, multibase: &str) -> Result<Self, KeyError> {
        let mut buffer = [0; MAX_KEY_BYTES];
        Self::from_sec1(curve, decode_multibase(multibase, &mut buffer)?)
    }

    /// Reads the key of a DID document's verification method, given its `type` and its `publicKeyMultibase`.
    ///
    /// # Errors
    /// When the type is none of `Multikey`, `EcdsaSecp256k1VerificationKey2019` and `EcdsaSecp256r1VerificationKey2019`, and as the type's reader.
    pub fn from_verification_method(method_type: &str, multibase: &str) -> Result<Self, KeyError> {
        match method_type {
            "Multikey" => Self::from_multikey(multibase),
            "EcdsaSecp256k1VerificationKey2019" => Self::from_legacy(Curve::K256, multibase),
            "EcdsaSecp256r1VerificationKey2019" => Self::from_legacy(Curve::P256, multibase),
            _ => Err(KeyError::MethodType),
        }
    }

    /// A key from the SEC 1 bytes of its point.
    pub(super) fn from_sec1(curve: Curve, sec1: &[u8]) -> Result<Self, KeyError> {
        let refuse = KeyError::Point(curve);
        let compressed = match *sec1 {
            [tag @ (2 | 3), ref x @ ..] if x.len() == 32 => compress(tag, x),
            [4, ref xy @ ..] if xy.len() == 64 => compress(2 | (xy[63] & 1), &xy[..32]),
            _ => return Err(refuse),
        };
        let point = match curve {
            Curve::K256 => secp256k1::PublicKey::from_slice(sec1).map(Point::K256).map_err(|_| refuse)?,
            Curve::P256 => ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, sec1).map(Point::P256).map_err(|_| refuse)?,
        };
        Ok(Self { compressed, point })
    }

    /// The curve.
    pub fn curve(&self) -> Curve {
        match self.point {
            Point::K256(_) => Curve::K256,
            Point::P256(_) => Curve::P256,
        }
    }

    /// The key as a `Multikey`'s `publicKeyMultibase`, `z…`.
    pub fn to_multikey(&self) -> String {
        let mut bytes = [0; 35];
        bytes[..2].copy_from_slice(&self.curve().codec());
        bytes[2..].copy_from_slice(&self.compressed);
        format!("z{}", bs58::encode(bytes).into_string())
    }

    /// The key as `did:key:z…`.
    pub fn to_did_key(&self) -> String {
        format!("did:key:{}", self.to_multikey())
    }

    /// Checks the signature of a message, which is hashed here with SHA-256.
    ///
    /// `signature` is `r` and `s`, 32 bytes each, big-endian; low-S on both curves (atproto.com/specs/cryptography, "Signatures").
    ///
    /// # Errors
    /// When the signature is malformed or another's.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
        let signature: &[u8; 64] = signature.try_into().map_err(|_| SignatureError::Length(signature.len()))?;
        if signature[32..] > self.curve().half_order()[..] {
            return Err(SignatureError::HighS);
        }
        match &self.point {
            Point::K256(key) => {
                let digest = Message::from_digest(Sha256::digest(message).into());
                let signature = ecdsa::Signature::from_compact(signature).map_err(|_| SignatureError::Mismatch)?;
                ecdsa::verify(&signature, digest, key).map_err(|_| SignatureError::Mismatch)
            }
            Point::P256(key) => key.verify_sig(message, signature).map_err(|_| SignatureError::Mismatch),
        }
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        (self.curve(), self.compressed) == (other.curve(), other.compressed)
    }
}

impl Eq for PublicKey {}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_did_key())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// A codec and an uncompressed point: more than any key has.
const MAX_KEY_BYTES: usize = 67;

fn decode_multibase<'b>(text: &str, buffer: &'b mut [u8; MAX_KEY_BYTES]) -> Result<&'b [u8], KeyError> {
    let digits = text.strip_prefix('z').ok_or(KeyError::Multibase)?;
    let len = bs58::decode(digits).onto(&mut buffer[..]).map_err(|_| KeyError::Multibase)?;
    buffer.get(..len).ok_or(KeyError::Multibase)
}

fn compress(tag: u8, x: &[u8]) -> [u8; 33] {
    let mut compressed = [tag; 33];
    compressed[1..].copy_from_slice(x);
    compressed
}
