//! A second, independent look into the broker.

use anyhow::Result;

use crate::broker::Broker;

impl Broker {
    /// JetStream by async-nats' own means.
    pub(crate) async fn jetstream(&self) -> Result<async_nats::jetstream::Context> {
        let client = async_nats::connect(self.server.url()).await?;
        Ok(async_nats::jetstream::new(client))
    }
}
