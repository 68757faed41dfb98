package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// setting is one of the server's settings. All values are text until parse
// reads them, so that flags, environment and file share one set of rules.
type setting struct {
	name     string // the flag's name
	fallback string // the default's text
	usage    string // with the value's placeholder in back quotes
	isBool   bool   // the flag may be given without a value
	isList   bool   // the flag may be repeated; its values are joined by commas
	isJoined bool   // a value of several parts, which may be a list in the file
	// parse validates text and stores it. Its error says what is wrong and what to
	// write instead. parse is nil if this version does not have the feature.
	parse func(c *Config, text string) error
}

// settings returns every setting, in the order of the contract's table.
func settings() []setting {
	return []setting{
		{name: "data-dir", fallback: "./keygate-data", usage: "`directory` of the database, admin.key, secret.key and local state", parse: func(c *Config, s string) error {
			if s == "" {
				return errors.New("must name a directory")
			}
			return parsePath(&c.DataDir, s)
		}},
		{name: "gateway-addr", fallback: "127.0.0.1:8080", usage: "`address` of the data plane", parse: func(c *Config, s string) error {
			return parseAddress(&c.GatewayAddr, s)
		}},
		{name: "admin-addr", fallback: "127.0.0.1:8081", usage: "`address` of the management API", parse: func(c *Config, s string) error {
			return parseAddress(&c.AdminAddr, s)
		}},
		{name: "admin-base-path", fallback: "/", usage: "`path` below which the management API and the dashboard are", parse: func(c *Config, s string) error {
			return parseBasePath(&c.AdminBasePath, s)
		}},
		{name: "admin-url", usage: "`origin` at which browsers reach the management API, such as https://keygate.example.com; needed for single sign-on unless the listener is on loopback or has TLS", parse: func(c *Config, s string) error {
			return parseOrigin(&c.AdminURL, s)
		}},
		{name: "sso-issuer", usage: "`URL` of the OpenID Connect provider through which users sign in to the dashboard, exactly as its tokens have it", parse: func(c *Config, s string) error {
			return parseText(&c.SSO.Issuer, s)
		}},
		{name: "sso-client-id", usage: "`identifier` of Keygate as a client of that provider", parse: func(c *Config, s string) error {
			return parseText(&c.SSO.ClientID, s)
		}},
		{name: "sso-client-secret-file", usage: "`file` with the secret of that client (default none, for a public client)", parse: func(c *Config, s string) error {
			return parsePath(&c.SSO.ClientSecretFile, s)
		}},
		{name: "sso-scopes", fallback: "openid,email,profile", isJoined: true, usage: "`scopes` that are asked of the provider, separated by commas", parse: func(c *Config, s string) error {
			return parseScopes(&c.SSO.Scopes, s)
		}},
		{name: "sso-roles-claim", usage: "`claim` with the roles or groups of a user, such as groups or realm_access.roles", parse: func(c *Config, s string) error {
			return parseText(&c.SSO.RolesClaim, s)
		}},
		{name: "sso-role-map", isJoined: true, usage: "`roles` for values of that claim, as in platform=admin,dev=viewer", parse: func(c *Config, s string) error {
			return parseRoleMap(&c.SSO, s)
		}},
		{name: "sso-allowed-domains", isJoined: true, usage: "`domains` of verified emails whose users may sign in, separated by commas (default any)", parse: func(c *Config, s string) error {
			return parseDomains(&c.SSO.Domains, s)
		}},
		{name: "sso-account", fallback: "default", usage: "`name` of the account to which users sign in", parse: func(c *Config, s string) error {
			return parseText(&c.SSO.Account, s)
		}},
		{name: "sso-ca", usage: "PEM `file` with certificates that replace the system's roots for the provider", parse: func(c *Config, s string) error {
			return parsePath(&c.SSO.CAFile, s)
		}},
		{name: "ops-addr", fallback: "127.0.0.1:8082", usage: "`address` of /livez, /readyz and /metrics", parse: func(c *Config, s string) error {
			return parseAddress(&c.OpsAddr, s)
		}},
		{name: "pprof", fallback: "false", isBool: true, usage: "also serve /debug/pprof on ops-addr", parse: func(c *Config, s string) error {
			return parseBool(&c.Pprof, s)
		}},
		{name: "gateway-domain", fallback: "localhost", usage: "base `domain` of the generated hostnames of gateways", parse: func(c *Config, s string) error {
			return parseDomain(&c.GatewayDomain, s)
		}},
		{name: "database-url", usage: "`url` of a PostgreSQL database to use instead of SQLite; better set by its variable, since other users see the flags of a process", parse: func(c *Config, s string) error {
			return parseDatabaseURL(&c.DatabaseURL, s)
		}},
		{name: "migrate", fallback: "auto", usage: "whether a start migrates the schema of a PostgreSQL database: auto, or off to leave that to keygate migrate up", parse: func(c *Config, s string) error {
			return parseWord(&c.Migrate, s, "auto", "off")
		}},
		{name: "backup-before-migrate", fallback: "true", isBool: true, usage: "copy keygate.db to keygate.db.before-<schema> before its schema is migrated", parse: func(c *Config, s string) error {
			return parseBool(&c.BackupBeforeMigrate, s)
		}},
		{name: "database-listen-url", usage: "`url` of the same database past a pooler, for what needs a session of its own: being notified of changes (default --database-url)", parse: func(c *Config, s string) error {
			return parseDatabaseURL(&c.DatabaseListenURL, s)
		}},
		{name: "role", fallback: RoleAll, usage: "what this node serves: all, gateway (no management API), or control (no data plane)", parse: func(c *Config, s string) error {
			return parseWord(&c.Role, s, RoleAll, RoleGateway, RoleControl)
		}},
		{name: "node-name", usage: "`name` of this node among those that share the database (default the host name)", parse: func(c *Config, s string) error {
			return parseNodeName(&c.NodeName, s)
		}},
		{name: "lease-ttl", fallback: "10s", usage: "`duration` for which this node may serve without the database, and so for which a change may wait for it", parse: func(c *Config, s string) error {
			return parseLeaseTTL(&c.LeaseTTL, s)
		}},
		{name: "on-database-loss", fallback: LossRefuse, usage: "what this node does when it cannot reach the database for longer than that: refuse requests, or serve with the configuration that it has", parse: func(c *Config, s string) error {
			return parseWord(&c.OnDatabaseLoss, s, LossRefuse, LossServe)
		}},
		{name: "redis-url", isJoined: true, usage: "Redis or Valkey `url` of the limit store: redis://, rediss://, redis+sentinel://, or several hosts of a cluster", parse: func(c *Config, s string) error {
			return parseRedis(&c.Redis, s)
		}},
		{name: "shared-limits", usage: "`how` nodes share rate limits: leased, exact or divided (default leased with --redis-url, else divided)", parse: func(c *Config, s string) error {
			return parseSharedLimits(&c.SharedLimits, s)
		}},
		{name: "on-limit-store-loss", fallback: "divide", usage: "`what` happens to rate limits while the limit store is lost: divide, refuse or allow", parse: func(c *Config, s string) error {
			return parseWord((*string)(&c.OnLimitStoreLoss), s, string(ratelimit.DivideOnLoss), string(ratelimit.RefuseOnLoss), string(ratelimit.AllowOnLoss))
		}},
		{name: "secret-key-file", usage: "`file` of the key that encrypts stored secrets (default <data-dir>/secret.key, created at the first start)", parse: func(c *Config, s string) error {
			return parsePath(&c.SecretKeyFile, s) // "" is completed by Load
		}},
		{name: "tls-cert", isList: true, usage: "PEM `file` with a certificate chain of the data plane, or a directory of chains and keys; enables TLS, is reloaded when it changes, and may be repeated", parse: func(c *Config, s string) error {
			return parsePath(&c.TLSCert, s)
		}},
		{name: "tls-key", isList: true, usage: "PEM `file` with the private key of --tls-cert; repeated in the same order", parse: func(c *Config, s string) error {
			return parsePath(&c.TLSKey, s)
		}},
		{name: "admin-tls-cert", isList: true, usage: "PEM `file` with a certificate chain of the management API, or a directory of chains and keys; enables TLS, is reloaded when it changes, and may be repeated", parse: func(c *Config, s string) error {
			return parsePath(&c.AdminTLSCert, s)
		}},
		{name: "admin-tls-key", isList: true, usage: "PEM `file` with the private key of --admin-tls-cert; repeated in the same order", parse: func(c *Config, s string) error {
			return parsePath(&c.AdminTLSKey, s)
		}},
		{name: "acme-email", usage: "`address` under which a certificate authority reaches the operator; gets certificates by ACME for gateways with acme, agrees to the authority's terms, and enables TLS on the data plane", parse: func(c *Config, s string) error {
			return parseEmail(&c.ACME.Email, s)
		}},
		{name: "acme-directory", usage: "`url` of the directory of the certificate authority (default: that of Let's Encrypt)", parse: func(c *Config, s string) error {
			return parseDirectory(&c.ACME.Directory, s)
		}},
		{name: "acme-eab-kid", usage: "`id` of the account that the certificate authority has given out of band (external account binding)", parse: func(c *Config, s string) error {
			c.ACME.BindingKeyID = s
			return nil
		}},
		{name: "acme-eab-hmac-file", usage: "`file` with the key of that account, in base64url", parse: func(c *Config, s string) error {
			return parsePath(&c.ACME.BindingFile, s)
		}},
		{name: "acme-http-addr", usage: "`address`, which port 80 of the hostnames must lead to, that responds when the certificate authority validates hostnames by HTTP, and redirects to https (default: they are validated at port 443, by TLS)", parse: func(c *Config, s string) error {
			if s == "" {
				return nil
			}
			return parseAddress(&c.ACME.HTTPAddr, s)
		}},
		{name: "trusted-proxies", isList: true, usage: "`CIDR` of proxies whose X-Forwarded-* headers and PROXY protocol are trusted; may be repeated", parse: func(c *Config, s string) error {
			return parseNetworks(&c.TrustedProxies, s)
		}},
		{name: "max-connections", fallback: "65536", usage: "maximum `number` of open connections on the data plane; further ones are closed at once", parse: func(c *Config, s string) error {
			return parseNumber(&c.MaxConnections, s, 1, maxCount)
		}},
		{name: "max-connections-per-address", fallback: "4096", usage: "maximum `number` of open connections from one IPv4 address or IPv6 /64", parse: func(c *Config, s string) error {
			return parseNumber(&c.MaxConnectionsPerAddress, s, 1, maxCount)
		}},
		{name: "upstream-allow-network", isList: true, usage: "`CIDR` that upstreams of accounts other than default may use in addition to public addresses; may be repeated", parse: func(c *Config, s string) error {
			return parseNetworks(&c.UpstreamAllowNetwork, s)
		}},
		{name: "webhook-allow-network", isList: true, usage: "`CIDR` that webhook endpoints may use in addition to public addresses, also over plain http; may be repeated", parse: func(c *Config, s string) error {
			return parseNetworks(&c.WebhookAllowNetwork, s)
		}},
		{name: "repository-allow-file", usage: "`directory` in which file:// repositories of the account default may be", parse: func(c *Config, s string) error {
			return parsePath(&c.RepositoryAllowFile, s)
		}},
		{name: "webhook-backoff", fallback: "10s,60s,6m,36m", isJoined: true, usage: "`waits` after failed attempts 1 to 4 of a webhook delivery, separated by commas", parse: func(c *Config, s string) error {
			c.backoff = strings.ReplaceAll(s, " ", "")
			return parseBackoff(&c.WebhookBackoff, s)
		}},
		{name: "webhook-allow-http", fallback: "false", isBool: true, usage: "allow plain http for webhook endpoints at public addresses", parse: func(c *Config, s string) error {
			return parseBool(&c.WebhookAllowHTTP, s)
		}},
		{name: "default-global-limit", fallback: "1000000/s", usage: "global `rate` limit of gateways that set none", parse: func(c *Config, s string) error {
			return parseRate(&c.DefaultGlobalLimit, s)
		}},
		{name: "drain-delay", fallback: "0s", usage: "`duration` for which a shutdown still serves new connections while /readyz is 503", parse: func(c *Config, s string) error {
			return parseDuration(&c.DrainDelay, s)
		}},
		{name: "drain-timeout", fallback: "30s", usage: "`duration` for which a shutdown waits for requests in progress", parse: func(c *Config, s string) error {
			return parseDuration(&c.DrainTimeout, s)
		}},
		{name: "access-log", fallback: "off", usage: "where to write a line of JSON for each request of the data plane: off, stdout or a `file`, which is rotated at 100 MB", parse: func(c *Config, s string) error {
			return parseAccessLog(&c.AccessLog, s)
		}},
		{name: "metrics-max-series", fallback: "20000", usage: "maximum `number` of lines of /metrics; beyond it the routes with the least traffic are counted together", parse: func(c *Config, s string) error {
			return parseNumber(&c.MetricsMaxSeries, s, 1000, 50_000)
		}},
		{name: "account-config-max-bytes", fallback: "64MiB", usage: "maximum `size` of what an account configures and every node has in memory: settings of gateways, routes, keys, webhook endpoints", parse: func(c *Config, s string) error {
			c.accountConfigMaxBytes = s
			return parseSize(&c.AccountConfigMaxBytes, s)
		}},
		{name: "audit-max-bytes", fallback: "50GB", usage: "maximum `size` of the audit log on disk; beyond it the oldest records are removed early", parse: func(c *Config, s string) error {
			c.auditMaxBytes = s
			return parseSize(&c.AuditMaxBytes, s)
		}},
		{name: "requests-max-bytes", fallback: "10GB", usage: "maximum `size` of the log of refused and failed requests on disk; beyond it the oldest ones of the account that has most are removed early", parse: func(c *Config, s string) error {
			c.requestsMaxBytes = s
			return parseSize(&c.RequestsMaxBytes, s)
		}},
		{name: "spool-max-bytes", fallback: "256MB", usage: "maximum `size` of the records that are kept in the data directory while the PostgreSQL database takes none", parse: func(c *Config, s string) error {
			c.spoolMaxBytes = s
			return parseSize(&c.SpoolMaxBytes, s)
		}},
		{name: "log-level", fallback: "info", usage: "minimum `level` of log lines: debug, info, warn or error", parse: func(c *Config, s string) error {
			return parseWord(&c.LogLevel, s, "debug", "info", "warn", "error")
		}},
		{name: "log-format", fallback: "auto", usage: "`format` of the log on standard error: text, json, or auto (text on a terminal, else json)", parse: func(c *Config, s string) error {
			return parseWord(&c.LogFormat, s, "auto", "text", "json")
		}},
	}
}

