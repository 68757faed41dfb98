package traffic

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
)

// endingSource is a ChunkReader with one chunk, behind which the call is given up.
type endingSource struct {
	chunk *Chunk
	end   context.CancelFunc
}

func (s endingSource) ReadTraffic(_ context.Context, _ ChunkQuery, f func(*Chunk) error) error {
	err := f(s.chunk)
	s.end()
	return err
}

// Guarantee: the simulation of a plan ends with its context, also while it replays a minute, which may have two million
// points.
func TestSimulationOfAPlanEndsWithItsContext(t *testing.T) {
	now := time.Date(2026, 5, 6, 0, 0, 0, 0, time.UTC)
	minute := NewArrivals()
	of := Flow{Gateway: [16]byte{1}, Route: [16]byte{2}, Key: [16]byte{3}}
	minute.Add(of, 1, 5)
	chunks := minute.Chunks(Chunk{Tier: Minutes, Start: now.Unix() - 60})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	what := PlanWhat{Gateway: of.Gateway, Limits: []PlanLimit{{Limit: ratelimit.Config{Sustained: ratelimit.Rate{Count: 1, Per: time.Hour}}}}}
	if got, err := SimulatePlan(ctx, endingSource{&chunks[0], cancel}, "acct_1", what, now); !errors.Is(err, context.Canceled) {
		t.Errorf("got %+v and the error %v, want that the call was given up", got, err)
	}
}
