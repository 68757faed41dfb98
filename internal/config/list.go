package config

import (
	"net/netip"
	"strconv"
	"strings"
)

// Value is the effective value of a setting.
type Value struct {
	Name   string // name of the flag without dashes, as in "gateway-addr"
	Text   string
	Source string // default, file, environment or flag
}

// Values returns the value and source of every setting of this version, in the order of
// the contract's table. No value is a secret.
func (c *Config) Values() []Value {
	texts := map[string]string{
		"data-dir": c.DataDir, "gateway-addr": c.GatewayAddr, "admin-addr": c.AdminAddr, "admin-base-path": c.AdminBasePath, "ops-addr": c.OpsAddr,
		"admin-url": c.AdminURL, "sso-issuer": c.SSO.Issuer, "sso-client-id": c.SSO.ClientID, "sso-client-secret-file": c.SSO.ClientSecretFile,
		"sso-scopes": strings.Join(c.SSO.Scopes, ","), "sso-roles-claim": c.SSO.RolesClaim, "sso-role-map": c.SSO.roleMap,
		"sso-allowed-domains": strings.Join(c.SSO.Domains, ","), "sso-account": c.SSO.Account, "sso-ca": c.SSO.CAFile,
		"pprof": boolText(c.Pprof), "gateway-domain": c.GatewayDomain, "secret-key-file": c.SecretKeyFile,
		"tls-cert": c.TLSCert, "tls-key": c.TLSKey, "admin-tls-cert": c.AdminTLSCert, "admin-tls-key": c.AdminTLSKey,
		"acme-email": c.ACME.Email, "acme-directory": c.ACME.Directory, "acme-eab-kid": c.ACME.BindingKeyID, "acme-eab-hmac-file": c.ACME.BindingFile, "acme-http-addr": c.ACME.HTTPAddr,
		"trusted-proxies": networkText(c.TrustedProxies), "max-connections": strconv.Itoa(c.MaxConnections),
		"max-connections-per-address": strconv.Itoa(c.MaxConnectionsPerAddress),
		"upstream-allow-network":      networkText(c.UpstreamAllowNetwork), "webhook-allow-network": networkText(c.WebhookAllowNetwork),
		"repository-allow-file": c.RepositoryAllowFile,
		"database-url":          databaseText(c.DatabaseURL), "migrate": c.Migrate, "backup-before-migrate": boolText(c.BackupBeforeMigrate),
		"database-listen-url": databaseText(c.DatabaseListenURL), "role": c.Role, "node-name": c.NodeName,
		"lease-ttl": c.LeaseTTL.String(), "on-database-loss": c.OnDatabaseLoss,
		"webhook-backoff": c.backoff, "webhook-allow-http": boolText(c.WebhookAllowHTTP),
		"redis-url": c.redisText(), "shared-limits": string(c.SharedLimits), "on-limit-store-loss": string(c.OnLimitStoreLoss),
		"default-global-limit": c.DefaultGlobalLimit.String(),
		"drain-delay":          c.DrainDelay.String(), "drain-timeout": c.DrainTimeout.String(), "access-log": c.AccessLog, "metrics-max-series": strconv.Itoa(c.MetricsMaxSeries), "account-config-max-bytes": c.accountConfigMaxBytes, "audit-max-bytes": c.auditMaxBytes, "requests-max-bytes": c.requestsMaxBytes, "spool-max-bytes": c.spoolMaxBytes, "log-level": c.LogLevel, "log-format": c.LogFormat,
	}
	var values []Value
	for _, s := range settings() {
		if s.parse != nil {
			values = append(values, Value{s.name, texts[s.name], c.origins[s.name].Kind.String()})
		}
	}
	return values
}

// String returns flag, environment, file or default.
func (k Kind) String() string {
	switch k {
	case Flag:
		return "flag"
	case Environment:
		return "environment"
	case File:
		return "file"
	default:
		return "default"
	}
}

func boolText(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

func networkText(networks []netip.Prefix) string {
	texts := make([]string, len(networks))
	for i, n := range networks {
		texts[i] = n.String()
	}
	return strings.Join(texts, ",")
}
