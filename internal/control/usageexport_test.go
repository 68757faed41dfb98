package control_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"testing"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/usage"
)

// countedBlocks counts the blocks that are read.
type countedBlocks struct {
	usage.Source
	read int
}

func (c *countedBlocks) UsageBlocks(ctx context.Context, q usage.BlockQuery, yield func(*usage.Block) error) error {
	return c.Source.UsageBlocks(ctx, q, func(b *usage.Block) error {
		c.read++
		return yield(b)
	})
}

// Guarantee: one step of an export reads few blocks, also where no record matches, so that exports of other accounts get
// their turns; and all steps together find what the filter selects.
func TestStepsOfAUsageExportAreBounded(t *testing.T) {
	h := newHarness(t)
	source := &countedBlocks{Source: h.db}
	s := must[*control.Service](h)(control.New(control.Config{Store: h.db, Publisher: h.pub, Sealer: h.box, Now: h.clock.now, Random: rand.Reader, GatewayDomain: domain,
		Repositories: noSyncer{}, Sources: control.Sources{Usage: source}}))
	caller := h.caller("acme", "admin")
	const hours = 200
	wanted := id.New(id.Key)
	start := h.clock.now().Unix() - h.clock.now().Unix()%3600
	for n := range hours {
		u := usage.Use{Identity: usage.Identity{From: uint32(start), Until: uint32(start + 3600)}, Amounts: []usage.Amount{{Meter: usage.Requests, Units: 1, Requests: 1, Sequence: 1}}}
		binary.BigEndian.PutUint32(u.Key[12:], uint32(n))
		if n%90 == 40 {
			u.Key, _ = id.Parse(id.Key, wanted)
		}
		h.must(second(h.db.CloseUsage(ctx(), &usage.Closing{AccountID: caller.Account.ID, Start: start, Made: usage.Encode([]*usage.Use{&u})}, h.clock.now())))
	}
	for _, c := range []struct {
		key  string
		want int
	}{{wanted, 2}, {id.New(id.Key), 0}} {
		export := must[*control.UsageExport](h)(s.ExportUsage(ctx(), caller, usage.Filter{KeyID: c.key}, ""))
		found := 0
		for more := true; more; {
			source.read = 0
			more = must[bool](h)(export.Read(ctx(), 2000, func(*usage.Record) { found++ }))
			if source.read > 64 {
				t.Errorf("a step has read %d blocks of %d; want 64 at most", source.read, hours)
			}
		}
		if found != c.want {
			t.Errorf("found %d records, want %d", found, c.want)
		}
	}
}
