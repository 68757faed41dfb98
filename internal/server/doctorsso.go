package server

import (
	"context"

	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/provider"
)

// examineSSO fetches from the identity provider as a sign-in does: its discovery, with the endpoints of sign-ins, and its keys.
func (f *findings) examineSSO(ctx context.Context, settings *config.Config) {
	const check = "identity provider"
	_, ca, err := settings.SSO.ReadClientSecret()
	if err != nil {
		f.problem(check, "write the file, readable for the user of the server, or take the setting out", "%v", err)
		return
	}
	source := issuer.Source{Issuer: settings.SSO.Issuer, CA: ca}
	client := provider.NewClient(provider.ClientConfig{})
	_, err = client.Endpoints(ctx, source, false)
	if err == nil {
		_, err = client.Keys(ctx, source, false)
	}
	if err != nil {
		f.warn(check, "nobody can sign in through it now: check --sso-issuer and --sso-ca, and that this machine reaches it; keys work meanwhile", "%s cannot be used: %v", settings.SSO.Issuer, err)
		return
	}
	f.ok(check, "%s responds; the redirect URI to register there is %s", settings.SSO.Issuer, redirectURI(settings, settings.AdminAddr))
}
