package limitstore

import (
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/keygatetest/redistest"
	"github.com/keygate/keygate/internal/ratelimit"
)

// drawTake draws the parameters of a bucket, as a rate of the contract has them.
func drawTake(t *rapid.T, name string) ratelimit.Take {
	count := rapid.OneOf(
		rapid.Int64Range(1, ratelimit.MaxCount), rapid.Int64Range(1, 2000),
		rapid.SampledFrom([]int64{1, 600_000, 999_999_937, 999_999_999, ratelimit.MaxCount}),
	).Draw(t, "count")
	per := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}).Draw(t, "per")
	capacity := rapid.OneOf(rapid.Just(count), rapid.Int64Range(1, ratelimit.MaxCount), rapid.Int64Range(1, 20)).Draw(t, "capacity")
	n, d := big.NewInt(count), big.NewInt(per.Microseconds())
	g := new(big.Int).GCD(nil, nil, n, d)
	return ratelimit.Take{
		Name: name, Amount: 1, Capacity: capacity, Count: n.Div(n, g).Int64(), Per: d.Div(d, g).Int64(), Version: 1, Left: -1,
	}
}

// bucketModel is a bucket in exact arithmetic: how many requests are used at a time in microseconds.
type bucketModel struct {
	take ratelimit.Take
	used *big.Rat
	time int64
}

func (m *bucketModel) elapse(now int64) {
	gain := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(now-m.time), big.NewInt(m.take.Count)), big.NewInt(m.take.Per))
	m.time = now
	m.used.Sub(m.used, gain)
	m.clamp()
}

func (m *bucketModel) clamp() {
	if m.used.Sign() < 0 {
		m.used.SetInt64(0)
	}
	if full := new(big.Rat).SetInt64(m.take.Capacity); m.used.Cmp(full) > 0 {
		m.used.Set(full)
	}
}

// free returns how many whole requests are left.
func (m *bucketModel) free() int64 {
	left := new(big.Rat).Sub(new(big.Rat).SetInt64(m.take.Capacity), m.used)
	return new(big.Int).Div(left.Num(), left.Denom()).Int64()
}

func (m *bucketModel) charge(n int64) { m.used.Add(m.used, new(big.Rat).SetInt64(n)) }

// configure sets other parameters. A fraction of a request is rounded up to the new fraction.
func (m *bucketModel) configure(take ratelimit.Take) {
	units := new(big.Rat).Mul(m.used, new(big.Rat).SetInt64(take.Per))
	up := new(big.Int).Add(units.Num(), new(big.Int).Sub(units.Denom(), big.NewInt(1)))
	m.used.SetFrac(up.Div(up, units.Denom()), big.NewInt(take.Per))
	m.take = take
	m.clamp()
}

// Guarantee: the script decides like exact arithmetic, for every rate of the contract, any time
// that passes, a clock that steps back, and changes of the limit.
func TestScriptIsExact(t *testing.T) {
	s := newStore(t, redistest.Start(t), "a")
	bucket := 0
	rapid.Check(t, func(t *rapid.T) {
		bucket++
		take := drawTake(t, "{acct}:"+strconv.Itoa(bucket))
		m := &bucketModel{take: take, used: new(big.Rat)}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			if b, ok := readState(t, s, take.Name); ok { // some time passes
				window := new(big.Int).Div(new(big.Int).Mul(big.NewInt(take.Capacity), big.NewInt(take.Per)), big.NewInt(take.Count))
				most := int64(1) << 50
				if window.IsInt64() {
					most = min(most, window.Int64()+10)
				}
				step := rapid.OneOf(rapid.Int64Range(0, most), rapid.Int64Range(0, 1000), rapid.Int64Range(-1_000_000, 0)).Draw(t, "step")
				b.time -= step
				m.time -= step
				writeState(t, s, take.Name, b)
			}
			if rapid.IntRange(0, 5).Draw(t, "change the limit") == 0 {
				version := take.Version + 1
				take = drawTake(t, take.Name)
				take.Version = version
			}
			ask := take
			ask.Debt = rapid.SampledFrom([]int64{0, 0, 0, 1, take.Capacity / 3}).Draw(t, "debt")
			ask.DebtNumber = int64(bucket)<<20 + take.Version + time.Now().UnixNano()>>10
			if rapid.Bool().Draw(t, "ahead") {
				ask.Left, ask.Ahead, ask.Outstanding = 0, rapid.Int64Range(0, take.Capacity).Draw(t, "wish"), take.Capacity/20
			}
			ask.Amount = rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, take.Capacity+1), rapid.Just(int64(ratelimit.MaxUnits))).Draw(t, "amount")
			requests := rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(0, take.Capacity)).Draw(t, "requests")
			q := one(t, s, requests, ask)
			m.follow(t, s, ask, &q)
		}
	})
}

