// Package cookie names the cookie of a browser's session on the management API, keeps it away from
// upstreams, and keeps upstreams from setting it (contract, 3.4).
package cookie

import "strings"

// The names of the cookie. Secure is the name at listeners with TLS: browsers accept a name with
// this prefix only over TLS, for the whole host, and from the host itself.
const (
	Session = "keygate_session"
	Secure  = "__Host-" + Session
)

// The names of the cookie of a sign-in through an identity provider, until it has ended.
const (
	SignIn       = Session + "_sign_in"
	SecureSignIn = "__Host-" + SignIn
)

// isOwn reports whether name is that of a cookie of ours.
func isOwn(name string) bool {
	return name == Session || name == Secure || name == SignIn || name == SecureSignIn
}

// HasSession reports whether the value of a Cookie field may hold a session.
func HasSession(value string) bool { return strings.Contains(value, Session) }

// SetsSession reports whether the value of a Set-Cookie field sets the cookie of a session. A browser sends a
// cookie without a name as its value alone, so the value may hold the name too.
func SetsSession(value string) bool {
	if !HasSession(value) {
		return false
	}
	pair, _, _ := strings.Cut(value, ";")
	name, _, _ := strings.Cut(strings.TrimLeft(pair, "= \t"), "=")
	name = strings.TrimRight(name, " \t")
	return isOwn(name)
}

// AppendOthers appends the value of a Cookie field without the cookies of sessions to dst. Other
// cookies keep their bytes and their order. It appends nothing if there are none.
func AppendOthers(dst []byte, value string) []byte {
	start := len(dst)
	for pair := range strings.SplitSeq(value, ";") {
		pair = strings.Trim(pair, " \t")
		name, _, _ := strings.Cut(pair, "=")
		if name = strings.Trim(name, " \t"); isOwn(name) || pair == "" {
			continue
		}
		if len(dst) > start {
			dst = append(dst, "; "...)
		}
		dst = append(dst, pair...)
	}
	return dst
}
