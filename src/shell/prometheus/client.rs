//! One server, asked over HTTP.
//!
//! Invariants: a request ends within its time limit, and of an answer no more than [`ANSWER_LIMIT`] is read, whatever the
//! server does. Secrets are read from their files for every request and certificates whenever they have changed, so that a
//! rotation needs no restart; neither ever stands in an error or a log line.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prometheus_http_query::Client;
use reqwest::header::{AUTHORIZATION, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Identity, RequestBuilder, Response, StatusCode};
use tokio::sync::Mutex;

use super::answer::{self, Answer, AnswerError};
use super::grid::{self, Grid, Limit};
use crate::config::{Prometheus, PrometheusAuth, PrometheusTls};
use crate::shell::connect::{AGENT, causes};

/// The most of an answer that is read: a question that gives more is asked again in parts.
const ANSWER_LIMIT: usize = 64 << 20;

/// The points of a series that Prometheus gives in one answer.
const MOST_POINTS: usize = 11_000;

/// A server that refuses this few points refuses for another reason.
const FEWEST_POINTS: usize = 10;

/// The most of a refusal that is passed on to people.
const TEXT_LIMIT: usize = 300;

/// The longest a file with a secret or certificates may be.
const FILE_LIMIT: u64 = 1 << 20;

/// Connecting takes milliseconds where it works at all.
const CONNECT: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// `prometheus.url` is empty.
    #[error("prometheus.url is not set")]
    NoServer,
    /// A file that the configuration names.
    #[error("{field}: cannot use {path}: {problem}")]
    File {
        /// The field of the configuration.
        field: &'static str,
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// No connection, or one that broke.
    #[error("cannot reach {url}: {problem}")]
    Unreachable {
        /// The server.
        url: String,
        /// What went wrong.
        problem: String,
    },
    /// No answer in time.
    #[error("{url} gives no answer within {limit:?} (prometheus.requestTimeout)")]
    Late {
        /// The server.
        url: String,
        /// The time it had.
        limit: Duration,
    },
    /// The server does not know us.
    #[error(
        "{url} refuses our credentials ({status}); check prometheus.bearerTokenFile and prometheus.basicAuth"
    )]
    Unauthorized {
        /// The server.
        url: String,
        /// Its status.
        status: u16,
    },
    /// The server answers with an error, or something else does in its place.
    #[error("{url} answers {status}: {problem}")]
    Failed {
        /// The server.
        url: String,
        /// Its status.
        status: u16,
        /// What it says.
        problem: String,
    },
    /// The answer is larger than [`ANSWER_LIMIT`].
    #[error("the answer is larger than 64 MiB")]
    TooLarge,
}

impl QueryError {
    /// Whether a shorter question may be answered.
    fn limit(&self) -> Option<Limit> {
        match self {
            QueryError::TooLarge => Some(Limit::Fewer),
            QueryError::Failed { problem, .. } => grid::limit(problem),
            _ => self.is_late().then_some(Limit::Fewer),
        }
    }

    /// Whether it took all the time that there was. The next question is a shorter one, but not at once.
    fn is_late(&self) -> bool {
        matches!(self, QueryError::Late { .. })
    }
}

/// A connection to the configured server.
pub struct Server {
    url: String,
    timeout: Duration,
    tls: PrometheusTls,
    auth: PrometheusAuth,
    /// With the certificates that it was made of.
    client: Mutex<Option<(Certificates, Client)>>,
    /// Points that the server takes in one query, as far as it has been found out.
    ceiling: AtomicUsize,
    /// Points that it is asked for now: fewer while it is slow.
    points: AtomicUsize,
}

/// What the certificate files hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Certificates {
    authorities: Option<Vec<u8>>,
    /// Certificate and key in one text.
    identity: Option<Vec<u8>>,
}

impl Server {
    /// The server of the configuration. Nothing is sent yet.
    pub fn new(config: &Prometheus) -> Result<Server, QueryError> {
        Ok(Server {
            url: config.url.clone().ok_or(QueryError::NoServer)?,
            timeout: config.request_timeout,
            tls: config.tls.clone(),
            auth: config.auth.clone(),
            client: Mutex::new(None),
            ceiling: AtomicUsize::new(MOST_POINTS),
            points: AtomicUsize::new(MOST_POINTS),
        })
    }

