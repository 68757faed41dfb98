// Package selfservice serves the holders of keys on the data plane (plans.md, section 9): it says what was used of a key's
// quotas, and rotates a key. The engines call it for requests that package admit has let in; it calls package control.
package selfservice

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/adminapi"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fairslots"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/ratelimit"
)

// What the holders of an account's keys, and those of all accounts, may do at once.
const (
	RotationsPerAccount = 2
	RotationsInAll      = 8
	ReadsPerAccount     = 4
	ReadsInAll          = 16
	waiting             = 16 // of one account
	wait                = time.Second
	readTime            = 10 * time.Second // of one read
)

// Control is the part of control.Service that holders may use.
type Control interface {
	UsageOfHolder(ctx context.Context, actor *control.Actor, gatewayID string) (*control.HolderUsage, error)
	RotateOwnKey(ctx context.Context, actor *control.Actor, gatewayID string, overlapDays int) (*control.NewKey, error)
}

// Config configures a Service. All fields are required.
type Config struct {
	Control Control
	// Account returns an account that is in force, or nil.
	Account func(accountID string) *account.Account
	Now     func() time.Time
}

// Service implements proxy.SelfService. It is safe for concurrent use.
type Service struct {
	cfg              Config
	rotations, reads *fairslots.Slots
}

// New returns a Service.
func New(cfg Config) *Service {
	return &Service{
		cfg:       cfg,
		rotations: fairslots.New(fairslots.Config{PerAccount: RotationsPerAccount, All: RotationsInAll, Waiting: waiting, Wait: wait}),
		reads:     fairslots.New(fairslots.Config{PerAccount: ReadsPerAccount, All: ReadsInAll, Waiting: waiting, Wait: wait}),
	}
}

// usage is the response to a request for the usage of a key.
type usage struct {
	Key    heldKey `json:"key"`
	Owner  *string `json:"owner"`
	Plan   *string `json:"plan"`
	Limits any     `json:"limits"`

	Incomplete       bool   `json:"incomplete,omitempty"`
	IncompleteReason string `json:"incomplete_reason,omitempty"`
}

type heldKey struct {
	KeyPrefix string     `json:"key_prefix"`
	Name      string     `json:"name"`
	Scope     string     `json:"scope"`
	ExpiresAt *time.Time `json:"expires_at"`
}

// newKey is the response to a rotation: what concerns the holder of the record of the new key, and the key.
type newKey struct {
	KeyID string `json:"key_id"`
	Key   string `json:"key"`
	heldKey
	CreatedAt     time.Time `json:"created_at"`
	RotatedFrom   string    `json:"rotated_from"`
	OverlapEndsAt time.Time `json:"overlap_ends_at"`
}

// Serve implements proxy.SelfService.
func (s *Service) Serve(ctx context.Context, r *proxy.HolderRequest) (status int, body []byte, err error) {
	a := s.cfg.Account(r.AccountID)
	if a == nil {
		return 0, nil, keyInvalid(nil)
	}
	actor := &control.Actor{
		Kind: control.HolderActor, Account: a, KeyID: r.KeyID, KeyPrefix: r.KeyPrefix,
		Method: r.Method, Path: r.Path, ClientIP: r.ClientIP, RequestID: r.RequestID,
	}
	var response any
	status = 200
	if r.Service == admit.Rotate {
		status = 201
		response, err = s.rotate(ctx, actor, r)
	} else {
		response, err = s.usage(ctx, actor, r)
	}
	if err != nil {
		return 0, nil, err
	}
	body, err = json.Marshal(response)
	return status, append(body, '\n'), err
}

func (s *Service) usage(ctx context.Context, actor *control.Actor, r *proxy.HolderRequest) (any, error) {
	release, err := s.take(ctx, s.reads, r.AccountID, ReadsPerAccount, "too many holders of keys ask for their usage at the same time")
	if err != nil {
		return nil, err
	}
	defer release()
	var missing control.Completeness
	ctx, cancel := context.WithTimeout(control.WithCompleteness(ctx, &missing), readTime)
	defer cancel()
	u, err := s.cfg.Control.UsageOfHolder(ctx, actor, r.GatewayID)
	if err != nil {
		return nil, public(err, "what was used cannot be read now: try again later")
	}
	out := usage{
		Key:   heldKey{KeyPrefix: u.Key.Prefix, Name: u.Key.Name, Scope: u.Key.Scope.String(), ExpiresAt: optional(u.Key.ExpiresAt)},
		Owner: orNull(u.Key.Owner), Plan: orNull(u.Plan), Limits: adminapi.PresentQuotas(u.Quotas),
	}
	if missing.Missing != "" {
		out.Incomplete, out.IncompleteReason = true, "the newest records are missing, and are added later"
	}
	return out, nil
}

