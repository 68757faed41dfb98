package proxy

import "strings"

// Binds reports whether credentials use a scheme that authenticates a connection rather than a request: NTLM or
// Negotiate. Upstreams attribute later requests on the same connection to the same user.
func Binds(authorization string) bool {
	scheme, _, _ := strings.Cut(authorization, " ")
	return strings.EqualFold(scheme, "NTLM") || strings.EqualFold(scheme, "Negotiate")
}

// ChallengesToBind reports whether a value of WWW-Authenticate asks for such credentials. A quoted string
// that looks like such a challenge counts too, which does no harm.
func ChallengesToBind(value string) bool {
	for challenge := range strings.SplitSeq(value, ",") {
		if Binds(strings.Trim(challenge, " \t")) {
			return true
		}
	}
	return false
}