func (s *setting) variable() string { return Variable(s.name) }

// Variable returns the environment variable of the setting with the given name.
func Variable(name string) string {
	return "KEYGATE_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

func (s *setting) fileKey() string { return strings.ReplaceAll(s.name, "-", "_") }

func parseAddress(to *string, s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q is not a valid address: write host:port, as in 127.0.0.1:8080", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("%q is not a valid address: the port must be a number between 0 and 65535", s)
	}
	if strings.ContainsAny(host, " /@") {
		return fmt.Errorf("%q is not a valid address: write host:port, as in 127.0.0.1:8080", s)
	}
	*to = s
	return nil
}

// parsePath accepts the path of a file or directory, or several joined by commas. It refuses a
// beginning that a shell would have replaced, such as ~/, because nothing replaces it here.
func parsePath(to *string, s string) error {
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "~" || strings.HasPrefix(part, "~/") || strings.HasPrefix(part, "$") {
			return fmt.Errorf("%q begins with what a shell replaces, and no shell reads this: write the whole path (or ./ before the name of a file that begins so)", part)
		}
	}
	*to = s
	return nil
}

// parseAccessLog accepts off, stdout or a path. A word that is probably meant as off or stdout is
// refused, not taken for the name of a file.
func parseAccessLog(to *string, s string) error {
	switch strings.ToLower(s) {
	case "", "stderr", "-", "on", "true", "yes", "false", "no", "none", "disabled", "enabled", "stdout", "off":
		if s != "stdout" && s != "off" {
			return fmt.Errorf("%q is not valid: must be off, stdout or the path of a file, such as ./access.log", s)
		}
	}
	return parsePath(to, s)
}

