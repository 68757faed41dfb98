package ratelimit

import (
	"testing"
	"time"
)

// BenchmarkLimiter decides with a clock that is read, as the data plane does.
func BenchmarkLimiter(b *testing.B) {
	clock := NewClock()
	l := NewLimiter(clock.Mono)
	p := CompileRate(Rate{Count: MaxCount, Per: 24 * time.Hour})
	one := Limit{Scope: RouteScope, Params: &p, Bucket: new(Bucket)}
	now := clock.Now()
	for name, limits := range map[string][]Limit{"one": {one}, "four": fourLimits(b)} {
		b.Run(name, func(b *testing.B) {
			c := chargeOf(limits...)
			b.ReportAllocs()
			for b.Loop() {
				if r := l.Decide(now, c); r != Admitted && r != Refused {
					b.Fatalf("got %v", r)
				}
			}
		})
	}
}
