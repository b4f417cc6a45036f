//! The tables, as the migrations make them.

diesel::table! {
    consumer (id) {
        id -> BigInt,
        name -> Text,
    }
}

diesel::table! {
    host (id) {
        id -> BigInt,
        name -> Text,
    }
}

diesel::table! {
    repo (id) {
        id -> BigInt,
        did -> Text,
        host -> Nullable<BigInt>,
    }
}

diesel::table! {
    job (id) {
        id -> BigInt,
        consumer -> BigInt,
        repo -> BigInt,
        host -> Nullable<BigInt>,
        state -> Text,
        due_at -> Nullable<BigInt>,
        epoch -> BigInt,
        rev -> Nullable<Text>,
        data -> Nullable<Binary>,
        min_rev -> Nullable<Text>,
        older -> Nullable<Text>,
        failures -> BigInt,
        failure -> Text,
        account -> Nullable<Text>,
        untold -> Nullable<Text>,
        records -> BigInt,
    }
}

diesel::table! {
    upstream (id) {
        id -> BigInt,
        name -> Text,
        seq -> Nullable<BigInt>,
        time -> Nullable<BigInt>,
    }
}

diesel::table! {
    op_set (seq) {
        seq -> BigInt,
        job -> BigInt,
        rev -> Text,
        data -> Nullable<Binary>,
        place -> BigInt,
        bytes -> BigInt,
        body -> Binary,
    }
}

diesel::table! {
    intent (id) {
        id -> BigInt,
        job -> BigInt,
        epoch -> BigInt,
        paths -> Binary,
    }
}

diesel::table! {
    manifest_chunk (id) {
        id -> BigInt,
        job -> BigInt,
        first -> Text,
        entries -> BigInt,
        bytes -> Binary,
    }
}

diesel::table! {
    total (consumer) {
        consumer -> BigInt,
        enqueued -> BigInt,
        in_progress -> BigInt,
        complete -> BigInt,
        failed -> BigInt,
        unavailable -> BigInt,
        records -> BigInt,
        buffered_op_sets -> BigInt,
        buffered_bytes -> BigInt,
        dropped_op_sets -> BigInt,
        untold -> BigInt,
    }
}

diesel::table! {
    audit (consumer) {
        consumer -> BigInt,
        id -> BigInt,
        reason -> Text,
        begun -> BigInt,
        after -> Nullable<BigInt>,
        passed -> BigInt,
    }
}

diesel::allow_tables_to_appear_in_same_query!(job, repo, host, op_set);