    /// Evaluates a query at the first times of the grid, as many as the server takes at once. The answer, the times it is for,
    /// and those that are left.
    pub async fn query_some(
        &self,
        query: &str,
        grid: Grid,
    ) -> Result<(Grid, Answer, Option<Grid>), QueryError> {
        loop {
            let points = self.points.load(Ordering::Relaxed);
            let (part, rest) = grid.split(points);
            let error = match self.query(query, part).await {
                Ok(answer) => {
                    let more = (points * 2).min(self.ceiling.load(Ordering::Relaxed));
                    self.points.store(more, Ordering::Relaxed);
                    return Ok((part, answer, rest));
                }
                Err(error) => error,
            };
            let allowed = match error.limit() {
                Some(Limit::Points(named)) if named < part.points() => named,
                Some(_) => part.points() / 2,
                None => return Err(error),
            };
            if allowed < FEWEST_POINTS {
                return Err(error);
            }
            self.points.store(allowed, Ordering::Relaxed);
            if error.is_late() {
                return Err(error);
            }
            self.ceiling.store(allowed, Ordering::Relaxed);
        }
    }

    /// Evaluates a query at every time of the grid.
    async fn query(&self, query: &str, grid: Grid) -> Result<Answer, QueryError> {
        let client = self.client().await?;
        let mut request = client.query_range(query, grid.start, grid.end, f64::from(grid.step));
        // The server gives up when we have.
        request = request.timeout(i64::try_from(self.timeout.as_millis()).unwrap_or(i64::MAX));
        if let Some(authorization) = self.authorization(&client).await? {
            request = request.header(AUTHORIZATION, authorization);
        }
        // By POST, since a query may be longer than a URL.
        let answered = async {
            let response = request.post_raw().await.map_err(|error| self.unreachable(&causes(&error)))?;
            self.read(response).await
        };
        match tokio::time::timeout(self.timeout, answered).await {
            Ok(answer) => answer,
            Err(_) => Err(QueryError::Late { url: self.url.clone(), limit: self.timeout }),
        }
    }

