//! Reaching a database that comes and goes.

use std::time::Duration;

use hooklane_store::{Config, Store, Writes};
use hooklane_testkit::proxy::{Cut, Proxy};
use hooklane_testkit::wait::until;
use url::Url;

use crate::ledger::Ledger;

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_while_it_is_made_is_made_again() {
    let ledger = Ledger::new().await;
    let mut url = Url::parse(ledger.database.url()).unwrap();
    let target = url.socket_addrs(|| None).unwrap()[0];
    let proxy = Proxy::start("127.0.0.1:0".parse().unwrap(), target)
        .await
        .unwrap();
    url.set_port(Some(proxy.address().port())).unwrap();
    url.set_host(Some("127.0.0.1")).unwrap();

    for how in [Cut::Reset, Cut::Finish] {
        let before = proxy.accepted();
        proxy.stall();
        let config = Config::new(url.as_str());
        let connecting = tokio::spawn(async move { Store::connect(&config).await });
        let accepted = || async { proxy.accepted() > before };
        until("a connection", Duration::from_secs(20), accepted)
            .await
            .unwrap();
        proxy.cut(how);
        proxy.resume();
        let store = connecting.await.unwrap().unwrap();
        assert_eq!(store.ping().await.unwrap(), Writes::Taken);
        store.close().await;
    }
}
