// Package config holds the server's settings: their names, defaults and rules,
// how they are read from flags, the environment and a file, and where each
// value came from (contract, section 1).
package config

import (
	"net/netip"
	"path/filepath"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
)

// Config is what a server runs by. Load makes one.
type Config struct {
	// DataDir holds the database, admin.key, secret.key and local state.
	DataDir string

	GatewayAddr string // host:port of the data plane
	AdminAddr   string // host:port of the management API
	OpsAddr     string // host:port of /livez, /readyz and /metrics

	// GatewayDomain is the base domain of the hostnames given to gateways, in
	// lower case.
	GatewayDomain string

	// SecretKeyFile holds the key that encrypts stored secrets.
	SecretKeyFile string

	// TLSCert and TLSKey name the files of the data plane's certificate and key,
	// AdminTLSCert and AdminTLSKey those of the management listener; both or
	// neither of a pair. "" is plain HTTP.
	TLSCert, TLSKey           string
	AdminTLSCert, AdminTLSKey string

	// TrustedProxies lists the networks of proxies whose X-Forwarded-* fields
	// and PROXY protocol are believed.
	TrustedProxies []netip.Prefix

	// MaxConnections bounds the open connections of the data plane,
	// MaxConnectionsPerAddress those from one address (contract, 4.5).
	MaxConnections, MaxConnectionsPerAddress int

	// UpstreamAllowNetwork lists the networks that upstreams of accounts other
	// than default may stand in, beside public ones (contract, 4.6).
	UpstreamAllowNetwork []netip.Prefix

	// WebhookAllowNetwork lists the networks that webhook receivers may stand in,
	// beside public ones; plain http is allowed there too (contract, 6).
	WebhookAllowNetwork []netip.Prefix

	// WebhookBackoff is how long to wait after the failed attempts 1 to 4 of a
	// delivery.
	WebhookBackoff [4]time.Duration

	// WebhookAllowHTTP allows plain http receivers at public addresses.
	WebhookAllowHTTP bool

	// DefaultGlobalLimit is the limit of a gateway that sets none.
	DefaultGlobalLimit ratelimit.Rate

	// DrainTimeout is how long a shutdown waits for what runs; 0 waits for
	// nothing.
	DrainTimeout time.Duration

	// AuditMaxBytes is what the blocks of the audit log may take on disk.
	AuditMaxBytes int64
	auditMaxBytes string // as it was given

	// Pprof serves /debug/pprof on OpsAddr.
	Pprof bool

	LogLevel  string // debug, info, warn or error
	LogFormat string // auto, text or json

	backoff string // WebhookBackoff as it was given
	origins map[string]Origin
}

// Origin returns where the value of the setting name, as in "gateway-addr",
// came from.
func (c *Config) Origin(name string) Origin { return c.origins[name] }

// DatabaseFile returns the path of the SQLite database.
func (c *Config) DatabaseFile() string { return filepath.Join(c.DataDir, "keygate.db") }

// AdminKeyFile returns the path of the file that the first start writes the
// first account-level key to.
func (c *Config) AdminKeyFile() string { return filepath.Join(c.DataDir, "admin.key") }

// LockFile returns the path of the file that a server holds locked.
func (c *Config) LockFile() string { return filepath.Join(c.DataDir, "keygate.lock") }

// UseDataDir moves the data directory, and the secret key with it unless that
// was given a place of its own.
func (c *Config) UseDataDir(dir string) {
	c.DataDir = dir
	if c.origins["secret-key-file"].Kind == Default {
		c.SecretKeyFile = filepath.Join(dir, "secret.key")
	}
}
