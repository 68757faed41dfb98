// Package config reads the server's settings: their names, defaults and rules, and the
// source of each value, which is a flag, an environment variable, a file or the default
// (contract, section 1).
package config

import (
	"net/netip"
	"path/filepath"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/ratelimit/limitstore"
)

// Config is the settings of a server. Loader.Load returns one.
type Config struct {
	// DataDir holds the database, admin.key, secret.key and local state.
	DataDir string

	GatewayAddr string // host:port of the data plane
	AdminAddr   string // host:port of the management API
	// AdminBasePath is the path below which the management API and the dashboard are: "/", or a
	// path without a slash at its end.
	AdminBasePath string
	// AdminURL is the origin at which browsers reach the management API, or "" if it follows from the listener.
	AdminURL string
	// SSO is how users sign in.
	SSO     SSO
	OpsAddr string // host:port of /livez, /readyz and /metrics

	// GatewayDomain is the base domain of the generated hostnames of gateways, in
	// lower case.
	GatewayDomain string

	// DatabaseURL is the URL of a PostgreSQL database, or "" for SQLite. It may have a password.
	DatabaseURL Secret

	// Migrate says whether a start migrates the schema of a PostgreSQL database: auto or off.
	Migrate string

	// BackupBeforeMigrate says whether an SQLite database is copied before its schema is migrated.
	BackupBeforeMigrate bool

	// DatabaseListenURL is the URL for being notified of changes, or "" for DatabaseURL.
	DatabaseListenURL Secret

	// Role is what this node serves: RoleAll, RoleGateway or RoleControl.
	Role string

	// NodeName is the name of this node among the nodes that share the database.
	NodeName string

	// LeaseTTL is how long this node may serve without the database.
	LeaseTTL time.Duration

	// OnDatabaseLoss is what this node does afterwards: LossRefuse or LossServe.
	OnDatabaseLoss string

	// SecretKeyFile holds the key that encrypts stored secrets.
	SecretKeyFile string

	// SecretKey is that key itself, 32 bytes, if it is given instead of the file. AdminKey
	// is the string of the first key, or "" for a new one.
	SecretKey, AdminKey Secret

	// TLSCert and TLSKey are the values of the settings for the certificates of the
	// data plane, joined by commas; AdminTLSCert and AdminTLSKey are the values for the management
	// listener. "" means plain HTTP.
	TLSCert, TLSKey           string
	AdminTLSCert, AdminTLSKey string

	// TLS and AdminTLS are the same values as pairs, in their order. The first
	// certificate is the default one.
	TLS, AdminTLS []TLSFiles

	// ACME is the settings of certificates by ACME.
	ACME ACME

	// TrustedProxies lists the networks of proxies whose X-Forwarded-* headers and
	// PROXY protocol are trusted.
	TrustedProxies []netip.Prefix

	// MaxConnections is the maximum number of open connections on the data plane,
	// MaxConnectionsPerAddress the maximum from one address (contract, 4.5).
	MaxConnections, MaxConnectionsPerAddress int

	// UpstreamAllowNetwork lists the networks that upstreams of accounts other
	// than default may use in addition to public addresses (contract, 4.6).
	UpstreamAllowNetwork []netip.Prefix

	// WebhookAllowNetwork lists the networks that webhook endpoints may use in
	// addition to public addresses, also over plain http (contract, 6).
	WebhookAllowNetwork []netip.Prefix

	// RepositoryAllowFile is the directory in which repositories with file:// may be, or ""
	// (contract, 5).
	RepositoryAllowFile string

	// WebhookBackoff is the waits after failed attempts 1 to 4 of a delivery.
	WebhookBackoff [4]time.Duration

	// WebhookAllowHTTP allows plain http for webhook endpoints at public addresses.
	WebhookAllowHTTP bool

	// DefaultGlobalLimit is the global limit of gateways that set none.
	DefaultGlobalLimit ratelimit.Rate

	// Redis is the address of the limit store, nil without one. SharedLimits is how nodes share
	// limits, and OnLimitStoreLoss what happens to limits while the limit store is lost.
	Redis            *limitstore.Address
	SharedLimits     ratelimit.Mode
	OnLimitStoreLoss ratelimit.OnLoss

	// DrainDelay is how long a server that has received SIGTERM still serves new
	// connections, while /readyz is 503 already, so that load balancers can look away.
	DrainDelay time.Duration

	// DrainTimeout is how long a shutdown waits for requests in progress; 0 does
	// not wait.
	DrainTimeout time.Duration

	// AccessLog is the file of the access log, or "off" or "stdout".
	AccessLog string

	// MetricsMaxSeries is the maximum number of lines of /metrics (contract, 7).
	MetricsMaxSeries int

	// AccountConfigMaxBytes is the maximum size of what an account configures and every node has in memory.
	AccountConfigMaxBytes int64
	accountConfigMaxBytes string // AccountConfigMaxBytes as it was written

	// AuditMaxBytes is the maximum size of the audit log's blocks on disk.
	AuditMaxBytes int64
	auditMaxBytes string // AuditMaxBytes as it was written

	// RequestsMaxBytes is the maximum size of the request log's records on disk.
	RequestsMaxBytes int64
	requestsMaxBytes string // RequestsMaxBytes as it was written

	// SpoolMaxBytes is the maximum size of the records in SpoolDir, which the PostgreSQL database
	// did not take yet.
	SpoolMaxBytes int64
	spoolMaxBytes string // SpoolMaxBytes as it was written

	// Pprof serves /debug/pprof on OpsAddr.
	Pprof bool

	LogLevel  string // debug, info, warn or error
	LogFormat string // auto, text or json

	backoff string // WebhookBackoff as it was written
	origins map[string]Origin
}

