package issuer

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/label"
)

// MaxDenials is the most denials of an issuer (docs/limits.md).
const MaxDenials = 100_000

// Denial refuses tokens of an issuer: those of a subject, one token by its identifier, or all that were issued before
// some time. Exactly one of Subject, JTI and IssuedBefore is set.
type Denial struct {
	ID           string
	AccountID    string
	IssuerID     string
	Subject      string // in the form of Recorded
	JTI          string // in the form of Recorded
	IssuedBefore time.Time
	Until        time.Time // when it ends. The issuer's leeway counts, as it does for the end of a token
	Reason       string    // for people; "" for none
	CreatedAt    time.Time
}

// Recorded returns a subject, or an identifier of a token, as records and denials have it: longer than 255 bytes, it
// is the SHA-256 in hexadecimal.
func Recorded(text string) string {
	if len(text) <= maxText {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Prepare fills in what a new denial leaves out, and checks it. Without Until, it ends when every token that the
// issuer has issued up to now has expired. Times are in microseconds, as they are stored. The error names every invalid field.
func (d *Denial) Prepare(now time.Time, maxLifetime, leeway time.Duration) error {
	given := 0
	for _, set := range []bool{d.Subject != "", d.JTI != "", !d.IssuedBefore.IsZero()} {
		if set {
			given++
		}
	}
	var problems []error
	switch given {
	case 0:
		problems = append(problems, fault.Invalid("subject", "is missing: give subject, jti or issued_before"))
	case 1:
	default:
		problems = append(problems, fault.Invalid("subject", "must be given alone: a denial has exactly one of subject, jti and issued_before"))
	}
	d.Subject, d.JTI = Recorded(d.Subject), Recorded(d.JTI)
	d.IssuedBefore, d.Until = d.IssuedBefore.UTC().Truncate(time.Microsecond), d.Until.UTC().Truncate(time.Microsecond)
	if d.IssuedBefore.After(now.Add(leeway)) {
		problems = append(problems, fault.Invalid("issued_before", "must not be in the future: to refuse all tokens, take the issuer away from the gateways"))
	}
	if d.Until.IsZero() {
		d.Until = now.Add(maxLifetime).Truncate(time.Microsecond)
	}
	if !d.Until.After(now) {
		problems = append(problems, fault.Invalid("until", "must be in the future"))
	}
	if d.Reason != "" {
		problems = append(problems, cmp.Or(label.CheckText("reason", d.Reason), checkLength("reason", d.Reason)))
	}
	return fault.Join(problems...)
}

func checkLength(field, text string) error {
	if len(text) > maxText {
		return fault.Invalid(field, "must have at most %d bytes", maxText)
	}
	return nil
}

// Denies reports whether the denial refuses a token at now. A token that does not say when it was issued counts as one
// that was issued before every time.
func (d *Denial) Denies(now time.Time, subject, jti string, issuedAt time.Time) bool {
	switch {
	case !now.Before(d.Until):
		return false
	case d.Subject != "":
		return d.Subject == Recorded(subject)
	case d.JTI != "":
		return jti != "" && d.JTI == Recorded(jti)
	default:
		return issuedAt.IsZero() || issuedAt.Before(d.IssuedBefore)
	}
}
