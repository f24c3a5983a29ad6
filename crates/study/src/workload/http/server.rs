//! The web servers, with our own configurations, so that those of the guest are not changed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::workload::{Place, Program};
use guests::shell;

/// A web server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HttpServer {
    /// nginx, with a worker for each vCPU.
    #[default]
    Nginx,
    /// Apache with its event MPM.
    Apache2,
}

/// The configuration of nginx. All its files are in the server's folder, none below /var. Logs are off, or the disk
/// would be measured.
const NGINX: &str = "\
user root;
daemon off;
worker_processes auto;
worker_rlimit_nofile 1048576;
pid nginx.pid;
error_log stderr crit;
events { worker_connections CONNECTIONS; }
http {
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path temporary;
    proxy_temp_path temporary;
    fastcgi_temp_path temporary;
    uwsgi_temp_path temporary;
    scgi_temp_path temporary;
    server { listen PORT backlog=65535; root html; }
}
";

/// The number of nginx's connections besides those of clients: listening sockets, and clients that reconnect.
const SPARE_CONNECTIONS: u32 = 64;

/// The configuration of Apache, with Debian's paths.
const APACHE2: &str = "\
ServerName localhost
PidFile apache2.pid
Mutex pthread
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
ErrorLog /dev/null
User www-data
Group www-data
Listen PORT
ListenBacklog 65535
ServerLimit 64
ThreadsPerChild 64
ThreadLimit 64
MaxRequestWorkers 4096
KeepAlive On
MaxKeepAliveRequests 0
DocumentRoot html
";

impl HttpServer {
    pub(super) fn program(self) -> Program {
        let (name, package) = match self {
            Self::Nginx => ("nginx", "nginx-light"),
            Self::Apache2 => ("apache2", "apache2-bin"),
        };
        Program { place: Place::Guest, name, package }
    }

    /// Writes the configuration into the current folder.
    pub(super) fn configure(self, port: u16, connections: u32) -> String {
        let text = match self {
            Self::Nginx => NGINX,
            Self::Apache2 => APACHE2,
        };
        // One worker of nginx may get all connections. It allocates 0.4 KiB for each of them at its start.
        let connections = connections.saturating_add(SPARE_CONNECTIONS).to_string();
        let text = text.replace("PORT", &port.to_string()).replace("CONNECTIONS", &connections);
        format!("printf %s {} >server.conf\n", shell::quoted(&text))
    }

    /// Runs the server in the foreground.
    pub(super) fn serve(self) -> &'static str {
        // nginx and apache2 are in /usr/sbin, which may not be in a user's PATH.
        match self {
            Self::Nginx => {
                "PATH=$PATH:/usr/sbin\nulimit -n \"$(ulimit -H -n)\"\nexec nginx -p \"$PWD\" -c server.conf\n"
            }
            Self::Apache2 => {
                "PATH=$PATH:/usr/sbin\nexec apache2 -d \"$PWD\" -f \"$PWD/server.conf\" -DFOREGROUND\n"
            }
        }
    }
}
