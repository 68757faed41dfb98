package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/traffic"
)

// SimulationInput is the body of a simulation: a limit, and the route or key that it would apply to. If
// both identifiers are "", it is the gateway's global limit.
type SimulationInput struct {
	RouteID, KeyID string
	Limit          ratelimit.Config
}

// Simulation is what a limit would have done to the recorded requests.
type Simulation struct {
	Requests int64
	Refused  int64
	Keys     []SimulatedKey // keys with refused requests, the most refused first
	// Limits are what the limits of a plan would have done, in the order of the plan; nil for another simulation.
	Limits []LimitSimulation
}

// SimulatedKey is the requests of one key that a simulated limit would have refused.
type SimulatedKey struct {
	KeyID   string // "" for callers without a key
	Refused int64
	FirstAt time.Time
}

// SimulateLimit replays the recorded counts of the last 24 hours through a limit. If the route or key
// does not exist, the error is fault.ValidationFailed.
func (s *Service) SimulateLimit(ctx context.Context, actor *Actor, gatewayID string, in SimulationInput) (*Simulation, error) {
	if err := in.Limit.Validate(); err != nil {
		return nil, fault.Prefixed("rate_limit", err)
	}
	if in.Limit.Per == ratelimit.PerAddress {
		return nil, fault.Invalid("rate_limit.per", "cannot be address in a simulation, because the recorded counts do not have addresses")
	}
	what, err := read(ctx, s, actor, func(tx ReadTx) (traffic.What, error) { return in.what(ctx, tx, actor, gatewayID) })
	if err != nil {
		return nil, err
	}
	if err := s.complete(ctx, actor, s.cfg.Sources.Traffic); err != nil {
		return nil, err
	}
	result, err := s.cfg.Sources.Traffic.Simulate(ctx, actor.Account.ID, what)
	if err != nil {
		return nil, err
	}
	return s.simulated(ctx, actor, simulationOf(result))
}

func simulationOf(result *traffic.Simulated) *Simulation {
	out := &Simulation{Requests: result.Requests, Refused: result.Refused, Keys: make([]SimulatedKey, len(result.Keys))}
	for i, k := range result.Keys {
		out.Keys[i] = SimulatedKey(k)
	}
	return out
}

// simulated returns out, after it has stored the response of a call with an Idempotency-Key.
func (s *Service) simulated(ctx context.Context, actor *Actor, out *Simulation) (*Simulation, error) {
	if idempotencyOf(ctx) != nil {
		return inTx(ctx, s, actor, func(*work) (*Simulation, error) { return out, nil })
	}
	return out, nil
}

// what resolves the route or key that the limit would apply to.
func (in *SimulationInput) what(ctx context.Context, tx ReadTx, actor *Actor, gatewayID string) (w traffic.What, err error) {
	w.Limit = in.Limit
	if _, err := tx.Gateway(ctx, actor.Account.ID, gatewayID); err != nil {
		return w, err
	}
	w.Gateway, _ = id.Parse(id.Gateway, gatewayID)
	if in.RouteID != "" {
		if _, err := tx.Route(ctx, gatewayID, in.RouteID); err != nil {
			return w, absent(err, "route_id", "the gateway has no such route")
		}
		w.Route, _ = id.Parse(id.Route, in.RouteID)
	}
	if in.KeyID != "" {
		k, err := tx.Key(ctx, actor.Account.ID, in.KeyID)
		if err != nil {
			return w, absent(err, "key_id", "there is no such key")
		}
		if k.Level != apikey.GatewayLevel {
			return w, fault.Invalid("key_id", "is an account-level key: only gateway-level keys have a limit")
		}
		w.Key, _ = id.Parse(id.Key, in.KeyID)
	}
	w.Buckets, err = sharedBuckets(ctx, tx, actor)
	return w, err
}

// sharedBuckets returns, by key, the bucket of each of the account's keys that shares its bucket with another key.
func sharedBuckets(ctx context.Context, tx KeyReader, actor *Actor) (map[[16]byte][16]byte, error) {
	shared, err := tx.SharedBuckets(ctx, actor.Account.ID)
	if err != nil {
		return nil, err
	}
	buckets := make(map[[16]byte][16]byte, len(shared))
	for key, bucket := range shared {
		k, _ := id.Parse(id.Key, key)
		buckets[k], _ = id.Parse(id.Key, bucket)
	}
	return buckets, nil
}

// absent turns a fault.NotFound for a record that the body names into a validation error.
func absent(err error, field, message string) error {
	if fault.CodeOf(err) == fault.NotFound {
		return fault.Invalid(field, "%s", message)
	}
	return err
}
