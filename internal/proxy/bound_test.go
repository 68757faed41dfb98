package proxy

import "testing"

// Guarantee: contract 4.4. Credentials and challenges of NTLM and Negotiate are recognized in any letter case
// and anywhere in a list; credentials of other schemes are not.
func TestBinds(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{
		"NTLM TlRMTVNTUAAB": true, "ntlm": true, "Negotiate YII=": true, "NEGOTIATE": true,
		"": false, "Bearer NTLM": false, "Basic bnRsbQ==": false, "NTLMv2 a": false, "Negotiated": false,
	} {
		if got := Binds(value); got != want {
			t.Errorf("Authorization %q: got %v, want %v", value, got, want)
		}
	}
	for value, want := range map[string]bool{
		"NTLM": true, "Negotiate, NTLM": true, `Basic realm="a", Negotiate`: true, `Basic realm="a",ntlm TlRM`: true,
		"": false, `Basic realm="NTLM"`: false, "Bearer": false,
	} {
		if got := ChallengesToBind(value); got != want {
			t.Errorf("WWW-Authenticate %q: got %v, want %v", value, got, want)
		}
	}
}
