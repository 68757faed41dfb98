package token

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/fairslots"
	"github.com/keygate/keygate/internal/jwk"
)

// The bounds of the work on signatures (docs/limits.md).
const (
	MaxSignatureWait = time.Second // of a token for its turn
	maxWaiting       = 1024        // tokens of one account that wait for their turns
)

// ErrBusy means that a token could not be checked, because there is more work on signatures than the node does: 503.
var ErrBusy = errors.New("too many tokens wait for the check of their signatures")

// TooManyFailures is the error for an address of which too many tokens have failed: 429. The token was not checked.
type TooManyFailures struct{ Until time.Time }

func (e *TooManyFailures) Error() string {
	return fmt.Sprintf("%d tokens of the address have failed within %s", MaxFailures, FailurePeriod)
}

// Config is what a Verifier needs.
type Config struct {
	Now func() time.Time
	// Signatures is how many signatures are checked at once; 0 means half of the processors, and at least one.
	Signatures int
	// Renew waits, for a bounded time, for newer keys of an issuer whose keys do not verify a token, and reports whether
	// the issuer has changed meanwhile. Nil means that it has not.
	Renew func(ctx context.Context, i *Issuer) (changed bool)
}

// ErrChanged means that a token could not be verified, and that its issuer has changed meanwhile: it is to be verified
// with the issuers that the gateway has now.
var ErrChanged = errors.New("the issuer of the token has changed: verify it once more")

// Verifier verifies tokens and remembers those that it has verified. It is safe for concurrent use.
type Verifier struct {
	now      func() time.Time
	memory   *Memory
	failures *Failures
	slots    *fairslots.Slots
	renew    func(ctx context.Context, i *Issuer) (changed bool)
}

// New returns a Verifier.
func New(cfg Config) *Verifier {
	n := cfg.Signatures
	if n == 0 {
		n = max(1, runtime.GOMAXPROCS(0)/2)
	}
	return &Verifier{
		now: cfg.Now, memory: NewMemory(), failures: NewFailures(cfg.Now()), renew: cfg.Renew,
		slots: fairslots.New(fairslots.Config{PerAccount: n, All: n, Waiting: maxWaiting, Wait: MaxSignatureWait}),
	}
}

// Memory returns the memory of verified tokens.
func (v *Verifier) Memory() *Memory { return v.memory }

// Verify returns whom a token identifies that a client at an address sent to a gateway with the issuers. For a token
// that is remembered it takes less than a microsecond and does not allocate. The error is a *Refusal, a
// *TooManyFailures, ErrBusy, ErrChanged, or that of ctx. Accounts take turns with the work on signatures.
func (v *Verifier) Verify(ctx context.Context, compact string, issuers []*Issuer, client clientip.Group) (*Principal, error) {
	now := v.now()
	sum := digestOf(compact)
	if p := v.memory.find(sum, issuers, now); p != nil {
		return p, nil
	}
	if until := v.failures.RefusedUntil(client, now); !until.IsZero() {
		return nil, &TooManyFailures{Until: until}
	}
	p, err := v.check(ctx, compact, sum, issuers, client)
	var refusal *Refusal
	if errors.As(err, &refusal) {
		if v.renews(ctx, refusal, issuers) {
			return nil, ErrChanged // which is no failure of the client
		}
		v.failures.Add(client, v.now())
	}
	return p, err
}

// renews waits for newer keys if they could make a token valid, and reports whether its issuer has changed.
func (v *Verifier) renews(ctx context.Context, refusal *Refusal, issuers []*Issuer) bool {
	if v.renew == nil || !refusal.NeedsKeys() {
		return false
	}
	n := slices.IndexFunc(issuers, func(i *Issuer) bool { return i.ID() == refusal.IssuerID })
	return n >= 0 && v.renew(ctx, issuers[n])
}

// Remembered returns whom a token identifies that was verified for one of the issuers as they are now, and would not be
// refused at now. Otherwise it is nil. It does not allocate, and never waits.
func (v *Verifier) Remembered(compact string, issuers []*Issuer, now time.Time) *Principal {
	return v.memory.find(digestOf(compact), issuers, now)
}

// check verifies a token that is not remembered.
func (v *Verifier) check(ctx context.Context, compact string, sum digest, issuers []*Issuer, client clientip.Group) (*Principal, error) {
	t, refusal := Parse(compact)
	if refusal != nil {
		return nil, refusal
	}
	i, k, refusal := t.issuedBy(issuers)
	if refusal != nil {
		return nil, refusal
	}
	release, err := v.slots.Take(ctx, i.record.AccountID)
	switch {
	case errors.Is(err, fairslots.ErrNone):
		return nil, ErrBusy
	case err != nil:
		return nil, err
	}
	defer release()
	now := v.now()
	// While it waited for its turn, another request may have brought the same token, or others of the address failed.
	if p := v.memory.find(sum, issuers, now); p != nil {
		return p, nil
	}
	if until := v.failures.RefusedUntil(client, now); !until.IsZero() {
		return nil, &TooManyFailures{Until: until}
	}
	version := i.denials.Version() // before the check of the denials, which may change meanwhile
	p, refusal := t.verify(i, k, now)
	if refusal != nil {
		return nil, refusal
	}
	v.memory.remember(sum, i, version, p)
	return p, nil
}

// verify checks the signature, and then the claims.
func (t *Token) verify(i *Issuer, k *jwk.Key, now time.Time) (*Principal, *Refusal) {
	if !k.Verify(t.Algorithm, t.compact) {
		return nil, refuse(BadSignature, "").of(i)
	}
	return i.principal(t, now)
}

// Check returns whom a token identifies, or a *Refusal, as Verify does, but does the work at once and remembers nothing: it
// is for management, whose calls are bounded. issuedBy returns the issuers with the claim iss, of which one must accept the
// token; its error is returned.
func Check(compact string, issuedBy func(iss string) ([]*Issuer, error), now time.Time) (*Principal, error) {
	t, refusal := Parse(compact)
	if refusal != nil {
		return nil, refusal
	}
	name, _ := t.claims.text("iss")
	issuers, err := issuedBy(name)
	if err != nil {
		return nil, err
	}
	if len(issuers) == 0 {
		_, _, refusal = t.issuedBy(nil)
	}
	for n := range issuers {
		var i *Issuer
		var k *jwk.Key
		if i, k, refusal = t.issuedBy(issuers[n : n+1]); refusal != nil {
			continue
		}
		var p *Principal
		if p, refusal = t.verify(i, k, now); refusal == nil {
			return p, nil
		}
	}
	return nil, refusal
}
