package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/user"
)

// SSO is how users sign in through an identity provider (identity.md, section 3). Issuer is "" if they do not.
type SSO struct {
	Issuer           string
	ClientID         string
	ClientSecretFile string // "" for a client without a secret
	Scopes           []string
	RolesClaim       string
	RoleMap          map[string]user.Role
	Domains          []string // in lower case
	Account          string   // name of the account to which they sign in
	CAFile           string   // "" for the system's roots

	roleMap string // RoleMap as it was written
}

// mostRoles is how many values of a claim can be mapped to roles.
const mostRoles = 100

func parseRoleMap(to *SSO, s string) error {
	to.roleMap, to.RoleMap = s, nil
	for entry := range strings.SplitSeq(s, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		at := strings.LastIndexByte(entry, '=')
		if at <= 0 {
			return fmt.Errorf("%q is not a pair: write VALUE=ROLE, as in platform=admin,dev=viewer", entry)
		}
		value, role := strings.TrimSpace(entry[:at]), user.Role(strings.TrimSpace(entry[at+1:]))
		switch _, taken := to.RoleMap[value]; {
		case !role.Valid():
			return fmt.Errorf("%q is not a role: write viewer, editor or admin", role)
		case taken:
			return fmt.Errorf("%q stands there twice: give each value one role", value)
		case len(to.RoleMap) == mostRoles:
			return fmt.Errorf("has more than %d values: map fewer", mostRoles)
		case to.RoleMap == nil:
			to.RoleMap = map[string]user.Role{}
		}
		to.RoleMap[value] = role
	}
	return nil
}

func parseDomains(to *[]string, s string) error {
	*to = nil
	for domain := range strings.SplitSeq(s, ",") {
		if domain = strings.ToLower(strings.TrimSpace(domain)); domain == "" {
			continue
		}
		if strings.ContainsAny(domain, "@*/: ") {
			return fmt.Errorf("%q is not a domain: write what stands behind the @, as in example.com", domain)
		}
		*to = append(*to, domain)
	}
	return nil
}

func parseScopes(to *[]string, s string) error {
	*to = strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
	if !slices.Contains(*to, "openid") {
		*to = append([]string{"openid"}, *to...)
	}
	return nil
}

func parseText(to *string, s string) error {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("must not contain control characters")
	}
	*to = s
	return nil
}

// parseOrigin accepts the origin of a server: scheme, host and port.
func parseOrigin(to *string, s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(strings.TrimSuffix(s, "/"))
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return fmt.Errorf("%q is not an origin: write https://HOST, without a path (that is --admin-base-path)", s)
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return fmt.Errorf("%q has no TLS: write https://HOST; http is for loopback alone", s)
	}
	*to = u.Scheme + "://" + strings.ToLower(u.Host)
	return nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// checkSSO checks the settings of sign-ins against each other.
func (c *Config) checkSSO() error {
	s := &c.SSO
	refused := func(name, format string, args ...any) error {
		return &Error{c.origins[name], fmt.Errorf(format, args...)}
	}
	if s.Issuer == "" {
		for name, given := range map[string]bool{
			"sso-client-id": s.ClientID != "", "sso-client-secret-file": s.ClientSecretFile != "", "sso-roles-claim": s.RolesClaim != "", "sso-role-map": len(s.RoleMap) > 0,
			"sso-allowed-domains": len(s.Domains) > 0, "sso-ca": s.CAFile != "",
		} {
			if given {
				return refused(name, "also needs sso-issuer: set both, or neither")
			}
		}
		return nil
	}
	switch {
	case s.ClientID == "":
		return refused("sso-issuer", "also needs sso-client-id: register Keygate as a client of the identity provider")
	case (s.RolesClaim == "") != (len(s.RoleMap) == 0):
		return refused("sso-issuer", "sso-roles-claim and sso-role-map belong together: set both, or neither")
	case c.AdminURL != "" || !c.ServesAdmin():
		return nil
	}
	host, _, err := net.SplitHostPort(c.AdminAddr)
	addr, notIP := netip.ParseAddr(host)
	if err == nil && (isLoopback(host) || len(c.AdminTLS) > 0 && host != "" && (notIP != nil || !addr.IsUnspecified())) {
		return nil
	}
	return refused("sso-issuer", "also needs admin-url: the origin at which browsers reach this server, as in https://keygate.example.com, for the redirect URI")
}

// AdminOrigin returns the origin of the management API for browsers. addr is the address of its listener.
func (c *Config) AdminOrigin(addr string) string {
	switch {
	case c.AdminURL != "":
		return c.AdminURL
	case len(c.AdminTLS) > 0:
		return "https://" + addr
	}
	return "http://" + addr
}

// ReadClientSecret returns the client secret and the certificates of the files that are set; "" for none.
func (s *SSO) ReadClientSecret() (secret, ca string, err error) {
	if s.ClientSecretFile != "" {
		content, err := os.ReadFile(s.ClientSecretFile)
		if err != nil {
			return "", "", fmt.Errorf("read --sso-client-secret-file: %w", err)
		}
		if secret = strings.TrimSpace(string(content)); secret == "" {
			return "", "", fmt.Errorf("--sso-client-secret-file: %s is empty: write the secret of the client there", s.ClientSecretFile)
		}
	}
	if s.CAFile != "" {
		content, err := os.ReadFile(s.CAFile)
		if err != nil {
			return "", "", fmt.Errorf("read --sso-ca: %w", err)
		}
		ca = string(content)
	}
	return secret, ca, nil
}