func parseBool(to *bool, s string) error {
	v, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q must be true or false", s)
	}
	*to = v
	return nil
}

func parseDomain(to *string, s string) error {
	d := strings.ToLower(strings.TrimSuffix(s, "."))
	if _, err := netip.ParseAddr(d); err == nil {
		return fmt.Errorf("%q is an IP address: write a domain name, as in gw.example.com", s)
	}
	// Gateways put a label of 29 characters and a dot in front.
	if d == "" || len(d) > 253-30 {
		return errors.New("must be a domain name of 1 to 223 characters, as in gw.example.com")
	}
	for label := range strings.SplitSeq(d, ".") {
		if !isLabel(label) {
			return fmt.Errorf("%q is not a valid domain name: write labels of letters, digits and inner hyphens, joined by dots, as in gw.example.com", s)
		}
	}
	*to = d
	return nil
}

func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

func parseNetworks(to *[]netip.Prefix, s string) error {
	*to = nil
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return fmt.Errorf("%q is not a valid network: write an address and a prefix length, as in 10.0.0.0/8 or fd00::/8", part)
		}
		if p != p.Masked() {
			return fmt.Errorf("%q has address bits beyond its prefix length: did you mean %s?", part, p.Masked())
		}
		*to = append(*to, p)
	}
	return nil
}

