package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"os"
	"strings"
)

// DefaultDirectory is the directory of Let's Encrypt.
const DefaultDirectory = "https://acme-v02.api.letsencrypt.org/directory"

// ACME is the settings of certificates by ACME (edge.md, section 3). They are in use if Email is set.
type ACME struct {
	Email     string
	Directory string // URL
	// BindingKeyID and Binding are the account that the CA has given out of band; "" for none. Binding is in base64url.
	BindingKeyID, BindingFile string
	Binding                   Secret
	HTTPAddr                  string // "" for none
}

// On reports whether certificates are obtained by ACME.
func (a *ACME) On() bool { return a.Email != "" }

// GatewayTLS reports whether the data plane speaks TLS.
func (c *Config) GatewayTLS() bool { return len(c.TLS) > 0 || c.ACME.On() }

func parseEmail(to *string, s string) error {
	if s != "" {
		if a, err := mail.ParseAddress(s); err != nil || a.Address != s {
			return fmt.Errorf("%q is not a valid e-mail address: write one such as ops@example.com", s)
		}
	}
	*to = s
	return nil
}

// parseDirectory reads the URL of a directory; without one, it is DefaultDirectory.
func parseDirectory(to *string, s string) error {
	if s == "" {
		*to = DefaultDirectory
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("%q is not a valid URL of a directory: write one such as %s", s, DefaultDirectory)
	}
	if u.Scheme != "https" {
		return errors.New("must begin with https://")
	}
	*to = s
	return nil
}

// completeACME reads the key of the binding, and checks that settings which need each other are there.
func (c *Config) completeACME() error {
	a := &c.ACME
	switch {
	case !a.On() && a.HTTPAddr != "":
		return &Error{c.origins["acme-http-addr"], errors.New("also needs acme-email: set it to an address under which the certificate authority reaches you")}
	case (a.BindingKeyID == "") != (a.BindingFile == ""):
		given := "acme-eab-kid"
		if a.BindingKeyID == "" {
			given = "acme-eab-hmac-file"
		}
		return &Error{c.origins[given], errors.New("needs both acme-eab-kid and acme-eab-hmac-file")}
	case a.BindingFile == "":
		return nil
	}
	content, err := os.ReadFile(a.BindingFile)
	if err != nil {
		return &Error{c.origins["acme-eab-hmac-file"], err}
	}
	text := strings.TrimRight(strings.TrimSpace(string(content)), "=")
	if key, err := base64.RawURLEncoding.DecodeString(text); err != nil || len(key) < 16 {
		return &Error{c.origins["acme-eab-hmac-file"], fmt.Errorf("%s does not hold a key in base64url", a.BindingFile)}
	}
	a.Binding = Secret(text)
	return nil
}
