package admit

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/token"
)

// trimEvery is the time between two removals of tokens that have expired from the memory.
const trimEvery = int64(time.Minute)

// unverified is a token that Wait is to verify, since a decision never waits. compact is a part of the request.
type unverified struct {
	compact string // "" for none
	issuers []*token.Issuer
	client  clientip.Group
	gateway *snapshot.Settings
	version uint64 // of the configuration
}

// verified is what the check of a token has found. The token is known by its SHA-256, since the memory of the request's
// text may have another request by the time this is read.
type verified struct {
	sum       [sha256.Size]byte
	version   uint64 // of the configuration; 0 for nothing found
	gateway   *snapshot.Settings
	principal *token.Principal
	err       error
}

// wallOf returns the time of the wall clock.
func wallOf(now ratelimit.Instant) time.Time { return time.Unix(0, now.Wall) }

// verify verifies the token for which v waits. The error is ctx.Err(): any other one is for the next decision.
func (a *Admitter) verify(ctx context.Context, v *Verdict) error {
	of := v.unverified
	v.unverified = unverified{}
	p, err := a.tokens.Verify(ctx, of.compact, of.issuers, of.client)
	if err != nil && ctx.Err() != nil {
		a.limiter.Release(&v.Charge)
		return ctx.Err()
	}
	if errors.Is(err, token.ErrChanged) {
		return nil // the next decision finds the issuer as it is now
	}
	v.verified = verified{sum: sha256.Sum256([]byte(of.compact)), version: of.version, gateway: of.gateway, principal: p, err: err}
	a.trim()
	return nil
}

// trim makes the memory of tokens forget those that have expired, at most once in trimEvery. It bounds nothing: the memory
// has bounds of its own.
func (a *Admitter) trim() {
	now := a.cfg.Now()
	if last := a.trimmed.Load(); now.Mono-last >= trimEvery && a.trimmed.CompareAndSwap(last, now.Mono) {
		a.tokens.Memory().Trim(wallOf(now), a.cfg.Follower.IssuerByID)
	}
}

// credentials are what a request has. hasKey and hasToken are set only if its route takes tokens, or is not known.
type credentials struct {
	key, token       string
	hasKey, hasToken bool
	several          bool // more than one of a kind
}

// credentials returns the credentials of the request, as its route accepts them: beside tokens, as both does, else a key
// alone, in the parameter api_key if inQuery allows it.
func (d *decision) credentials(g *snapshot.Gateway, takes accepted, inQuery bool) credentials {
	if takes.tokens {
		return d.both(g)
	}
	key, single := d.credential(g, inQuery)
	return credentials{key: key, several: !single}
}

// both returns the credentials of a request to a gateway that takes tokens. A value of Authorization: Bearer is a key if it
// begins like one, and otherwise a token.
func (d *decision) both(g *snapshot.Gateway) (c credentials) {
	keys := d.target.apiKeys
	if keys > 0 {
		c.key, c.hasKey = decode(d.target.apiKey), true
	}
	if text, ok := bearer(d.req.Authorization); ok && text != "" {
		if apikey.HasTag(text) {
			c.key, c.hasKey = text, true
			keys++
		} else {
			c.token, c.hasToken = text, true
		}
	}
	for i := range g.KeyHeaders {
		if g.KeyHeaders[i].Authorization {
			continue
		}
		value, ok, single := d.keyHeader(&g.KeyHeaders[i])
		if !single {
			c.several = true
		}
		if ok {
			c.key, c.hasKey = value, true
			keys++
		}
	}
	c.several = c.several || keys > 1 || d.req.Authorizations > 1
	return c
}