// follow makes the model do what q asked, and compares.
func (m *bucketModel) follow(t failer, s *Store, ask ratelimit.Take, q *ratelimit.Question) {
	t.Helper()
	b, ok := readState(t, s, ask.Name)
	if !ok {
		if q.Requests > 0 || ask.Left >= 0 || ask.Debt > 0 {
			t.Fatal("the bucket was not stored")
		}
		return
	}
	if q.Requests == 0 && ask.Left < 0 && ask.Debt == 0 {
		return // only a look: nothing is stored
	}
	if m.time != 0 {
		m.elapse(b.time)
	}
	m.time = b.time
	m.configure(ask)
	charged := min(ask.Debt, m.free())
	if ask.Debt > 0 && q.Takes[0].Charged != charged {
		t.Fatalf("%d of a debt of %d were charged, want %d", q.Takes[0].Charged, ask.Debt, charged)
	}
	m.charge(charged)
	free := m.free()
	if want := min(q.Requests, free/ask.Amount); q.Admitted != want {
		t.Fatalf("%d of %d requests passed, want %d", q.Admitted, q.Requests, want)
	}
	granted := int64(0)
	if ask.Left >= 0 {
		granted = min(ask.Ahead, ask.Outstanding, free-q.Admitted*ask.Amount)
	}
	if q.Takes[0].Granted != granted {
		t.Fatalf("%d tokens granted, want %d", q.Takes[0].Granted, granted)
	}
	m.charge(q.Admitted*ask.Amount + granted)
	got := new(big.Rat).SetFrac64(b.part, b.per)
	if got.Add(got, new(big.Rat).SetInt64(b.used)); got.Cmp(m.used) != 0 {
		t.Fatalf("%v requests are used, want %v", got, m.used)
	}
	if q.Takes[0].Used != b.used || q.Takes[0].Part != b.part {
		t.Fatalf("the answer says %d + %d/%d, want %d + %d/%d", q.Takes[0].Used, q.Takes[0].Part, b.per, b.used, b.part, b.per)
	}
}

func perSecond(name string, n int64) ratelimit.Take {
	g := new(big.Int).GCD(nil, nil, big.NewInt(n), big.NewInt(1_000_000)).Int64()
	return ratelimit.Take{Name: name, Amount: 1, Capacity: n, Count: n / g, Per: 1_000_000 / g, Version: 1, Left: -1}
}

func perDay(name string, n int64) ratelimit.Take {
	g := new(big.Int).GCD(nil, nil, big.NewInt(n), big.NewInt(86_400_000_000)).Int64()
	return ratelimit.Take{Name: name, Amount: 1, Capacity: n, Count: n / g, Per: 86_400_000_000 / g, Version: 1, Left: -1}
}

// used returns the requests that are used according to an answer, rounded up.
func used(t *ratelimit.Take) int64 { return t.Used + min(t.Part, 1) }