func parseNumber(to *int, s string, least, most int64) error {
	n, ok := document.Integer(s)
	if !ok || n < least || n > most {
		return fmt.Errorf("%q must be a number between %d and %d, in digits", s, least, most)
	}
	*to = int(n)
	return nil
}

const maxCount = 100_000_000

// parseSize parses a number of bytes with a unit of a power of 1000 (MB) or 1024 (MiB).
func parseSize(to *int64, s string) error {
	bad := fmt.Errorf("%q is not a valid size: write a number and a unit, as in 50GB or 512MiB", s)
	digits := strings.TrimRight(s, "BKMGTi")
	unit, ok := map[string]int64{
		"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	}[s[len(digits):]]
	n, err := strconv.ParseUint(digits, 10, 63)
	if !ok || err != nil || int64(n) > math.MaxInt64/unit {
		return bad
	}
	if int64(n)*unit < minSize {
		return fmt.Errorf("%q is too small: must be at least 1MB", s)
	}
	*to = int64(n) * unit
	return nil
}

// minSize is in bytes.
const minSize = 1e6

func parseRate(to *ratelimit.Rate, s string) error {
	r, err := ratelimit.ParseRate(s)
	if err != nil {
		var public *fault.Error
		if errors.As(err, &public) {
			return errors.New(public.Message)
		}
		return err
	}
	*to = r
	return nil
}

func parseDuration(to *time.Duration, s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a valid duration: write a number and a unit, as in 30s or 2m", s)
	}
	if d < 0 {
		return fmt.Errorf("%q is negative: must be 0s or more", s)
	}
	*to = d
	return nil
}

