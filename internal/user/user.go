// Package user defines the people who sign in through an identity provider, and invitations (identity.md, section 3).
package user

import (
	"crypto/sha256"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
)

// The bounds of users (docs/limits.md). Deleted users count, because they stay barred.
const (
	MaxUsers       = 20_000 // of an account
	MaxInvitations = 1_000  // of an account, until they are used, deleted or expire

	maxSubject = 255 // bytes; OpenID Connect allows no more
	maxIssuer  = 2048
	maxEmail   = 254 // bytes
	maxName    = 255 // characters
)

// InvitationLifetime is how long an invitation can be used.
const InvitationLifetime = 72 * time.Hour

// Role is what a user may do: the scope of the same name.
type Role string

// The roles, from the least to the most.
const (
	Viewer Role = "viewer"
	Editor Role = "editor"
	Admin  Role = "admin"
)

// Scopes returns the scopes of the role. A role that is not known has none.
func (r Role) Scopes() apikey.Scopes {
	switch r {
	case Viewer:
		return apikey.Scopes{{Word: apikey.Read}}
	case Editor:
		return apikey.Scopes{{Word: apikey.Write}}
	case Admin:
		return apikey.Scopes{{Word: apikey.Admin}}
	}
	return nil
}

// Valid reports whether r is a role.
func (r Role) Valid() bool { return r.Scopes() != nil }

// Above reports whether r allows more than other.
func (r Role) Above(other Role) bool { return rank(r) > rank(other) }

func rank(r Role) int {
	switch r {
	case Viewer:
		return 1
	case Editor:
		return 2
	case Admin:
		return 3
	}
	return 0
}

// State is the state of a user.
type State string

// The states. A deleted user is not shown, and stays barred until it is invited.
const (
	Active    State = "active"
	Suspended State = "suspended"
	Deleted   State = "deleted"
)

// User is somebody who signs in through an identity provider. The issuer and the subject say who it is; the email and
// the name are for display, and are those of the last sign-in.
type User struct {
	ID         string
	AccountID  string
	Issuer     string
	Subject    string
	Email      string // "" if the provider did not say it
	Name       string // "" if the provider did not say it
	Role       Role
	State      State
	Invited    bool      // it came by an invitation
	LastSeenAt time.Time // zero for never; written once a minute at most
	CreatedAt  time.Time
	Version    int64
}

// Label returns how lists and audit records name the user.
func (u *User) Label() string {
	switch {
	case u.Name != "":
		return u.Name
	case u.Email != "":
		return u.Email
	}
	return u.Subject
}

// Identity is who a provider says that somebody is.
type Identity struct {
	Issuer        string
	Subject       string
	Email         string
	EmailVerified bool
	Name          string
}

// Check returns an error if no record can be made of the identity. It shortens a name that is too long, and removes
// from it what is not shown. An email that is too long, or has what is not shown, is left out: what would remain of it is
// another email, which nobody has verified.
func (i *Identity) Check() error {
	i.Name = shown(i.Name, maxName)
	if len(i.Email) > maxEmail || i.Email != shown(i.Email, maxEmail) {
		i.Email, i.EmailVerified = "", false
	}
	switch {
	case i.Subject == "" || len(i.Subject) > maxSubject || !plain(i.Subject):
		return fault.Denied("the identity provider's sub is not a text of 1 to %d characters: look at its claims", maxSubject)
	case i.Issuer == "" || len(i.Issuer) > maxIssuer:
		return fault.Denied("the identity provider's iss is not a text of 1 to %d characters", maxIssuer)
	}
	return nil
}

// plain reports whether s has no control characters.
func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// shown returns the characters of s that are shown, at most so many.
func shown(s string, most int) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) || r == utf8.RuneError {
			return -1
		}
		return r
	}, s))
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most])
	}
	return s
}

// Domain returns what stands behind the last @ of an email, in lower case; "" if there is nothing.
func Domain(email string) string {
	at := strings.LastIndexByte(email, '@')
	if at <= 0 {
		return ""
	}
	return strings.ToLower(email[at+1:])
}

// CheckEmail checks the email of an invitation. The error is a validation error of the field.
func CheckEmail(field, email string) error {
	at := strings.LastIndexByte(email, '@')
	if at <= 0 || at == len(email)-1 || len(email) > maxEmail || email != shown(email, maxEmail) || strings.ContainsAny(email, " \t") {
		return fault.Invalid(field, "%.60q is not an email address: write it as in ada@example.com, with at most %d characters", email, maxEmail)
	}
	return nil
}

// SameEmail reports whether two emails are the same, without the case of ASCII letters.
func SameEmail(a, b string) bool { return a != "" && lower(a) == lower(b) }

// lower returns s with ASCII letters in lower case. Letters beyond ASCII are not folded: some fold into ASCII.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// Invitation lets somebody with an email sign in for the first time.
type Invitation struct {
	ID        string
	AccountID string
	Digest    [sha256.Size]byte // of the secret in the link
	Email     string
	Role      Role
	CreatedAt time.Time
	ExpiresAt time.Time
}