func TestScript(t *testing.T) {
	server := redistest.Start(t)
	s, other := newStore(t, server, "a"), newStore(t, server, "b")
	t.Run("A request is charged to all buckets or to none", func(t *testing.T) {
		wide, narrow := perDay("{x}:wide", 100), perDay("{x}:narrow", 3)
		q := askAll(t, s, ratelimit.Question{Requests: 5, Takes: []ratelimit.Take{wide, narrow}})[0]
		if q.Admitted != 3 || q.Takes[0].Used != 3 || q.Takes[1].Used != 3 {
			t.Fatalf("%d passed, and %d and %d are used, want 3", q.Admitted, q.Takes[0].Used, q.Takes[1].Used)
		}
	})
	t.Run("A question that comes twice is charged once", func(t *testing.T) {
		take := perDay("{x}:twice", 100)
		take.Number, take.Left, take.Ahead, take.Outstanding = 7, 0, 4, 5
		first := one(t, s, 10, take)
		again := one(t, s, 10, take)
		if again.Admitted != first.Admitted || again.Takes[0].Granted != 4 || used(&again.Takes[0]) != 14 {
			t.Fatalf("%d passed, %d granted, %d used, want 10, 4, 14", again.Admitted, again.Takes[0].Granted, used(&again.Takes[0]))
		}
	})
	t.Run("A question that comes after a later one is not answered", func(t *testing.T) {
		take := perDay("{x}:late", 100)
		take.Number = 9
		one(t, s, 1, take)
		take.Number = 8
		if err := s.Ask(t.Context(), []ratelimit.Question{{Requests: 1, Takes: []ratelimit.Take{take}}}); err == nil {
			t.Fatal("a superseded question was answered")
		}
	})
	t.Run("A report that comes twice is charged once", func(t *testing.T) {
		take := perDay("{x}:report", 100)
		take.Debt, take.DebtNumber = 10, 3
		one(t, s, 0, take)
		if q := one(t, s, 0, take); used(&q.Takes[0]) != 10 {
			t.Fatalf("%d used, want 10", used(&q.Takes[0]))
		}
	})
	t.Run("All nodes together hold no more than the bound", func(t *testing.T) {
		take := perDay("{x}:held", 1000)
		take.Outstanding, take.Left, take.Ahead = 50, 0, 40
		if got := one(t, s, 0, take).Takes[0].Granted; got != 40 {
			t.Fatalf("the first node got %d, want 40", got)
		}
		if got := one(t, other, 0, take).Takes[0].Granted; got != 10 {
			t.Fatalf("the second node got %d, want 10", got)
		}
		take.Left = 25
		if got := one(t, s, 0, take).Takes[0].Granted; got != 15 {
			t.Fatalf("with 25 left the first node got %d, want 15", got)
		}
	})
	t.Run("What others hold does not refuse a request", func(t *testing.T) {
		take := perDay("{x}:others", 100)
		take.Outstanding, take.Left, take.Ahead = 5, 0, 5
		one(t, s, 0, take)
		if q := one(t, other, 95, take); q.Admitted != 95 {
			t.Fatalf("%d passed, want 95", q.Admitted)
		}
	})
	t.Run("An older caller must catch up, and one that has caught up may insist", func(t *testing.T) {
		take := perDay("{x}:version", 600)
		take.Version = 8
		one(t, s, 5, take)
		old := perDay("{x}:version", 5)
		old.Version = 7
		if q := one(t, other, 1, old); !q.Takes[0].Behind || q.Takes[0].Newer != 8 || q.Admitted != 0 {
			t.Fatalf("behind %v with newer %d, and %d passed", q.Takes[0].Behind, q.Takes[0].Newer, q.Admitted)
		}
		old.Force = true
		if q := one(t, other, 1, old); q.Takes[0].Behind || q.Admitted != 0 || used(&q.Takes[0]) != 5 {
			t.Fatalf("behind %v, %d passed, %d used, want false, 0 and 5", q.Takes[0].Behind, q.Admitted, used(&q.Takes[0]))
		}
	})
	t.Run("A changed limit keeps what was used", func(t *testing.T) {
		take := perDay("{x}:changed", 5)
		one(t, s, 5, take)
		take = perDay("{x}:changed", 600)
		take.Version = 2
		if q := one(t, s, 600, take); q.Admitted != 595 {
			t.Fatalf("%d passed, want 595", q.Admitted)
		}
	})
	t.Run("An emptied store gets the highest level that a node knows", func(t *testing.T) {
		take := perDay("{x}:emptied", 100)
		var last ratelimit.Question
		for i, known := range []int64{30, 31, 12} { // and one request each
			take.Known, take.Birth = known, ratelimit.AnyBirth
			last = one(t, []*Store{s, other, s}[i], 1, take)
		}
		if used(&last.Takes[0]) != 33 {
			t.Fatalf("%d are used, want 33", used(&last.Takes[0]))
		}
	})
	t.Run("What a node knows of a bucket counts only if the store has another one now", func(t *testing.T) {
		take := perDay("{x}:birth", 100)
		take.Number = 1
		take.Birth = one(t, s, 1, take).Takes[0].Born
		take.Known, take.Number = 50, 2
		if q := one(t, s, 1, take); used(&q.Takes[0]) != 2 || q.Takes[0].Born != take.Birth {
			t.Fatalf("%d are used of the bucket with the birth %d, want 2 of %d", used(&q.Takes[0]), q.Takes[0].Born, take.Birth)
		}
		remove(t, s, take.Name)
		take.Number = 3
		if q := one(t, other, 0, take); used(&q.Takes[0]) != 50 || q.Takes[0].Born != 0 {
			t.Fatalf("a look sees %d used of the bucket with the birth %d, want 50 of none", used(&q.Takes[0]), q.Takes[0].Born)
		}
		if q := one(t, other, 1, take); used(&q.Takes[0]) != 51 || q.Takes[0].Born <= take.Birth {
			t.Fatalf("%d are used of the bucket with the birth %d, want 51 of a later one than %d", used(&q.Takes[0]), q.Takes[0].Born, take.Birth)
		}
		if q := one(t, s, 1, take); used(&q.Takes[0]) != 52 {
			t.Fatalf("%d are used, want 52", used(&q.Takes[0]))
		}
	})
	t.Run("A script that does not know births leaves them, and counts them as nothing", func(t *testing.T) {
		take := perDay("{x}:older", 100)
		take.Number, take.Left, take.Ahead, take.Outstanding = 1, 0, 3, 5
		born := one(t, s, 1, take).Takes[0].Born
		_, rest, ok := strings.Cut(takeScript, "    elseif all[i] == 'b' then\n      b.birth = n[3]\n")
		begin, _, _ := strings.Cut(takeScript, "    elseif all[i] == 'b' then\n")
		before, after, ok2 := strings.Cut(rest, "    if b.birth == 0 then\n")
		_, after, ok3 := strings.Cut(after, "\n    end\n")
		if !ok || !ok2 || !ok3 {
			t.Fatal("the script has another form")
		}
		keys, args := other.encode(&ratelimit.Question{Requests: 1, Takes: []ratelimit.Take{take}})
		c := *s.client.Load()
		n, err := c.Do(t.Context(), c.B().Eval().Script(begin+before+after).Numkeys(1).Key(keys...).Arg(args...).Build()).AsIntSlice()
		if err != nil || n[0] != 1 || n[2] != 2 {
			t.Fatalf("the older script answers %v, %v; want 1 request and 2 tokens beside the 3 of the other node", n, err)
		}
		take.Number, take.Left = 2, 3
		if q := one(t, s, 1, take); q.Takes[0].Born != born || used(&q.Takes[0]) != 8 {
			t.Fatalf("then %d are used of the bucket with the birth %d, want 8 of %d", used(&q.Takes[0]), q.Takes[0].Born, born)
		}
	})
	t.Run("An idle bucket expires when it is full again", func(t *testing.T) {
		take := perSecond("{x}:idle", 1000)
		one(t, s, 1, take)
		c := *s.client.Load()
		left, err := c.Do(t.Context(), c.B().Pttl().Key(s.prefix+take.Name).Build()).AsInt64()
		if err != nil || left <= 0 || left > 61_000 {
			t.Fatalf("it expires in %d ms, %v; want at most 61000", left, err)
		}
	})
}
