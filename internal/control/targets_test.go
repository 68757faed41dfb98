package control_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/targetreport"
)

// readings is what each look at what is in flight finds; the last one finds nothing before its context ends.
type readings []any

func (*readings) Status(context.Context, balance.Name) ([]targetreport.NodeReport, bool, error) {
	return nil, false, nil
}

func (*readings) TakesPart(balance.Name, string) bool { return false }

func (r *readings) InFlight(ctx context.Context, _ balance.Name, _ string, _ int64) (map[string]*int64, error) {
	if len(*r) == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	next := (*r)[0]
	*r = (*r)[1:]
	if err, is := next.(error); is {
		return nil, err
	}
	n := int64(next.(int))
	return map[string]*int64{"node-1": &n}, nil
}

// Guarantee: targets.md, 6. A call that waits for a drain never takes the target for drained because the time ended before it was
// known what is in flight: what was read last stands, and without that the call is a 503 which says that the change is in force.
func TestAwaitDrainedWithoutAnAnswer(t *testing.T) {
	h := newHarness(t)
	u := &control.NamedUpstream{Gateway: &gateway.Gateway{}, Upstream: &gateway.Upstream{}, Target: "http://a"}
	for _, c := range []struct {
		name string
		readings
		open bool
	}{
		{"no answer", nil, false},
		{"an error, then no answer", readings{errors.New("the database restarts")}, false},
		{"an answer, then none", readings{3}, true},
	} {
		h.targets = &c.readings
		h.serve(h.db)
		open, err := h.AwaitDrained(t.Context(), u, time.Second, func() error { return nil })
		if c.open && (err != nil || open["node-1"] == nil || *open["node-1"] != 3) || !c.open && fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("%s: got %v, %v", c.name, open, err)
		}
	}
}
