//! What a healthy Prometheus does not do; `tests/e2e/forecasts.rs` asks a real one.

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio::net::TcpListener;

use super::*;
use crate::config;

/// A server that answers every range query so.
async fn server<F, A>(answer: F) -> Server
where
    F: Fn(String) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/prefix", listener.local_addr().unwrap());
    let router = Router::new().route("/prefix/api/v1/query_range", post(move |form: String| answer(form)));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let config = config::Prometheus::at(&url).unwrap();
    Server::new(&config::Prometheus { request_timeout: Duration::from_millis(500), ..config }).unwrap()
}

fn grid(points: i64) -> Grid {
    Grid::between(60, 60 * points, 60)
}

const EMPTY: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;

#[tokio::test]
async fn a_question_is_a_form() {
    let server = server(async |form: String| {
        let expected = "query=up&start=60&end=600&step=60&timeout=500ms";
        let body = if form == expected { EMPTY.to_owned() } else { form };
        body.into_response()
    })
    .await;
    let (asked, answer, rest) = server.query_some("up", grid(10)).await.unwrap();
    assert_eq!((asked, answer, rest), (grid(10), Answer::default(), None));
}

/// What the first question at a server comes to.
async fn refused(answer: impl Fn() -> Response + Clone + Send + Sync + 'static) -> String {
    let server = server(move |_| std::future::ready(answer())).await;
    let error = server.query_some("up", grid(10)).await.unwrap_err().to_string();
    error.replace(&server.url, "URL")
}

#[tokio::test]
async fn a_redirection_is_named_and_not_followed() {
    let moved = || (StatusCode::FOUND, [(header::LOCATION, "https://other/")]).into_response();
    let expected = "URL answers 302: a redirection to https://other/; write that into prometheus.url";
    assert_eq!(refused(moved).await, expected);
}

#[tokio::test]
async fn foreign_answers_are_cut_to_a_line() {
    let page = || (StatusCode::BAD_GATEWAY, format!("<html>\n{}", "x".repeat(1_000))).into_response();
    let error = refused(page).await;
    assert!(error.starts_with("URL answers 502: <html> xxx") && error.ends_with('…'), "{error}");
    assert!(error.chars().count() < 350);
}

#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let endless = || {
        axum::body::Body::from_stream(futures::stream::repeat_with(|| {
            Ok::<_, std::io::Error>(axum::body::Bytes::from_static(&[b' '; 1 << 16]))
        }))
    };
    let error = refused(move || endless().into_response()).await;
    assert!(
        error == "the answer is larger than 64 MiB" || error.contains("gives no answer within"),
        "{error}"
    );
}

#[tokio::test]
async fn a_slow_server_is_asked_for_less_the_next_time_and_for_more_afterwards() {
    let slow = server(async |_| std::future::pending().await).await;
    let error = slow.query_some("up", grid(100)).await.unwrap_err();
    assert!(error.is_late(), "{error}");
    assert_eq!(slow.points.load(Ordering::Relaxed), 50);
    let quick = server(async |_| EMPTY.into_response()).await;
    quick.points.store(30, Ordering::Relaxed);
    let (asked, _, rest) = quick.query_some("up", grid(100)).await.unwrap();
    assert_eq!((asked.points(), rest.map(|rest| rest.points())), (30, Some(70)));
    assert_eq!(quick.points.load(Ordering::Relaxed), 60);
}

#[tokio::test]
async fn a_server_that_refuses_any_length_is_not_asked_for_ever() {
    let body = r#"{"status":"error","errorType":"execution","error":"too many samples"}"#;
    let error = refused(move || (StatusCode::UNPROCESSABLE_ENTITY, body).into_response()).await;
    assert_eq!(error, "URL answers 422: execution: too many samples");
}
