//! Requests to the hub: who is asked, with which token, through which proxy, and what a failure is.
//!
//! Contract: [`Http::get`] makes one request and follows its redirects. The token goes to the endpoint's own scheme, host
//! and port and to nobody else, redirects included; a redirect from https to http is refused. No request has a total
//! time-out, since a slow download that goes on is a good one: what ends is a connection that is not made in time, and one
//! that is silent for too long.
//!
//! `ureq` does the transfer: blocking, so it needs no runtime, and its connections can be shut down from another thread.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ureq::http::{HeaderMap, Response, StatusCode, Uri, header};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body, Proxy};

use crate::HubError;
use crate::error::shorten;
use crate::retry::{Fault, Patience, Refusal};
use crate::settings::HubSettings;
use crate::stop::Stop;

/// More than any hub needs: the hub itself redirects once, to its storage.
const MAX_REDIRECTS: usize = 8;

/// The hub, and how to reach it.
pub(crate) struct Http<'a> {
    /// The id of the model that it is asked for.
    model: &'a str,
    settings: &'a HubSettings,
    stop: &'a Stop,
    patience: &'a Patience,
    /// Base URL, without a slash at its end.
    endpoint: String,
    origin: Origin,
    /// The token and where it is from.
    token: Option<(String, String)>,
    /// One for each proxy in use; they keep connections open between requests.
    agents: Mutex<Vec<(Option<String>, Agent)>>,
}

/// Scheme, host and port.
type Origin = (String, String, u16);