    async fn read(&self, mut response: Response) -> Result<Answer, QueryError> {
        let status = response.status();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(QueryError::Unauthorized { url: self.url.clone(), status: status.as_u16() });
        }
        if status.is_redirection() {
            let target = response.headers().get(LOCATION).and_then(|target| target.to_str().ok());
            let problem =
                format!("a redirection to {}; write that into prometheus.url", target.unwrap_or("nowhere"));
            return Err(self.failed(status, &problem));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(&causes(&error)))? {
            if body.len() + chunk.len() > ANSWER_LIMIT {
                return Err(QueryError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        let answer = answer::read(&body);
        match answer {
            Ok(answer) if status.is_success() => Ok(answer),
            Ok(_) => Err(self.failed(status, "a success beside a status of failure")),
            // What a proxy says is in its status and its text.
            Err(AnswerError::Foreign(_)) if !status.is_success() => {
                Err(self.failed(status, &String::from_utf8_lossy(&body)))
            }
            Err(error) => Err(self.failed(status, &error.to_string())),
        }
    }

    /// The client, made anew when a certificate has changed.
    async fn client(&self) -> Result<Client, QueryError> {
        let certificates = self.certificates().await?;
        let mut current = self.client.lock().await;
        if let Some((made_of, client)) = &*current
            && *made_of == certificates
        {
            return Ok(client.clone());
        }
        let client = self.connect(&certificates)?;
        *current = Some((certificates, client.clone()));
        Ok(client)
    }

    fn connect(&self, certificates: &Certificates) -> Result<Client, QueryError> {
        // Without proxies and redirections: a secret goes to the configured address and nowhere else.
        let mut builder = reqwest::Client::builder()
            .user_agent(AGENT)
            .connect_timeout(CONNECT)
            .redirect(Policy::none())
            .no_proxy();
        if let Some(pem) = &certificates.authorities {
            let path = self.tls.ca_file.as_deref().unwrap_or_default();
            let file = |problem: String| file_error("prometheus.tls.caFile", path, problem);
            let authorities = Certificate::from_pem_bundle(pem).map_err(|error| file(causes(&error)))?;
            if authorities.is_empty() {
                return Err(file("it holds no certificate in PEM form".to_owned()));
            }
            builder = builder.tls_certs_only(authorities);
        }
        if let Some(pem) = &certificates.identity {
            let path = self.tls.client.as_ref().map(|client| client.cert_file.as_str()).unwrap_or_default();
            let identity = Identity::from_pem(pem)
                .map_err(|error| file_error("prometheus.tls.certFile", path, causes(&error)))?;
            builder = builder.identity(identity);
        }
        provide_cryptography();
        let client = builder.build().map_err(|error| self.unreachable(&causes(&error)))?;
        Client::from(client, &self.url).map_err(|error| self.unreachable(&causes(&error)))
    }

    async fn certificates(&self) -> Result<Certificates, QueryError> {
        let mut certificates = Certificates::default();
        if let Some(path) = &self.tls.ca_file {
            certificates.authorities = Some(read_file("prometheus.tls.caFile", path).await?);
        }
        if let Some(client) = &self.tls.client {
            let mut pem = read_file("prometheus.tls.certFile", &client.cert_file).await?;
            pem.push(b'\n');
            pem.extend(read_file("prometheus.tls.keyFile", &client.key_file).await?);
            certificates.identity = Some(pem);
        }
        Ok(certificates)
    }

    async fn authorization(&self, client: &Client) -> Result<Option<HeaderValue>, QueryError> {
        let request = client.inner().get(client.base_url().clone());
        let (field, path, value) = match &self.auth {
            PrometheusAuth::None => return Ok(None),
            PrometheusAuth::Bearer { token_file } => {
                let field = "prometheus.bearerTokenFile";
                (field, token_file, header(request.bearer_auth(secret(field, token_file).await?.trim())))
            }
            PrometheusAuth::Basic { username, password_file } => {
                let field = "prometheus.basicAuth.passwordFile";
                let password = secret(field, password_file).await?;
                let password = password.trim_end_matches(['\r', '\n']);
                (field, password_file, header(request.basic_auth(username, Some(password))))
            }
        };
        let unusable = || file_error(field, path, "its text cannot stand in a header".to_owned());
        value.map(Some).ok_or_else(unusable)
    }

    fn unreachable(&self, problem: &str) -> QueryError {
        QueryError::Unreachable { url: self.url.clone(), problem: shortened(problem) }
    }

    fn failed(&self, status: StatusCode, problem: &str) -> QueryError {
        QueryError::Failed { url: self.url.clone(), status: status.as_u16(), problem: shortened(problem) }
    }
}

/// ring is the one TLS provider of the binary; reqwest asks for it by the process' default.
fn provide_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails only if somebody else was faster, with the only provider there is.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// The header that reqwest makes of the credentials, marked as secret; `None` for text that no header can hold.
fn header(request: RequestBuilder) -> Option<HeaderValue> {
    request.build().ok()?.headers_mut().remove(AUTHORIZATION)
}

async fn secret(field: &'static str, path: &str) -> Result<String, QueryError> {
    let bytes = read_file(field, path).await?;
    let text =
        String::from_utf8(bytes).map_err(|_| file_error(field, path, "it is not UTF-8 text".to_owned()))?;
    if text.trim().is_empty() {
        return Err(file_error(field, path, "it is empty".to_owned()));
    }
    Ok(text)
}

async fn read_file(field: &'static str, path: &str) -> Result<Vec<u8>, QueryError> {
    let refused = |problem: String| file_error(field, path, problem);
    let size = tokio::fs::metadata(path).await.map_err(|error| refused(error.to_string()))?.len();
    if size > FILE_LIMIT {
        return Err(refused("it is larger than 1 MiB".to_owned()));
    }
    tokio::fs::read(path).await.map_err(|error| refused(error.to_string()))
}

fn file_error(field: &'static str, path: &str, problem: String) -> QueryError {
    QueryError::File { field, path: path.to_owned(), problem }
}

/// One line of bounded length.
fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(TEXT_LIMIT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests;