// maxBackoff bounds one wait. It equals the retention of failed deliveries: a delivery
// that waits longer would be removed before its attempt.
const maxBackoff = 7 * 24 * time.Hour

func parseBackoff(to *[4]time.Duration, s string) error {
	parts := strings.Split(s, ",")
	if len(parts) != len(to) {
		return fmt.Errorf("%q must be %d durations joined by commas, as in 10s,60s,6m,36m", s, len(to))
	}
	for i, part := range parts {
		part = strings.TrimSpace(part)
		d, err := time.ParseDuration(part)
		if err != nil {
			return fmt.Errorf("%q is not a valid duration: write a number and a unit, as in 10s or 6m", part)
		}
		if d <= 0 || d > maxBackoff {
			return fmt.Errorf("%q is out of range: must be more than 0s and at most 168h", part)
		}
		to[i] = d
	}
	return nil
}

func parseWord(to *string, s string, words ...string) error {
	if !slices.Contains(words, s) {
		return fmt.Errorf("%q is not valid: must be one of %s", s, strings.Join(words, ", "))
	}
	*to = s
	return nil
}

// parseBasePath accepts a path of plain segments, with or without a slash at its end.
func parseBasePath(to *string, s string) error {
	p := strings.TrimSuffix(s, "/")
	if !strings.HasPrefix(s, "/") || len(p) > 128 {
		return errors.New("must be a path that begins with a slash and has at most 128 characters, as in /keygate")
	}
	for i, segment := range strings.Split(p, "/") {
		switch {
		case i == 0: // before the first slash
		case segment == "" || segment == "." || segment == "..":
			return fmt.Errorf("%q has an empty segment or a dot segment: write a path like /keygate", s)
		case strings.ContainsFunc(segment, func(c rune) bool { return !isUnreserved(c) }):
			return fmt.Errorf("%q has a character other than letters, digits and - . _ ~ in a segment: write a path like /keygate", s)
		}
	}
	*to = cmp.Or(p, "/")
	return nil
}

// isUnreserved reports whether c never needs percent-encoding in a URL (RFC 3986, section 2.3).
func isUnreserved(c rune) bool {
	return c < 0x80 && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._~", c))
}
