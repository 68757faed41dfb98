package limitstore

import (
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/redistest"
	"github.com/keygate/keygate/internal/ratelimit"
)

// BenchmarkAsk asks about one bucket, one question at a time.
func BenchmarkAsk(b *testing.B) {
	s := newStore(b, redistest.Start(b), "a")
	take := perSecond("{x}:bench", ratelimit.MaxCount)
	for b.Loop() {
		one(b, s, 1, take)
	}
}

// BenchmarkAskTogether asks about 100 buckets in one pipeline.
func BenchmarkAskTogether(b *testing.B) {
	s := newStore(b, redistest.Start(b), "a")
	questions := make([]ratelimit.Question, 100)
	for b.Loop() {
		for i := range questions {
			questions[i] = ratelimit.Question{Requests: 1, Takes: []ratelimit.Take{perSecond("{x}:"+string(rune('a'+i)), 1000)}}
		}
		askAll(b, s, questions...)
	}
}
