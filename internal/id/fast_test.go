package id_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/keygate/keygate/internal/id"
)

// Guarantee: NewFast returns UUIDv7s of the current time, and no two are equal, however
// many goroutines call it.
func TestNewFast(t *testing.T) {
	const makers, each = 8, 20_000
	made := make([][][16]byte, makers)
	before := time.Now().UnixMilli()
	var all sync.WaitGroup
	for m := range made {
		all.Go(func() {
			for range each {
				made[m] = append(made[m], id.NewFast())
			}
		})
	}
	all.Wait()
	after := time.Now().UnixMilli()
	seen := make(map[[16]byte]bool, makers*each)
	for _, some := range made {
		for _, u := range some {
			if seen[u] {
				t.Fatalf("%x was created twice", u)
			}
			seen[u] = true
			v := uuid.UUID(u)
			ms := int64(u[0])<<40 | int64(u[1])<<32 | int64(u[2])<<24 | int64(u[3])<<16 | int64(u[4])<<8 | int64(u[5])
			if v.Version() != 7 || v.Variant() != uuid.RFC4122 || ms < before || ms > after {
				t.Fatalf("%s is not a UUIDv7 of the current time", v)
			}
		}
	}
}

func BenchmarkNewFast(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		id.NewFast()
	}
}