func (s *Service) rotate(ctx context.Context, actor *control.Actor, r *proxy.HolderRequest) (any, error) {
	days, err := readRotation(r.Body)
	if err != nil {
		return nil, err
	}
	release, err := s.take(ctx, s.rotations, r.AccountID, RotationsPerAccount, "too many keys are rotated by their holders at the same time")
	if err != nil {
		return nil, err
	}
	defer release()
	k, err := s.cfg.Control.RotateOwnKey(ctx, actor, r.GatewayID, days)
	if err != nil {
		return nil, public(err, "it is not certain that the key could be rotated: try again later. If it was rotated already, ask whoever issued it for a new one")
	}
	return newKey{
		KeyID: k.ID, Key: k.Secret, heldKey: heldKey{KeyPrefix: k.Prefix, Name: k.Name, Scope: k.Scope.String(), ExpiresAt: optional(k.ExpiresAt)},
		CreatedAt: k.CreatedAt.UTC(), RotatedFrom: k.RotatedFrom, OverlapEndsAt: k.OverlapEndsAt.UTC(),
	}, nil
}

// take takes a slot, or returns the 429 of a request that found none.
func (s *Service) take(ctx context.Context, slots *fairslots.Slots, accountID string, limit int64, what string) (release func(), err error) {
	release, err = slots.Take(ctx, accountID)
	if !errors.Is(err, fairslots.ErrNone) {
		return release, err
	}
	return nil, &fault.Error{
		Code: fault.RateLimitExceeded, Message: what + ": wait for the number of seconds in the Retry-After header, then try again",
		Limit: &fault.Limit{Limit: limit, ResetAt: s.cfg.Now().Add(2*time.Second - 1).Unix(), Scope: ratelimit.SelfServiceScope.String(), Window: 1},
	}
}

// readRotation reads the body of a rotation.
func readRotation(body []byte) (overlapDays int, err error) {
	var fields map[string]jsontext.Value
	if err := jsonv2.Unmarshal(document.TrimMark(body), &fields); err != nil {
		if jsontext.Value(document.TrimMark(body)).IsValid() {
			return 0, &fault.Error{Code: fault.ValidationFailed, Message: `must be an object, as in {"overlap_days": 7}`, Err: err}
		}
		return 0, &fault.Error{Code: fault.InvalidJSON, Message: `the request body is not valid JSON: send {"overlap_days": 7}`, Err: err}
	}
	const name = "overlap_days"
	var problems []error
	if given, ok := fields[name]; !ok {
		problems = append(problems, fault.Invalid(name, "is required: the number of days for which the old key stays active, 1 to 30"))
	} else if n, whole := document.Integer(string(given)); !whole {
		problems = append(problems, fault.Invalid(name, "must be a whole number of days, 1 to 30"))
	} else {
		overlapDays = int(min(max(n, 0), 1000)) // control has the bounds
	}
	for _, other := range slices.Sorted(maps.Keys(fields)) {
		if other != name {
			problems = append(problems, fault.Invalid(other, "is not a field of this call: it has overlap_days"))
		}
	}
	return overlapDays, fault.Join(problems...)
}

// public returns the error that a holder may see. What a failure of the store says is for operators: unavailable takes its
// place.
func public(err error, unavailable string) error {
	switch fault.CodeOf(err) {
	case fault.NotFound: // the key, with its account
		return keyInvalid(err)
	case fault.Unavailable:
		return &fault.Error{Code: fault.Unavailable, Message: unavailable, Err: err}
	case fault.Internal:
		return &fault.Error{Code: fault.Internal, Message: proxy.Panicked().Message, Err: err}
	}
	return err
}

func keyInvalid(err error) error {
	return &fault.Error{Code: fault.Unauthorized, Auth: fault.KeyInvalid, Message: "the key is not valid", Err: err}
}

// optional returns a time for JSON, which has null for none.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
