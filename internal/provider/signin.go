package provider

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
)

// Endpoints is where users of a provider sign in, as its discovery says.
type Endpoints struct {
	Authorization string // URL for the browser
	Token         string // URL for a code
	EndSession    string // URL for the browser; "" if the provider has none
	SendsIssuer   bool   // responses to the browser have the parameter iss (RFC 9207)

	inBody bool // the secret of the client is a field of the body, and not in Authorization
}

// Endpoints fetches the endpoints of an issuer, whose source has no URL of keys. Its errors are those of Keys.
func (c *Client) Endpoints(ctx context.Context, s issuer.Source, public bool) (*Endpoints, error) {
	return with(ctx, c, s.CA, public, func(f *fetch) (*Endpoints, error) {
		d, err := f.document(s.Issuer)
		if err != nil {
			return nil, err
		}
		if !isSecure(d.Authorization) || !isSecure(d.Token) {
			return nil, problem("the document of discovery of %s has no authorization_endpoint and token_endpoint with https: users cannot sign in with this provider", shown(s.Issuer))
		}
		e := &Endpoints{Authorization: d.Authorization, Token: d.Token, SendsIssuer: d.SendsIssuer}
		if isSecure(d.EndSession) {
			e.EndSession = d.EndSession
		}
		// Without a list it is the header (OpenID Connect Discovery).
		e.inBody = len(d.TokenMethods) > 0 && !slices.Contains(d.TokenMethods, "client_secret_basic")
		return e, nil
	})
}

// Exchange gets the ID token for a code, with the fields of form. clientSecret may be "", for a client without one. Its errors
// are those of Keys, and never have the code, a token or the secret in them.
func (c *Client) Exchange(ctx context.Context, s issuer.Source, public bool, e *Endpoints, form url.Values, clientID, clientSecret string) (string, error) {
	token, err := with(ctx, c, s.CA, public, func(f *fetch) (*string, error) { return f.exchange(e, form, clientID, clientSecret) })
	if err != nil {
		return "", err
	}
	return *token, nil
}

func (f *fetch) exchange(e *Endpoints, form url.Values, clientID, clientSecret string) (*string, error) {
	if clientSecret == "" || e.inBody {
		form.Set("client_id", clientID)
	}
	if clientSecret != "" && e.inBody {
		form.Set("client_secret", clientSecret)
	}
	r, err := http.NewRequestWithContext(f.ctx, http.MethodPost, e.Token, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, problem("%s is not a valid URL", shown(e.Token))
	}
	if clientSecret != "" && !e.inBody {
		r.SetBasicAuth(url.QueryEscape(clientID), url.QueryEscape(clientSecret)) // RFC 6749, 2.3.1
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "keygate")
	res, err := f.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, jwk.MaxBytes+1))
	if err != nil {
		return nil, err
	}
	var response struct {
		IDToken string `json:"id_token"`
		Error   string `json:"error"`
	}
	err = json.Unmarshal(body, &response)
	switch {
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return nil, problem("the provider redirects from %s, and redirects are not followed", shown(e.Token))
	case res.StatusCode != http.StatusOK && err == nil && response.Error != "":
		refused := problem("the provider gives no token: it responds to %s with the status %d and the error %s: check --sso-client-id and --sso-client-secret-file, and that the redirect URI is registered", shown(e.Token), res.StatusCode, shown(response.Error))
		refused.Refused = true
		return nil, refused
	case res.StatusCode != http.StatusOK:
		return nil, problem("the provider gives no token: it responds to %s with the status %d", shown(e.Token), res.StatusCode)
	case len(body) > jwk.MaxBytes || err != nil || response.IDToken == "":
		return nil, problem("the response of %s has no id_token: the scopes must have openid", shown(e.Token))
	}
	return &response.IDToken, nil
}
