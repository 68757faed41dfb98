package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// setting is one of the server's settings. All values are text until parse
// reads them, so that flags, environment and file share one set of rules.
type setting struct {
	name     string // the flag's name
	fallback string // the default's text
	usage    string // with the value's placeholder in back quotes
	isBool   bool   // a flag that may stand without a value
	isList   bool   // may be given more than once; the values are joined by commas
	isJoined bool   // one value of several parts, which may be a list in the file
	// parse checks text and stores it. Its error says what is wrong and what
	// to write instead. A nil parse marks a setting whose feature this version
	// does not have.
	parse func(c *Config, text string) error
}

// settings returns every setting, in the order of the contract's table.
func settings() []setting {
	return []setting{
		{name: "data-dir", fallback: "./keygate-data", usage: "`directory` of the database, admin.key, secret.key and local state", parse: func(c *Config, s string) error {
			if s == "" {
				return errors.New("must name a directory")
			}
			c.DataDir = s
			return nil
		}},
		{name: "gateway-addr", fallback: "127.0.0.1:8080", usage: "`address` of the data plane", parse: func(c *Config, s string) error {
			return parseAddress(&c.GatewayAddr, s)
		}},
		{name: "admin-addr", fallback: "127.0.0.1:8081", usage: "`address` of the management API", parse: func(c *Config, s string) error {
			return parseAddress(&c.AdminAddr, s)
		}},
		{name: "ops-addr", fallback: "127.0.0.1:8082", usage: "`address` of /livez, /readyz and /metrics", parse: func(c *Config, s string) error {
			return parseAddress(&c.OpsAddr, s)
		}},
		{name: "pprof", fallback: "false", isBool: true, usage: "serve /debug/pprof beside /metrics", parse: func(c *Config, s string) error {
			return parseBool(&c.Pprof, s)
		}},
		{name: "gateway-domain", fallback: "localhost", usage: "base `domain` of the hostnames given to gateways", parse: func(c *Config, s string) error {
			return parseDomain(&c.GatewayDomain, s)
		}},
		{name: "database-url", usage: "PostgreSQL `url`"},
		{name: "redis-url", usage: "Redis or Valkey `url`"},
		{name: "secret-key-file", usage: "`file` of the key that encrypts stored secrets (default <data-dir>/secret.key, made at the first start)", parse: func(c *Config, s string) error {
			c.SecretKeyFile = s // "" is completed by Load
			return nil
		}},
		{name: "tls-cert", usage: "PEM `file` of the data plane's certificate and its issuers': turns on TLS there; read again when it changes", parse: func(c *Config, s string) error {
			c.TLSCert = s
			return nil
		}},
		{name: "tls-key", usage: "PEM `file` of that certificate's private key", parse: func(c *Config, s string) error {
			c.TLSKey = s
			return nil
		}},
		{name: "admin-tls-cert", usage: "PEM `file` of the management API's certificate and its issuers': turns on TLS there; read again when it changes", parse: func(c *Config, s string) error {
			c.AdminTLSCert = s
			return nil
		}},
		{name: "admin-tls-key", usage: "PEM `file` of that certificate's private key", parse: func(c *Config, s string) error {
			c.AdminTLSKey = s
			return nil
		}},
		{name: "trusted-proxies", isList: true, usage: "`CIDR` of proxies whose X-Forwarded-* fields and PROXY protocol are believed; give it again for more", parse: func(c *Config, s string) error {
			return parseNetworks(&c.TrustedProxies, s)
		}},
		{name: "max-connections", fallback: "65536", usage: "greatest `number` of open connections of the data plane; more are closed at once", parse: func(c *Config, s string) error {
			return parseCount(&c.MaxConnections, s)
		}},
		{name: "max-connections-per-address", fallback: "4096", usage: "the same from one address, of IPv6 from one /64, as a `number`", parse: func(c *Config, s string) error {
			return parseCount(&c.MaxConnectionsPerAddress, s)
		}},
		{name: "upstream-allow-network", isList: true, usage: "`CIDR` that upstreams of accounts other than default may stand in, beside public networks; give it again for more", parse: func(c *Config, s string) error {
			return parseNetworks(&c.UpstreamAllowNetwork, s)
		}},
		{name: "webhook-allow-network", isList: true, usage: "`CIDR` that webhook receivers may stand in, beside public networks, with plain http too; give it again for more", parse: func(c *Config, s string) error {
			return parseNetworks(&c.WebhookAllowNetwork, s)
		}},
		{name: "repository-allow-file", usage: "`directory`"},
		{name: "webhook-backoff", fallback: "10s,60s,6m,36m", isJoined: true, usage: "`waits` after the failed attempts 1 to 4 of a webhook delivery", parse: func(c *Config, s string) error {
			c.backoff = strings.ReplaceAll(s, " ", "")
			return parseBackoff(&c.WebhookBackoff, s)
		}},
		{name: "webhook-allow-http", fallback: "false", isBool: true, usage: "let webhook receivers at public addresses use plain http", parse: func(c *Config, s string) error {
			return parseBool(&c.WebhookAllowHTTP, s)
		}},
		{name: "default-global-limit", fallback: "1000000/s", usage: "`rate` limit of a gateway that sets none", parse: func(c *Config, s string) error {
			return parseRate(&c.DefaultGlobalLimit, s)
		}},
		{name: "drain-timeout", fallback: "30s", usage: "how long a shutdown waits for what runs, as a `duration`", parse: func(c *Config, s string) error {
			return parseDuration(&c.DrainTimeout, s)
		}},
		{name: "audit-max-bytes", fallback: "50GB", usage: "`size` that the audit log may have on disk; beyond it the oldest records go before their time", parse: func(c *Config, s string) error {
			c.auditMaxBytes = s
			return parseSize(&c.AuditMaxBytes, s)
		}},
		{name: "log-level", fallback: "info", usage: "least `level` that is logged: debug, info, warn or error", parse: func(c *Config, s string) error {
			return parseWord(&c.LogLevel, s, "debug", "info", "warn", "error")
		}},
		{name: "log-format", fallback: "auto", usage: "`format` of the log on standard error: text, json, or auto: text on a terminal, else json", parse: func(c *Config, s string) error {
			return parseWord(&c.LogFormat, s, "auto", "text", "json")
		}},
	}
}