// Origin returns the source of the value of the setting name, as in "gateway-addr".
func (c *Config) Origin(name string) Origin { return c.origins[name] }

// Shared reports whether the database is one that several nodes may share.
func (c *Config) Shared() bool { return c.DatabaseURL != "" }

// DatabaseFile returns the path of the SQLite database.
func (c *Config) DatabaseFile() string { return filepath.Join(c.DataDir, "keygate.db") }

// AdminKeyFile returns the path of the file to which the first start writes the first
// account-level key.
func (c *Config) AdminKeyFile() string { return filepath.Join(c.DataDir, "admin.key") }

// FingerprintFile returns the path of the file by which a start with SecretKey recognizes whether
// it is the key of the store.
func (c *Config) FingerprintFile() string { return filepath.Join(c.DataDir, "secret.fingerprint") }

// RepositoryDir returns the path of the directory for what is being read from repositories.
func (c *Config) RepositoryDir() string { return filepath.Join(c.DataDir, "repositories") }

// SpoolDir returns the path of the directory with records that the PostgreSQL database did not take.
func (c *Config) SpoolDir() string { return filepath.Join(c.DataDir, "spool") }

// LockFile returns the path of the file that a running server has locked.
func (c *Config) LockFile() string { return filepath.Join(c.DataDir, "keygate.lock") }

// UseDataDir changes the data directory, and the secret key file with it unless that was
// set explicitly.
func (c *Config) UseDataDir(dir string) {
	c.DataDir = dir
	if c.origins["secret-key-file"].Kind == Default {
		c.SecretKeyFile = filepath.Join(dir, "secret.key")
	}
}

// UseWebhookBackoff changes the waits after failed attempts of a delivery, unless they were set
// explicitly. waits is written as in the setting. The error says that it is not valid.
func (c *Config) UseWebhookBackoff(waits string) error {
	if c.origins["webhook-backoff"].Kind != Default {
		return nil
	}
	c.backoff = waits
	return parseBackoff(&c.WebhookBackoff, waits)
}
