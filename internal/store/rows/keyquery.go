package rows

import (
	"strings"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/apikey"
)

// maxQuery is the length in bytes of the longest possible name. A longer query matches
// nothing.
const maxQuery = 4 * apikey.MaxName

// MayMatch reports whether a key can have the text. Names are valid UTF-8 without NUL.
func MayMatch(query string) bool {
	return len(query) <= maxQuery && utf8.ValidString(query) && !strings.Contains(query, "\x00")
}

// KeyPart is the keys of one phase that belong to a state.
type KeyPart struct {
	Phase int
	When  Timing
}

// Timing restricts a part by the time of expiry.
type Timing int

// The timings.
const (
	Anytime Timing = iota
	Unexpired
	Expired
	LateUnexpired // notified keys after the clock was set back; few
	LateExpired   // live keys before they are notified; few
	LateEnded     // notified keys that have ended, after the clock was set back; few
)

// KeyParts returns the parts that make up a state. A key's phase changes some seconds after its
// expiry. Few keys are in between.
func KeyParts(s apikey.State) []KeyPart {
	switch s {
	case "":
		return []KeyPart{{Live, Anytime}, {Notified, Anytime}, {Revoked, Anytime}}
	case apikey.Active:
		return []KeyPart{{Live, Unexpired}, {Notified, LateUnexpired}}
	case apikey.Expired:
		return []KeyPart{{Notified, Expired}, {Live, LateExpired}, {Notified, LateEnded}}
	case apikey.Revoked:
		return []KeyPart{{Revoked, Anytime}}
	default:
		return nil
	}
}