// identify makes the checks of the credential, of which only the first is made for a request that needs none. It
// reports false if they have refused the request, or if it must wait for the check of its token.
func (d *decision) identify(s *snapshot.Snapshot, g *snapshot.Gateway, takes accepted, c *credentials) bool {
	v := d.verdict
	switch {
	case c.several:
		v.refuse(accesslog.Malformed, fault.InvalidRequest, severalKeys)
	case takes.nothing():
		return true
	case c.hasKey && c.hasToken:
		v.refuse(accesslog.Malformed, fault.InvalidRequest, "the request has a key and a token: send one of them")
	case c.hasToken:
		return d.authenticateToken(g, c.token)
	case c.hasKey && !takes.keys:
		v.Authenticated = true
		v.KeyPrefix, v.KeyReason = apikey.PrefixOf(c.key), accesslog.KeyForToken
		v.unauthorized(accesslog.KeyInvalid, fault.TokenInvalid)
	default:
		return d.authenticate(s, g, c.key)
	}
	return false
}

// authenticateToken makes checks 3 and 4 with a token, and then refuses a suspended owner. A token that is not remembered
// must be verified first: then v has the action Wait.
func (d *decision) authenticateToken(g *snapshot.Gateway, compact string) bool {
	v := d.verdict
	now := wallOf(d.now)
	p := d.tokens.Remembered(compact, g.Issuers(), now)
	if p == nil {
		var err error
		if p, err = d.verified(g, compact); err != nil || p == nil {
			return d.refuseToken(err)
		}
	}
	v.Authenticated = true
	c := d.follower.CallerOf(g.AccountID, p)
	v.Caller, v.holder, v.Principal, v.Issuer = c, c, p, g.IssuerByID(p.IssuerID)
	d.fits, d.known = true, true
	if c.OwnerSuspended() {
		v.forbid(accesslog.OwnerSuspended)
		return false
	}
	return true
}

// verified returns what Wait has found for a token. Both results are nil if it must be verified, again if the configuration
// has changed since.
func (d *decision) verified(g *snapshot.Gateway, compact string) (*token.Principal, error) {
	v := d.verdict
	if found := v.verified; found.version != 0 {
		v.verified = verified{}
		if found.version == v.version && found.gateway == g.Settings && found.sum == sha256.Sum256([]byte(compact)) {
			return found.principal, found.err
		}
	}
	v.unverified = unverified{compact: compact, issuers: g.Issuers(), client: clientip.GroupOf(d.req.Client), gateway: g.Settings, version: v.version}
	v.Action, v.Upstream = Wait, g.Upstream
	return nil, nil
}

// refuseToken makes v the refusal for err, the error of a token's check. It returns false.
func (d *decision) refuseToken(err error) bool {
	v := d.verdict
	var refusal *token.Refusal
	var failing *token.TooManyFailures
	switch {
	case err == nil: // v waits
	case errors.As(err, &refusal):
		v.Authenticated, v.Refusal, v.KeyReason = true, refusal, accesslog.TokenRefused
		if refusal.Expired() {
			v.unauthorized(accesslog.KeyExpired, fault.TokenExpired)
		} else {
			v.unauthorized(accesslog.KeyInvalid, fault.TokenInvalid)
		}
	case errors.As(err, &failing):
		v.refuse(accesslog.Limited, fault.RateLimitExceeded, "too many tokens of this address have failed: wait for the number of seconds in the Retry-After header, then send a valid one")
		v.failing, v.KeyReason = failing.Until, accesslog.TokensFailed
	default:
		v.refuse(accesslog.Failed, fault.Unavailable, "this node checks as many new tokens as it can: try again")
		v.KeyReason = accesslog.TokensBusy
	}
	return false
}

// refuseFailing sets the status of a refusal because too many tokens of the address have failed.
func (v *Verdict) refuseFailing() {
	if v.failing.IsZero() {
		return
	}
	wait := max(1, int64((v.failing.Sub(wallOf(v.Now))+time.Second-1)/time.Second))
	v.Charge.Refuse(ratelimit.Status{
		Scope: ratelimit.AnonymousScope, Limit: token.MaxFailures, Window: int64(token.FailurePeriod / time.Second),
		ResetAt: v.Now.Wall/1e9 + wait, ResetIn: wait, RetryAfter: wait,
	})
}
