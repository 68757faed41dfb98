package wire

import (
	"crypto/rand"
	"testing"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot/snapshottest"
)

const (
	gatewayID = "gw_00000000000000000000000001"
	keyID     = "key_00000000000000000000000002"
	hostname  = "gw.localhost"
	owner     = "ann"
)

// setup configures the gateway. It accepts every method on every path; below /public it
// needs no key.
type setup struct {
	scheme  string // of the upstream; "" means http
	base    string // the path of the upstream's URL
	ca      string
	timeout string // "" means 30s
	maxBody int64
	headers map[string]string
	cors    *gateway.CORS
	limit   string // the key's rate limit
	trusted bool   // the client is a trusted proxy
	open    bool   // every route is public
}

// newSource returns a store of one account, one gateway and one key.
func newSource(t testing.TB, s setup, upstream string) (*snapshottest.Source, string) {
	t.Helper()
	secret, err := apikey.Generate(apikey.GatewayLevel, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var limit ratelimit.Rate
	if s.limit != "" {
		if err := limit.UnmarshalText([]byte(s.limit)); err != nil {
			t.Fatal(err)
		}
	}
	headers := map[string][]byte{}
	for name, value := range s.headers {
		headers[name] = []byte(value)
	}
	auth := gateway.AuthKey
	if s.open {
		auth = gateway.AuthNone
	}
	methods := []string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}
	acct := account.Account{ID: id.Format(id.Account, [16]byte{3}), Name: account.Default, Tier: account.Platform}
	stored := &snapshottest.Source{}
	stored.PutAccount(acct)
	stored.PutGateway(gateway.Gateway{
		ID: gatewayID, AccountID: acct.ID, Name: "test", Hostname: hostname, Default: true,
		Upstream: gateway.Upstream{
			URL: or(s.scheme, "http") + "://" + upstream + s.base, Headers: headers, TLS: gateway.UpstreamTLS{CA: s.ca},
		},
		Timeout: or(s.timeout, "30s"), MaxBodyBytes: s.maxBody, CORS: s.cors,
	},
		gateway.Route{ID: id.Format(id.Route, [16]byte{4}), GatewayID: gatewayID, Path: "/*", Methods: methods, Auth: auth},
		gateway.Route{ID: id.Format(id.Route, [16]byte{5}), GatewayID: gatewayID, Path: "/public/*", Methods: methods, Auth: gateway.AuthNone},
	)
	stored.PutKey(apikey.Key{
		ID: keyID, BucketID: keyID, AccountID: acct.ID, Digest: apikey.DigestOf(secret), Level: apikey.GatewayLevel,
		Scope: apikey.Scopes{{Word: apikey.Admin}}, Owner: owner, RateLimit: ratelimit.RateOf(limit),
	})
	return stored, secret
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
