package token

import "fmt"

// Reason says why a token is refused, in words for the operator. The public message is the same for all reasons
// (Message).
type Reason string

// The reasons, in the order of the checks (identity.md, section 2).
const (
	TooLong           Reason = "the token has more than 8192 bytes"
	NotCompact        Reason = "the token is not three parts joined by dots"
	NotBase64URL      Reason = "a part of the token is not base64url without padding"
	NotJSON           Reason = "the header or the claims are not a JSON object in UTF-8 whose members have different names"
	HeaderRefused     Reason = "the header has a member that no token may have"
	AlgorithmRefused  Reason = "the signature algorithm is not one that the issuer allows"
	UnknownIssuer     Reason = "the claim iss is not one of the gateway's issuers"
	UnknownKey        Reason = "the issuer has no key for the token"
	AmbiguousKey      Reason = "the token does not say which of several keys has signed it"
	UnfitKey          Reason = "the key does not verify tokens of this algorithm"
	BadSignature      Reason = "the signature is not one of the key"
	WrongAudience     Reason = "the claim aud has none of the issuer's audiences"
	BadSubject        Reason = "the claim sub is not a string of at least one character"
	WrongType         Reason = "the typ of the header is not one that the issuer allows"
	Bound             Reason = "the token is bound to its sender by the claim cnf, which is not supported"
	RequirementNotMet Reason = "a claim that the issuer requires is missing or has another value"
	NotYetValid       Reason = "the token is not valid yet: the claim nbf is in the future"
	IssuedInFuture    Reason = "the claim iat is in the future"
	BadTime           Reason = "a claim with a time is not a number"
	BadExpiry         Reason = "the claim exp is not a whole number of seconds"
	TooLongLived      Reason = "the token expires later than the issuer's max_lifetime from now"
	BadScopes         Reason = "the claim with the scopes is not a string or a list of strings"
	TooManyScopes     Reason = "the token has more than 64 scopes"
	BadOwner          Reason = "the claim with the owner does not make an external_id"
	BadPlan           Reason = "the claim with the plan is not the name of a plan"
	BadHeaderValue    Reason = "a claim for a header is not a number or a string of printable ASCII characters"
	Denied            Reason = "the token is denied"
	Expired           Reason = "the token has expired"
)

// Message is what the bearer of a refused token reads, whatever the reason.
const Message = "the token is not valid for this gateway: get a new one from its issuer"

// Refusal is the error for a token that is refused. Error returns words for the operator; the bearer gets Message.
type Refusal struct {
	Reason Reason
	Detail string // what of the token it is about; "" if the reason says it all. It may contain text of the token.

	// IssuerID is the issuer whose token it is said to be; "" as long as that is not known. Until the signature was
	// verified, anybody can have made the token.
	IssuerID string
}

func (r *Refusal) Error() string {
	if r.Detail == "" {
		return string(r.Reason)
	}
	return string(r.Reason) + ": " + r.Detail
}

// Expired reports whether the token passes every check but that of its time: the code is then token_expired, and
// otherwise token_invalid.
func (r *Refusal) Expired() bool { return r.Reason == Expired }

// NeedsKeys reports whether newer keys of the issuer could make the token valid.
func (r *Refusal) NeedsKeys() bool { return r.Reason == UnknownKey || r.Reason == BadSignature }

// refuse returns a refusal. detail is a format, and may be "".
func refuse(reason Reason, detail string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Detail: fmt.Sprintf(detail, args...)}
}

// quoted returns text of a token as a detail shows it: in quotes, in ASCII, and not longer than 100 characters.
func quoted(text string) string { return fmt.Sprintf("%+.100q", text) }
