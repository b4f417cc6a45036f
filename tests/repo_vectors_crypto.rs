//! Signatures and keys against the interop vectors.
#![cfg(feature = "sim")]

use atproto_backfill::repo::{Curve, KeyError, PublicKey, SignatureError, SigningKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::Value;

fn cases(file: &str, count: usize) -> Vec<Value> {
    let path = format!("{}/fixtures/interop/crypto/{file}", env!("CARGO_MANIFEST_DIR"));
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(cases.len(), count, "{file} has lost or gained cases");
    cases
}

#[test]
fn signature_vectors_are_accepted_and_refused_for_the_stated_reason() {
    for case in cases("signature-fixtures.json", 6) {
        let text = |field: &str| case[field].as_str().unwrap();
        let bytes = |field: &str| STANDARD_NO_PAD.decode(text(field)).unwrap();
        let key = PublicKey::from_did_key(text("publicKeyDid")).unwrap();
        let legacy = PublicKey::from_verification_method(text("didDocSuite"), text("publicKeyMultibase")).unwrap();
        assert_eq!(key, legacy, "{}", text("comment"));
        assert_eq!(key.to_did_key(), text("publicKeyDid"));
        let curve = if text("algorithm") == "ES256" { Curve::P256 } else { Curve::K256 };
        assert_eq!(key.curve(), curve);
        let (message, signature) = (bytes("messageBase64"), bytes("signatureBase64"));
        let expected = match case["tags"].as_array().unwrap().first().map(|tag| tag.as_str().unwrap()) {
            None => Ok(()),
            Some("high-s") => Err(SignatureError::HighS),
            Some("der-encoded") => Err(SignatureError::Length(signature.len())),
            Some(other) => panic!("a tag this test does not know: {other}"),
        };
        assert_eq!(expected.is_ok(), case["validSignature"].as_bool().unwrap());
        for key in [&key, &legacy] {
            assert_eq!(key.verify(&message, &signature), expected, "{}", text("comment"));
        }
    }
}

#[test]
fn private_key_vectors_have_the_stated_public_keys() {
    let check = |curve, secret: Vec<u8>, did: &Value| {
        let key = SigningKey::from_secret(curve, &secret.try_into().unwrap()).unwrap();
        assert_eq!(key.public().to_did_key(), did.as_str().unwrap());
        let signature = key.sign(b"message");
        assert_eq!(key.public().verify(b"message", &signature), Ok(()));
        assert_eq!(key.public().verify(b"massage", &signature), Err(SignatureError::Mismatch));
    };
    for case in cases("w3c_didkey_K256.json", 5) {
        let hex = case["privateKeyBytesHex"].as_str().unwrap();
        let secret = (0..32).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
        check(Curve::K256, secret, &case["publicDidKey"]);
    }
    for case in cases("w3c_didkey_P256.json", 1) {
        let secret = bs58::decode(case["privateKeyBytesBase58"].as_str().unwrap()).into_vec().unwrap();
        check(Curve::P256, secret, &case["publicDidKey"]);
    }
}

#[test]
fn every_seed_makes_deterministic_low_s_signatures_that_only_their_key_accepts() {
    for curve in [Curve::K256, Curve::P256] {
        for seed in 0..64u8 {
            let key = SigningKey::from_seed(curve, &[seed; 32]);
            let other = SigningKey::from_seed(curve, &[seed + 1; 32]);
            let message = [seed; 100];
            let signature = key.sign(&message);
            assert_eq!(signature, SigningKey::from_seed(curve, &[seed; 32]).sign(&message));
            assert_eq!(key.public().verify(&message, &signature), Ok(()));
            assert_eq!(other.public().verify(&message, &signature), Err(SignatureError::Mismatch));
            // Every bit counts, whatever the padding of the integers is.
            let mut flipped = signature;
            flipped[usize::from(seed)] ^= 1;
            assert!(key.public().verify(&message, &flipped).is_err());
            assert_eq!(PublicKey::from_multikey(&key.public().to_multikey()).as_ref(), Ok(key.public()));
        }
        let key = SigningKey::from_seed(curve, &[9; 32]);
        for degenerate in [[0; 64], [0x7f; 64], [0xff; 64]] {
            assert!(key.public().verify(b"", &degenerate).is_err());
        }
    }
}

#[test]
fn text_that_is_no_key_is_refused() {
    use KeyError::*;
    let uncompressed = |byte: u8| format!("z{}", bs58::encode([&[4][..], &[byte; 64]].concat()).into_string());
    let cases = [
        ("Multikey", String::new(), Multibase),
        ("Multikey", "z".into(), Codec),
        ("Multikey", "zQ3sh0".into(), Multibase),
        ("Multikey", "Q3shqwJEJyMBsBXCWyCBpUBMqxcon9oHB7mCvx4sSpMdLJwc".into(), Multibase),
        ("Multikey", format!("z{}", "Q".repeat(100_000)), Multibase),
        ("Multikey", "z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK".into(), Codec),
        ("Multikey", "zQ3shqwJEJyMBsBXCWyCBpUBMqxcon9oHB7mCvx4sSpMdLJ".into(), Codec),
        ("EcdsaSecp256k1VerificationKey2019", "z".into(), Point(Curve::K256)),
        ("EcdsaSecp256k1VerificationKey2019", uncompressed(1), Point(Curve::K256)),
        ("EcdsaSecp256r1VerificationKey2019", uncompressed(1), Point(Curve::P256)),
        ("EcdsaSecp256r1VerificationKey2019", format!("z{}", bs58::encode([0; 33]).into_string()), Point(Curve::P256)),
        ("Ed25519VerificationKey2018", uncompressed(1), MethodType),
    ];
    for (method_type, multibase, expected) in cases {
        let shown = &multibase[..multibase.len().min(60)];
        match PublicKey::from_verification_method(method_type, &multibase) {
            Ok(key) => panic!("{method_type} {shown:?} was read as {key}"),
            Err(error) => assert_eq!(error, expected, "{method_type} {shown:?}"),
        }
    }
}
