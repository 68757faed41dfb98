package issuer

import (
	"context"
	"time"
)

// The times of fetches of keys (docs/limits.md).
const (
	FetchTime  = 10 * time.Second // that a fetch takes at most
	FetchEvery = 5 * time.Minute  // ± fetchJitter, unless the provider says otherwise
	FetchAgain = time.Minute      // ± fetchJitter, after a fetch that failed

	// LatestFetch is longer than any time until the next fetch. A fetch that is noted for later was noted by a clock that was ahead.
	LatestFetch = maxFetchEvery + FetchEvery

	minFetchEvery = time.Minute // the provider may say
	maxFetchEvery = 24 * time.Hour
	fetchJitter   = 0.2
)

// Fetched is what was fetched from the provider of an issuer, and how fetches go. It is zero if the keys are given by
// hand.
type Fetched struct {
	// Document is the last good keys that verify signatures, a JWK Set; "" before the first fetch. They stay while the
	// provider is unreachable.
	Document  string
	LastError string    // why the last fetch failed, for the operator; "" if it did not
	FetchAt   time.Time // when the keys are to be fetched next; zero for never
}

// Unreachable reports whether the last fetch failed.
func (f *Fetched) Unreachable() bool { return f.LastError != "" }

// Source is where the keys of an issuer come from. It is comparable.
type Source struct {
	Issuer string // the URL of discovery, if URL is ""; it says so itself
	URL    string // of the keys
	CA     string // certificates that replace the system's roots; "" for these
}

// FetchedFrom returns where the keys are fetched. ok is false if they are given by hand.
func (s *Settings) FetchedFrom() (source Source, ok bool) {
	if s.JWKS != "" {
		return Source{}, false
	}
	source = Source{URL: s.JWKSURL, CA: s.CA}
	if s.JWKSURL == "" {
		source.Issuer = s.URL
	}
	return source, true
}

// FetchedAgainIn returns after how long the keys are fetched again after a good fetch. life is how long the provider says
// that its response is fresh; negative if it does not say. random is in [0, 1).
func FetchedAgainIn(life time.Duration, random float64) time.Duration {
	if life < 0 {
		return jittered(FetchEvery, random)
	}
	return min(max(life, minFetchEvery), maxFetchEvery)
}

// TriedAgainIn returns after how long the keys are fetched again after a fetch that failed. random is in [0, 1).
func TriedAgainIn(random float64) time.Duration { return jittered(FetchAgain, random) }

// jittered returns d, longer or shorter at random by up to fetchJitter.
func jittered(d time.Duration, random float64) time.Duration {
	return time.Duration(float64(d) * (1 + fetchJitter*(2*random-1)))
}

// Renewer fetches the keys of issuers when a token needs newer ones.
type Renewer interface {
	// Renew is called for a token whose refusal says that newer keys could make it valid (token.Refusal.NeedsKeys). It
	// waits, at most 2 s, for a fetch of the issuer's keys. When it returns, what the fetch has changed is in the
	// snapshot: if the issuer is another one there than that with which the token was verified, the token is to be verified
	// once more, and otherwise it is refused. Renew returns at once if a token of the issuer has caused a
	// fetch on this node within the last 30 s, if the keys are given by hand, and if too many requests wait already.
	Renew(ctx context.Context, accountID, issuerID string)
}
