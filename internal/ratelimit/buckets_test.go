package ratelimit

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// size returns how many buckets are held, converted or not.
func (b *Buckets) size() (n int) {
	for i := range b.shards {
		for g := b.shards[i].current.Load(); g != nil; g = g.older {
			g.buckets.each(func(*node[Bucket]) { n++ })
		}
	}
	return n
}

// Guarantee: each key of a per: key limit has its own bucket, which no change, sweep or
// growth refills or forgets: it decides as one bucket that is kept for ever and converted
// at each change.
func TestBucketsEqualSingleBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func() *Params {
			p := compile(perMinute(rapid.Int64Range(1, 12).Draw(t, "refill")*5), rapid.Int64Range(1, 20).Draw(t, "capacity"))
			return &p
		}
		params := draw()
		buckets := NewBuckets(params, nil)
		single := map[int]*Bucket{}
		mono := 10 * time.Second
		t.Repeat(map[string]func(*rapid.T){
			"request": func(t *rapid.T) {
				key := rapid.IntRange(0, 40).Draw(t, "key")
				if single[key] == nil {
					single[key] = new(Bucket)
				}
				p, bucket := buckets.Bucket(testKey(key))
				var got, want [1]Status
				r, _ := decide(at(mono), []Limit{{Params: p, Bucket: bucket}}, got[:])
				expected, _ := decide(at(mono), []Limit{{Params: params, Bucket: single[key]}}, want[:])
				// A full bucket that was dropped is full again, whatever its old phase.
				if r != expected || got != want {
					t.Fatalf("%v %+v, want %v %+v", r, got, expected, want)
				}
			},
			"wait": func(t *rapid.T) {
				mono += time.Duration(rapid.Int64Range(0, 20).Draw(t, "seconds")) * time.Second
			},
			"sweep": func(*rapid.T) {
				buckets.Sweep(at(mono), nil)
				inUse, settling := 0, 0
				for _, bucket := range single {
					if word := bucket.state.Load(); params.used(word, int64(mono)) > 0 {
						inUse++
					} else if params.used(word, int64(mono)-sweepGrace) > 0 {
						settling++
					}
				}
				if held := buckets.size(); held < inUse || held > inUse+settling {
					t.Fatalf("%d buckets are held, %d in use", held, inUse)
				}
			},
			"change": func(*rapid.T) {
				next := draw()
				buckets.Configure(next, at(mono))
				for key := range single {
					// Buckets are converted when they are next used, which must not matter: so use them.
					single[key] = single[key].Convert(params, next, at(mono))
					buckets.Bucket(testKey(key))
				}
				params = next
			},
		})
	})
}

// Guarantee: changes of a per: key limit keep what was used of a bucket that was not used
// between them.
func TestBucketsConvertLazily(t *testing.T) {
	p10, p20, p40 := compile(perDay(1), 10), compile(perDay(1), 20), compile(perDay(1), 40)
	for _, sweep := range []bool{false, true} {
		b := NewBuckets(&p10, nil)
		var s [1]Status
		p, bucket := b.Bucket(testKey(1))
		for range 5 {
			decide(at(0), []Limit{{Params: p, Bucket: bucket}}, s[:])
		}
		b.Configure(&p20, at(0))
		b.Configure(&p40, at(0))
		b.Configure(&p40, at(0))
		if sweep {
			b.Sweep(at(0), nil)
		}
		p, bucket = b.Bucket(testKey(1))
		decide(at(0), []Limit{{Params: p, Bucket: bucket}}, s[:])
		if s[0].Limit != 40 || s[0].Remaining != 34 {
			t.Errorf("6 used of 40: got %+v, want 34 left", s[0])
		}
	}
}

// Guarantee: a bucket that is converted late has the level that it would have if every
// change had converted it at once: it refills at the rate of the time, and what was used
// beyond a lowered capacity is forgotten.
func TestLateConversionIsExact(t *testing.T) {
	fast, slow := compile(perSecond(1), 10), compile(perDay(1), 10)
	few, many := compile(perDay(1), 2), compile(perDay(1), 600)
	for _, c := range []struct {
		name    string
		changes []*Params // one each second, from second 1 on
		want    int64     // requests left at second 10, when 10 were used at second 0
	}{
		{"a slower refill holds from the change on", []*Params{&slow}, 1},
		{"a faster refill holds while it is in force", []*Params{&slow, &fast, &slow}, 2},
		{"what was beyond a lowered capacity is forgotten", []*Params{&few, &many}, 598},
	} {
		for _, sweep := range []bool{false, true} {
			b := NewBuckets(&fast, nil)
			var s [1]Status
			p, bucket := b.Bucket(testKey(1))
			for range 10 {
				decide(at(0), []Limit{{Params: p, Bucket: bucket}}, s[:])
			}
			for i, next := range c.changes {
				b.Configure(next, at(time.Duration(i+1)*time.Second))
			}
			if sweep {
				b.Sweep(at(10*time.Second), nil)
			}
			var reported int64 = -1
			b.EachLevel(at(10*time.Second), func(_ [16]byte, s Status) { reported = s.Remaining })
			p, bucket = b.Bucket(testKey(1))
			peek(at(10*time.Second), []Limit{{Params: p, Bucket: bucket}}, s[:])
			if s[0].Remaining != c.want || reported != c.want {
				t.Errorf("%s (sweep %v): %d left, %d reported, want %d", c.name, sweep, s[0].Remaining, reported, c.want)
			}
		}
	}
}

// Guarantee: sweeps and changes during decisions neither add credit nor lose a
// charge.
func TestBucketsRace(t *testing.T) {
	const capacity, keys = 3000, 20
	p := [2]Params{compile(perDay(1), capacity), compile(perDay(2), capacity)}
	b := NewBuckets(&p[0], nil)
	var passed [keys]atomic.Int64
	var deciding sync.WaitGroup
	stop := make(chan struct{})
	var changing sync.WaitGroup
	changing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				b.Sweep(at(0), nil)
				b.Configure(&p[i%2], at(0))
			}
		}
	})
	for range 4 {
		deciding.Go(func() {
			var s [1]Status
			for refused := 0; refused < keys; {
				refused = 0
				for k := range keys {
					params, bucket := b.Bucket(testKey(k))
					switch r, _ := decide(at(0), []Limit{{Params: params, Bucket: bucket}}, s[:]); r {
					case Admitted:
						passed[k].Add(1)
					case Refused:
						refused++
					}
				}
			}
		})
	}
	deciding.Wait()
	close(stop)
	changing.Wait()
	for k := range passed {
		if got := passed[k].Load(); got != capacity {
			t.Errorf("key %d: %d requests passed, want %d", k, got, capacity)
		}
	}
}
