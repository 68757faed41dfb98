package server

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/provider"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/sso"
)

// signInPolicy returns who may sign in as a user; nil for nobody.
func signInPolicy(c *config.SSO) *control.SignInPolicy {
	if c.Issuer == "" {
		return nil
	}
	return &control.SignInPolicy{Issuer: c.Issuer, Account: c.Account, Domains: c.Domains}
}

// buildSSO returns what signs users in; nil if there is no identity provider. The listener of the management API must be open.
func (s *Server) buildSSO(box *secret.Box) (*sso.Provider, error) {
	settings := s.cfg.Settings
	c := &settings.SSO
	if c.Issuer == "" {
		return nil, nil
	}
	clientSecret, ca, err := c.ReadClientSecret()
	if err != nil {
		return nil, err
	}
	p, err := sso.New(sso.Config{
		Issuer: c.Issuer, CA: ca, ClientID: c.ClientID, ClientSecret: clientSecret, Scopes: c.Scopes, RolesClaim: c.RolesClaim, RoleMap: c.RoleMap,
		RedirectURL: redirectURI(settings, s.AdminAddr()),
		Source:      provider.NewClient(provider.ClientConfig{Guard: s.guard, Resolver: s.cfg.Resolver}), Sealer: box, Random: rand.Reader, Now: s.clock.WallTime, Log: s.log,
	})
	if err != nil {
		return nil, fmt.Errorf("--sso-issuer: %w", err)
	}
	return p, nil
}

// redirectURI returns the URL to which the identity provider sends browsers back. addr is the address of the listener of the
// management API.
func redirectURI(c *config.Config, addr string) string {
	return c.AdminOrigin(addr) + strings.TrimSuffix(c.AdminBasePath, "/") + "/v1/session/sso/callback"
}
