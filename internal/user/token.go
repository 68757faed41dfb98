package user

import (
	"strings"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
)

// The bounds of tokens, and of sign-ins of command lines (docs/limits.md).
const (
	MaxTokens        = 20    // of a user; one more ends the oldest
	MaxAccountTokens = 1_000 // of an account; one more ends the oldest

	MaxDevices        = 20    // sign-ins of devices that wait for a user, of one network
	MaxAccountDevices = 1_000 // of an account
	MaxCodes          = 10    // codes of a user that no command line has redeemed; one more ends the oldest

	maxMachine = 100 // characters
)

// How long tokens and sign-ins last.
const (
	TokenLifetime  = 12 * time.Hour
	DeviceLifetime = 10 * time.Minute // of a device code and its user code
	CodeLifetime   = 2 * time.Minute  // of the code that a browser takes to a command line

	PollInterval    = 5 * time.Second // at first, between two questions of a device
	SlowerBy        = 5 * time.Second // what slow_down adds to it (RFC 8628, section 3.5)
	MaxPollInterval = time.Minute
)

// Token is what a command line has in place of a key (identity.md, section 3). It has the form of a key string, with the
// tag kgs_; only its digest is stored. It allows what the present role of its user allows.
type Token struct {
	ID        string
	AccountID string
	UserID    string
	Digest    apikey.Digest
	Prefix    string    // its start, for display
	Machine   string    // what the command line says of the machine that it runs on; "" if it says nothing
	Address   string    // of the client that it was given to
	AuthTime  time.Time // when the user has authenticated; zero if that is not known
	CreatedAt time.Time
	ExpiresAt time.Time
	UsedAt    time.Time // zero for never; written once a minute at most
}

// LoginState is the state of a Login.
type LoginState string

// The states.
const (
	LoginPending  LoginState = "pending"  // waits for a user
	LoginApproved LoginState = "approved" // can be redeemed for a token, once
	LoginDenied   LoginState = "denied"
)

// Login is the sign-in of a command line that has no token yet. One of a device (RFC 8628) waits for a user who types its
// user code; one through a browser on the same machine (RFC 8252) is approved from its beginning, and its code needs the
// verifier that its challenge is of.
type Login struct {
	Digest      [32]byte // SHA-256 of the device code or the code
	AccountID   string
	UserCode    string // of a device, without the hyphen; "" for one through a browser
	Challenge   string // PKCE S256, of one through a browser
	RedirectURI string // of one through a browser
	Network     string // of the client of a device: its address, or the /64 of an IPv6 address
	Address     string // of the client of a device
	Machine     string // what a device says of itself
	State       LoginState
	UserID      string        // "" until a user has approved or denied it
	AuthTime    time.Time     // when that user has authenticated; zero if that is not known
	Interval    time.Duration // between two questions of a device
	PolledAt    time.Time     // the last question that came in time; zero for none
	CreatedAt   time.Time
	ExpiresAt   time.Time
}

// codeAlphabet is the letters of a user code: none is taken for another, and they make no words (RFC 8628, section 6.1).
const codeAlphabet = "BCDFGHJKLMNPQRSTVWXZ"

// codeLetters is how many letters a user code has: 34.5 bits.
const codeLetters = 8

// NewUserCode returns a user code, made of random bytes, of which it uses those that favour no letter. ok is false if
// they are too few.
func NewUserCode(random []byte) (code string, ok bool) {
	b := make([]byte, 0, codeLetters)
	for _, r := range random {
		const most = 256 / len(codeAlphabet) * len(codeAlphabet)
		if int(r) < most && len(b) < codeLetters {
			b = append(b, codeAlphabet[int(r)%len(codeAlphabet)])
		}
	}
	return string(b), len(b) == codeLetters
}

// ShownUserCode returns a user code as people read it, such as WDJB-MJHT.
func ShownUserCode(code string) string {
	if len(code) != codeLetters {
		return code
	}
	return code[:codeLetters/2] + "-" + code[codeLetters/2:]
}

// ParseUserCode returns the user code that somebody has typed, whatever its case and with or without hyphens and spaces.
// ok is false if no user code is written so.
func ParseUserCode(typed string) (code string, ok bool) {
	code = strings.ToUpper(strings.Map(func(r rune) rune {
		if r == '-' || r == ' ' {
			return -1
		}
		return r
	}, typed))
	if len(code) != codeLetters || strings.Trim(code, codeAlphabet) != "" {
		return "", false
	}
	return code, true
}

// CheckMachine checks what a command line says of the machine that it runs on. The error is a validation error of the field.
func CheckMachine(field, machine string) error {
	if machine != shown(machine, maxMachine) {
		return fault.Invalid(field, "must have at most %d characters, without control characters", maxMachine)
	}
	return nil
}