impl<'a> Http<'a> {
    /// # Errors
    /// [`HubError::InvalidSetting`], [`HubError::Io`] of the token's file.
    pub(crate) fn new(
        model: &'a str,
        settings: &'a HubSettings,
        patience: &'a Patience,
        stop: &'a Stop,
    ) -> Result<Self, HubError> {
        let endpoint = settings.endpoint()?;
        let origin = endpoint.parse().ok().as_ref().and_then(origin).expect("checked by the settings");
        let token = settings.token()?;
        Ok(Http { model, settings, stop, patience, endpoint, origin, token, agents: Mutex::default() })
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(crate) fn token(&self) -> Option<&(String, String)> {
        self.token.as_ref()
    }

    /// Asks for a URL, from the byte `from` on. Only answers of success come back: 200, or 206 for a part.
    pub(crate) fn get(&self, url: &str, from: u64) -> Result<Response<Body>, Fault> {
        let mut next: Uri = url.parse().map_err(|_| Fault::Final(not_a_hub(url, "its URL is malformed")))?;
        for _ in 0..=MAX_REDIRECTS {
            let shown = shown(&next);
            let Some(target) = origin(&next) else {
                return Err(HubError::Redirect {
                    url: url.to_owned(),
                    problem: format!("to '{}', which is no URL", shorten(&shown)),
                }
                .into());
            };
            let mut request = self.agent(&target)?.get(next.clone());
            if let Some((token, _)) = self.token.as_ref().filter(|_| target == self.origin) {
                request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
            }
            if from > 0 {
                request = request.header(header::RANGE, format!("bytes={from}-"));
            }
            let response = request.call().map_err(|error| self.failed(error, &shown, &target))?;
            match response.status() {
                StatusCode::OK | StatusCode::PARTIAL_CONTENT => return Ok(response),
                status if status.is_redirection() && status != StatusCode::NOT_MODIFIED => {
                    let to = response
                        .headers()
                        .get(header::LOCATION)
                        .and_then(|value| value.to_str().ok())
                        .unwrap_or_default();
                    let refused =
                        |problem: &str| HubError::Redirect { url: shown.clone(), problem: problem.to_owned() };
                    next = join(&next, to).ok_or_else(|| refused("to nowhere"))?;
                    if target.0 == "https" && next.scheme_str() != Some("https") {
                        return Err(refused("from https to an insecure address, which is not followed").into());
                    }
                }
                _ => return Err(self.refused(response, &shown, target == self.origin)),
            }
        }
        Err(HubError::Redirect { url: url.to_owned(), problem: format!("more than {MAX_REDIRECTS} times") }.into())
    }

    /// What a read of the body of an answer from `source` ran into.
    pub(crate) fn broken(&self, error: std::io::Error, source: &Uri) -> Fault {
        let target = origin(source).unwrap_or_else(|| self.origin.clone());
        // The connection was made, so what is wrong now is what came through it.
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(inner) = inner.filter(|inner| !matches!(inner, rustls::Error::InvalidCertificate(_)))
            && !self.stop.is_stopped()
        {
            let problem = format!("the secure connection broke ({})", shorten(&inner.to_string()));
            return Fault::Passing { url: shown(source), problem };
        }
        self.failed(ureq::Error::from(error), &shown(source), &target)
    }

    /// The agent for a place, with its proxy.
    fn agent(&self, (scheme, host, _): &Origin) -> Result<Agent, HubError> {
        let proxy = self.settings.proxy(scheme, host);
        let key = proxy.map(|(_, url)| url.to_owned());
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, agent)) = agents.iter().find(|(known, _)| *known == key) {
            return Ok(agent.clone());
        }
        let proxy = match proxy {
            // Not echoed: it may hold a password.
            Some((name, url)) => Some(Proxy::new(url).map_err(|_| HubError::InvalidSetting {
                name,
                problem: "is no proxy: give http://host:port, https://host:port or socks5://host:port".to_owned(),
            })?),
            None => None,
        };
        // Ring and not aws-lc, whose C takes longer to compile than all else here; the system's roots and not bundled
        // ones, since a company's own authority is in the system's store.
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::PlatformVerifier)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let Patience { connect, idle, .. } = *self.patience;
        let agent: Agent = Agent::config_builder()
            .tls_config(tls.build())
            .proxy(proxy)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("simile/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .timeout_resolve(Some(connect))
            .timeout_connect(Some(connect))
            .timeout_recv_response(Some(idle))
            .timeout_per_read(Some(idle))
            .timeout_per_write(Some(idle))
            .build()
            .into();
        self.stop.covers(&agent);
        agents.push((key, agent.clone()));
        Ok(agent)
    }

    /// A connection that failed, before or within an answer.
    fn failed(&self, error: ureq::Error, url: &str, target: &Origin) -> Fault {
        use ureq::{Error, Timeout};
        if self.stop.is_stopped() {
            return Fault::Final(HubError::Stopped);
        }
        let (scheme, host, _) = target;
        let proxy = self.settings.proxy(scheme, host).map(|(name, _)| format!(" (through the proxy of {name})"));
        let unreachable = |problem: &str| HubError::Unreachable {
            id: self.model.to_owned(),
            host: host.to_owned(),
            problem: format!("{problem}{}", proxy.as_deref().unwrap_or_default()),
        };
        let passing = |problem: String| Fault::Passing { url: url.to_owned(), problem };
        let seconds = |time: Duration| time.as_secs_f64();
        match error {
            // A name that does not exist, a certificate that is not trusted: the same next time.
            Error::HostNotFound => unreachable("there is no host of that name").into(),
            Error::Tls(_) | Error::Rustls(_) | Error::Pem(_) | Error::TlsRequired => {
                unreachable(&untrusted(&error.to_string())).into()
            }
            Error::Io(ref io) if io.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) => {
                unreachable(&untrusted(&io.to_string())).into()
            }
            Error::ConnectProxyFailed(problem) => {
                Fault::Unreachable(unreachable(&format!("the proxy refused: {}", shorten(&problem))))
            }
            Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
                Fault::Unreachable(unreachable(&format!("no connection within {} s", seconds(self.patience.connect))))
            }
            Error::Timeout(_) => passing(format!("nothing came for {} s", seconds(self.patience.idle))),
            Error::Io(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => {
                passing("the connection was closed too early".to_owned())
            }
            Error::Io(io)
                if matches!(
                    io.kind(),
                    std::io::ErrorKind::ConnectionReset
                        | std::io::ErrorKind::BrokenPipe
                        | std::io::ErrorKind::ConnectionAborted
                ) =>
            {
                passing(format!("the connection was cut ({io})"))
            }
            Error::Io(io) => Fault::Unreachable(unreachable(&io.to_string())),
            other => passing(shorten(&other.to_string())),
        }
    }

    /// An answer that is no success.
    fn refused(&self, mut response: Response<Body>, url: &str, at_hub: bool) -> Fault {
        let status = response.status();
        let url = url.to_owned();
        match status.as_u16() {
            429 => return Fault::Busy { url, wait: text(response.headers(), "retry-after") },
            408 | 500.. => return Fault::Passing { url, problem: format!("it answered HTTP {}", status.as_u16()) },
            _ => {}
        }
        let code = text(response.headers(), "x-error-code");
        let said = text(response.headers(), "x-error-message").or_else(|| {
            // A few words of an answer that is no page: storage says why it refuses.
            response.body_mut().with_config().limit(4096).read_to_string().ok()
        });
        let said = said.as_deref().map(str::trim).filter(|said| !said.is_empty()).map(shorten);
        let token = at_hub && self.token.is_some();
        Fault::Refused(Refusal { status: status.as_u16(), code, said, url, of_hub: at_hub, token })
    }
}

