package rows

import (
	"strings"

	"github.com/keygate/keygate/internal/apikey"
)

// The phases of a key, by which the indexes are divided.
const (
	Live     = 0 // active, or expired and key.expired not raised yet
	Notified = 1 // expired, and key.expired was raised
	Revoked  = 2
)

// phaseOf returns the phase of a key.
func phaseOf(k *apikey.Key) int {
	switch {
	case !k.RevokedAt.IsZero():
		return Revoked
	case !k.ExpiresAt.IsZero() && k.ExpiryNotified.Equal(k.ExpiresAt):
		return Notified
	default:
		return Live
	}
}

// The numbers of levels.
const (
	GatewayLevel = 1
	AccountLevel = 2
)

// LevelNumber returns the number of a level.
func LevelNumber(l apikey.Level) int {
	switch l {
	case apikey.GatewayLevel:
		return GatewayLevel
	case apikey.AccountLevel:
		return AccountLevel
	default:
		return 0 // no key has it
	}
}

// levelOf returns the level of a number.
func levelOf(n int64) apikey.Level {
	if n == AccountLevel {
		return apikey.AccountLevel
	}
	return apikey.GatewayLevel
}

// scopesOf returns the scopes of a row: the first, and the text of the others.
func scopesOf(word int64, resource, more string) apikey.Scopes {
	scopes := apikey.Scopes{{Word: apikey.Word(word), Resource: resource}}
	if more == "" {
		return scopes
	}
	for text := range strings.SplitSeq(more, " ") {
		name, resource, _ := strings.Cut(text, ":")
		w, _ := apikey.ParseWord(name) // 0, which allows nothing, if the row is damaged
		scopes = append(scopes, apikey.Scope{Word: w, Resource: resource})
	}
	return scopes
}

// keyBucket returns the bucket of a key as it is stored: NULL if it is its own.
func keyBucket(k *apikey.Key) any {
	if k.BucketID == k.ID {
		return nil
	}
	return k.BucketID
}