func (s *setting) variable() string {
	return "KEYGATE_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

func (s *setting) fileKey() string { return strings.ReplaceAll(s.name, "-", "_") }

func parseAddress(to *string, s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q is no address: write host:port, as in 127.0.0.1:8080", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("%q is no address: the port must be a number from 0 to 65535", s)
	}
	if strings.ContainsAny(host, " /@") {
		return fmt.Errorf("%q is no address: write host:port, as in 127.0.0.1:8080", s)
	}
	*to = s
	return nil
}

func parseBool(to *bool, s string) error {
	v, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", s)
	}
	*to = v
	return nil
}

func parseDomain(to *string, s string) error {
	d := strings.ToLower(strings.TrimSuffix(s, "."))
	if _, err := netip.ParseAddr(d); err == nil {
		return fmt.Errorf("%q is an IP address: give a domain name, as in gw.example.com", s)
	}
	// A gateway's label of 29 characters and a dot go in front.
	if d == "" || len(d) > 253-30 {
		return errors.New("must be a domain name of 1 to 223 characters, as in gw.example.com")
	}
	for label := range strings.SplitSeq(d, ".") {
		if !isLabel(label) {
			return fmt.Errorf("%q is no domain name: labels are letters, digits and inner hyphens, joined by dots, as in gw.example.com", s)
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
			return fmt.Errorf("%q is no network: write an address and a prefix length, as in 10.0.0.0/8 or fd00::/8", part)
		}
		if p != p.Masked() {
			return fmt.Errorf("%q has bits beyond its prefix length: did you mean %s?", part, p.Masked())
		}
		*to = append(*to, p)
	}
	return nil
}

func parseCount(to *int, s string) error {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n < 1 || n > maxCount {
		return fmt.Errorf("%q is no number from 1 to %d", s, maxCount)
	}
	*to = int(n)
	return nil
}

const maxCount = 100_000_000

// parseSize reads a number of bytes, with a unit of powers of 1000 or 1024.
func parseSize(to *int64, s string) error {
	bad := fmt.Errorf("%q is no size: write a number and a unit, as in 50GB or 512MiB", s)
	digits := strings.TrimRight(s, "BKMGTi")
	unit, ok := map[string]int64{
		"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	}[s[len(digits):]]
	n, err := strconv.ParseUint(digits, 10, 63)
	if !ok || err != nil || int64(n) > math.MaxInt64/unit {
		return bad
	}
	if int64(n)*unit < minSize {
		return fmt.Errorf("%q is too little: give 1MB or more", s)
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
		return fmt.Errorf("%q is no duration: write a number and a unit, as in 30s or 2m", s)
	}
	if d < 0 {
		return fmt.Errorf("%q is negative: give 0s or more", s)
	}
	*to = d
	return nil
}

// maxBackoff bounds one wait: a delivery that waits longer than failed ones are
// kept would never be seen.
const maxBackoff = 7 * 24 * time.Hour

func parseBackoff(to *[4]time.Duration, s string) error {
	parts := strings.Split(s, ",")
	if len(parts) != len(to) {
		return fmt.Errorf("%q must be %d waits joined by commas, as in 10s,60s,6m,36m", s, len(to))
	}
	for i, part := range parts {
		part = strings.TrimSpace(part)
		d, err := time.ParseDuration(part)
		if err != nil {
			return fmt.Errorf("%q is no duration: write a number and a unit, as in 10s or 6m", part)
		}
		if d <= 0 || d > maxBackoff {
			return fmt.Errorf("%q must be more than 0s and at most 168h", part)
		}
		to[i] = d
	}
	return nil
}

func parseWord(to *string, s string, words ...string) error {
	if !slices.Contains(words, s) {
		return fmt.Errorf("%q is none of %s", s, strings.Join(words, ", "))
	}
	*to = s
	return nil
}