/// Why there is no secure connection, and what that is mostly due to.
fn untrusted(problem: &str) -> String {
    format!(
        "no secure connection ({}). If a proxy of your company looks into connections, its certificate must be in the \
         system's store, or in a file that SSL_CERT_FILE names; a container may lack the package ca-certificates",
        shorten(problem)
    )
}

pub(crate) fn not_a_hub(url: &str, problem: &str) -> HubError {
    HubError::NotAHub { url: url.to_owned(), problem: problem.to_owned() }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

/// A URL without its query, which for storage is a signature.
fn shown(url: &Uri) -> String {
    url.to_string().split('?').next().unwrap_or_default().to_owned()
}

/// Whom a URL asks; `None` for one that nobody can be asked for, such as one with the port 99999.
pub(crate) fn origin(url: &Uri) -> Option<Origin> {
    let scheme = url.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"))?;
    let host = url.host().filter(|host| !host.is_empty())?;
    let after_user = url.authority()?.as_str().rsplit('@').next()?;
    let port = match after_user.strip_prefix(host)? {
        "" | ":" if scheme == "https" => 443,
        "" | ":" => 80,
        // `uri.port_u16` has none for what is no port, as if none were given.
        _ => url.port_u16()?,
    };
    Some((scheme.to_owned(), host.to_ascii_lowercase(), port))
}

/// Where a `Location` of an answer from `base` leads.
fn join(base: &Uri, to: &str) -> Option<Uri> {
    let to = to.split('#').next().unwrap_or_default();
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    let whole = match to {
        "" => return None,
        _ if to.contains("://") && !to.starts_with('/') => to.to_owned(),
        _ if to.starts_with("//") => format!("{scheme}:{to}"),
        _ if to.starts_with('/') => format!("{scheme}://{authority}{to}"),
        _ => {
            let folder = &base.path()[..base.path().rfind('/').map_or(0, |slash| slash + 1)];
            format!("{scheme}://{authority}{folder}{to}")
        }
    };
    whole.parse().ok()
}

/// One segment of a path, as it stands in a URL.
pub(crate) fn segment(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut url, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => url.push(char::from(byte)),
            _ => url.push_str(&format!("%{byte:02X}")),
        }
        url
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_a_url_asks() {
        let cases = [
            ("https://hub.co/a", Some(("https", "hub.co", 443))),
            ("http://HUB.co", Some(("http", "hub.co", 80))),
            ("http://hub.co:8080/a:1", Some(("http", "hub.co", 8080))),
            ("http://hub.co:/a", Some(("http", "hub.co", 80))),
            ("http://u:80@hub.co:81/", Some(("http", "hub.co", 81))),
            ("http://[::1]:8080/", Some(("http", "[::1]", 8080))),
            ("http://[::1]/", Some(("http", "[::1]", 80))),
            ("http://hub.co:99999/", None),
            ("http://hub.co:65536/", None),
            ("http://hub.co:x/", None),
            ("ftp://hub.co/", None),
            ("/a", None),
        ];
        for (url, want) in cases {
            let got = url.parse().ok().as_ref().and_then(origin);
            let want = want.map(|(scheme, host, port)| (scheme.to_owned(), host.to_owned(), port));
            assert_eq!(got, want, "{url}");
        }
    }
}
