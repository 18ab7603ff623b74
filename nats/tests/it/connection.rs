//! Connecting, requests, and what is said when it fails.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use hooklane_nats::{Client, Config, Error, Outgoing};
use hooklane_testkit::nats::Server;
use hooklane_testkit::wait;

use crate::broker::{SOON, config, outgoing};

#[tokio::test]
async fn an_unreachable_server_is_named_with_the_fix_and_without_credentials() {
    let config = Config {
        url: "nats://ann:canary@127.0.0.1:1".into(),
        connect_timeout: Duration::from_millis(300),
        ..Config::default()
    };
    let error = Client::connect(&config).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("nats://127.0.0.1:1") && text.contains("nats-server -js"),
        "{text}"
    );
    assert!(!text.contains("canary") && !text.contains("ann"), "{text}");
}

#[tokio::test]
async fn a_wrong_password_ends_the_attempts_at_once() -> Result<()> {
    let options = hooklane_local::NatsOptions {
        extra_config: "authorization { user: ann, password: right }".to_owned(),
        ..hooklane_local::NatsOptions::default()
    };
    let server = Server::start_with(options).await?;
    let with = |user: &str| Config {
        url: server
            .url()
            .replace("nats://", &format!("nats://{user}@"))
            .into(),
        ..config(&server)
    };
    let error = Client::connect(&with("ann:canary")).await.unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("canary"));
    Client::connect(&with("ann:right")).await?;
    Ok(())
}

#[tokio::test]
async fn connecting_waits_for_a_server_that_starts_later() -> Result<()> {
    let server = Server::start().await?;
    let config = config(&server);
    server.stop().await?;
    let connecting = tokio::spawn(async move { Client::connect(&config).await });
    server.restart().await?;
    assert!(connecting.await??.is_connected());
    Ok(())
}

#[tokio::test]
async fn a_request_is_answered_or_fails_with_its_reason() -> Result<()> {
    let server = Server::start().await?;
    let (asking, serving) = (
        Client::connect(&config(&server)).await?,
        Client::connect(&config(&server)).await?,
    );
    let nobody = asking.request("room.1".into(), Bytes::new(), SOON).await;
    assert!(
        matches!(nobody, Err(Error::NoResponders { .. })),
        "{nobody:?}"
    );

    let mut requests = serving.serve("room.*".into()).await?;
    let short = Duration::from_millis(50);
    let silent = asking.request("room.1".into(), Bytes::new(), short).await;
    assert!(matches!(silent, Err(Error::TimedOut { .. })), "{silent:?}");
    drop(requests.next().await);

    tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            let answer = Bytes::from(format!("{} got {:?}", request.subject, request.payload));
            request.reply(answer).await.unwrap();
        }
    });
    let answer = asking
        .request("room.7".into(), Bytes::from_static(b"x"), SOON)
        .await?;
    assert_eq!(answer, "room.7 got b\"x\"");

    let too_large = Outgoing {
        payload: vec![0; asking.max_payload() + 1].into(),
        ..outgoing("room.7", 1)
    };
    let refused = asking.request_with_headers(too_large, SOON).await;
    assert!(
        matches!(refused, Err(Error::TooLarge { .. })),
        "{refused:?}"
    );
    let mut requests = serving.serve("told".into()).await?;
    let telling = asking.request_with_headers(outgoing("told", 7), SOON);
    let serving = async {
        let request = requests.next().await.unwrap();
        let told = request.header("Nats-Msg-Id").map(str::to_owned);
        request.reply(told.unwrap().into()).await
    };
    let (told, replied) = tokio::join!(telling, serving);
    replied?;
    assert_eq!(told?, "id-7");
    Ok(())
}

#[tokio::test]
async fn requests_work_again_after_the_server_was_killed() -> Result<()> {
    let server = Server::start().await?;
    let client = Client::connect(&config(&server)).await?;
    let mut requests = client.serve("echo".into()).await?;
    tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            let payload = request.payload.clone();
            let _ = request.reply(payload).await;
        }
    });
    client.request("echo".into(), Bytes::new(), SOON).await?;
    server.kill9().await?;
    wait::until("the loss to be seen", SOON, || async {
        !client.is_connected()
    })
    .await?;
    server.restart().await?;
    wait::until("an answer", SOON, || async {
        let short = Duration::from_secs(1);
        client
            .request("echo".into(), Bytes::new(), short)
            .await
            .is_ok()
    })
    .await
}

#[tokio::test]
async fn tls_is_checked_against_the_configured_roots() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    let options = hooklane_local::NatsOptions {
        extra_config: format!(
            "tls {{ cert_file: {:?}, key_file: {:?} }}",
            cert.display().to_string(),
            key.display().to_string()
        ),
        ..hooklane_local::NatsOptions::default()
    };
    let server = Server::start_with(options).await?;
    let trusting = Config {
        url: server.url().replace("nats://", "tls://").into(),
        root_certificates: Some(cert),
        ..config(&server)
    };
    let client = Client::connect(&trusting).await?;
    client.flush().await?;
    let doubting = Config {
        root_certificates: None,
        connect_timeout: Duration::from_millis(300),
        ..trusting
    };
    let error = Client::connect(&doubting).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    Ok(())
}
