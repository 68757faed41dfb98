package usage

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/traffic"
)

// anyUse returns a use with few different identities.
func anyUse(t *rapid.T) *Use {
	part := func(name string) (u [16]byte) {
		u[15] = rapid.ByteRange(0, 2).Draw(t, name)
		return u
	}
	u := &Use{Identity: Identity{Owner: part("owner"), Key: part("key"), Gateway: part("gateway"), Route: part("route"), From: 3600, Until: 7200}}
	if rapid.Bool().Draw(t, "cut") {
		u.From, u.Until = 5400, 7200
	}
	u.Texts = Texts{ExternalID: rapid.SampledFrom([]string{"", "customer-42"}).Draw(t, "external ID"), Plan: rapid.SampledFrom([]string{"", "pro"}).Draw(t, "plan"), Prefix: "kg_abcdef"}
	for _, meter := range []string{Requests, BytesIn, "tokens"} {
		u.Count(meter, rapid.Int64Range(0, 1<<53-1).Draw(t, meter), rapid.Int64Range(1, 9).Draw(t, "requests"))
	}
	for i := range u.Amounts {
		u.Amounts[i].Sequence = rapid.Int64Range(0, 3).Draw(t, "sequence")
	}
	return u
}

// Guarantee: whatever is encoded is decoded, in its order; bodies say what they have.
func TestBodiesKeepUses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		uses := rapid.SliceOf(rapid.Custom(anyUse)).Draw(t, "uses")
		var got []Use
		records := 0
		for _, b := range Encode(uses) {
			n := 0
			if err := Each(b.Bytes, func(u *Use) error {
				n += len(u.Amounts)
				c := *u
				c.Amounts = slices.Clone(u.Amounts)
				got = append(got, c)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if n != b.Records || uint64(b.Requests) != Total(b.Bytes) {
				t.Fatalf("a body says that it has %d records and %d requests, and has %d and %d", b.Records, b.Requests, n, Total(b.Bytes))
			}
			records += n
		}
		if len(got) != len(uses) {
			t.Fatalf("got %d uses, want %d", len(got), len(uses))
		}
		for i, u := range uses {
			if got[i].Identity != u.Identity || got[i].Texts != u.Texts || !slices.Equal(got[i].Amounts, u.Amounts) {
				t.Fatalf("use %d: got %+v, want %+v", i, got[i], *u)
			}
		}
	})
}

// Guarantee: sums of the largest costs stay readable: they stop at the largest number.
func TestSumsDoNotOverflow(t *testing.T) {
	t.Parallel()
	var sum Table
	u := &Use{Identity: Identity{Until: 3600}}
	for range 1025 {
		u.Count("tokens", 1<<53-1, 1)
	}
	for range 2 {
		if err := sum.AddBody(Encode([]*Use{u})[0].Bytes); err != nil {
			t.Fatal(err)
		}
	}
	if got := sum.Sorted()[0].of("tokens"); got.Units != math.MaxInt64 || got.Requests != 2050 {
		t.Errorf("got %d units of %d requests, want %d of 2,050", got.Units, got.Requests, int64(math.MaxInt64))
	}
	if sum.Len() != 2 {
		t.Errorf("the length is %d with a meter of a cost, want 2", sum.Len())
	}
}

// Guarantee: large bodies are cut at about BodySize, so that a reader of some records reads little.
func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	var uses []*Use
	for range 5000 {
		u := &Use{Identity: Identity{Until: 3600}}
		for i := range u.Key {
			u.Key[i], u.Owner[i] = byte(random.Uint32()), byte(random.Uint32())
		}
		u.Count(Requests, 1, 1)
		uses = append(uses, u)
	}
	bodies := Encode(uses)
	for _, b := range bodies {
		if len(b.Bytes) > BodySize+1024 {
			t.Errorf("a body has %d bytes, want about %d", len(b.Bytes), BodySize)
		}
	}
	if len(bodies) < 5 {
		t.Errorf("got %d bodies of 5,000 uses, want several", len(bodies))
	}
}

