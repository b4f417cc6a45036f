//! What every store must do, by verb, over all of them: a test here is written once and runs over each.

#[cfg(feature = "postgres")]
#[path = "../common/postgres.rs"]
mod postgres;

mod account;
mod advance;
mod append;
mod audit;
mod claim;
mod enqueue;
mod intents;
mod manifest;
mod races;
mod settle;
mod totals;
mod world;

/// Makes one test for each store of each listed function, which takes a [`world::World`].
macro_rules! conformance {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::world::World::memory().await).await;
            })+
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                if let Some(world) = $crate::world::World::postgres(concat!(module_path!(), "::", stringify!($name))).await {
                    super::$name(world).await;
                }
            })+
        }
        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::world::World::sqlite().await).await;
            })+
        }
    };
}
pub(crate) use conformance;
