package config_test

import (
	"strings"
	"testing"
)

// Guarantee: settings of single sign-on that contradict each other, or that would let somebody else in, are start-up errors
// that name the setting and the remedy.
func TestSSO(t *testing.T) {
	t.Parallel()
	issuer := []string{"--sso-issuer=https://login.example.com", "--sso-client-id=keygate"}
	for _, c := range []struct {
		args []string
		want string // "" for no error
	}{
		{issuer, ""},
		{append(issuer, "--admin-addr=localhost:8081"), ""},
		{append(issuer, "--admin-addr=0.0.0.0:8081"), "admin-url"},
		{append(issuer, "--admin-addr=10.0.0.1:8081"), "admin-url"},
		{append(issuer, "--admin-addr=10.0.0.1:8081", "--admin-tls-cert=c.pem", "--admin-tls-key=k.pem"), ""},
		{append(issuer, "--admin-addr=[::]:8081", "--admin-tls-cert=c.pem", "--admin-tls-key=k.pem"), "admin-url"},
		{append(issuer, "--admin-addr=:8081", "--admin-url=https://keygate.example.com"), ""},
		{append(issuer, "--admin-url=http://keygate.example.com"), "has no TLS"},
		{append(issuer, "--admin-url=https://keygate.example.com/path"), "not an origin"},
		{append(issuer, "--admin-url=https://ada@keygate.example.com"), "not an origin"},
		{[]string{"--sso-issuer=https://login.example.com"}, "sso-client-id"},
		{[]string{"--sso-client-id=keygate"}, "sso-issuer"},
		{[]string{"--sso-allowed-domains=example.com"}, "sso-issuer"},
		{append(issuer, "--sso-roles-claim=groups"), "sso-role-map"},
		{append(issuer, "--sso-role-map=a=admin"), "sso-roles-claim"},
		{append(issuer, "--sso-roles-claim=groups", "--sso-role-map=a=owner"), "viewer, editor or admin"},
		{append(issuer, "--sso-roles-claim=groups", "--sso-role-map=admin"), "VALUE=ROLE"},
		{append(issuer, "--sso-roles-claim=groups", "--sso-role-map=a=admin,a=viewer"), "twice"},
		{append(issuer, "--sso-roles-claim=groups", "--sso-role-map="+strings.Repeat("x", 3)+"=admin, CN=dev,OU=x=viewer"), "not a role"},
		{append(issuer, "--sso-allowed-domains=*.example.com"), "not a domain"},
	} {
		_, err := load(t, c.args, nil, "")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.args, err, c.want)
		}
	}
}