// Guarantee: the identifier of a record never changes between versions, and differs in every part of the identity.
func TestRecordsHaveLastingIdentifiers(t *testing.T) {
	t.Parallel()
	u := &Use{Identity: Identity{Owner: [16]byte{1}, Key: [16]byte{2}, Gateway: [16]byte{3}, Route: [16]byte{4}, From: 3600, Until: 7200}}
	a := &Amount{Meter: Requests, Sequence: 1}
	const want = "fabd39981649ada45ec18245f4bea0edde1d0cfd8db7cae881896282a870deee"
	if got := u.ID("acct_1", a); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	seen := map[string]bool{u.ID("acct_1", a): true}
	for _, change := range []func(*Use){
		func(u *Use) { u.Owner[0]++ }, func(u *Use) { u.Key[0]++ }, func(u *Use) { u.Gateway[0]++ }, func(u *Use) { u.Route[0]++ },
		func(u *Use) { u.From++ }, func(u *Use) { u.Until++ },
	} {
		other := *u
		change(&other)
		seen[other.ID("acct_1", a)] = true
	}
	seen[u.ID("acct_2", a)], seen[u.ID("acct_1", &Amount{Meter: BytesIn, Sequence: 1})], seen[u.ID("acct_1", &Amount{Meter: Requests, Sequence: 2})] = true, true, true
	if len(seen) != 10 {
		t.Errorf("got %d different identifiers, want 10", len(seen))
	}
}

// Guarantee: no body, however damaged, makes a reader panic or take much more memory than it has.
func FuzzBody(f *testing.F) {
	u := &Use{Identity: Identity{Key: [16]byte{2}, Until: 3600}, Texts: Texts{Plan: "pro"}}
	u.Count(Requests, 3, 3)
	f.Add(Encode([]*Use{u})[0].Bytes)
	f.Add([]byte{version, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		var sum Table
		if err := sum.AddBody(body); err == nil && sum.Len() > len(body) {
			t.Errorf("%d bytes have %d uses", len(body), sum.Len())
		}
	})
}

// chunks is a Source with one chunk of usage.
type chunks struct{ body []byte }

func (c chunks) ReadTraffic(_ context.Context, _ traffic.ChunkQuery, f func(*traffic.Chunk) error) error {
	return f(&traffic.Chunk{Body: c.body})
}

func (chunks) UsageBlocks(context.Context, BlockQuery, func(*Block) error) error { return nil }

func (chunks) UsageEnd(context.Context, string, Tier) (int64, error) { return 0, nil }

// Guarantee: an export of open records keeps at most 200 bytes of memory for an identity with three meters, however long its
// client takes, and reads on at each of its cursors.
func TestOpenRecordsAreSmall(t *testing.T) { // not in parallel: it measures memory
	var w writer
	const identities = 1 << 16
	for n := range identities {
		u := &Use{Identity: Identity{Until: 3600, Owner: [16]byte{0: byte(n >> 8), 1: byte(n), 2: 1}, Key: [16]byte{0: byte(n >> 8), 1: byte(n), 2: 2}},
			Texts: Texts{ExternalID: fmt.Sprintf("owner-%012d", n), Plan: "pro", Prefix: fmt.Sprintf("kg_%06d", n)}}
		for _, meter := range []string{BytesIn, BytesOut, Requests} {
			u.Count(meter, 1_000_000+int64(n), 1000)
		}
		w.use(u)
	}
	source := chunks{w.body().Bytes}
	before := heap()
	open, err := Open(t.Context(), source, "acct_1", Filter{})
	if err != nil {
		t.Fatal(err)
	}
	if took := heap() - before; took > 200*identities {
		t.Errorf("the open records take %d bytes each, want at most 200", took/identities)
	}
	records, cursor := 0, ""
	for range 5 {
		err := open.After(cursor, func(r *Record) bool {
			if r.Cursor() <= cursor {
				t.Fatalf("behind the cursor %q is %q", cursor, r.Cursor())
			}
			records, cursor = records+1, r.Cursor()
			return records%50_000 != 0
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if records != 3*identities {
		t.Errorf("got %d records, want %d", records, 3*identities)
	}
	runtime.KeepAlive(source)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Guarantee: one call reads the open records of at most MostOpen identities; a filter selects some of more.
func TestOpenRecordsAreBounded(t *testing.T) {
	t.Parallel()
	var w writer
	u := &Use{Identity: Identity{Until: 3600}, Amounts: []Amount{{Meter: Requests, Units: 1, Requests: 1}}}
	for n := range MostOpen + 1 {
		u.Key = [16]byte{0: byte(n), 1: byte(n >> 8), 2: byte(n >> 16)}
		w.use(u)
	}
	source := chunks{w.body().Bytes}
	if _, err := Open(t.Context(), source, "acct_1", Filter{}); fault.CodeOf(err) != fault.ValidationFailed {
		t.Errorf("got the error %v, want that there are too many", err)
	}
	open, err := Open(t.Context(), source, "acct_1", Filter{KeyID: id.Format(id.Key, u.Key)})
	n := 0
	if err == nil {
		err = open.After("", func(*Record) bool { n++; return true })
	}
	if err != nil || n != 1 {
		t.Errorf("got %d records of a key and the error %v, want 1", n, err)
	}
}
