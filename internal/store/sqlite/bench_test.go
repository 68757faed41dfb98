package sqlite_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// million is the number of keys for which the performance targets are defined.
const million = 1_000_000

// stock is a store with keys of one account. Every third key is restricted to one of ten
// gateways.
type stock struct {
	db       *sqlite.DB
	account  account.Account
	gateways []gateway.Gateway
	made     uint64
}

func newStock(b *testing.B, keys int) *stock {
	b.Helper()
	s := &stock{db: open(b, filepath.Join(b.TempDir(), "keygate.db"))}
	s.fill(b, keys, 20_000)
	s.index(b)
	return s
}

// index indexes all keys for searches.
func (s *stock) index(tb testing.TB) (longest time.Duration) {
	tb.Helper()
	for done := 1; done > 0; {
		start := time.Now()
		s.update(tb, func(tx control.Tx) (err error) {
			done, err = tx.IndexKeys(tb.Context(), million)
			return err
		})
		longest = max(longest, time.Since(start))
	}
	return longest
}

// fill inserts the account, the gateways and the keys, batch keys in each transaction.
func (s *stock) fill(tb testing.TB, keys, batch int) {
	tb.Helper()
	ctx := tb.Context()
	s.account = account.Account{ID: id.New(id.Account), Name: "bench", Tier: account.Scale, CreatedAt: time.Now()}
	s.update(tb, func(tx control.Tx) error {
		if err := tx.InsertAccount(ctx, &s.account); err != nil {
			return err
		}
		for i := range 10 {
			g := gateway.Gateway{ID: id.New(id.Gateway), AccountID: s.account.ID, Name: "bench", SharesName: true, Upstream: gateway.Upstream{URL: "http://127.0.0.1:1"},
				Hostname: fmt.Sprintf("g%d.localhost", i), Timeout: gateway.DefaultTimeout, CreatedAt: time.Now(), Version: 1}
			if err := tx.InsertGateway(ctx, &g); err != nil {
				return err
			}
			s.gateways = append(s.gateways, g)
		}
		return nil
	})
	for from := 0; from < keys; from += batch {
		s.update(tb, func(tx control.Tx) error {
			for range min(batch, keys-from) {
				k := s.key()
				if err := tx.InsertKey(ctx, &k); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func (s *stock) update(tb testing.TB, f func(control.Tx) error) {
	tb.Helper()
	if err := s.db.Update(context.Background(), f); err != nil {
		tb.Fatal(err)
	}
}

func (s *stock) key() apikey.Key {
	s.made++
	var seed [8]byte
	binary.LittleEndian.PutUint64(seed[:], s.made)
	k := apikey.Key{
		ID: id.New(id.Key), AccountID: s.account.ID, Digest: sha256.Sum256(seed[:]), Prefix: fmt.Sprintf("kg_%06x", s.made),
		Name: fmt.Sprintf("partner number %d", s.made), Level: apikey.GatewayLevel, Scope: apikey.Scopes{{Word: apikey.Read}},
		Owner: fmt.Sprintf("owner-%d", s.made%1000), CreatedAt: time.Now().UTC().Truncate(time.Microsecond), Version: 1,
	}
	k.BucketID = k.ID
	if s.made%3 == 0 {
		k.GatewayID = s.gateways[s.made%10].ID
		k.RateLimit = ratelimit.RateOf(rate("600/min"))
		k.ExpiresAt = k.CreatedAt.Add(1000 * time.Hour)
	}
	return k
}

// BenchmarkMillion measures operations whose time must not depend on the number of keys, and
// the start with a million keys.
func BenchmarkMillion(b *testing.B) {
	large := sync.OnceValue(func() *stock { return newStock(b, million) })
	b.Run("EachKey", func(b *testing.B) {
		s := large()
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			if err := s.db.EachKey(b.Context(), time.Now(), func(*apikey.Key) error { n++; return nil }); err != nil || n < million {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("IndexKeys", func(b *testing.B) {
		const keys = 50_000
		for b.Loop() {
			b.StopTimer()
			s := &stock{db: open(b, filepath.Join(b.TempDir(), "keygate.db"))}
			s.fill(b, keys, keys)
			b.StartTimer()
			b.ReportMetric(s.index(b).Seconds()*1000, "ms/longest")
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*keys), "us/key")
	})
	b.Run("CreateKey/keys=10", func(b *testing.B) { benchmarkCreate(b, newStock(b, 10)) })
	b.Run("CreateKey/keys=1M", func(b *testing.B) { benchmarkCreate(b, large()) })
	for _, c := range pageCases(large) {
		b.Run("Page/"+c.name, func(b *testing.B) {
			s := large()
			f := c.filter()
			for b.Loop() {
				err := s.db.View(b.Context(), func(tx control.ReadTx) error {
					_, err := tx.Keys(b.Context(), s.account.ID, f, control.Page{Limit: 100})
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type pageCase struct {
	name   string
	filter func() control.KeyFilter
}

func pageCases(large func() *stock) []pageCase {
	plain := func(f control.KeyFilter) func() control.KeyFilter {
		f.Now = time.Now()
		return func() control.KeyFilter { return f }
	}
	return []pageCase{
		{"all", plain(control.KeyFilter{})},
		{"active", plain(control.KeyFilter{State: apikey.Active})},
		{"expired", plain(control.KeyFilter{State: apikey.Expired})},
		{"revoked", plain(control.KeyFilter{State: apikey.Revoked})},
		{"level=account", plain(control.KeyFilter{Level: apikey.AccountLevel})},
		{"owner", plain(control.KeyFilter{Owner: "owner-7"})},
		{"gateway", func() control.KeyFilter {
			return control.KeyFilter{GatewayID: large().gateways[3].ID, State: apikey.Active, Now: time.Now()}
		}},
		{"gateway,owner", func() control.KeyFilter {
			return control.KeyFilter{GatewayID: large().gateways[3].ID, Owner: "owner-8", Now: time.Now()}
		}},
		{"query=common", plain(control.KeyFilter{Query: "Partner"})},
		{"query=none", plain(control.KeyFilter{Query: "absent"})},
		{"query=none,active", plain(control.KeyFilter{Query: "absent", State: apikey.Active})},
		{"query=none,short", plain(control.KeyFilter{Query: "z"})},
		{"query=none,common parts", plain(control.KeyFilter{Query: "number 9999999"})},
		{"query=one", plain(control.KeyFilter{Query: "number 777777"})},
		{"query=common,nobody's", plain(control.KeyFilter{Query: "e", Owner: "nobody"})},
		{"query=common,revoked", plain(control.KeyFilter{Query: "partner", State: apikey.Revoked})},
		{"query=prefix", plain(control.KeyFilter{Query: "kg_0a1b2"})},
		{"name", plain(control.KeyFilter{Name: "partner number 7"})},
	}
}

// benchmarkCreate measures the creation of a key as control commits it: the key with its audit
// record, event and change log entry, synced to the disk.
func benchmarkCreate(b *testing.B, s *stock) {
	for b.Loop() {
		k := s.key()
		s.update(b, func(tx control.Tx) error { return createKey(b.Context(), tx, &k) })
	}
}

func createKey(ctx context.Context, tx control.Tx, k *apikey.Key) error {
	if err := tx.InsertKey(ctx, k); err != nil {
		return err
	}
	r := audit.Record{AccountID: k.AccountID, Time: k.CreatedAt, Kind: audit.Management, Outcome: audit.Success, Method: "POST",
		Path: "/v1/keys", RequestID: id.New(id.Request), Action: audit.KeyCreate, Target: k.ID, Diff: audit.Diff{"name": {nil, k.Name}}}
	if err := tx.AppendAudit(ctx, &r); err != nil {
		return err
	}
	e, err := event.New(k.AccountID, event.KeyCreated, k.CreatedAt, k.EventData())
	if err != nil {
		return err
	}
	if err := tx.AppendEvent(ctx, &e); err != nil {
		return err
	}
	_, err = tx.AppendChange(ctx, snapshot.KeyChange, k.ID)
	return err
}
